# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements of outputs that no program writes: 0, and a warning with the first of them on every executor."""

import warnings

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import shown
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.language.results import ElementsLeftOut
from nki_mlir.targets.interpreter.unwritten_outputs import LeftOut, left_out

from .running import numbers, run

X = numbers(8, 8) + 200               # no zeros
I, J = np.indices(X.shape)


def output(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def said(on, kernel, *arrays, grid=None):
    """The kernel's results, and what is said of elements that are left out."""
    shown.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = run(on, kernel, *arrays, grid=grid)
    return got, [str(w.message) for w in caught if w.category is ElementsLeftOut]


def by_loop(x):
    out = output(x)
    for k in nl.affine_range(3):
        nl.store(out[k * 2:k * 2 + 2], nl.load(x[k * 2:k * 2 + 2]))
    return out


def by_pieces(x):
    out = output(x)
    nl.store(out[0:8, 0:3], nl.load(x[0:8, 0:3]))
    nl.store(out[0:7, 3:8], nl.load(x[0:7, 3:8]))
    return out


def under_a_mask(x):
    out = output(x)
    p = nl.program_id(0)
    i, j = nl.mgrid[0:4, 0:8]
    nl.store(out[p * 4 + i, j], nl.load(x[p * 4 + i, j]), mask=i + 4 * p + j < 12)
    return out


def under_a_condition(x):
    out = output(x)
    p = nl.program_id(0)
    for k in nl.affine_range(4):
        if k > 1:
            nl.store(out[p * 4 + k:p * 4 + k + 1, :], nl.load(x[p * 4 + k:p * 4 + k + 1, :]))
    return out


def by_one_program(x):
    out = output(x)
    p = nl.program_id(0)
    if p == 1:
        nl.store(out[2:8], nl.load(x[2:8]))
    else:
        nl.store(out[1:2], nl.load(x[1:2]))
    return out


def by_quotients(x):
    out = output(x)
    p = nl.program_id(0)
    for k in nl.affine_range(4):
        nl.store(out[p * 4 + k, (k // 2) * 4:(k // 2) * 4 + 4], nl.load(x[p * 4 + k, (k // 2) * 4:(k // 2) * 4 + 4]))
    return out


def every_second(x):
    out = output(x)
    i, j = nl.mgrid[0:8, 0:4]
    nl.store(out[i, 2 * j], nl.load(x[i, 2 * j]))
    return out


CASES = {
    by_loop: (None, I < 6, "16 of the 64", [6, 0]),
    by_pieces: (None, (J < 3) | (I < 7), "5 of the 64", [7, 3]),
    under_a_mask: (2, I + J < 12, "6 of the 64", [5, 7]),
    under_a_condition: (2, I % 4 > 1, "32 of the 64", [0, 0]),
    by_one_program: (2, I >= 1, "8 of the 64", [0, 0]),
    by_quotients: (2, I % 4 // 2 == J // 4, "32 of the 64", [0, 4]),
    every_second: (None, J % 2 == 0, "32 of the 64", [0, 1]),
}


@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.__name__)
def test_elements_that_are_left_out(on, kernel):
    grid, written, count, first = CASES[kernel]
    got, warned = said(on, kernel, X, grid=grid)
    np.testing.assert_array_equal(got, np.where(written, X, 0))
    assert warned == [f"{count} elements of the output out are never written, first element {first}: 0 here"]


def whole_by_pieces(x):
    out = output(x)
    nl.store(out[4:8], nl.load(x[4:8]))
    for k in nl.affine_range(2):
        i, j = nl.mgrid[0:4, 0:4]
        nl.store(out[i, 4 * k + j], nl.load(x[i, 4 * k + j]), mask=i < 10)
    return out


def whole_by_programs(x):
    out = output(x)
    p = nl.program_id(0)
    if p > 0:
        nl.store(out[4:8], nl.load(x[4:8]))
    else:
        nl.store(out[0:4], nl.load(x[0:4]))
    return out


@pytest.mark.parametrize(("kernel", "grid"), [(whole_by_pieces, None), (whole_by_programs, 2)])
def test_nothing_is_said_of_what_is_written_whole(on, kernel, grid):
    got, warned = said(on, kernel, X, grid=grid)
    np.testing.assert_array_equal(got, X)
    assert warned == []


def scattered(x, index):
    out = output(x)
    rows = nl.load(index)
    nl.store(out[rows[nl.arange(8)[:, None], 0], nl.arange(8)[None, :]], nl.load(x))
    return out


def test_rows_that_only_a_run_knows(on):
    """The executors that check tell; compiled code reads 0 there."""
    index = np.array([0, 1, 2, 2, 4, 5, 6, 6], np.int32).reshape(8, 1)
    got, warned = said(on, scattered, X, index)
    expected = np.zeros_like(X)
    expected[index[:, 0]] = X
    np.testing.assert_array_equal(got, expected)
    assert warned == [] if on == "jit" else warned == [
        "16 of the 64 elements of the output out are never written, first element [3, 0]: 0 here"]
    assert said(on, scattered, X, np.arange(8, dtype=np.int32)[::-1].copy().reshape(8, 1))[1] == []


def test_of_two_outputs(on):
    def kernel(x):
        first = output(x)
        second = output(x)
        nl.store(first, nl.load(x))
        nl.store(second[0:8, 1:8], nl.load(x[0:8, 1:8]))
        return first, second
    _, warned = said(on, kernel, X)
    assert warned == ["8 of the 64 elements of the output second are never written, first element [0, 0]: 0 here"]


def test_warning__is_where_the_output_is_made_and_once(on):
    shown.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            run(on, by_loop, X)
    places = [(w.filename, w.lineno) for w in caught if w.category is ElementsLeftOut]
    assert places == [(__file__, output.__code__.co_firstlineno + 1)]


def decided(kernel, *arrays, grid=None):
    chosen = nki.jit(kernel) if grid is None else nki.jit(kernel)[grid]
    return left_out(chosen.specialize(chosen.bind(arrays, {}, is_array, describe_array)).modules)


def read_again(x):
    """What it stored, plus one: reads of an output leave open nothing."""
    out = output(x)
    nl.store(out[0:6], nl.load(x[0:6]))
    nl.store(out[0:6], nl.add(nl.load(out[0:6]), 1.0))
    return out


def test_what_is_known_before_a_run():
    index = np.zeros((8, 1), np.int32)
    assert decided(by_loop, X) == {0: LeftOut(16, (6, 0))}
    assert decided(whole_by_programs, X, grid=2) == {0: None}
    assert decided(scattered, X, index) == {}           # undecided
    assert decided(read_again, X) == {0: LeftOut(16, (6, 0))}

    def covered_anyway(x, index):
        out = output(x)
        nl.store(out, nl.load(x))
        rows = nl.load(index)
        nl.store(out[rows[nl.arange(8)[:, None], 0], nl.arange(8)[None, :]], nl.load(x))
        return out
    assert decided(covered_anyway, X, index) == {0: None}


def test_large_results__proved_whole_are_not_enumerated():
    """A result of 512 x 1024 that is written in tiles, whole and but for its last tile."""
    def kernel(tiles):
        @nki.jit
        def copied(x):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            for i in nl.affine_range(tiles):
                nl.store(out[i * 128:i * 128 + 128, :], nl.load(x[i * 128:i * 128 + 128, :]))
            return out
        return copied
    x = np.ones((512, 1024), np.float32)
    full, part = (k.specialize(k.bind((x,), {}, is_array, describe_array)) for k in map(kernel, (4, 3)))
    assert full.effects[0].covered and not part.effects[0].covered
    assert full.left_out == [] and left_out(full.modules) == left_out(full.modules, [0]) == {0: None}
    ((result, missing),) = part.left_out
    assert result.name == "out" and missing == LeftOut(128 * 1024, (384, 0))


def by_table(x):
    """Python looks up the program's number, so that each program has its own module."""
    out = output(x)
    rows = slice(*((0, 4), (4, 8))[nl.program_id(0)])
    nl.store(out[rows], nl.load(x[rows]))
    return out


def added_to(x):
    out = output(x)
    nl.store(out, nl.load(x))
    nl.store(out, nl.add(nl.load(out), 0.0))
    return out


@pytest.mark.parametrize(("kernel", "arrays", "grid", "is_zeroed"), [
    (whole_by_pieces, (X,), None, False), (added_to, (X,), None, True), (whole_by_programs, (X,), 2, False),
    (by_table, (X,), 2, True), (scattered, (X, np.arange(8, dtype=np.int32)[:, None]), None, True)])
def test_repeated_calls__zero_no_result_that_is_only_written_and_completely(kernel, arrays, grid, is_zeroed):
    """Programs with code of their own are several modules, none of which writes all."""
    jitted = nki.jit(kernel).on("jit")
    launched = jitted if grid is None else jitted[grid]
    results = [launched(*arrays) for _ in range(3)]
    np.testing.assert_array_equal(results, [X] * 3)
    call, = jitted.specializations.calls()
    for repeated in call.runs.values():
        assert [maker.func is np.zeros for maker in repeated.makers] == [is_zeroed]
    assert call.runs and call.capture.makers[0].func is np.zeros


@pytest.mark.parametrize(("number", "first"), [
    ("%low = arith.cmpi slt, %p, %c2 : index\n  %number = arith.select %low, %c5, %p : index", 2),
    ("%number = affine.min affine_map<()[s] -> (s + 3, 5)>()[%p]", 0)], ids=["select", "min"])
def test_a_condition_on_a_choice__for_all_programs_at_once(number, first):
    """The choice is 5, 5, 2 and 3 in programs 0 to 3, the minimum 3, 4, 5 and 5: where it is 5, a row is written."""
    text = """
#none = affine_map<()[s0] -> (0, 0)>
#row = affine_map<()[s0] -> (s0 * 8)>
func.func @f(%out: memref<4x8xf32, "hbm"> {nki.name = "out", nki.shared = 0 : i64},
             %p: index {nki.program_id = 0 : i64}) attributes {nki.grid = [4], nki.results = [0]} {
  %c2 = arith.constant 2 : index
  %c5 = arith.constant 5 : index
  %tile = memref.alloc() : memref<1x8xf32, "sbuf">
  NUMBER
  %writes = arith.cmpi eq, %number, %c5 : index
  scf.if %writes {
    "nki.store"(%out, %tile, %p) {access = [#nki.access<f32, #row, [[1, 1], [1, 8]]>,
                                            #nki.access<f32, #none, [[1, 1], [1, 8]]>],
                                  mask = affine_set<() : (0 == 0)>}
      : (memref<4x8xf32, "hbm">, memref<1x8xf32, "sbuf">, index) -> ()
  }
  return
}""".replace("NUMBER", number)
    with shared_context():
        module = ir.Module.parse(text)
    assert left_out([module]) == {0: LeftOut(16, (first, 0))}


@pytest.mark.parametrize(("size", "expected"), [(1 << 26, {0: LeftOut(1 << 26, (0,))}), ((1 << 26) + 1, {})])
def test_outputs_beyond_64_million_elements_are_not_looked_at(size, expected):
    with shared_context():
        module = ir.Module.parse(f"""func.func @f(%out: memref<{size}xf32, "hbm"> {{nki.name = "out", nki.shared = 0 : i64}})
          attributes {{nki.results = [0]}} {{ return }}""")
    assert left_out([module]) == expected
