# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that run side by side and meet."""

import threading
import time

import pytest

from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.dialects.launch_members import MEMBERS, PROGRAMS, RANKS
from nki_mlir.targets.mesh import Mesh, run_programs


def meet(members, value, key="k", kind=PROGRAMS):
    return MEMBERS[kind].get().exchange(tuple(members), key, value, "a meeting")


def test_programs_that_do_not_meet_run_in_order_in_the_calling_thread():
    observed = []
    run_programs(lambda n: observed.append((n, threading.get_ident())), 4)
    assert observed == [(n, threading.get_ident()) for n in range(4)]


def test_members_of_a_mesh_take_turns_unless_they_are_parallel():
    observed = []
    Mesh([lambda n=n: observed.append((n, threading.get_ident())) for n in range(4)]).run()
    assert observed == [(n, threading.get_ident()) for n in range(4)]


@pytest.mark.parametrize("parallel", [False, True])
def test_everyone_gets_all_values_of_each_occurrence(parallel):
    def body(n):
        return [meet(range(5), (n, k)) for k in range(20)]
    for values in run_programs(body, 5, parallel):
        assert values == [[(m, k) for m in range(5)] for k in range(20)]


def test_they_take_turns():
    running, most = 0, 0

    def body(n):
        nonlocal running, most
        for _ in range(3):
            running += 1
            most = max(most, running)
            time.sleep(0.001)
            running -= 1
            meet(range(3), n)
    run_programs(body, 3)
    assert most == 1


def test_groups_and_keys_are_apart():
    def body(n):
        pair = (n // 2 * 2, n // 2 * 2 + 1)
        return meet(pair, n), meet(range(4), n), meet(pair, -n, key="other")
    assert run_programs(body, 4)[2] == ([2, 3], [0, 1, 2, 3], [-2, -3])


@pytest.mark.parametrize("parallel", [False, True])
def test_waiting_in_vain(parallel):
    def body(n):
        if n == 2:
            return
        meet(range(2) if n == 0 else range(3), n)
    with pytest.raises(NkiMlirError) as caught:
        run_programs(body, 3, parallel)
    assert caught.value.headline == ("core 0 waits in a meeting for core 1; core 1 waits in a meeting for "
                                     "core 0 and 2; core 2 has ended")


@pytest.mark.parametrize("parallel", [False, True])
def test_the_error_of_one_ends_all(parallel):
    def body(n):
        if n == 1:
            raise ValueError("one")
        meet(range(3), n)
    with pytest.raises(ValueError, match="one"):
        run_programs(body, 3, parallel)


def test_cores_of_ranks():
    """Core c of a rank meets core c of the others by its own key."""
    def rank(_):
        def core(c):
            first = meet(range(2), c)
            return first, meet(range(2), 10 * MEMBERS[RANKS].get().number + c, key=c, kind=RANKS)
        return run_programs(core, 2, parallel=True)
    results = Mesh([lambda r=r: rank(r) for r in range(2)], RANKS).run()
    assert results == [[([0, 1], [0, 10]), ([0, 1], [1, 11])]] * 2


def test_alone():
    assert meet((0,), 3) == [3]
    with pytest.raises(Unsupported, match="a meeting between 2 programs in a kernel that runs as one program"):
        meet((0, 1), 3)


def test_nothing_is_left_behind():
    mesh = Mesh([lambda: [meet((0, 1), k) for k in range(100)]] * 2)
    mesh.run()
    assert not mesh.exchanges.open and len(mesh.exchanges.counts) == 2
