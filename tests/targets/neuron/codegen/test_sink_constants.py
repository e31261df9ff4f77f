# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constants are written right before their buffers are used, or not at all."""

import numpy as np
import pytest

from nki_mlir.dialects.access import PSUM
from nki_mlir.dialects.nisa.movement import MemsetOp
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.allocate_on_chip import allocate
from nki_mlir.targets.neuron.codegen.emission import Emission
from nki_mlir.targets.neuron.codegen.records import InstructionStep, Loop
from nki_mlir.targets.neuron.codegen.sink_constants import sink_constants
from tests.targets.neuron.code_builder import Builder, run_in_order


def steps(code):
    return [(n.op.name, n.op.dst.handle.name) if isinstance(n, InstructionStep) else "loop" for n in code.body.nodes]


def products(width=64, cleared=64, value=0):
    """Two sums with one address, each cleared before all."""
    b = Builder()
    b.source, b.total = b.hbm("x", (128, 64), "input"), b.hbm("y", (128, 128), "output")
    left = b.on_chip("l", (128, 64))
    b.copy((left, 0, 128, 0, 64), (b.source, 0, 128, 0, 64))
    sums = [b.on_chip(name, (64, 64), PSUM, address=(0, 0)) for name in "pq"]
    for s in sums:
        b.memset((s, 0, 64, 0, cleared), value)
    for k, s in enumerate(sums):
        for _ in range(2):
            b.matmul((s, 0, 64, 0, width), (left, 0, 128, 0, 64), (left, 0, 128, 0, width), accumulate=True)
        result = b.on_chip("r", (64, width))
        b.tensor_copy((result, 0, 64, 0, width), (s, 0, 64, 0, width))
        b.copy((b.total, 0, 64, 64 * k, width), (result, 0, 64, 0, width))
    return b


def test_zeros_under_a_sum_of_products__become_its_start():
    b = products()
    sink_constants(b.code)
    assert "memset" not in [name for name, _ in steps(b.code)]
    assert [n.op.accumulate for n in b.code.body.nodes if n.op.name == "nc_matmul"] == [False, True] * 2
    allocate(b.code)
    x = np.random.default_rng(0).integers(-8, 9, (128, 64)).astype(np.float32)
    arrays = {b.source: x, b.total: np.zeros((128, 128), np.float32)}
    run_in_order(b.code, arrays)
    np.testing.assert_array_equal(arrays[b.total][:64], np.tile(2 * x.T @ x, 2))  # sums of small integers are exact


@pytest.mark.parametrize("options", [{"width": 32}, {"cleared": 32}, {"value": 1}])
def test_other_constants__are_written_before_the_first_use(options):
    b = products(**options)
    sink_constants(b.code)
    assert [name for name, buffer in steps(b.code) if buffer in "pq"] == ["memset", "nc_matmul", "nc_matmul"] * 2
    allocate(b.code)


def test_overwritten_constant__is_dropped():
    b = Builder()
    t, u = b.on_chip("t", (128, 16)), b.on_chip("u", (128, 16))
    b.memset((t, 0, 128, 0, 16), 1)
    b.memset((u, 0, 128, 0, 16), 2)
    b.tensor_copy((t, 0, 128, 0, 16), (u, 0, 128, 0, 16))
    sink_constants(b.code)
    assert steps(b.code) == [("memset", "u"), ("tensor_copy", "t")]


@nki.jit
def upsampled(x, between):
    """Each column twice, or with the mean of it and the next one between them; ``between`` says how many of these."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns, 2), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, wide = nl.load(x), nl.ndarray((nl.par_dim(rows), columns, 2), dtype=x.dtype, buffer=nl.sbuf)
    wide[:, :, 0] = nl.copy(tile)
    wide[:, 0:between, 1] = nl.multiply(nl.add(tile[:, 0:between], tile[:, 1:between + 1]), 0.5)
    wide[:, columns - 1:columns, 1] = tile[:, columns - 1:columns]
    nl.store(out, wide)
    return out


@pytest.mark.parametrize("between, constants", [(63, 0), (62, 1)])
def test_constant_that_is_overwritten_in_turns__is_dropped(between, constants):
    """But not if a column remains that nothing writes."""
    x = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    spec = upsampled.specialize(upsampled.bind((x, between), {}, is_array, describe_array))
    (program,) = neuron.streams(spec.captured, spec.grid, Emission.as_written())
    ops = [i.op for stream in program.streams.values() for i in stream]
    assert sum(type(op) is MemsetOp for op in ops) == constants
    result, wide = np.zeros((128, 64, 2), np.float32), np.zeros((128, 64, 2), np.float32)
    neuron.simulate([program], [x.copy()], [result])
    wide[:, :, 0], wide[:, -1, 1] = x, x[:, -1]
    wide[:, :between, 1] = (x[:, :between] + x[:, 1:between + 1]) / 2
    np.testing.assert_array_equal(result, wide)


@pytest.mark.parametrize(("pieces", "constants"), [(2_000, 1), (1_999, 2)])
def test_constant_that_is_overwritten_in_many_pieces__is_dropped(pieces, constants):
    """Each piece is read, and in the end the complete tile. If no piece overwrites the last column, the constant stays."""
    b = Builder()
    t, u = b.on_chip("t", (128, 2_000)), b.on_chip("u", (128, 2_000))
    b.memset((t, 0, 128, 0, 2_000), 1)
    b.memset((u, 0, 128, 0, 2_000), 2)
    for k in range(pieces):
        b.tensor_copy((t, 0, 128, k, 1), (u, 0, 128, k, 1))
        b.tensor_copy((u, 0, 128, k, 1), (t, 0, 128, k, 1))
    b.tensor_copy((u, 0, 128, 0, 2_000), (t, 0, 128, 0, 2_000))
    sink_constants(b.code)
    assert [name for name, _ in steps(b.code)].count("memset") == constants


def test_constant_that_a_loop_uses__is_written_before_it():
    b = Builder()
    t, u = b.on_chip("t", (128, 16)), b.on_chip("u", (128, 16))
    b.memset((t, 0, 128, 0, 16), 1)
    b.memset((u, 0, 128, 0, 16), 2)
    with b.loop(3):
        b.add((t, 0, 128, 0, 16), (t, 0, 128, 0, 16), (t, 0, 128, 0, 16))
    b.tensor_copy((t, 0, 128, 0, 16), (u, 0, 128, 0, 16))
    sink_constants(b.code)
    assert steps(b.code) == [("memset", "t"), "loop", ("memset", "u"), ("tensor_copy", "t")]
    assert isinstance(b.code.body.nodes[1], Loop)


def test_constant_that_nothing_uses__is_dropped():
    """It would stay behind the tile that has its address next. What a block writes for those around it stays."""
    b = Builder()
    outer = b.on_chip("outer", (128, 16))
    with b.loop(3):
        inner = b.on_chip("inner", (128, 16), address=(0, 0))
        b.memset((inner, 0, 128, 0, 16), 1)
        b.memset((outer, 0, 128, 0, 16), 2)
    one, two = (b.on_chip(name, (128, 16), address=(0, 0)) for name in ("one", "two"))
    for t in (one, two):
        b.tensor_copy((t, 0, 128, 0, 16), (outer, 0, 128, 0, 16))
        b.memset((t, 0, 128, 0, 8), 1)
    sink_constants(b.code)
    assert steps(b.code) == ["loop", ("tensor_copy", "one"), ("tensor_copy", "two")]
    assert [n.op.dst.handle.name for n in b.code.body.nodes[0].body.nodes] == ["outer"]
    allocate(b.code)
