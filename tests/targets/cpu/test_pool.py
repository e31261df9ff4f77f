# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pool of threads: each item runs once, threads take neighbouring items, a status ends the job."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from nki_mlir.targets.runtime import host
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


def test_a_status_ends_the_job() -> None:
    items: list[int] = []

    def item(number: int) -> int:
        items.append(number)
        return 5
    assert run_items(1000, item) == 5
    assert 1 <= len(items) <= machine().threads


# The first item of the caller ends when all others have run.
TWO_THREADS = """
import threading
from tests.targets.cpu.test_pool import run_items

items, others_ran = [], threading.Event()
def item(number):
    if number == 0:
        return int(not others_ran.wait(60))
    items.append(number)
    if len(items) == 39:
        others_ran.set()
    return 0
print(run_items(40, item), items)
"""


def test_a_thread_takes_its_range_and_then_the_rest_of_others() -> None:
    run = subprocess.run([sys.executable, "-c", TWO_THREADS], text=True, capture_output=True,
                         env={**os.environ, "NKI_MLIR_NUM_THREADS": "2"}, check=False)
    assert run.stdout == f"0 {[*range(20, 40), *range(1, 20)]}\n", run.stderr
