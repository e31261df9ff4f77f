# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel does to its arguments, compared with the elements that its stores write, one by one."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nki_mlir.analysis.effects import (
    WrittenElements,
    are_all_together,
    argument_effects,
    effects_of,
    local_effects,
    memory_of,
    multiply_accumulates,
    users_through_views,
    without_gap,
)
from nki_mlir.bindings import ir, operations_of
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel, describe_array, is_array

ROWS, COLUMNS, FIRST = 6, 4, 2
STEPS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=3)


def function_of(kernel, *arrays, grid=()):
    """The function of a kernel on arrays, and its module, which the function needs."""
    launched = Kernel(kernel)[grid] if grid else Kernel(kernel)
    module = launched.specialize(launched.bind(arrays, {}, is_array, describe_array)).captured.variants[()].module
    return the_kernel(module), module


def elements_at(start: int, steps) -> list[int]:
    return [start + sum(step * n for (step, _), n in zip(steps, index))
            for index in product(*(range(count) for _, count in steps))]


@given(STEPS)
@example([(1, 4), (4, 3)])
@example([(6, 2), (1, 2), (2, 3)])
def test_without_gap(steps):
    """Digits of a mixed radix, of which those with one value do not matter, reach each number once."""
    reached = elements_at(0, steps)
    several = [(step, count) for step, count in steps if count > 1]
    expected = len(reached) if sorted(reached) == list(range(len(reached))) else 0
    assert without_gap(several) == expected


@given(st.lists(st.tuples(st.integers(0, 8), STEPS), min_size=1, max_size=4))
@example([(0, [(1, 4)]), (4, [(1, 4), (4, 2)])])
@example([(0, [(2, 6)]), (1, [(2, 6)])])
def test_several_writes_are_all_of_a_buffer(several):
    writes = [WrittenElements(start, tuple(steps)) for start, steps in several]
    reached = {element for start, steps in several for element in elements_at(start, steps)}
    size = max(reached) + 1
    assert are_all_together(writes, size) == (reached == {*range(size)})


@st.composite
def stores(draw):
    """Rows and columns that iterations of a loop, which begins at ``FIRST``, store: start in the first iteration, step
    to the next, and count, twice."""
    iterations, slices = draw(st.integers(1, 3)), []
    for size in (ROWS, COLUMNS):
        step = draw(st.integers(0, (size - 1) // max(1, iterations - 1) if iterations > 1 else 0))
        count = draw(st.integers(1, size - step * (iterations - 1)))
        slices.append((draw(st.integers(0, size - step * (iterations - 1) - count)), step, count))
    (_, step, count), _ = slices
    kinds = ["loop"] + ["conditional"] * (iterations > 1) + ["grid"] * (step >= count)      # programs write apart
    return iterations, slices, draw(st.sampled_from(kinds))


@given(st.lists(stores(), min_size=1, max_size=3).filter(
    lambda drawn: len(drawn) == 1 or all(kind != "grid" for _, _, kind in drawn)))
@example([(3, [(0, 2, 2), (0, 0, COLUMNS)], "loop")])
@example([(2, [(0, 3, 3), (0, 0, COLUMNS)], "grid")])
@example([(3, [(0, 0, ROWS), (0, 1, 2)], "loop")])
@example([(2, [(0, 3, 3), (0, 0, COLUMNS)], "conditional")])
@example([(1, [(0, 0, ROWS), (0, 0, 2)], "loop"), (1, [(0, 0, ROWS), (2, 0, 2)], "loop")])
def test_covered_arguments_are_written_everywhere(drawn):
    """Stores in conditions do not count. The proof finds each single store that tiles the array, and stores without
    loops that do it together."""
    programs = next((n for n, _, kind in drawn if kind == "grid"), 1)
    written = np.zeros((ROWS, COLUMNS), bool)

    def kernel(x, out):
        for iterations, ((row, row_step, rows), (column, column_step, columns)), kind in drawn:
            def at(k, row=row, row_step=row_step, rows=rows, column=column, column_step=column_step, columns=columns):
                return out[nl.ds(row + row_step * k, rows), nl.ds(column + column_step * k, columns)]
            tile = nl.load(x[0:rows, 0:columns])
            if kind == "grid":
                nl.store(at(nl.program_id(0)), tile)
            for k in nl.sequential_range(FIRST, FIRST + iterations if kind != "grid" else 0):
                if kind == "conditional":
                    if k > FIRST:
                        nl.store(at(k - FIRST), tile)
                else:
                    nl.store(at(k - FIRST), tile)
    function, _ = function_of(kernel, np.zeros((ROWS, COLUMNS), np.float32), np.zeros((ROWS, COLUMNS), np.float32),
                              grid=(programs,) if programs > 1 else ())
    for iterations, ((row, row_step, rows), (column, column_step, columns)), kind in drawn:
        for k in range(iterations) if kind != "conditional" else ():
            first, left = row + row_step * k, column + column_step * k
            written[first:first + rows, left:left + columns] = True
    read, stored = argument_effects(function)[:2]
    assert (read.reads, read.writes, read.covered) == (True, False, False)
    assert (stored.reads, stored.writes) == (False, True)
    assert not stored.covered or written.all()
    if len(drawn) == 1 and written.all():
        (_, ((_, row_step, rows), (_, column_step, columns)), _), = drawn
        tiles_rows = row_step in (0, rows) and (column_step == 0 or columns == column_step)
        assert stored.covered or not tiles_rows or (row_step and column_step)
    if all(iterations == 1 for iterations, _, _ in drawn) and written.all():
        assert stored.covered


def test_what_an_argument_is_used_for():
    """A parameter is updated, another one read as indices, another one is not used."""
    def kernel(table, indices, unused, out, scattered):
        rows = nl.load(indices)
        tile = nl.load(table[rows[:, 0], nl.arange(4)[None, :]])
        nl.store(table[0:8, 0:4], tile)
        nl.store(out, tile, mask=nl.arange(8)[:, None] > 2)
        nl.store(scattered[rows[:, 0], nl.arange(4)[None, :]], tile)
    function, _ = function_of(kernel, np.zeros((8, 4), np.float32), np.zeros((8, 1), np.int32),
                              np.zeros((2, 2), np.float32), np.zeros((8, 4), np.float32), np.zeros((8, 4), np.float32))
    table, indices, unused, *targets = [(e.reads, e.writes, e.covered) for e in argument_effects(function)]
    assert (table, indices, unused) == ((True, True, True), (True, False, False), (False, False, False))
    assert targets == [(False, True, False), (True, True, False)]       # a mask, and data, select the elements


@pytest.mark.parametrize("grid", [(), (2,)])
def test_multiply_accumulates_of_a_launch(grid):
    """Each of the iterations of two loops and each program has a product."""
    def kernel(x, y, out):
        left, right = nl.load(x), nl.load(y)
        for _ in nl.sequential_range(3):
            for _ in nl.sequential_range(2):
                nl.store(out[nl.program_id(0) if grid else 0], nl.copy(nisa.nc_matmul(left, right)))
    shapes = (32, 16), (32, 64), (2, 16, 64)
    function, _ = function_of(kernel, *(np.zeros(shape, np.float32) for shape in shapes), grid=grid)
    assert multiply_accumulates(function) == 32 * 16 * 64 * 3 * 2 * prod(grid)


OPERATIONS = """
#id = affine_map<(d0) -> (d0)>
#all = affine_set<() : (0 == 0)>
#whole = #nki.access<f32, affine_map<() -> (0)>, [[1, 8]]>
!t = memref<8xf32, "hbm">
func.func @f(%a: !t, %b: !t, %c: !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %view = memref.subview %b[4] [4] [1] : !t to memref<4xf32, strided<[1], offset: 4>, "hbm">
  %part = memref.subview %view[1] [2] [1] : memref<4xf32, strided<[1], offset: 4>, "hbm"> to
      memref<2xf32, strided<[1], offset: 5>, "hbm">
  scf.for %i = %c0 to %c1 step %c1 {
    LINE
  }
  return
}
"""
GENERIC = """linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : !t) outs(%b : !t) {
    ^bb0(%x: f32, %y: f32):
      %v = arith.addf %x, OTHER : f32
      linalg.yield %v : f32
    }"""


@pytest.mark.parametrize(("line", "reads", "writes"), [
    (GENERIC.replace("OTHER", "%x"), "a", "b"),
    (GENERIC.replace("OTHER", "%y"), "ab", "b"),
    ("linalg.fill ins(%zero : f32) outs(%a : !t)", "", "a"),
    ('linalg.fill ins(%zero : f32) outs(%part : memref<2xf32, strided<[1], offset: 5>, "hbm">)', "", "b"),
    ("%x = memref.load %c[%c0] : !t", "c", ""),
    ("memref.store %zero, %c[%c0] : !t", "c", "c"),             # other operations may do anything
    ("memref.copy %a, %c : !t to !t", "ac", "ac"),
    ('"nisa.dma_copy"(%c, %a) {access = [#whole, #whole], mask = #all, engine = "unknown"} : (!t, !t) -> ()',
     "a", "c"),
    ('"nisa.core_barrier"(%a) {access = [#whole], mask = #all, cores = [0, 1], engine = "unknown"} : (!t) -> ()', None, "abc"),
])
def test_effects_of_operations(line, reads, writes):
    """A loop has those of its body, but none locally."""
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(OPERATIONS.replace("LINE", line))
    function = module.body.operations[0].operation
    arguments = dict(zip("abc", function.regions[0].blocks[0].arguments))
    loop, = operations_of(function, lambda name: name == "scf.for")
    effects = effects_of(loop)
    assert effects.writes == {arguments[name] for name in writes}
    assert reads is None or effects.reads == {arguments[name] for name in reads}
    assert local_effects(loop) == type(effects)()
    for name, buffer in arguments.items():
        assert effects.touches(buffer) == (buffer in effects.reads or buffer in effects.writes)
    part, = [op.results[0] for op in operations_of(function, lambda name: name == "memref.subview")][1:]
    assert memory_of(part) == arguments["b"]
    users = [op.name for op in users_through_views(arguments["b"])]
    assert users == ([line.split()[0]] if "%b" in line or "%part" in line else [])
