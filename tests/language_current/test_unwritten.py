# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outputs that only loops of the device write: an error where these run no iteration, on every executor."""

import warnings

import numpy as np
import pytest

from nki_mlir.dialects.nisa.require_written import OutputNotWritten
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current import typing as nt
from nki_mlir.targets.interpreter.unwritten_hbm import UnwrittenRead

from .running import numbers, run

X = numbers(4, 8)


def count(*values):
    return np.array(values, np.int32).reshape(-1, 1)


def register(limit):
    loaded = nisa.register_alloc()
    nisa.register_load(loaded, limit)
    return loaded


def copied(bound, dst, src):
    def body(i):
        nisa.dma_copy(dst, src)
    nl.fori_loop(0, bound, body)


def by_fori_loop(x, limit):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)

    def body(i):
        nisa.dma_copy(out, x)
    nl.fori_loop(0, register(limit), body)
    return out


def by_dynamic_range(x, limit):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = nl.dynamic_range(register(limit))
    for _ in counts:
        nisa.dma_copy(out, x)
    return out


def by_while_loop(x, limit):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    left = nl.load(limit)

    def body(r):
        nisa.dma_copy(out, x)
        nisa.tensor_scalar(left, left, nl.subtract, 1)
        nisa.register_load(r, left)
        return r
    nl.while_loop(register(limit), body)
    return out


def by_loops_in_loops(x, limit):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    bound = register(limit)

    def inner(j):
        nisa.dma_copy(out, x)
    nl.fori_loop(0, 2, lambda i: nl.fori_loop(0, bound, inner))
    return out


def module_of(kernel, *arrays, cores=None):
    chosen = nki.jit(kernel) if cores is None else nki.jit(kernel)[cores]
    bound = chosen.bind(arrays, {}, lambda v: isinstance(v, np.ndarray), chosen.describe)
    return [str(module) for module in chosen.specialize(bound).modules]


@pytest.mark.parametrize("kernel", [by_fori_loop, by_dynamic_range, by_while_loop, by_loops_in_loops])
def test_loop_that_runs_no_iteration(on, kernel):
    np.testing.assert_array_equal(run(on, kernel, X, count(2)), X)
    with pytest.raises(OutputNotWritten, match="err_tensor_output_not_written_to") as raised:
        run(on, kernel, X, count(0))
    first = kernel.__code__.co_firstlineno
    assert (raised.value.at.file, raised.value.at.line) == (__file__, first + 1)
    assert "is never written: no iteration of the loop at test_unwritten.py:" in raised.value.headline
    loop = int(raised.value.headline.rsplit(":", 1)[1].split()[0])
    assert first + 1 < loop <= first + 12
    assert "before any loop that may run no iteration" in raised.value.advice[1]


def test_range_without_numbers(on):
    def kernel(x, limit):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for _ in nl.affine_range(x.shape[0] // 128):
            nisa.dma_copy(out, x)
        return out
    with pytest.raises(OutputNotWritten) as raised:
        run(on, kernel, X, count(1))
    line = kernel.__code__.co_firstlineno + 2
    assert raised.value.headline.startswith(
        f"the output out is never written: no iteration of the loop at test_unwritten.py:{line} ran")


def test_exchanged_operands__are_told_where_the_output_is_read(on):
    def kernel(x, limit):
        out, t = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(t, x)
        nisa.dma_copy(t, out)
        return out
    with pytest.raises(OutputNotWritten) as raised:
        run(on, kernel, X, count(1))
    assert raised.value.at.line == kernel.__code__.co_firstlineno + 3
    assert raised.value.headline == "the output out is never written; this statement reads it"
    assert raised.value.advice[1].startswith("if the statement should write out, exchange its operands")


def test_one_output_of_two(on):
    def kernel(x, limit):
        first, second = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=n) for n in ("first", "second"))
        nisa.dma_copy(first, x)
        copied(register(limit), second, x)
        return first, second
    with pytest.raises(OutputNotWritten, match="the output second is never written"):
        run(on, kernel, X, count(0))
    for result in run(on, kernel, X, count(1)):
        np.testing.assert_array_equal(result, X)


def by_each_core(x, limit):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    copied(register(limit[core:core + 1]), out, x)
    return out


def test_two_cores_count_together(on):
    for counts in ((1, 0), (0, 1), (1, 1)):
        np.testing.assert_array_equal(run(on, by_each_core, X, count(*counts), cores=2), X)
    with pytest.raises(OutputNotWritten, match="no iteration of the loop"):
        run(on, by_each_core, X, count(0, 0), cores=2)


def test_written_before_the_loop(on):
    def kernel(x, limit):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        copied(register(limit), out[0:1], x[1:2])
        return out
    np.testing.assert_array_equal(run(on, kernel, X, count(0)), X)
    assert "require_written" not in module_of(kernel, X, count(0))[0]


def test_input_that_a_loop_updates_keeps_its_value(on):
    def kernel(x: nt.mutable_tensor, limit):
        copied(register(limit), x[0:1], x[1:2])
        return x
    np.testing.assert_array_equal(run(on, kernel, X, count(0)), X)


def test_nothing_is_added_for_what_is_written_for_certain():
    def constant(x, limit):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        copied(3, out, x)
        return out

    def by_one_core(x, limit):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            nisa.dma_copy(out, x)
        else:
            copied(register(limit), out[0:1], x[0:1])
        return out
    texts = [*module_of(constant, X, count(0)), *module_of(by_one_core, X, count(0), cores=2)]
    assert not any("require_written" in text or "written." in text for text in texts)
    assert module_of(by_fori_loop, X, count(0))[0].count("nisa.require_written") == 1


@pytest.mark.parametrize("executor", ["interpreter", "jit", "isa"])
def test_a_program_that_was_read_from_text(executor):
    from nki_mlir.frameworks.registry import PlainResults, callee_from, callee_of, run_on_arrays
    chosen = nki.jit(by_fori_loop)
    bound = chosen.bind((X, count(0)), {}, lambda v: isinstance(v, np.ndarray), chosen.describe)
    record = callee_of(chosen.specialize(bound), executor, PlainResults()).record
    callee = callee_from(record.config, executor)
    np.testing.assert_array_equal(run_on_arrays(callee, [X, count(3)])[0], X)
    with pytest.raises(OutputNotWritten, match=r"no iteration of the loop at test_unwritten\.py"):
        run_on_arrays(callee, [X, count(0)])


# -- elements that are not written -------------------------------------------------------------------------------------
def rows_by_number(x, limit):
    """The first rows of x, by a loop that writes one at a time."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")

    def body(i):
        row = [[x.shape[1], 1], [1, x.shape[1]]]
        nisa.dma_copy(out.ap(row, scalar_offset=i, indirect_dim=0), x.ap(row, scalar_offset=i, indirect_dim=0))
    nl.fori_loop(0, register(limit), body)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("executor", ["interpreter", "jit", "isa"])
def test_elements_that_a_run_leaves_out_are_zero(executor, dtype):
    x = np.full((4, 8), 4, dtype)
    np.testing.assert_array_equal(run(executor, rows_by_number, x, count(3)), x * (np.arange(4) < 3)[:, None])


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_simulation_names_elements_that_are_not_written(dtype, recwarn):
    x = np.full((4, 8), 4, dtype)               # 4 is also what fresh integers hold
    np.testing.assert_array_equal(run("eager", rows_by_number, x, count(4)), x)
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"8 of the 32 elements of the output out are never written, first element "
                                         r"\[3, 0\]: (nan|4) here, 0 where the kernel is compiled") as caught:
        result = run("eager", rows_by_number, x, count(3))
    np.testing.assert_array_equal(result[:3], x[:3])
    assert (caught[0].filename, caught[0].lineno) == (__file__, rows_by_number.__code__.co_firstlineno + 2)


def test_simulation_of_parts(recwarn):
    def columns(x, last):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
        for k in range(0, last, 2):
            nisa.dma_copy(out[:, k:k + 2], x[:, k:k + 2])
        return out
    np.testing.assert_array_equal(run("eager", columns, X, 8), X)
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"8 of the 32 elements of the output out .* first element \[0, 6\]"):
        run("eager", columns, X, 6)


def reads_before_it_writes(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
    kept = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm, name="kept")
    nisa.dma_copy(kept[:, 0:5], x[:, 0:5])
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, kept)
    nisa.dma_copy(out, tile)
    nisa.dma_copy(kept, x)
    return out


@pytest.mark.parametrize(("dtype", "fresh"), [(np.float32, np.nan), (np.int32, 4)])
def test_private_memory_that_nothing_has_written(on, dtype, fresh):
    """Zeros, but for simulation, whose fresh memory shows; executors that check say so."""
    x = numbers(4, 8, dtype=dtype)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = run(on, reads_before_it_writes, x)
        np.testing.assert_array_equal(got[:, :5], x[:, :5])
        np.testing.assert_array_equal(got[:, 5:], np.full((4, 3), fresh if on == "eager" else 0, dtype))
        value = dtype(fresh if on == "eager" else 0)
        assert [str(w.message) for w in caught if w.category is UnwrittenRead] == [
            f"element [0, 5] of kept is read before it is written: {value} here, anything on a device"
        ] * (on != "jit")


def exchanged(x):
    out = nl.ndarray((4, 8), x.dtype, buffer=nl.shared_hbm)
    halves = nl.ndarray((2, 4, 4), x.dtype, buffer=nl.shared_hbm, name="halves")
    core = nl.program_id(0)
    nisa.dma_copy(halves[core], x[:, core * 4:core * 4 + 4])
    nisa.core_barrier(halves, (0, 1))
    nisa.dma_copy(out[:, core * 4:core * 4 + 4], halves[1 - core])
    return out


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
def test_a_barrier_reads_nothing_of_its_tensor(on):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = run(on, exchanged, X, cores=2)
    np.testing.assert_array_equal(got, np.hstack([X[:, 4:], X[:, :4]]))


def of_one_core(x):
    """Only core 0 writes its columns of the tensor that both read behind the barrier."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    shared = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="shared")
    core = nl.program_id(0)
    columns = nl.ds(core * 4, 4)
    if core == 0:
        nisa.dma_copy(shared[:, columns], x[:, columns])
    nisa.core_barrier(shared, (0, 1))
    nisa.dma_copy(out[:, columns], shared[:, columns])
    return out


@pytest.mark.parametrize("executor", ["eager", "interpreter", "isa"])
def test_what_no_core_wrote_before_a_barrier_is_unwritten_behind_it(executor):
    with pytest.warns(UnwrittenRead, match=r"element \[0, 4\] of shared is read before it is written"):
        run(executor, of_one_core, X, cores=2)
