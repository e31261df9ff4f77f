# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers whose engine the kernel left open: who triggers them, that names stay, and that values do."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import nki_mlir
from nki_mlir.cli.arguments import parse_arguments
from nki_mlir.cli.runnable import runnable
from nki_mlir.dialects.nisa.meeting import SendrecvOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, DmaTransposeOp
from nki_mlir.dialects.op import on_engine
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.machine import Engine, machine_named
from nki_mlir.scalar.dtypes import BFLOAT16
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.records import InstructionStep, blocks
from nki_mlir.targets.neuron.codegen.schedule_instructions import schedule
from nki_mlir.targets.neuron.simulator import simulate
from nki_mlir.targets.neuron.timing import time_programs
from tests.targets.neuron.code_builder import Builder
from tests.targets.neuron.random_code import RandomCode

SYNC, SCALAR = Engine.SYNC, Engine.SCALAR
ROOT = Path(__file__).parents[4]


def transfers(code):
    return [node for block in blocks(code.body) for node in block.nodes
            if isinstance(node, InstructionStep) and isinstance(node.op, DmaCopyOp)]


def opened(code):
    """The code as a kernel gives it that names no engine."""
    for step in transfers(code):
        step.op = on_engine(step.op, Engine.UNKNOWN)
    return code


def issuers(code, issued=True):
    schedule(code, choice=EngineChoice(code.machine, issued=issued))
    return Counter(step.op.engine for step in transfers(code))


def loads(count, columns=8, activations=0):
    """Loads of small tiles, and functions that the scalar engine has to compute meanwhile."""
    b = Builder()
    x = b.hbm("x", (128, count * columns), "input")
    busy = b.on_chip("busy", (128, 4096))
    for k in range(activations):
        b.activation((busy, 0, 128, 0, 4096), (busy, 0, 128, 0, 4096))
    for k in range(count):
        b.copy((b.on_chip(f"t{k}", (128, columns)), 0, 128, 0, columns), (x, 0, 128, k * columns, columns))
    return b.code


def test_small_loads__are_triggered_by_three_engines_in_turn():
    assert issuers(opened(loads(12))) == {"sync": 4, "scalar": 4, "gpsimd": 4}


def test_busy_scalar_engine__triggers_nothing():
    """What it computes is its own: the other two have the loads done as early."""
    assert issuers(opened(loads(12, activations=4))) == {"sync": 6, "gpsimd": 6}


def test_issuers__can_stay_the_sync_engine():
    assert issuers(opened(loads(12)), issued=False) == {"sync": 12}


@pytest.mark.parametrize("issued,expected", [(True, {"sync": 6, "gpsimd": 6}), (False, {"sync": 12})])
def test_transposes_by_dma__are_triggered_by_the_two_engines_that_have_them(issued, expected):
    b = Builder()
    x = b.hbm("x", (128 * 12, 128), "input", BFLOAT16)
    for k in range(12):
        b.copy((b.on_chip(f"t{k}", (128, 128), dtype=BFLOAT16), 0, 128, 0, 128), (x, 128 * k, 128, 0, 128),
               DmaTransposeOp, permutation=(1, 0))
    steps = [step for block in blocks(b.code.body) for step in block.nodes]
    for step in steps:
        step.op = on_engine(step.op, Engine.UNKNOWN)
    schedule(b.code, choice=EngineChoice(b.code.machine, issued=issued))
    assert Counter(step.op.engine for step in steps) == expected


def test_exchanges_with_other_programs__stay_on_their_first_engine():
    op = SendrecvOp.__new__(SendrecvOp)
    op.engine = "unknown"
    assert EngineChoice(machine_named("trn2")).of(op) == (SYNC,)


def test_names_stay():
    code = opened(loads(24))
    for step in transfers(code)[:12]:
        step.op = on_engine(step.op, SYNC)
    assert issuers(code) == {"sync": 12, "scalar": 6, "gpsimd": 6}


@pytest.mark.parametrize("seed", range(6))
def test_values__do_not_depend_on_who_triggers(seed):
    code = RandomCode(seed)
    expected = code.expected()
    for number, step in enumerate(transfers(code.code)):
        if number % 3 == 0:
            step.op = on_engine(step.op, SCALAR if seed % 2 else Engine.UNKNOWN)
    for options in (Emission(), Emission(issuers=False), Emission.for_values()):
        result = np.zeros(code.output.shape, np.float32)
        simulate(emit_code(code.code, options), [a.copy() for a in code.arrays], [result], seed)
        np.testing.assert_array_equal(result, expected)


def triggered(programs):
    return {engine.value for p in programs for engine, stream in p.streams.items() for i in stream if i.queue is not None}


@pytest.mark.parametrize("kernel,arguments,gain", [
    ("examples/matmul.py:matmul_tiled", ("512x512xbf16", "512x1024xbf16"), 1.2),
    ("bench/calibration/rows.py:vector_add", ("256000xf32", "256000xf32", "free=200"), 1.3),
    ("examples/softmax.py:softmax", ("256x512xf32",), 1.0)])
def test_kernels__take_no_longer_than_with_one_issuer(kernel, arguments, gain):
    loaded = runnable(f"{ROOT}/{kernel}", *parse_arguments(list(arguments), values=False), "trn2", ())
    one, two = (loaded.streams(Emission(issuers=several, loads=False)) for several in (False, True))
    assert triggered(one) == {"sync"} and triggered(two) <= {"sync", "scalar", "gpsimd"}
    assert time_programs(one).total_ns >= gain * time_programs(two).total_ns


def test_as_written_the_sync_engine_triggers_all_transfers():
    """L317: 600 published transfers take the time of one trigger each, so no other engine shares them."""
    kernel, arguments = f"{ROOT}/bench/calibration/rows.py:vector_add", ("256000xf32", "256000xf32", "free=200")
    for target in ("trn1", "trn2"):
        loaded = runnable(kernel, *parse_arguments(list(arguments), values=False), target, ())
        assert triggered(loaded.streams(Emission.as_written())) == {"sync"}


@nki.jit
def named(x):
    """The load is triggered by the scalar engine."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.scalar)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_kernel__names_who_triggers():
    program, = named.lower(nki_mlir.spec((128, 64), "float32")).streams
    on = {engine.value: len([i for i in stream if i.queue is not None]) for engine, stream in program.streams.items()}
    assert on["scalar"] >= 1 and sum(on.values()) == 2
    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    np.testing.assert_array_equal(named.on("isa")(x), x)
