# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""loop-over-programs: one core runs programs that reduce over each other, or says why it cannot."""

from pathlib import Path

import numpy as np
import pytest

from nki_mlir.bindings import cloned, load, operations_of
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.scalar.dtypes import BFLOAT16
from nki_mlir.targets.neuron import streams
from nki_mlir.transforms.fold_over_programs import ProgramsApart

X = np.arange(24, dtype=np.float32).reshape(3, 2, 4)


def totals(buffer):
    def kernel(x):
        out, i = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.program_id(0)
        kept = nl.ndarray((2, 4), x.dtype, buffer=buffer)
        kept[...] = nl.load(x[i])
        total = nl.all_reduce(nl.copy(kept), op=np.add, program_axes=0)
        nl.store(out[i], nl.add(total, kept))
        return out
    return nki.jit(kernel)[3]


def line_of(location):
    return Path(location.file).read_text().splitlines()[location.line - 1]


@pytest.mark.parametrize("buffer, cores", [(nl.sbuf, 1), (nl.psum, 3)], ids=["sbuf", "psum"])
def test_cores_of_programs_that_reduce(buffer, cores):
    """Three programs at once need three tiles in PSUM, so that each keeps its core."""
    spec = totals(buffer).lower(X).specialization
    assert len(streams(spec.captured, spec.grid)) == cores
    np.testing.assert_array_equal(totals(buffer).on("isa")(X), X + X.sum(0))


def test_tiles_in_psum_that_programs_keep_are_an_error():
    module, = totals(nl.psum).lower(X).specialization.modules
    with pytest.raises(ProgramsApart) as caught:
        run_passes(cloned(module), [pass_named("loop-over-programs")])
    assert caught.value.headline == ("one core cannot run the programs of this grid one after the other: they have a "
                                     "register or a tile in PSUM that programs use before and after they reduce")
    assert caught.value.advice[1] == "copy it to a tile in SBUF"
    assert caught.value.at.file == __file__ and "kept = nl.ndarray" in line_of(caught.value.at)


def test_reductions_of_one_program_are_copies():
    module, = totals(nl.sbuf).lower(X).specialization.modules
    module = cloned(module)
    for op in operations_of(module, lambda name: name == "nisa.all_reduce"):
        op.attributes["groups"] = type(op.attributes["groups"]).get("[[0], [1], [2]]", module.context)
        operands = [*op.operands]
    run_passes(module, [pass_named("loop-over-programs")])
    function = str(module)
    assert "all_reduce" not in function and "nki.grid = [3]" in function
    assert operands in [[*op.operands] for op in operations_of(module, lambda name: name == "nki.copy")]


def test_constants_of_programs_that_reduce():
    load("dialects.memref")             # its class of memref.get_global has the attribute "name" for the operation's
    table = np.arange(8, dtype=np.float32).reshape(2, 4)

    @nki.jit
    def kernel(x):
        out, i = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.program_id(0)
        constants = nl.load(nl.shared_constant(table))
        total = nl.all_reduce(nl.load(x[i]) + constants, op=np.add, program_axes=0)
        nl.store(out[i], total * constants)
        return out
    np.testing.assert_array_equal(kernel[3].on("isa")(X), [(X + table).sum(0) * table] * 3)


def test_sums_over_programs_round_once():
    x = np.array([256, 1, 1], BFLOAT16.numpy).reshape(3, 1, 1) * np.ones((3, 2, 4), BFLOAT16.numpy)
    result = totals(nl.sbuf).on("isa")(x)               # 256 + 1 rounds to 256
    np.testing.assert_array_equal(result[1:], np.full((2, 2, 4), 260, BFLOAT16.numpy))
    np.testing.assert_array_equal(result, totals(nl.sbuf).on("interpreter")(x))


def test_numbers_that_all_programs_use__are_computed_in_front_of_their_loops():
    """The memset of the engine's accumulators is the first operation: constants are behind it."""
    @nki.jit
    def kernel(x):
        out, i = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.program_id(0)
        part = nl.load(x[i])
        if i < 1:
            nisa.tensor_scalar_cumulative(dst=part, op0=np.add, op1=np.add, imm0=1.0, src=nl.copy(part))
        nl.store(out[i], nl.all_reduce(part, op=np.add, program_axes=0))
        return out
    spec = kernel[3].lower(X).specialization
    assert len(streams(spec.captured, spec.grid)) == 1
    total = np.cumsum(X[0] + 1, axis=1) + X[1] + X[2]
    np.testing.assert_array_equal(kernel[3].on("isa")(X), np.stack([total] * 3))


@pytest.mark.parametrize("times", [2, 4])
def test_reduction_in_a_loop__adds_the_columns_of_its_iteration(times):
    @nki.jit
    def kernel(x):
        out, i = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.program_id(0)
        tile = nl.load(x[i])
        kept = nl.copy(tile)
        for k in nl.sequential_range(times):
            kept[:, k:k + 1] = nl.all_reduce(tile[:, k:k + 1], op=np.add, program_axes=0)
        nl.store(out[i], kept)
        return out
    expected = np.stack([X[i] for i in range(3)])
    expected[:, :, :times] = X[:, :, :times].sum(0)
    module, = kernel[3].lower(X).specialization.modules
    module = cloned(module)
    run_passes(module, [pass_named("loop-over-programs")])
    assert "all_reduce" not in str(module)
    for on in ("interpreter", "isa"):
        np.testing.assert_array_equal(kernel.on(on)[3](X), expected)
