# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nests that read a copy's source, or write its target: at each iteration the element that the copy pairs with theirs."""

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT32
from nki_mlir.targets.cpu.forwarding import filled_tile, reading_source, writes_once, writing_target, zeroed_tile
from nki_mlir.targets.cpu.native_nodes import ScratchBuffer
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import ByteRegion

SYMBOL = Linear(0, ((3, 64),))          # part of an address that is known at run time


@dataclass
class Call:
    nest: Nest
    regions: list[ByteRegion]


def copy_nest(extents, source, target, dtype=FLOAT32, to=FLOAT32) -> Nest:
    return Nest(tuple(extents), frozenset(), (Operand(dtype, tuple(source)),), 0, (Operand(to, tuple(target)),), (), (0,))


def addresses(operand: Operand, region: ByteRegion, extents: tuple[int, ...]) -> np.ndarray:
    """Return the byte of each iteration's element, without the symbol."""
    total = np.full(extents, region.offset.const)
    for axis, (step, n) in enumerate(zip(operand.strides, extents)):
        total += (step * operand.dtype.itemsize * np.arange(n)).reshape([n if a == axis else 1 for a in range(len(extents))])
    return total


def packed(extents, order, pad=0) -> list[int]:
    """Return the strides of an array whose last axis in memory is the last of ``order``."""
    strides, step = [0] * len(extents), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= extents[axis] + pad
    return strides


@st.composite
def copies(draw) -> Call:
    """Draw a copy between two arrays, each with another order of axes and other gaps."""
    extents = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    source, target = (packed(extents, draw(st.permutations(range(len(extents)))), draw(st.integers(0, 1))) for _ in "st")
    offsets = [Linear(4 * draw(st.integers(0, 3))).plus(SYMBOL, draw(st.integers(0, 1))) for _ in "st"]
    buffers = [ScratchBuffer(1 << 12, k) for k in range(2)]
    return Call(copy_nest(extents, source, target),
                [replace(buffer.region, offset=offset) for buffer, offset in zip(buffers, offsets)])


@dataclass
class Part:
    """An operand on one side of a copy; ``is_box``: a box of its elements, in some order and by some steps."""

    operand: Operand
    region: ByteRegion
    extents: tuple[int, ...]
    is_box: bool


@st.composite
def parts(draw, copy: Call, side: int) -> Part:
    operand, extents = copy.nest.operands[side], copy.nest.extents
    full = draw(st.booleans())
    starts = [0 if full else draw(st.integers(0, n - 1)) for n in extents]
    steps = [1 if full else draw(st.sampled_from((1, 1, 2))) for _ in extents]
    counts = [n if full else draw(st.integers(1, (n - s - 1) // step + 1)) for n, s, step in zip(extents, starts, steps)]
    order = draw(st.permutations(range(len(extents))))
    strides = [operand.strides[a] * steps[a] if counts[a] > 1 else 0 for a in order]
    offset, dtype = Linear(4 * sum(s * stride for s, stride in zip(starts, operand.strides))), operand.dtype
    fault = draw(st.sampled_from(("", "", "", "stride", "start", "byte", "symbol", "dtype")))
    match fault:
        case "stride":
            strides[draw(st.integers(0, len(strides) - 1))] = draw(st.integers(-2, 9))
        case "start" | "byte":
            offset = offset.plus(Linear(draw(st.sampled_from((-4, 4, 8))) if fault == "start" else 1))
        case "symbol":
            offset = offset.plus(SYMBOL, draw(st.sampled_from((-1, 1))))
        case "dtype":
            dtype = INT32
    region = replace(copy.regions[side], offset=copy.regions[side].offset.plus(offset))
    return Part(Operand(dtype, tuple(strides)), region, tuple(counts[a] for a in order), not fault)


def check(copy: Call, side: int, part: Part, operand: Operand, region: ByteRegion) -> None:
    """Check that an operand has the elements that the copy pairs with those of a part."""
    ends = [addresses(o, r, copy.nest.extents).reshape(-1) for o, r in zip(copy.nest.operands, copy.regions)]
    other_side = dict(zip(ends[side], ends[1 - side]))
    assert part.operand.dtype is FLOAT32
    assert part.region.offset.symbols == copy.regions[side].offset.symbols
    assert operand.dtype is copy.nest.operands[1 - side].dtype
    assert replace(region, offset=Linear()) == replace(copy.regions[1 - side], offset=Linear())
    assert region.offset.symbols == copy.regions[1 - side].offset.symbols
    there = addresses(part.operand, part.region, part.extents)
    np.testing.assert_array_equal(addresses(operand, region, part.extents), np.vectorize(other_side.__getitem__)(there))


@given(copies(), st.data())
def test_reader__gets_the_element_that_the_copy_put_there(copy: Call, data: st.DataObject) -> None:
    part = data.draw(parts(copy, 1))
    other = Operand(FLOAT32, (0,) * len(part.extents))
    nest = Nest(part.extents, frozenset(), (other, part.operand), 0, (other,), (), (1,))
    result = reading_source(nest, 1, part.region, copy)
    assert result or not part.is_box
    if result:
        check(copy, 1, part, result[0].inputs[1], result[1])
        assert replace(result[0], inputs=nest.inputs) == nest and result[0].inputs[0] == other


@given(copies(), st.data())
def test_writer__puts_elements_where_the_copy_would(copy: Call, data: st.DataObject) -> None:
    """A sum over one more axis writes elements of the copy's source; if all, it may write its target."""
    part = data.draw(parts(copy, 0))
    extents, rank = (*part.extents, 3), len(part.extents)
    outer = Operand(FLOAT32, (*part.operand.strides, 0))
    nest = Nest(extents, frozenset({rank}), (outer,), 0, (replace(outer, dtype=part.operand.dtype),), (), (0,))
    result = writing_target(nest, part.region, copy)
    assert bool(result) or not (part.is_box and prod(part.extents) == copy.nest.elements)
    if result:
        assert prod(part.extents) == copy.nest.elements
        output = result[0].outputs[0]
        assert output.strides[rank] == 0 and replace(result[0], outputs=nest.outputs) == nest
        check(copy, 0, part, replace(output, strides=output.strides[:-1]), result[1])


# -- computations that fill a tile -------------------------------------------------------------------------------------
@st.composite
def fills(draw) -> Call:
    """Draw a nest with at most one reduced axis, whose output is often, but not always, all of a buffer."""
    extents = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    reduced = frozenset(draw(st.sets(st.sampled_from(range(len(extents))), max_size=1)))
    axes = draw(st.permutations([a for a in range(len(extents)) if a not in reduced]))
    strides = [0] * len(extents)
    for axis, step in zip(axes, packed([extents[a] for a in axes], range(len(axes)), draw(st.sampled_from((0, 0, 1))))):
        strides[axis] = step
    if axes and draw(st.integers(0, 2)) == 0:
        strides[axes[0]] = draw(st.integers(-1, 3))
    count = prod(n for a, n in enumerate(extents) if a not in reduced)
    tile = ScratchBuffer(4 * (count + draw(st.sampled_from((0, 0, 0, 1)))), 0)
    output = Operand(FLOAT32, tuple(strides))
    nest = Nest(extents, reduced, (output,), 0, (output,), (), (0,))
    return Call(nest, [tile.region, tile.region])


def written(nest: Nest) -> np.ndarray:
    """Return the element of each position of the parallel axes."""
    first = tuple(0 if a in nest.reduced else slice(None) for a in range(len(nest.extents)))
    return addresses(nest.outputs[0], ScratchBuffer(0, 0).region, nest.extents)[first].reshape(-1) // 4


@given(fills())
def test_filled_tile__has_each_element_written_once(call: Call) -> None:
    nest, tile = call.nest, call.regions[-1].root
    elements = written(nest)
    once = len({*elements}) == len(elements)
    assert once or not writes_once(nest)
    if 0 <= min(elements) and max(elements) < tile.size // 4:
        assert filled_tile(call) is (tile if once and len(elements) == tile.size // 4 else None)
    for other in (replace(nest, mask=(Constraint(Linear()),)), replace(nest, outputs=nest.outputs * 2, results=(0, 0))):
        assert filled_tile(Call(other, [*call.regions, tile.region][-len(other.operands):])) is None
    assert filled_tile(Call(nest, [tile.region, replace(tile.region, root="y")])) is None


def test_zeroed_tile__is_filled_with_the_constant_0() -> None:
    tile, number = ScratchBuffer(24, 0), Operand(FLOAT32, (3, 1))

    def zeros(value: str = "0.0", **fields) -> Call:
        nest = Nest((2, 3), frozenset(), (), 0, (number,), (Step("constant", FLOAT32, number=value),), (1,))
        return Call(replace(nest, **fields), [tile.region])
    assert zeroed_tile(zeros()) is zeroed_tile(zeros("-0.0")) is tile
    assert zeroed_tile(zeros("1.0")) is None
    assert zeroed_tile(zeros(extents=(2, 2))) is None
    assert zeroed_tile(zeros(results=(0,))) is None                                     # the old value
    position = Step("position", FLOAT32, number=Linear())
    assert zeroed_tile(zeros(steps=(position,))) is None
    assert zeroed_tile(zeros(inputs=(number,), results=(2,))) is None
    assert zeroed_tile(zeros(reduced=frozenset({1}), outputs=(Operand(FLOAT32, (1, 0)),))) is None
    assert zeroed_tile(zeros(limits=(Constraint(Linear()),))) is None


def test_move_between_dtypes__is_not_followed_by_bytes() -> None:
    """The target of a conversion has other bytes than its source; a reader of the target gets its dtype there."""
    tile, source = ScratchBuffer(64, 0), ScratchBuffer(64, 1)
    copy = Call(copy_nest((4,), (1,), (1,), BFLOAT16, FLOAT32), [source.region, tile.region])
    reader = Nest((2,), frozenset(), (Operand(FLOAT32, (2,)),), 0, (Operand(FLOAT32, (1,)),), (), (0,))
    nest, region = reading_source(reader, 0, replace(tile.region, offset=Linear(4)), copy)
    assert nest.inputs == (Operand(BFLOAT16, (2,)),)
    assert region == replace(source.region, offset=Linear(2))
