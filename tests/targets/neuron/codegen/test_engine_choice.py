# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Work whose engine the kernel left open: who gets it, that names stay, and that values do."""

from collections import Counter

import numpy as np
import pytest

import nki_mlir
from nki_mlir.dialects.op import on_engine
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.machine import Engine, machine_named
from nki_mlir.scalar.dtypes import INT32
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.records import InstructionStep, blocks
from nki_mlir.targets.neuron.codegen.schedule_instructions import schedule
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder
from tests.targets.neuron.random_code import RandomCode

VECTOR, SCALAR, GPSIMD = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD


def opened(code):
    """The code as a kernel gives it that names no engine."""
    for block in blocks(code.body):
        for node in block.nodes:
            if isinstance(node, InstructionStep) and node.op.shared_engines:
                node.op = on_engine(node.op, Engine.UNKNOWN)
    return code


def assigned(code):
    schedule(opened(code))
    return Counter(node.op.engine for block in blocks(code.body) for node in block.nodes
                   if isinstance(node, InstructionStep) and node.op.shared_engines)


def copies(target, count=8, space="psum", dtype=None):
    """Loads of tiles, or sums in PSUM, and copies of them."""
    b = Builder(target)
    kinds = {} if dtype is None else {"dtype": dtype}
    for k in range(count):
        there = b.on_chip(f"p{k}", (128, 512), space, **kinds)
        here = b.on_chip(f"t{k}", (128, 512), **kinds)
        b.tensor_copy((here, 0, 128, 0, 512), (there, 0, 128, 0, 512))
    return b.code


def test_copies_out_of_psum__are_balanced_by_the_costs_of_the_engines():
    """512 columns take the vector engine 553 ns, the scalar engine 443."""
    assert assigned(copies("trn2")) == {"scalar": 4, "vector": 4}


def test_copies_within_sbuf__go_to_gpsimd_where_it_has_a_port_of_its_own():
    assert assigned(copies("trn2", 12, "sbuf"))["gpsimd"] > 0
    assert assigned(copies("trn1", 12, "sbuf"))["gpsimd"] == 0


def test_integers__stay_where_they_keep_their_bits():
    assert assigned(copies("trn2", 8, "psum", INT32)) == {"vector": 8}


def test_engines__can_stay_those_of_the_classes():
    code = opened(copies("trn2"))
    schedule(code, choice=EngineChoice(code.machine, balanced=False))
    assert {node.op.engine for node in code.body.nodes} == {"vector"}


@pytest.mark.parametrize("seed", range(6))
def test_values__do_not_depend_on_who_has_what(seed):
    code = RandomCode(seed)
    expected = code.expected()
    opened(code.code)
    for options in (Emission(), Emission(reorder=False), Emission.for_values()):
        result = np.zeros(code.output.shape, np.float32)
        simulate(emit_code(code.code, options), [a.copy() for a in code.arrays], [result], seed)
        np.testing.assert_array_equal(result, expected)


def test_class__says_which_engines_share_an_instruction():
    choice = EngineChoice(machine_named("trn2"))
    code = opened(copies("trn2", 1, "sbuf"))
    (step,) = code.body.nodes
    assert choice.of(step.op) == (VECTOR, SCALAR, GPSIMD)
    assert choice.of(on_engine(step.op, GPSIMD)) == (GPSIMD,)


@nki.jit
def mixed(x, named):
    """Eight tiles: sums of them, which stay open, and copies on an engine that is named or open."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(8):
        rows = nl.load(x[:, nl.ds(i * 256, 256)])
        twice = nisa.tensor_tensor(rows, rows, np.add)
        again = nisa.tensor_copy(twice, engine=nisa.scalar_engine) if named else nisa.tensor_copy(twice)
        nl.store(out[:, nl.ds(i * 256, 256)], nisa.tensor_scalar(again, np.multiply, 0.5))
    return out


def test_kernel__decides_what_it_names():
    x = np.random.default_rng(0).standard_normal((128, 2048)).astype(np.float32)
    for named in (True, False):
        spec = mixed.lower(nki_mlir.spec(x.shape, "float32"), named).specialization
        streams = neuron.streams(spec.captured, spec.grid, Emission(fuse=False, coalesce=False))[0].streams
        on = [engine for engine, stream in streams.items() for i in stream if i.op.mnemonic == "COPY"]
        assert (on == [SCALAR] * 8) == named and len(on) == 8
        np.testing.assert_array_equal(mixed.on("isa")(x, named), x)


def test_orders_that_choose_the_same_engines__are_one():
    """As written, one engine triggers transfers and no instruction goes to the GpSimd engine."""
    orders = [Order(share=share, issue=issue) for share in (1, 2, 3) for issue in (True, False)]
    machine = machine_named("trn2")
    assert EngineChoice(machine).different(orders) == tuple(orders)
    assert EngineChoice(machine, issued=False).different(orders) == tuple(order for order in orders if order.issue)
    assert EngineChoice(machine, written=True).different(orders) == (Order(share=1), Order(share=3))
