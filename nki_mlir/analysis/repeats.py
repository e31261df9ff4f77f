# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rolls repeated parts of a sequence of operations into loops, also nested ones.

    load 0, add, load 8, add, store 0, load 100, add, load 108, add, store 1, ...
    for 2: (for 2: load + 8, add), store          moving by 100, 100, 1

Operations can be iterations of one if they have the same form. Between iterations the starts of their tiles, indices
and conditions must move by the same steps. Buffers may differ if each iteration allocates them and no other one uses
them. The order of operations does not change.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import Generic, TypeVar

Steps = tuple[int, ...]         # for each tile and index of an operation: where it starts, or how far it moves
CANDIDATES = 4                  # earlier items of one form that an item is compared with
O = TypeVar("O")


@dataclass(eq=False, slots=True)
class Item(Generic[O]):
    """An element of a sequence: an operation, or a loop.

    ``form`` is equal for items that differ only in buffers and in their starts. ``sources`` are the items, or other
    values, that define the operands; ``inner`` are those that code inside of the operation uses.
    """

    form: Hashable
    starts: Steps
    sources: "list[Item[O] | Hashable]"
    operation: O | None = None
    inner: "list[Item[O] | Hashable]" = field(default_factory=list)
    loop: "Repetition[O] | None" = None
    at: int = 0                 # its number in the sequence
    last_use: int = -1
    size: int = 1               # the number of operations

    def operations(self) -> Iterator[O]:
        """Yield the operation, or the operations of all iterations."""
        if self.loop is None:
            assert self.operation is not None
            yield self.operation
        else:
            for item in (*self.loop.body, *self.loop.later):
                yield from item.operations()


@dataclass(frozen=True)
class Repetition(Generic[O]):
    """Items that repeat: ``body`` is the first iteration, ``steps`` says how far each item moves in an iteration."""

    body: Sequence[Item[O]]
    count: int
    steps: Sequence[Steps]
    later: Sequence[Item[O]]    # items of all other iterations, which the loop replaces

    @property
    def first(self) -> int:
        return self.body[0].at

    def item(self) -> Item[O]:
        """Return the loop as an item of the enclosing sequence."""
        begin = self.first
        inside = [[source.at - begin if isinstance(source, Item) and source.at >= begin else None
                   for source in item.sources] for item in self.body]
        sources = [source for item, offsets in zip(self.body, inside)
                   for source, offset in zip(item.sources, offsets) if offset is None]
        form = (self.count, *[(item.form, *offsets) for item, offsets in zip(self.body, inside)], *self.steps)
        starts = tuple([start for item in self.body for start in item.starts])
        size = sum([item.size for item in (*self.body, *self.later)])
        return Item(form, starts, sources, loop=self, size=size)


def with_loops(items: list[Item[O]], least: int, pairs: bool) -> list[Item[O]]:
    """Return the sequence with loops for the parts that repeat, inner loops first. A loop must save ``least``
    operations. With ``pairs``, two repetitions are enough; otherwise a third must confirm the steps."""
    forms: dict[Hashable, int] = {}
    while True:
        for item in items:
            item.form = forms.setdefault(item.form, len(forms)) if type(item.form) is not int else item.form
        runs = _Level(items, least, pairs).runs()
        if not runs:
            return items
        replaced, at = [], 0
        for run in runs:
            replaced += [*items[at:run.first], run.item()]
            at = run.first + len(run.body) * run.count
        items = [*replaced, *items[at:]]


class _Level(Generic[O]):
    """The search for loops whose bodies are items of one sequence."""

    def __init__(self, items: list[Item[O]], least: int, pairs: bool) -> None:
        self.items, self.least, self.pairs = items, least, pairs
        self.before = [0]               # number of the operations before each item
        for at, item in enumerate(items):
            item.at, item.last_use = at, -1
            for source in (*item.sources, *item.inner) if item.inner else item.sources:
                if type(source) is Item:
                    source.last_use = at
            self.before.append(self.before[-1] + item.size)

    def runs(self) -> list[Repetition[O]]:
        """Return the loops from front to back, each as long as possible. The last equal and the last similar items
        suggest periods."""
        repetitions: list[Repetition[O]] = []
        latest_by_form: dict[Hashable, deque[int]] = {}          # latest items by form
        equal: dict[tuple[Hashable, Steps], int] = {}
        compared: dict[int, int] = {}           # period -> end of the last comparison
        most = CANDIDATES if self.pairs else 1
        at = begin = 0
        while at < len(self.items):
            item = self.items[at]
            key = item.form, item.starts
            latest = latest_by_form.get(item.form)
            if latest is None:
                latest = latest_by_form[item.form] = deque(maxlen=most)
            starts, last_equal = list(reversed(latest)), equal.get(key, -1)
            if last_equal not in starts:
                starts.append(last_equal)
            for start in starts:
                if start < begin or compared.get(at - start, 0) > at or not (self.pairs or self.goes_on(start, at)):
                    continue
                steps, end = self.compare(start, at - start)
                compared[at - start] = end
                if self.before[end] - self.before[at] < self.least:
                    continue
                first = self.with_definitions(start, at - start, begin)
                if first < start:
                    steps, end = self.compare(first, at - start)
                run = self.repetition(first, at - start, steps, end)
                if not run.count and len(steps) == at - start:
                    first, failed = self.earliest(first, at - start, steps, begin), first
                    if first < failed:
                        run = self.repetition(first, at - start, *self.compare(first, at - start))
                if (run.count - 1) * (self.before[at] - self.before[start]) >= self.least:
                    repetitions.append(run)
                    at = begin = first + run.count * (at - start)
                    break
            else:
                equal[key] = at
                latest.append(at)
                at += 1
        return repetitions

    def with_definitions(self, start: int, period: int, begin: int) -> int:
        """Return the start of a repetition moved back over the values without operands before it. The search does not
        begin at such values: many have one form, and the last ones suggest shorter periods."""
        items = self.items
        while start > begin and not items[start - 1].sources and not items[start - 1].starts and (
                items[start - 1].form == items[start - 1 + period].form):
            start -= 1
        return start

    def earliest(self, start: int, period: int, steps: list[Steps], begin: int) -> int:
        """Return the first of the items before ``start`` that move by the steps of the repetition, too. If the items of
        a loop use values of its last iteration, ``start`` may be in the middle of an iteration."""
        items = self.items
        for before in range(start - 1, begin - 1, -1):
            if items[before].form != items[before + period].form or (
                    self.step(before + period, before) != steps[(before - start) % period]):
                return before + 1
        return begin

    def goes_on(self, start: int, at: int) -> bool:
        """Return whether a third item follows the second as the second follows the first. Most similar pairs do not
        repeat."""
        third = 2 * at - start
        return third < len(self.items) and self.items[third].form == self.items[at].form and (
            self.step(third, at) == self.step(at, start))

    def step(self, at: int, before: int) -> Steps:
        """Return how far the tiles move from one item to another."""
        return tuple(map(sub, self.items[at].starts, self.items[before].starts))

    def compare(self, start: int, period: int) -> tuple[list[Steps], int]:
        """Return how far each item from ``start`` on moves in a period, and where the repetition ends."""
        items, steps = self.items, list[Steps]()
        at, count = start + period, len(self.items)
        while at < count:
            item, before = items[at], items[at - period]
            if item.form != before.form or not self.fits(item, before, start, period):
                break
            step = tuple(map(sub, item.starts, before.starts))
            if len(steps) < period:
                steps.append(step)
            elif steps[(at - start) % period] != step:
                break
            at += 1
        return steps, at

    @staticmethod
    def fits(item: Item[O], before: Item[O], start: int, period: int) -> bool:
        """Return whether the operands correspond to the operands of the item one period before: they are defined before
        the loop, or one period earlier."""
        for new, old in zip(item.sources, before.sources):
            if type(new) is Item and new.at >= start:
                if type(old) is not Item or new.at - old.at != period:
                    return False
            elif new is not old and new != old:
                return False
        return True

    def repetition(self, start: int, period: int, steps: list[Steps], end: int) -> Repetition[O]:
        """Return the complete repetitions up to ``end`` whose values no later repetition or operation uses."""
        count = (end - start) // period
        for number in range(count):
            begin = start + number * period
            if max([item.last_use for item in self.items[begin:begin + period]]) >= begin + period:
                count = number
                break
        return Repetition(self.items[start:start + period], count, steps,
                          self.items[start + period:start + count * period])
