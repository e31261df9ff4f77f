# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order of instructions by the tile of the result that they compute, on small graphs of dependences."""

import random

import pytest

from nki_mlir.printing.tile_groups import EarlierOperations, _closure, _order


def operations(*lines):
    """Operations as ``(operations that they need on chip, operations that they need in HBM, buffers that they
    write)``."""
    return [EarlierOperations({*on_chip, *in_hbm}, {*on_chip}, {*targets}) for on_chip, in_hbm, targets in lines]


LOAD = ((), (), "")
CASES = {
    "two tiles, of which both need 2": (
        [LOAD, LOAD, LOAD, ((0, 2), (), ""), ((1, 2), (), ""), ((3,), (), "o"), ((4,), (5,), "o")],
        [2, 0, 3, 5, 1, 4, 6]),
    "two buffers that share an operation are one group": (
        [LOAD, LOAD, ((0,), (), ""), ((0,), (), ""), ((1,), (), ""), ((2,), (), "o"), ((4,), (5,), "o"),
         ((3,), (), "p")],
        [0, 2, 3, 5, 7, 1, 4, 6]),
    "groups that are merged with a merged group": (
        [LOAD, LOAD, LOAD, ((0,), (), "o"), ((0, 1), (), "p"), ((1,), (), "q"), ((2,), (3,), "o")],
        [0, 1, 3, 4, 5, 2, 6]),
    "an operation that transfers of two stages need is of the first": (
        [LOAD, LOAD, LOAD, ((2,), (), "t"), ((0, 1), (3,), "t"), ((), (3, 4), ""), ((1, 5), (), "o"),
         ((1, 5), (6,), "o")],
        [2, 3, 0, 1, 4, 5, 6, 7]),
    "transfers of two stages that share an operation are two groups": (
        [LOAD, ((0,), (), "t"), LOAD, ((2,), (1,), "t"), ((), (1, 3), ""), ((0, 4), (), "o")], [0, 1, 2, 3, 4, 5]),
    "an operation of two transfers, then one of two buffers": (
        [LOAD, LOAD, ((0, 1), (), "o"), ((0,), (2,), "o"), ((1,), (), "p")], [0, 1, 2, 4, 3]),
    "what nothing needs stands before the first transfer": ([((), (), "o"), LOAD, ((), (0,), "o")], [1, 0, 2]),
    "a transfer that only follows another is of the same stage": (
        [LOAD, LOAD, ((0,), (), "o"), ((0, 1), (2,), "o")], [0, 2, 1, 3]),
    "what nothing needs stands first": ([LOAD, LOAD, ((0,), (), "o")], [1, 0, 2]),
    "what a later transfer alone needs": (
        [LOAD, LOAD, ((1,), (), "o"), ((0,), (2,), "o")], [1, 2, 0, 3]),
    "a transfer into two buffers": (
        [LOAD, LOAD, ((0,), (), "op"), ((0, 1), (), "p")], [0, 2, 1, 3]),
}


@pytest.mark.parametrize("name", CASES)
def test_order(name):
    lines, expected = CASES[name]
    assert _order(operations(*lines)) == expected


def test_order__has_each_operation_once_and_each_group_together():
    """Operations that one transfer alone needs stand between the transfers before and behind it, unless a group has
    several transfers."""
    rng = random.Random(5)
    for _ in range(200):
        count = rng.randint(1, 12)
        lines = []
        for k in range(count):
            needed = rng.sample(range(k), min(k, rng.randint(0, 2)))
            lines.append((needed, (), "o" if rng.random() < 0.4 else ""))
        ops = operations(*lines)
        order = _order(ops)
        assert sorted(order) == [*range(count)]
        transfers = [k for k in order if ops[k].targets]
        assert transfers == sorted(transfers)
        for k in range(count):
            users = [t for t in transfers if k in _closure(t, ops)]
            if len(users) == 1 and not ops[k].targets:
                between = order[order.index(k):order.index(users[0])]
                assert not [other for other in between if ops[other].targets]


def test_closure():
    ops = operations(LOAD, ((0,), (), ""), LOAD, ((1,), (2,), ""), ((3, 1), (), ""))
    assert [_closure(k, ops) for k in range(5)] == [{0}, {0, 1}, {2}, {0, 1, 3}, {0, 1, 3, 4}]
