# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pool of threads: each item runs once, a status ends the job; which programs of a grid a thread runs together."""

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import mutable_tensor
from nki_mlir.targets.cpu.kernel import neighbors_of
from nki_mlir.targets.runtime import host
from nki_mlir.targets.runtime.jit import addresses_text, compile_functions
from nki_mlir.targets.runtime.machine import machine

ITEM = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)

pytestmark = pytest.mark.skipif(host.threads() < 2, reason="a pool has two threads at least")


def run_items(count: int, function: Callable[[int], int]) -> int:
    """Run ``function`` on the pool for each item, and return the job's status."""
    machine().start_workers()
    parallel_for = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ITEM, ctypes.c_void_p)(
        machine().functions["nki_parallel_for"])
    return parallel_for(count, ITEM(lambda argument, item: function(item)), None)


@pytest.mark.parametrize("count", [2, 3, 7, 64, 1001])
def test_each_item_runs_once(count: int) -> None:
    items: list[int] = []

    def item(number: int) -> int:
        items.append(number)
        return 0
    assert run_items(count, item) == 0
    assert sorted(items) == list(range(count))


def test_the_caller_begins_in_front__workers_at_the_end() -> None:
    by_caller: list[int] = []
    by_workers: list[int] = []
    has_begun = threading.Event()

    def item(number: int) -> int:
        if threading.current_thread() is threading.main_thread():
            has_begun.wait(5)               # a worker that comes later takes no item, and all are the caller's
            by_caller.append(number)
        else:
            by_workers.append(number)
            has_begun.set()
        return 0
    assert run_items(100, item) == 0
    assert by_caller == list(range(len(by_caller)))
    assert sorted(by_workers) == list(range(len(by_caller), 100))


def test_a_status_ends_the_job() -> None:
    by_caller: list[int] = []

    def item(number: int) -> int:
        if threading.current_thread() is threading.main_thread():
            by_caller.append(number)
        return 5
    assert run_items(1000, item) == 5
    assert len(by_caller) <= 1              # none, where a worker has run all items before the caller begins


@pytest.mark.parametrize("first", [0, 1, 700, 999])
def test_the_status_of_the_first_item_is_the_result(first: int) -> None:
    items: list[int] = []

    def item(number: int) -> int:
        items.append(number)
        return number + 5 if number >= first else 0
    for _ in range(20):
        items.clear()
        assert run_items(1000, item) == first + 5
        assert {*range(first + 1)} <= {*items}


def leave_processor() -> Callable[[int], None]:
    """Return the function by which a worker leaves the caller's processor, from another copy of the pool's code."""
    names = ["leave_processor"]
    text = host.spelled(Path(host.__file__).with_name("pool.mlir").read_text(encoding="utf-8")) + addresses_text(names)
    address, = compile_functions(lambda: ir.Module.parse(text), names, text).addresses
    return ctypes.CFUNCTYPE(None, ctypes.c_int32)(address)


def test_a_worker_leaves_the_processor_of_the_caller() -> None:
    processors, leave = os.sched_getaffinity(0), leave_processor()
    if len(processors) < 2:
        pytest.skip("there is one processor")
    here = ctypes.CDLL(None).sched_getcpu
    first, second = sorted(processors)[:2]
    seen: list[object] = []

    def worker() -> None:
        os.sched_setaffinity(0, {first})
        leave(first)                                    # it may run on no other processor
        seen.append((here(), os.sched_getaffinity(0)))
        for _ in range(20):                             # Linux may move the thread back before it reads its processor
            os.sched_setaffinity(0, {first})
            os.sched_setaffinity(0, {first, second})
            leave(first)
            if here() == second:
                break
        seen.append((here(), os.sched_getaffinity(0)))
    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()
    assert seen == [(first, {first}), (second, {first, second})]


def test_a_worker_stays_on_another_processor() -> None:
    processors, leave = os.sched_getaffinity(0), leave_processor()
    seen: list[set[int]] = []

    def worker() -> None:
        for processor in (-1, 1 << 10, 1 << 30):
            leave(processor)
            seen.append(os.sched_getaffinity(0))
    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()
    assert seen == [processors] * 3


@pytest.mark.parametrize("grid, threads, expected", [
    ((8, 2), 2, 2), ((8, 4), 2, 4), ((3, 16), 2, 4), ((2, 3), 2, 1), ((12,), 2, 1), ((2, 8, 6), 2, 6), ((8, 7), 2, 7),
    ((8, 7), 4, 1), ((1, 64), 2, 8)])
def test_a_thread_runs_neighbors_along_the_last_axis(grid: tuple[int, ...], threads: int, expected: int) -> None:
    assert neighbors_of(grid, threads) == expected


@nki.jit
def gather_and_add(x: mutable_tensor, table, index):
    """Add rows of a table to x, in blocks [128, 64] of a grid [I, J]."""
    i, j = nl.program_id(0), nl.program_id(1)
    rows = nl.load(index[nl.ds(i * 128, 128), nl.ds(j, 1)])
    added = nl.load(table[rows, nl.arange(64)[None, :]])
    block = nl.load(x[nl.ds(i * 128, 128), nl.ds(j * 64, 64)])
    nl.store(x[nl.ds(i * 128, 128), nl.ds(j * 64, 64)], nl.add(block, added))
    return x


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return (rng.integers(0, 99, (8 * 128, 4 * 64)).astype(np.float32), rng.integers(1, 99, (100, 64)).astype(np.float32),
            rng.integers(0, 100, (8 * 128, 4)).astype(np.int32))


def test_each_program_of_a_grid_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "WORTH_WAKING", 0)
    x, table, index = operands()
    expected = x + table[index].reshape(8 * 128, 4 * 64)
    kernel = nki.jit(gather_and_add.func)[8, 4]
    np.testing.assert_array_equal(kernel.on("jit")(x, table, index), expected)
    (spec,) = kernel.specializations.values()
    assert spec.program("jit").record[1] == neighbors_of((8, 4), host.threads())


@pytest.mark.parametrize("i, j", [(0, 0), (3, 1), (7, 3)])
def test_an_error_of_any_program_is_raised(monkeypatch: pytest.MonkeyPatch, i: int, j: int) -> None:
    monkeypatch.setattr(host, "WORTH_WAKING", 0)
    x, table, index = operands()
    index[128 * i + 5, j] = 100
    with pytest.raises(IndexError, match="index 6400 is out of bounds for axis 0 with size 6400"):
        nki.jit(gather_and_add.func)[8, 4].on("jit")(x, table, index)
