# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Garbage collection around compilation: large programs go to the oldest generation, and their garbage is freed."""

import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from nki_mlir import alone

ROOT = Path(__file__).parent.parent


class Node:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.cycle = self


def young() -> int:
    return len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1))


def after(objects: int) -> tuple[bool, int, bool, int]:
    """Return whether the collector is on, and how many objects are young: when a program of so many objects has been
    created, and after that."""
    gc.collect()
    with alone.uncollected():
        program = [Node() for _ in range(objects)]
        inside = gc.isenabled(), young()
    assert len(program) == objects
    return (*inside, gc.isenabled(), young())


def live_programs() -> int:
    """Return the largest number of programs in memory while 20 are created and dropped one after the other."""
    most, programs = 0, []
    for _ in range(20):
        with alone.uncollected():
            program = [Node() for _ in range(20_000)]
        programs.append(weakref.ref(program[0]))
        del program
        most = max(most, sum(node() is not None for node in programs))
    return most


def observe() -> None:
    """Print what the tests compare."""
    alone.MANY = 10_000
    observed: dict[str, object] = {"large": after(20_000), "small": after(2_000)}
    gc.disable()
    observed["off"] = after(20_000)
    gc.enable()
    alone.MOST, alone._moved = 50_000, 0
    print(json.dumps(observed | {"live": live_programs()}))


@pytest.fixture(scope="module")
def observed() -> dict:
    """Run in a process without the tests' objects, which take each collection seconds."""
    done = subprocess.run([sys.executable, "-c", f"import {__name__} as tests; tests.observe()"], cwd=ROOT,
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_uncollected__large_program_is_not_examined_by_the_next_collection(observed: dict) -> None:
    is_on, inside, is_on_again, left = observed["large"]
    assert (is_on, is_on_again) == (False, True) and inside >= 20_000 and left < 5_000


def test_uncollected__small_program_stays_young(observed: dict) -> None:
    is_on, _, is_on_again, left = observed["small"]
    assert (is_on, is_on_again) == (False, True) and left >= 2_000


def test_uncollected__garbage_of_many_programs_is_freed(observed: dict) -> None:
    assert 1 <= observed["live"] <= 3


def test_uncollected__collection_that_is_off_stays_off(observed: dict) -> None:
    is_on, _, is_on_again, left = observed["off"]
    assert (is_on, is_on_again) == (False, False) and left >= 20_000
