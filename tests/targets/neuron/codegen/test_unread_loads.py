# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far loads may be ahead of the steps that read them."""

from types import SimpleNamespace

import pytest

from nki_mlir.targets.neuron.codegen.unread_loads import UnreadLoads

FIRST, SECOND, THIRD, READER = range(4)         # loads of 8, 4 and 6 bytes, and a step that reads the first two


def loads(limit: int) -> SimpleNamespace:
    return SimpleNamespace(sizes=[8, 4, 6, -1], before_start=[0, 0, 0, 0, 2], before=[FIRST, SECOND], limit=limit,
                           smallest=4, unread=[0] * 4, total=0)


@pytest.mark.parametrize("limit, after_first, after_both", [
    (8, [False, False, True], [False, False, True]),
    (12, [True, False, True], [False, False, True]),
    (13, [True, False, True], [False, False, True]),
    (18, [True, True, True], [True, True, True])])
def test_loads__start_while_they_have_room(limit: int, after_first: list[bool], after_both: list[bool]) -> None:
    """Room for the second and third load, and whether a reader may always start."""
    unread = loads(limit)
    assert all(UnreadLoads.has_room(unread, k) and not UnreadLoads.is_stopped(unread, k) for k in range(4))
    assert UnreadLoads.start(unread, FIRST) is False
    assert [UnreadLoads.has_room(unread, k) for k in (SECOND, THIRD, READER)] == after_first
    assert [UnreadLoads.is_stopped(unread, k) for k in (SECOND, THIRD, READER)] == [limit < 12, limit < 12, False]
    assert UnreadLoads.start(unread, SECOND) is False
    assert unread.total == 12 and unread.unread == [1, 1, 0, 0]
    assert [UnreadLoads.has_room(unread, k) for k in (THIRD,)] == after_both[:1]
    assert [UnreadLoads.is_stopped(unread, k) for k in (THIRD, READER)] == [limit < 16, False]
    assert UnreadLoads.start(unread, READER) is True and unread.total == 0 and unread.unread == [0, 0, 0, 0]
    assert UnreadLoads.start(unread, READER) is False
