# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Garbage collection around compilation: large programs go to the oldest generation, and their garbage is freed."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from nki_mlir import alone

ROOT = Path(__file__).parent.parent


class Node:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.cycle = self


@pytest.fixture(autouse=True)
def few_objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(alone, "MANY", 10_000)
    monkeypatch.setattr(alone, "_moved", 0)
    frozen = gc.get_freeze_count()          # by the configuration of the tests
    gc.unfreeze()
    gc.collect()
    yield
    if frozen:
        gc.freeze()


def young() -> int:
    return len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1))


def test_uncollected__large_program_is_not_examined_by_the_next_collection() -> None:
    with alone.uncollected():
        program = [Node() for _ in range(20_000)]
        assert not gc.isenabled() and young() >= 20_000
    assert gc.isenabled() and young() < 5_000 and len(program) == 20_000


def test_uncollected__small_program_stays_young() -> None:
    with alone.uncollected():
        program = [Node() for _ in range(2_000)]
    assert young() >= 2_000 == len(program)


def live_programs() -> int:
    """Return the largest number of programs in memory while 20 are created and dropped one after the other."""
    alone.MANY, alone.MOST = 10_000, 50_000
    most, programs = 0, []
    for _ in range(20):
        with alone.uncollected():
            program = [Node() for _ in range(20_000)]
        programs.append(weakref.ref(program[0]))
        del program
        most = max(most, sum(node() is not None for node in programs))
    return most


def test_uncollected__garbage_of_many_programs_is_freed() -> None:
    """In a process without the tests' objects, which take each collection seconds."""
    code = f"import {__name__} as tests; print(tests.live_programs())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 1 <= int(done.stdout) <= 3


def test_uncollected__collection_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with alone.uncollected():
            program = [Node() for _ in range(20_000)]
        assert not gc.isenabled() and young() >= 20_000 == len(program)
    finally:
        gc.enable()
