# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which on-chip buffers get a memset, against an execution of each program that records the written elements."""

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.capture.index import Index, Symbol
from nki_mlir.capture.strides import Dim
from nki_mlir.capture.tensor import Buffer, View, tile_of
from nki_mlir.capture.writes import FirstUses
from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.dialects.nisa.movement import KEEP, StreamShuffleOp
from nki_mlir.dialects.nki.elementwise import BinaryOp
from nki_mlir.dialects.nki.matmul import MatmulOp
from nki_mlir.dialects.nki.movement import CopyOp, MemsetOp
from nki_mlir.scalar.dtypes import FLOAT32

ROWS, COLUMNS = 4, 8
MASK = (Constraint(Linear(3, (), ((1, -1),)), False),)


def loop(first, count, step=1):
    return Symbol("i", first, first + (count - 1) * step, ("i",), None, value=object(), step=step)


class Program:
    """Statements of operations, loops, branches and allocations, which ``FirstUses`` gets in the order of the text."""

    def __init__(self):
        self.uses, self.buffers = FirstUses(), []
        self.body = []
        self.scopes, self.bodies = [SimpleNamespace(symbol=None)], [self.body]

    def tile(self, space="sbuf", zeroed=False):
        buffer = Buffer((ROWS, COLUMNS), FLOAT32, space, f"t{len(self.buffers)}", handle=np.zeros(1))
        buffer.scope = self.scopes[-1]
        self.uses.allocated(buffer, *[True] * zeroed)
        self.buffers.append(buffer)
        self.bodies[-1].append(("allocate", buffer))
        return buffer

    def inside(self, symbol, write):
        """Write the statements of a loop, or of a branch if there is no symbol."""
        body = []
        self.bodies[-1].append(("inside", symbol, body))
        self.scopes.append(SimpleNamespace(symbol=symbol))
        self.bodies.append(body)
        write()
        self.scopes.pop()
        self.bodies.pop()

    def op(self, cls, mask=False, chosen=None, reads_dst=False, **views):
        symbols = list(dict.fromkeys(s for v in views.values() for form in (v.partition, v.free) for s in form.symbols))
        position_of = {symbol: k for k, symbol in enumerate(symbols)}
        attributes = {"value": 0.0} if cls is MemsetOp else {"op": "add"} if cls is BinaryOp else chosen or {}
        op = cls(**{name: tile_of(v, position_of) for name, v in views.items()}, **attributes,
                 symbols=tuple(s.value for s in symbols), mask=MASK if mask else ())
        self.uses.record_operands(op, op.operands(), [views[field.name] for field, _ in op.operands()], self.scopes)
        sources = [v for name, v in views.items() if name != "dst" or reads_dst]
        self.bodies[-1].append(("op", views["dst"], sources, mask))

    def set(self, dst, mask=False):
        self.op(MemsetOp, mask, dst=dst)

    def read(self, src):
        self.op(CopyOp, dst=view(self.other), src=src)

    def copy(self, dst, src):
        self.op(CopyOp, dst=dst, src=src)

    def product(self, dst, accumulate):
        self.op(MatmulOp, chosen={"accumulate": accumulate}, reads_dst=accumulate, dst=dst,
                stationary=view(self.other, 0, ROWS), moving=view(self.other))

    def shuffle(self, dst, partitions):
        self.op(StreamShuffleOp, chosen={"shuffle": partitions}, reads_dst=KEEP in partitions, dst=dst, src=view(self.other))

    def add(self, dst, lhs, rhs):
        self.op(BinaryOp, dst=dst, lhs=lhs, rhs=rhs)

    other = Buffer((ROWS, COLUMNS), FLOAT32, "hbm", "x", handle=np.zeros(1))

    def zeroed(self):
        return {b for b in self.buffers if b in self.uses.zeros}

    def read_unwritten(self):
        """The buffers of which some execution reads an element that no operation has written."""
        unwritten = set()
        for taken in (False, True):
            written = {}

            def run(body, values, taken=taken, written=written):
                for kind, *parts in body:
                    if kind == "allocate":
                        written[parts[0]] = set()
                    elif kind == "inside":
                        symbol, inner = parts
                        numbers = range(symbol.first, symbol.last + 1, symbol.step) if symbol else [0] if taken else []
                        for number in numbers:
                            run(inner, values | {symbol: number})
                    else:
                        dst, sources, mask = parts
                        unwritten.update(v.buffer for v in sources if v.buffer in written
                                         and not elements(v, values) <= written[v.buffer])
                        if dst.buffer in written and not mask:
                            written[dst.buffer] |= elements(dst, values)
            run(self.body, {})
        return unwritten


def view(buffer, low=0, count=COLUMNS, step=1, rows=(0, ROWS), by=None, row_by=None):
    """Columns of some rows; ``by`` and ``row_by`` are (symbol, coefficient) that move them."""
    free, partition = Index(low, dict([by] if by else [])), Index(rows[0], dict([row_by] if row_by else []))
    return View(buffer, partition, free, (Dim(1, 0, rows[1]), Dim(0, step, count)), FLOAT32)


def elements(v, values):
    row, column = (index.const + sum(c * values[s] for s, c in index.symbols.items()) for index in (v.partition, v.free))
    return {(row + v.dims[0].partition * at[0], column + sum(d.free * k for d, k in zip(v.dims[1:], at[1:])))
            for at in itertools.product(*(range(d.count) for d in v.dims))}


def test_random_programs__read_only_written_elements_of_buffers_without_a_memset():
    rng, needed, spared = random.Random(11), 0, 0

    def random_view(buffer, symbols):
        if rng.random() < 0.3:
            return view(buffer)
        count, step = rng.choice([(8, 1), (4, 1), (2, 1), (4, 2), (1, 1)])
        rows = rng.choice([(0, 4), (0, 4), (0, 4), (0, 2), (2, 2), (1, 3)])
        room = COLUMNS - 1 - (count - 1) * step
        fitting = [s for s in symbols if s.last * count * step <= room and s.first >= 0]
        if fitting and rng.random() < 0.7:
            return view(buffer, 0, count, step, rows, (rng.choice(fitting), rng.choice([1, count * step])))
        return view(buffer, rng.randrange(room + 1), count, step, rows)

    def statements(program, tiles, symbols, depth):
        for _ in range(rng.randrange(1, 4)):
            kind = rng.random()
            if kind < 0.25 and depth < 2:
                symbol = rng.choice([loop(0, 2), loop(0, 4), loop(0, 8), loop(0, 2, 2), loop(1, 2), None])
                program.inside(symbol, lambda symbol=symbol: statements(
                    program, list(tiles), [*symbols, *([symbol] if symbol else [])], depth + 1))
            elif kind < 0.32:
                tiles.append(program.tile())
            elif kind < 0.65:
                program.set(random_view(rng.choice(tiles), symbols), rng.random() < 0.1)
            elif kind < 0.75:
                tile = rng.choice(tiles)
                program.add(view(tile), view(tile), view(program.other))
            elif kind < 0.85:
                tile = rng.choice(tiles)
                program.copy(random_view(tile, symbols), random_view(rng.choice(tiles), symbols))
            else:
                program.read(random_view(rng.choice(tiles), symbols))

    for _ in range(400):
        program = Program()
        statements(program, [program.tile(), program.tile()], [], 0)
        read = program.read_unwritten()
        assert read <= program.zeroed()
        needed, spared = needed + len(read), spared + len(set(program.buffers) - program.zeroed())
    assert needed > 150 and spared > 150


# -- buffers that need no memset ---------------------------------------------------------------------------------------
def two_halves(p, t):
    p.set(view(t, 0, 4))
    p.set(view(t, 4, 4))
    p.read(view(t, 0, 4))


def parts_in_any_order(p, t):
    p.set(view(t, 2, 2))
    p.set(view(t, 3, 5))
    p.read(view(t, 2, 6))
    p.set(view(t, 0, 2))
    p.read(view(t))


def halves_of_the_rows(p, t):
    p.set(view(t, rows=(2, 2)))
    p.set(view(t, rows=(0, 2)))
    p.read(view(t))


def all_but_the_last_column(p, t):
    p.set(view(t, 0, 4))
    p.set(view(t, 4, 3))
    p.read(view(t))


def parts_apart(p, t):
    p.set(view(t, 0, 2))
    p.set(view(t, 6, 2))
    p.read(view(t))


def a_corner_is_missing(p, t):
    p.set(view(t, 0, 4))
    p.set(view(t, 4, 4, rows=(0, 3)))
    p.read(view(t))


def every_second_column_of_a_half(p, t):
    p.set(view(t, 0, 4))
    p.set(view(t, 4, 2, step=2))
    p.read(view(t))


def the_other_half_in_a_branch(p, t):
    p.set(view(t, 0, 4))
    p.inside(None, lambda: p.set(view(t, 4, 4)))
    p.read(view(t))


def the_other_half_under_a_mask(p, t):
    p.set(view(t, 0, 4))
    p.set(view(t, 4, 4), mask=True)
    p.read(view(t))


def the_other_half_from_itself(p, t):
    p.set(view(t, 0, 4))
    p.copy(view(t, 4, 4), view(t, 0, 4))
    p.read(view(t))


def read_between_two_halves(p, t):
    p.set(view(t, 0, 4))
    p.read(view(t))
    p.set(view(t, 4, 4))


def first_part_alone(p, t):
    p.set(view(t, 0, 4))
    p.read(view(t, 0, 4))


def rows_of_the_first_part(p, t):
    p.set(view(t, rows=(1, 3)))
    p.read(view(t, 2, 3, rows=(2, 2)))


def row_before_the_first_part(p, t):
    p.set(view(t, rows=(1, 2)))
    p.read(view(t, rows=(0, 2)))


def row_behind_the_first_part(p, t):
    p.set(view(t, rows=(1, 2)))
    p.read(view(t, rows=(2, 2)))


def rows_without_all_columns(p, t):
    p.set(view(t, 1, 7, rows=(0, 4)))
    p.read(view(t, 0, 4, rows=(0, 4)))


def all_columns_in_a_loop(p, t):
    i = loop(0, 4)
    p.inside(i, lambda: p.set(view(t, 0, 2, by=(i, 2))))
    p.read(view(t))


def columns_with_a_step_in_a_loop(p, t):
    i = loop(0, 2)
    p.inside(i, lambda: p.set(view(t, 0, 4, 2, by=(i, 1))))
    p.read(view(t))


def all_columns_from_one_on(p, t):
    i = loop(1, 4)
    p.inside(i, lambda: p.set(view(t, -2, 2, by=(i, 2))))
    p.read(view(t))


def half_of_the_columns_in_a_loop(p, t):
    i = loop(0, 2)
    p.inside(i, lambda: p.set(view(t, 0, 2, by=(i, 2))))
    p.read(view(t))


def columns_in_two_loops(p, t):
    i, k = loop(0, 2), loop(0, 2)
    p.inside(i, lambda: p.inside(k, lambda: p.set(View(t, Index(), Index(0, {i: 4, k: 2}),
                                                       (Dim(1, 0, ROWS), Dim(0, 1, 2)), FLOAT32))))
    p.read(view(t))


def columns_of_one_iteration_before_others(p, t):
    i = loop(0, 4)

    def body():
        p.set(view(t, 0, 2, by=(i, 2)))
        p.read(view(t, 0, 2, by=(i, 2)))
    p.inside(i, body)
    p.read(view(t))


def columns_of_a_later_iteration(p, t):
    i = loop(0, 4)

    def body():
        p.set(view(t, 0, 2, by=(i, 2)))
        p.read(view(t, 6, 2))
    p.inside(i, body)


def columns_before_those_of_the_iteration(p, t):
    i = loop(0, 4)

    def body():
        p.set(view(t, 0, 2, by=(i, 2)))
        p.read(view(t, 6, 2, by=(i, -2)))
    p.inside(i, body)


def columns_of_another_loop(p, t):
    i, k = loop(0, 4), loop(0, 4)

    def body():
        p.set(view(t, 0, 2, by=(i, 2)))
        p.inside(k, lambda: p.read(view(t, 0, 2, by=(k, 2))))
    p.inside(i, body)


def more_rows_of_the_first_part(p, t):
    p.set(view(t, 0, 4, rows=(0, 2)))
    p.read(view(t, 0, 4))


def other_columns_of_two(p, t):
    p.set(view(t, 0, 2))
    p.read(view(t, 0, 2, 2))


def one_column(p, t):
    p.set(view(t, 0, 1))
    p.read(view(t, 0, 1, 2))


def first_row_of_some_columns(p, t):
    p.set(view(t, 1, 7))
    p.read(view(t, 0, 4, rows=(0, 1)))


def rows_in_three_dims(p, t):
    p.set(View(t, Index(1), Index(), (Dim(1, 0, 3), Dim(0, 99, 1), Dim(0, 4, 2), Dim(0, 1, 4)), FLOAT32))
    p.read(view(t, 2, 3, rows=(2, 2)))


def columns_in_three_dims_of_a_loop(p, t):
    i = loop(0, 2)
    p.inside(i, lambda: p.set(View(t, Index(), Index(0, {i: 4}), (Dim(1, 0, 4), Dim(0, 99, 1), Dim(0, 2, 2), Dim(0, 1, 2)),
                                   FLOAT32)))
    p.read(view(t))


def columns_that_a_loop_counts(p, t):
    i = loop(0, 2, 4)
    p.inside(i, lambda: p.set(view(t, 0, 4, by=(i, 1))))
    p.read(view(t))


def every_second_row(p, t):
    p.set(View(t, Index(), Index(), (Dim(2, 0, 2), Dim(0, 1, 8)), FLOAT32))
    p.read(view(t, 0, 4, rows=(1, 1)))


def one_row_of_any_step(p, t):
    p.set(View(t, Index(2), Index(), (Dim(2, 0, 1), Dim(0, 1, 8)), FLOAT32))
    p.read(view(t, 0, 4, rows=(2, 1)))


def half_of_the_rows_in_a_loop(p, t):
    i = loop(0, 4)
    p.inside(i, lambda: p.set(view(t, 0, 2, rows=(0, 2), by=(i, 2))))
    p.read(view(t))


def rows_that_a_loop_moves(p, t):
    i = loop(0, 2)
    p.inside(i, lambda: p.set(view(t, rows=(0, 2), row_by=(i, 2))))
    p.read(view(t))


def written_in_a_branch(p, t):
    p.inside(None, lambda: p.set(view(t)))
    p.read(view(t))


def written_and_read_in_a_branch(p, t):
    def body():
        p.set(view(t, 0, 4))
        p.read(view(t, 0, 4))
    p.inside(None, body)


def written_in_a_loop_as_a_part(p, t):
    p.inside(loop(0, 2), lambda: p.set(view(t, 0, 4)))
    p.read(view(t, 0, 4))


def masked(p, t):
    p.set(view(t), mask=True)
    p.read(view(t))


def summed(p, t):
    p.add(view(t), view(t), view(p.other))


def copied_into_itself(p, t):
    p.copy(view(t), view(t))


def of_an_inner_loop(p, t):
    """The buffer of a loop's body is new in each iteration."""
    def body():
        inner = p.tile()
        p.set(view(inner))
        p.read(view(inner))
    p.inside(loop(0, 2), body)
    p.set(view(t))


def moved_in_the_first_part(p, t):
    p.set(view(t, 0, 4))
    i = loop(0, 4)
    p.inside(i, lambda: p.read(view(t, 0, 2, by=(i, 2))))


def product_that_overwrites(p, t):
    p.product(view(t), False)
    p.read(view(t))


def product_that_adds(p, t):
    p.product(view(t), True)


def shuffle_of_all_partitions(p, t):
    p.shuffle(view(t), [*range(32)])


def shuffle_that_keeps_partitions(p, t):
    p.shuffle(view(t), [0, KEEP, *range(2, 32)])


def product_of_what_it_overwrites(p, t):
    p.op(MatmulOp, chosen={"accumulate": False}, dst=view(t), stationary=view(p.other, 0, ROWS), moving=view(t))


@pytest.mark.parametrize("write, needs", [
    (moved_in_the_first_part, True), (product_that_overwrites, False), (product_that_adds, True),
    (shuffle_of_all_partitions, False), (shuffle_that_keeps_partitions, True), (product_of_what_it_overwrites, True),
    (two_halves, False), (parts_in_any_order, False), (halves_of_the_rows, False), (all_but_the_last_column, True),
    (parts_apart, True), (a_corner_is_missing, True), (every_second_column_of_a_half, True),
    (the_other_half_in_a_branch, True), (the_other_half_under_a_mask, True), (the_other_half_from_itself, True),
    (read_between_two_halves, True), (first_part_alone, False), (rows_of_the_first_part, False), (row_before_the_first_part, True),
    (row_behind_the_first_part, True), (rows_without_all_columns, True), (all_columns_in_a_loop, False),
    (columns_with_a_step_in_a_loop, False), (all_columns_from_one_on, False), (half_of_the_columns_in_a_loop, True),
    (columns_in_two_loops, False), (columns_of_one_iteration_before_others, False), (columns_of_a_later_iteration, True),
    (half_of_the_rows_in_a_loop, True), (rows_that_a_loop_moves, True), (written_in_a_branch, True),
    (written_and_read_in_a_branch, True), (written_in_a_loop_as_a_part, False), (masked, True), (summed, True),
    (copied_into_itself, True), (of_an_inner_loop, False),
    (columns_before_those_of_the_iteration, True), (columns_of_another_loop, True), (more_rows_of_the_first_part, True),
    (other_columns_of_two, True), (one_column, False), (first_row_of_some_columns, True), (rows_in_three_dims, False),
    (columns_in_three_dims_of_a_loop, False), (columns_that_a_loop_counts, False), (every_second_row, True),
    (one_row_of_any_step, False)])
def test_memset__is_there_where_it_may_be_needed(write, needs):
    program = Program()
    write(program, program.tile())
    assert bool(program.zeroed()) is needs
    assert all(program.uses.zeros[b] is False for b in program.zeroed())
    assert needs or not program.read_unwritten()


def test_state__begins_as_zeros_unless_it_is_overwritten():
    for write, zeros in ((lambda p, t: None, True), (summed, True), (lambda p, t: p.set(view(t)), None),
                         (first_part_alone, None), (all_columns_in_a_loop, True), (masked, True)):
        program = Program()
        state = program.tile(zeroed=True)
        write(program, state)
        assert program.uses.zeros.get(state) is zeros


def test_buffer_in_hbm_and_one_that_is_forgotten__get_no_memset():
    program = Program()
    out, t = program.tile("hbm"), program.tile(zeroed=True)
    program.uses.remove_buffer(t)
    for buffer in (out, t):
        program.read(view(buffer))
    assert not program.uses.zeros
