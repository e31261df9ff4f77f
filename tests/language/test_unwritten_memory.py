# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory in HBM that a kernel reads before anything has written it: 0, and a warning from the executors that check."""

import contextlib
import warnings

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets.interpreter.unwritten_hbm import UnwrittenRead, tracked

from .running import numbers, run

X = numbers(128, 8) + 200               # no zeros
CHECKS = ("eager", "interpreter", "isa")


@contextlib.contextmanager
def reported(on, *texts):
    """The executors that check say this of reads, in this order, and the JIT nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    messages = [str(w.message) for w in caught if w.category is UnwrittenRead]
    assert len(messages) == (len(texts) if on in CHECKS else 0), messages
    for text, expected in zip(messages, texts):
        assert text == f"{expected} is read before it is written: 0.0 here, anything on a device"


def dirty(on):
    """Leave something in the memory that the next kernel of this thread gets."""
    def kernel(x):
        out = nl.ndarray((128, 4096), dtype=x.dtype, buffer=nl.shared_hbm)
        scratch = nl.ndarray((128, 4096), dtype=x.dtype, buffer=nl.private_hbm)
        nl.store(scratch, nl.load(x))
        nl.store(out, nl.load(scratch))
        return out
    run(on, kernel, np.full((128, 4096), 77, np.float32))


def output(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def private(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)


def never_written(x):
    out = output(x)
    scratch = private(x)
    nl.store(out, nl.load(scratch))
    return out


def written_in_part(x):
    out = output(x)
    scratch = private(x)
    nl.store(scratch[0:64, 2:5], nl.load(x)[0:64, 2:5])
    nl.store(out, nl.load(scratch))
    return out


def written_behind(x):
    out = output(x)
    scratch = private(x)
    nl.store(out, nl.load(scratch))
    nl.store(scratch, nl.load(x))
    return out


def written_under_a_mask(x):
    out = output(x)
    scratch = private(x)
    i, j = nl.mgrid[0:128, 0:8]
    nl.store(scratch[i, j], nl.load(x), mask=i + 16 * j < 100)
    nl.store(out, nl.load(scratch))
    return out


def written_by_some_iterations(x):
    out = output(x)
    scratch = private(x)
    for k in nl.affine_range(3):
        nl.store(scratch[k * 32:k * 32 + 32], nl.load(x[k * 32:k * 32 + 32]))
    nl.store(out, nl.load(scratch))
    return out


def written_by_the_next_iteration(x):
    out = output(x)
    scratch = private(x)
    for k in nl.sequential_range(4):
        last = nl.load(scratch[(3 - k) * 32:(3 - k) * 32 + 32])
        nl.store(out[k * 32:k * 32 + 32], last)
        nl.store(scratch[k * 32:k * 32 + 32], nl.load(x[k * 32:k * 32 + 32]))
    return out


def made_in_a_loop(x):
    """Each iteration has its own tensor."""
    out = output(x)
    for k in nl.sequential_range(2):
        scratch = private(x)
        nl.store(out[k * 64:k * 64 + 64], nl.load(scratch[0:64]))
        nl.store(scratch, nl.load(x))
    return out


MASKED = np.where(np.add.outer(np.arange(128), 16 * np.arange(8)) < 100, X, 0)
CASES = {
    never_written: (np.zeros_like(X), "element [0, 0] of scratch"),
    written_in_part: (np.pad(X[:64, 2:5], ((0, 64), (2, 3))), "element [0, 0] of scratch"),
    written_behind: (np.zeros_like(X), "element [0, 0] of scratch"),
    written_under_a_mask: (MASKED, "element [0, 7] of scratch"),
    written_by_some_iterations: (np.pad(X[:96], ((0, 32), (0, 0))), "element [96, 0] of scratch"),
    written_by_the_next_iteration: (np.concatenate([np.zeros_like(X[:64]), X[32:64], X[:32]]),
                                    "element [96, 0] of scratch"),
}


@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.__name__)
def test_unwritten_elements__are_zero_and_reported(on, kernel):
    expected, text = CASES[kernel]
    for _ in range(2):                              # what a call leaves is not there for the next one
        dirty(on)
        with reported(on, text):
            got = run(on, kernel, X)
        np.testing.assert_array_equal(got, expected)


def test_each_program__has_memory_of_its_own(on):
    def kernel(x):
        out = output(x)
        scratch = private(x)
        p = nl.program_id(0)
        nl.store(out[p * 64:p * 64 + 64], nl.load(scratch[0:64]))
        nl.store(scratch, nl.load(x))
        return out
    dirty(on)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(run(on, kernel, X, grid=2), np.zeros_like(X))
    assert len([w for w in caught if w.category is UnwrittenRead]) == (2 if on in CHECKS else 0)


def test_each_iteration__has_memory_of_its_own(on):
    dirty(on)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(run(on, made_in_a_loop, X), np.zeros_like(X))
    assert len([w for w in caught if w.category is UnwrittenRead]) == (2 if on in CHECKS else 0)


def at_once(x):
    out = output(x)
    scratch = private(x)
    nl.store(scratch, nl.load(x))
    nl.store(out, nl.load(scratch))
    return out


def in_blocks(x):
    out = output(x)
    scratch = private(x)
    for k in nl.affine_range(4):
        for c in nl.affine_range(2):
            nl.store(scratch[k * 32:k * 32 + 32, c * 4:c * 4 + 4], nl.load(x[k * 32:k * 32 + 32, c * 4:c * 4 + 4]))
            nl.store(out[k * 32:k * 32 + 32, c * 4:c * 4 + 4],
                     nl.load(scratch[k * 32:k * 32 + 32, c * 4:c * 4 + 4]))
    return out


def in_halves(x):
    out = output(x)
    scratch = private(x)
    nl.store(scratch[64:128], nl.load(x[64:128]))
    nl.store(scratch[0:64], nl.load(x[0:64]))
    nl.store(out, nl.load(scratch))
    return out


def only_what_was_written_is_read(x):
    out = output(x)
    scratch = private(x)
    i, j = nl.mgrid[0:128, 0:8]
    nl.store(scratch[i, j], nl.load(x), mask=i + 16 * j < 100)
    nl.store(out, nl.load(x))
    nl.store(out[i, j], nl.load(scratch[i, j], mask=i + 16 * j < 100), mask=i + 16 * j < 100)
    return out


@pytest.mark.parametrize("kernel", [at_once, in_blocks, in_halves, only_what_was_written_is_read])
def test_what_is_written_before_it_is_read__is_no_report(on, kernel):
    with reported(on):
        np.testing.assert_array_equal(run(on, kernel, X), X)


def test_output_that_is_read_before_it_is_written(on):
    def kernel(x):
        out = output(x)
        nl.store(out[0:128, 0:4], nl.load(x)[0:128, 0:4])
        nl.store(out, nl.load(out) + 1)
        return out
    with reported(on, "element [0, 4] of out"):
        got = run(on, kernel, X)
    np.testing.assert_array_equal(got, np.pad(X[:, :4], ((0, 0), (0, 4))) + 1)


def test_report__is_at_the_reading_line():
    with pytest.warns(UnwrittenRead, match=r"element \[0, 0\] of scratch is read before it is written") as caught:
        run("interpreter", written_behind, X)
    assert (caught[0].filename, caught[0].lineno) == (__file__, written_behind.__code__.co_firstlineno + 3)


def test_rows_that_indices_chose__are_known(on):
    def kernel(x, index):
        out = output(x)
        scratch = private(x)
        rows, columns = nl.load(index), nl.arange(8)[None, :]
        nl.store(scratch[rows[nl.arange(64)[:, None], 0], columns], nl.load(x[0:64]))
        nl.store(out[0:64], nl.load(scratch[rows[nl.arange(64)[:, None], 0], columns]))
        nl.store(out[64:128], nl.load(scratch[64:128]))
        return out
    index = np.arange(0, 128, 2, dtype=np.int32).reshape(64, 1)
    expected = np.concatenate([X[:64], np.where(np.arange(64)[:, None] % 2 == 0, np.repeat(X[32:64], 2, 0), 0)])
    with reported(on, "element [65, 0] of scratch"):
        got = run(on, kernel, X, index)
    np.testing.assert_array_equal(got, expected)


def test_gather_of_an_unwritten_row__is_reported(on):
    def kernel(x, index):
        out = output(x)
        scratch = private(x)
        nl.store(scratch[0:64], nl.load(x[0:64]))
        rows = nl.load(index)
        nl.store(out, nl.load(scratch[rows[nl.arange(128)[:, None], 0], nl.arange(8)[None, :]]))
        return out
    inside = np.arange(128, dtype=np.int32).reshape(128, 1) % 64
    with reported(on):
        np.testing.assert_array_equal(run(on, kernel, X, inside), X[inside[:, 0]])
    beyond = inside.copy()
    beyond[5] = 64
    with reported(on, "element [64, 0] of scratch"):
        got = run(on, kernel, X, beyond)
    np.testing.assert_array_equal(got, np.where(beyond == 64, 0, X[inside[:, 0]]))


@pytest.mark.parametrize("space", ["hbm", "sbuf"])
def test_module_that_reads_what_it_made__gets_zeros(space):
    """A module from elsewhere, of which no capture has looked at the first uses."""
    from tests.targets.cpu.compiled import compiled
    text = f"""
func.func @f(%y: memref<16x64xf32, "hbm"> {{nki.name = "y"}}) attributes {{nki.grid = []}} {{
  %t = memref.alloc() : memref<16x64xf32, "{space}">
  linalg.copy ins(%t : memref<16x64xf32, "{space}">) outs(%y : memref<16x64xf32, "hbm">)
  %c = arith.constant 7.0 : f32
  linalg.fill ins(%c : f32) outs(%t : memref<16x64xf32, "{space}">)
  return
}}"""
    with shared_context(), ir.Location.unknown():
        kernel = compiled(ir.Module.parse(text), ())
    for _ in range(3):
        y = np.ones((16, 64), np.float32)
        kernel([y], [])
        np.testing.assert_array_equal(y, 0)


def test_tracked__counts_bytes_that_are_written_twice():
    memory = tracked(np.zeros((2, 3), np.float32), "t")
    memory.refine(1)
    assert memory.first_unwritten() == (6, [0, 0])
    memory.mark(memory.written_units[0:12])
    memory.mark(memory.written_units[0:12])
    assert memory.first_unwritten() == (3, [1, 0])
    memory.mark(np.arange(12, 23))
    assert memory.first_unwritten() == (1, [1, 2])
    memory.mark(memory.written_units[23:24])
    assert memory.first_unwritten() is None and not memory.left


def test_tracked__has_smaller_units_where_parts_of_elements_are_used():
    memory = tracked(np.zeros((2, 3), np.float32), "t")
    memory.mark(memory.written_units[0:3])
    memory.refine(8)
    assert memory.unit == 4 and memory.left == 3
    memory.refine(2)
    assert memory.unit == 2 and memory.left == 6 and memory.first_unwritten() == (3, [1, 0])
    memory.mark(memory.written_units[6:9])
    assert memory.first_unwritten() == (2, [1, 1])
    memory.mark(memory.written_units[9:12])
    assert memory.first_unwritten() is None and not memory.left


def test_nothing_is_zeroed_that_is_written_whole(monkeypatch):
    from nki_mlir.targets.cpu.passes.zero_unwritten import ZeroUnwritten
    zeroed = []
    rewrite = ZeroUnwritten.rewrite
    monkeypatch.setattr(ZeroUnwritten, "rewrite", lambda self, function: (
        rewrite(self, function), zeroed.append([b.size for b in function.buffers if b.zeroed])))
    for kernel in (at_once, in_blocks):
        nki.jit(kernel).on("jit")(X)
    nki.jit(in_halves).on("jit")(X)
    assert zeroed == [[], [], [X.nbytes]]
