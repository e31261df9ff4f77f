# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Eager runs refuse what capture refuses, and ask it only where they have to."""

from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.capture import errors
from nki_mlir.capture.races.verdicts import UnknownRaceLevel
from nki_mlir.language import eager_run
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt

from .running import check, numbers, run

X = numbers(4, 16, 8)


def output(x):
    return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)


def tile_of_a_loop(x):
    out = output(x)
    for i in nl.affine_range(4):
        tile = nl.load(x[i])
        nl.store(out[i], tile)
    nl.store(out[0], tile)              # here
    return out


def tile_of_a_plain_range(x):
    out = output(x)
    for i in range(4):
        tile = nl.load(x[i])
        nl.store(out[i], tile)
    nl.store(out[0], tile + 1)          # here
    return out


def tile_of_a_branch(x):
    out = output(x)
    for i in nl.sequential_range(4):
        if i < 2:
            tile = nl.load(x[i])
        else:
            tile = nl.load(x[0])
        nl.store(out[i], tile)          # here
    return out


def tile_of_a_while_loop(x):
    out, left = output(x), nl.full((1, 1), 3, nl.int32)
    condition = nt.scalar(True)
    while condition:
        tile = nl.load(x[0])
        left[...] = nl.subtract(left, 1)
        condition = nt.scalar(left)
    for i in nl.affine_range(4):
        nl.store(out[i], tile)          # here
    return out


def tile_of_the_iteration_before(x):
    out, tile = output(x), None
    for i in nl.sequential_range(4):
        nl.store(out[i], nl.load(x[i]))
        for j in nl.affine_range(2):
            tile = nl.load(x[i])
        nl.store(out[i], tile)          # here
    return out


def one_place_in_two_loops(x):
    out = output(x)
    for i in nl.affine_range(4):
        for j in nl.affine_range(2):
            nl.store(out[i], nl.load(x[i]))     # here
    return out


@pytest.mark.parametrize("function", [
    tile_of_a_loop, tile_of_a_plain_range, tile_of_a_branch, tile_of_a_while_loop, tile_of_the_iteration_before,
    one_place_in_two_loops])
def test_refused_alike(function):
    refusals = []
    for on in ("interpreter", "eager"):
        with pytest.raises((errors.OutOfScope, errors.UnexpectedOutputDependencies)) as raised:
            run(on, nki.jit(function), X)
        refusals.append((type(raised.value), raised.value.at, raised.value.headline))
    assert refusals[0] == refusals[1]
    with open(__file__) as file:
        assert "# here" in file.readlines()[refusals[0][1].line - 1]


def test_programs_that_write_one_place():
    def kernel(x: nt.mutable_tensor):
        nl.store(x[0], nl.load(x[1 + nl.program_id(0)]))
        return x
    for on in ("interpreter", "eager"):
        with pytest.raises(errors.UnexpectedOutputDependencies, match=r"program_id\(0\)"):
            run(on, nki.jit(kernel), X, grid=2)


# -- what only looks like it -------------------------------------------------------------------------------------------
def test_loops_that_unroll_have_no_scope(on):
    @nki.jit
    def kernel(x):
        out, tiles = output(x), []
        for i in nl.affine_range(4):
            tiles.append(nl.load(x[i]))
        for i, tile in enumerate(tiles):
            nl.store(out[i], tile)
        return out
    check(on, kernel, X, X)


def test_numbers_of_a_list_unroll_the_loop(on):
    @nki.jit
    def kernel(x):
        out, order = output(x), [3, 2, 1, 0]
        for i in nl.affine_range(4):
            last = nl.load(x[order[i]])
            nl.store(out[i], last)
        nl.store(out[3], last * 2)
        return out
    expected = X[::-1].copy()
    expected[3] *= 2
    check(on, kernel, expected, X)


def test_an_iteration_that_a_condition_picks(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]))
            if i == 2:
                nl.store(out[0], nl.load(x[3]))
        return out
    expected = X.copy()
    expected[0] = X[3]
    check(on, kernel, expected, X)


def test_capture_is_asked_only_in_doubt():
    runs = []

    @nki.jit
    def kernel(x):
        runs.append(x)
        out, total = output(x), nl.zeros((16, 8), nl.float32)
        for i in nl.affine_range(4):
            tile = nl.load(x[i])
            if i > 0:
                tile[...] = tile + 1
            total += tile
        for i in nl.affine_range(4):
            nl.store(out[i], total)
        return out
    expected = np.broadcast_to(X.sum(0) + 3, X.shape)
    np.testing.assert_array_equal(run("eager", kernel, X), expected)
    assert len(runs) == 1


@pytest.mark.parametrize("doubtful", (False, True))
@pytest.mark.parametrize("races, undecided", [([], False), (["race"], False), ([], True)])
@pytest.mark.parametrize("captured", [[], ["race of capture"], ValueError("cannot compile"), UnknownRaceLevel(found="x")],
                         ids=("none", "races", "obstacle", "refusal"))
def test_capture__decides_where_there_is_a_doubt(doubtful, races, undecided, captured, monkeypatch):
    """An eager run reports its races if capture has none, or cannot take the kernel."""
    reported, requests = [], []

    def specialize(bound):
        requests.append(bound)
        if isinstance(captured, Exception):
            raise captured
        return SimpleNamespace(captured=SimpleNamespace(verdict=SimpleNamespace(races=captured)))
    monkeypatch.setattr(eager_run, "verdict_on", lambda programs: SimpleNamespace(races=races, undecided=undecided))
    monkeypatch.setattr(eager_run, "report", reported.append)
    arguments = SimpleNamespace(specialize=specialize), "bound", SimpleNamespace(doubtful=doubtful), []
    is_asked = bool(doubtful or races or undecided)
    if is_asked and isinstance(captured, UnknownRaceLevel):
        with pytest.raises(UnknownRaceLevel) as error:
            eager_run.ask_capture(*arguments)
        assert str(error.value) == str(captured) and not reported
        return
    eager_run.ask_capture(*arguments)
    assert requests == ["bound"] * is_asked
    assert reported == ([races] if is_asked and captured != ["race of capture"] else [])


def test_memory_that_the_machine_lacks__is_an_error_with_its_bytes():
    def copied(x):
        out = nl.ndarray((16, 3), nl.bfloat16, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[0, :, 0:3]))
        return out
    specialization = nki.jit(copied).lower(X).specialization
    for lack in (MemoryError, OverflowError, ValueError):
        def fails(lack=lack):
            raise lack
        specialization.makers = [fails]
        with pytest.raises(errors.NoRoomForTensor) as error:
            specialization.new_shared()
        assert "a tensor of shape [16, 3] of bfloat16 takes 96 bytes, which this machine cannot allocate" in str(error.value)
