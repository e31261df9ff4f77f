# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that are lowered once give the records of operations that are lowered one by one.

Each part of the key counts.
"""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.conversion import operation_groups
from nki_mlir.conversion.movable_patterns import outline_of
from nki_mlir.conversion.operation_groups import Groups
from nki_mlir.conversion.repeated_operations import ModuleContents, lower_once
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel, describe_array, is_array
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_lowered
from nki_mlir.targets.neuron.codegen.lowered_kernel import LoweredKernel, at_nisa
from nki_mlir.targets.neuron.codegen.records import InstructionStep, blocks, nodes_in, tiles_of
from nki_mlir.targets.neuron.codegen.repeated_records import NoTemplate, Templates
from nki_mlir.targets.neuron.format.assembly import print_program
from tests.targets.neuron.code_builder import Builder


def captured(function, *shapes, grid=None):
    """The module of a kernel on float32 arrays."""
    kernel = Kernel(function)[grid] if grid else Kernel(function)
    arrays = tuple(np.zeros(shape, np.float32) for shape in shapes)
    return kernel.specialize(kernel.bind(arrays, {}, is_array, describe_array)).captured.variants[()].module


def described(code) -> list[object]:
    """The buffers in order and the instructions, each with its fields, the buffers of its tiles and its location."""
    inside = [buffer for block in blocks(code.body) for buffer in block.buffers]
    numbers = {buffer: k for k, buffer in enumerate((*code.globals, *inside))}
    lines: list[object] = [(b.name, b.space, b.shape, b.dtype.name, b.location) for b in inside]
    for node in nodes_in(code.body):
        tiles = [(tile.access, tile.label, numbers[tile.handle]) for tile in tiles_of(node)]
        if isinstance(node, InstructionStep):
            op = node.op
            lines.append((op.full_name(), op.attribute_values(), op.mask, op.limits, op.ranges, op.extra))
        lines.append((type(node).__name__, node.location, tiles))
    return lines


def check(module) -> int:
    """Whether the records are those of operations that are lowered one by one; how many are not lowered."""
    once = LoweredKernel(module)
    count = len(once.repeats.repeated)
    one_by_one = LoweredKernel(at_nisa(module), is_lowered=True)
    assert described(once.code()) == described(one_by_one.code())
    texts = ["".join(map(print_program, emit_lowered(kernel, Emission()))) for kernel in (once, one_by_one)]
    assert texts[0] == texts[1]
    return count


def agrees(module) -> bool:
    try:
        return check(module) > 0
    except (AssertionError, KeyError, IndexError):
        return False


# -- kernels, each with how many groups repeat one ---------------------------------------------------------------------
def rows_divided(x):
    """Folds, activations with rows, temporaries: all of the last three blocks repeats the first."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for k in nl.static_range(4):
        tile = nl.load(x[0:128, :])
        powers = nl.exp(tile - nl.max(tile, axis=1, keepdims=True))
        nl.store(out[0:128, :], powers / nl.sum(powers, axis=1, keepdims=True))
    return out


def folds_converted(x):
    """A fold whose result nothing but a conversion uses becomes one instruction with it; the third is used again."""
    out = nl.ndarray((3, 128, 1), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    other = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for k in nl.static_range(3):
        total = nl.sum(tile, axis=1, keepdims=True)
        nl.store(out[k], nl.copy(total, dtype=nl.bfloat16))
        if k == 2:
            nl.store(other, total)
    return out, other


def buffers_shared(x):
    """Two buffers, of which the first or the second is the result, too; and one."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(x)
    for k in nl.static_range(6):
        (b if k % 3 == 1 else a)[...] = nl.add(a, b if k % 3 else a)
    nl.store(out, a)
    return out


def program_ids(x):
    """Symbols of operations that are in no loop."""
    out = nl.ndarray((2, 2, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    for k in nl.static_range(4):
        nl.store(out[i, j], nl.load(x[i if k % 2 else j]))
    return out


def starts(x):
    """Patterns of tensors in HBM that start elsewhere, with masks that cut them into pieces; nothing else differs."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    for k in nl.static_range(4):
        tile = nl.load(x[128 * (k % 2) + p, 64 * (k // 2) + f], mask=p + f < 100)
        nl.store(out[128 * (k % 2):128 * (k % 2) + 128, 64 * (k // 2):64 * (k // 2) + 64], nl.exp(tile))
    return out


def attributes(x):
    """Functions, offsets, masks, numbers and element types."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    for k in nl.static_range(2):
        tile = nl.load(x)
        wide = nl.copy(tile, dtype=nl.bfloat16)
        for other in (nl.exp(tile), nl.sin(tile), nl.sin(wide), nl.multiply(tile, 2.0), nl.multiply(tile, 3.0)):
            tile[:, 0:64] = nl.add(other[:, 0:64], other[:, 64:128])
            tile[p, f] = nl.add(other[p, f + 1], 1.0, mask=p < 100)
            tile[p, f] = nl.add(other[p, f + 1], 1.0, mask=p + f < 100)
        nl.store(out, tile)
    return out


def loops_and_instructions(x):
    """Operations in loops and instructions of the kernel between those that repeat."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for k in nl.static_range(3):
        tile = nl.load(x)
        total = nl.sum(tile, axis=1, keepdims=True)
        for i in nl.affine_range(4):
            tile[:, nl.ds(i * 16, 16)] = nl.exp(tile[:, nl.ds(i * 16, 16)])
        nl.store(out, nisa.tensor_scalar(nl.copy(tile), nl.multiply, total))
    return out


def folds_apart(x):
    """Folds before their conversion that stay two instructions, by what repeats others alone: operations between the
    two, or another use of the result."""
    out = nl.ndarray((128, 1), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    halves = nl.ndarray((128, 1), dtype=nl.float16, buffer=nl.shared_hbm)
    other = nl.ndarray((3, 128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(other[0], nl.exp(tile[:, 0:1]))
    total = nl.sum(tile, axis=1, keepdims=True)
    nl.store(other[1], nl.exp(tile[:, 0:1]))
    nl.store(out, nl.copy(total, dtype=nl.bfloat16))
    total = nl.max(tile, axis=1, keepdims=True)
    nl.store(halves, nl.copy(total, dtype=nl.float16))
    nl.store(other[2], total)
    return out, halves, other


def rows_in_a_loop(x, y):
    """A loop before which rows are repeated to all partitions, behind a load that repeats another."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scale, shift = nl.load(y[0:1]), nl.load(y[1:2])
    for i in nl.affine_range(2):
        nl.store(out[nl.ds(i * 128, 128)], nl.add(nl.multiply(nl.load(x[nl.ds(i * 128, 128)]), scale), shift))
    return out


def parts_of_tiles(x):
    """Parts of tiles that differ in where they start: alone, in place, at several distances in one tile, and with an
    operand that is all of the tile; and banks of PSUM."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    banks = nl.zeros((128, 1024), nl.float32, buffer=nl.psum)
    tile, other = nl.load(x), nl.load(x)
    for k in nl.static_range(8):
        a, b = 8 * k, 8 * k + 16
        other[:, a:a + 8] = nl.exp(tile[:, a:a + 8])
        other[:, a:a + 8] = nl.add(other[:, a:a + 8], 1.0)
        tile[:, a:a + 8] = nl.multiply(tile[:, b:b + 8] if k % 4 else tile[:, a + 4:a + 12], 2.0)
        tile[:, 0:128] = nl.add(tile[:, 0:128], other[:, k:k + 1])
        banks[:, 508 * (k % 2):508 * (k % 2) + 8] = nl.copy(tile[:, a:a + 8])
        nl.store(out[:, a:a + 8], nl.add(tile[:, a:a + 8], banks[:, 508 * (k % 2):508 * (k % 2) + 8]))
    nl.store(out[:, 64:128], other[:, 64:128])
    return out


def parts_apart(x):
    """Parts of one tile that do not touch, at eight distances, in either order; that touch; and two that overlap while
    the third is apart."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for k in nl.static_range(8):
        tile[:, 4 * k:4 * k + 4] = nl.exp(tile[:, 60 + 5 * k:64 + 5 * k])
    for k in nl.static_range(8):
        tile[:, 60 + 5 * k:64 + 5 * k] = nl.exp(tile[:, 4 * k:4 * k + 4])
    for k in nl.static_range(3):
        tile[:, 4 * k:4 * k + 4] = nl.exp(tile[:, 4 * k + 4:4 * k + 8])
        tile[:, 9 * k:9 * k + 4] = nl.add(tile[:, 9 * k + 2:9 * k + 6], tile[:, 70 - k:74 - k])
    nl.store(out, tile)
    return out


NUMBERS = [2.0, 3.0, -2.0, 0.1, 0.3, -0.1, 2.5, 16777217, 2.0 ** 126, 1e-40, 0.0, -0.0, 1.0, -1.0, 7, 1e39, 4.0]


def numbers(x):
    """Operations that differ in only a number: on floats and integers, with special numbers, functions that depend on
    the number, and numbers on the left."""
    out = nl.ndarray((len(NUMBERS), 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    narrow, integers = nl.copy(tile, dtype=nl.bfloat16), nl.copy(tile, dtype=nl.int32)
    for k, number in enumerate(NUMBERS):
        total = nl.multiply(tile, number) + nl.add(narrow, number) + nl.maximum(tile, number) + (number - tile)
        total = total + nl.power(tile, number) + nl.divide(tile, number) + nl.multiply(integers, number)
        nl.store(out[k], total)
    return out


def folds_and_numbers(x):
    """A fold and a product with a number that only reads its result, with equal and other numbers."""
    out = nl.ndarray((4, 128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for k, number in enumerate((2.0, 3.0, 2.0, 5.0)):
        nl.store(out[k], nl.sum(tile, axis=1, keepdims=True) * number)
    return out


KERNELS = [pytest.param(rows_divided, [(128, 64)], None, 15, id="rows"),
           pytest.param(folds_converted, [(128, 64)], None, 3, id="folds"),
           pytest.param(folds_apart, [(128, 64)], None, 3, id="folds apart"),
           pytest.param(rows_in_a_loop, [(256, 64), (2, 64)], None, 1, id="rows in a loop"),
           pytest.param(buffers_shared, [(128, 64)], None, 4, id="buffers"),
           pytest.param(starts, [(256, 128)], None, 12, id="starts"),
           pytest.param(parts_of_tiles, [(128, 128)], None, 40, id="parts of tiles"),
           pytest.param(parts_apart, [(128, 128)], None, 19, id="parts apart"),
           pytest.param(program_ids, [(4, 128, 64)], (2, 2), 5, id="symbols"),
           pytest.param(attributes, [(128, 128)], None, 33, id="attributes"),
           pytest.param(numbers, [(128, 64)], None, 130, id="numbers"),
           pytest.param(folds_and_numbers, [(128, 64)], None, 4, id="folds and numbers"),
           pytest.param(loops_and_instructions, [(128, 64)], None, 10, id="loops")]


@pytest.mark.parametrize(("function", "shapes", "grid", "repeated"), KERNELS)
def test_records__are_those_of_operations_lowered_one_by_one(function, shapes, grid, repeated):
    assert check(captured(function, *shapes, grid=grid)) == repeated


# -- the key -----------------------------------------------------------------------------------------------------------
def origins(x, y):
    """Copies between inputs that may overlap, and between buffers that do not."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(x), nl.load(y)))
    return out


def allocated(x):
    """A group of two operations, with the allocation of the second's result before them or between them."""
    out = nl.ndarray((2, 128, 1), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for k in nl.static_range(2):
        if k:
            narrow = nl.ndarray((128, 1), dtype=nl.bfloat16)
            total = nl.sum(tile, axis=1, keepdims=True)
            narrow[...] = nl.copy(total, dtype=nl.bfloat16)
        else:
            narrow = nl.copy(nl.sum(tile, axis=1, keepdims=True), dtype=nl.bfloat16)
        nl.store(out[k], narrow)
    return out


def without(part, key=operation_groups.GroupKey):
    """A function that makes keys without a part; of operations it leaves their names."""
    number = key._fields.index(part)

    def shorter(*parts):
        names = tuple(outline.name for outline in parts[0]) if part == "operations" else ()
        return key(*parts[:number], names, *parts[number + 1:])
    return shorter


@pytest.mark.parametrize(("part", "function", "shapes", "grid"), [
    ("operations", attributes, [(128, 128)], None), ("slots", buffers_shared, [(128, 64)], None),
    ("symbols", program_ids, [(4, 128, 64)], (2, 2)),
    ("allocated", allocated, [(128, 64)], None), ("distances", parts_of_tiles, [(128, 128)], None),
    ("numbers", folds_and_numbers, [(128, 64)], None)])
def test_key__needs_each_part(monkeypatch, part, function, shapes, grid):
    module = captured(function, *shapes, grid=grid)
    check(module)
    monkeypatch.setattr(operation_groups, "GroupKey", without(part))
    assert not agrees(module)


def test_operations__that_repeat_others_are_not_in_the_lowered_copy():
    module = captured(rows_divided, (128, 64))
    before = str(module)
    lowered = lower_once(module)
    text = str(lowered.module)
    assert '"nki.' not in text and "call" not in text
    assert text.count('"nisa.activation"') == 1
    assert text.count("memref.alloc") < before.count("memref.alloc")
    assert str(module) == before


def test_inputs_that_may_overlap__are_other_operands(monkeypatch):
    module = captured(origins, (128, 64), (128, 64))
    with module.context:
        keys = []
        monkeypatch.setattr(operation_groups, "GroupKey", lambda *parts: keys.append(parts) or parts)
        (operations,) = ModuleContents(module).functions
        Groups(the_kernel(module), operations)
        plain, keys[:] = [key[2] for key in keys], []
        the_kernel(module).op.attributes["nki.may_alias"] = ir.UnitAttr.get()
        Groups(the_kernel(module), operations)
        assert plain != [key[2] for key in keys]


def test_operations_without_a_template__are_lowered_one_by_one(monkeypatch):
    module = captured(rows_divided, (128, 64))
    once = LoweredKernel(module)
    expected = described(once.code())

    def refuse(*arguments):
        raise NoTemplate
    monkeypatch.setattr(Templates, "note_instruction", refuse)
    assert described(once.code()) == expected
    assert once.repeats is None


def test_outline__does_not_depend_on_starts_in_hbm_and_in_rows_of_sbuf():
    b = Builder()
    x, y, t = b.hbm("x", (64, 8)), b.hbm("y", (64, 8)), b.on_chip("t", (64, 8))
    for to, source in ((0, 0), (0, 16), (16, 0), (16, 16), (32, 48)):
        b.copy((y, to, 16, 0, 8), (x, source, 16, 0, 8))
    b.copy((y, 0, 16, 0, 8), (t, 0, 16, 0, 8))
    b.copy((y, 0, 16, 0, 8), (t, 16, 16, 0, 8))
    b.copy((y, 0, 16, 0, 4), (t, 16, 16, 0, 4))
    b.copy((y, 0, 16, 0, 4), (t, 16, 16, 4, 4))
    b.copy((y, 0, 64, 0, 8), (t, 0, 64, 0, 8))
    outlines, starts = zip(*(outline_of(step.op) for step in b.code.body.nodes))
    assert len(set(outlines[:5])) == 1
    assert starts == (((0, 0), (1, 0)), ((0, 0), (1, 128)), ((0, 128), (1, 0)), ((0, 128), (1, 128)), ((0, 256), (1, 384)),
                      ((0, 0), (1, 0)), ((0, 0), (1, 0)), ((0, 0), (1, 0)), ((0, 0), (1, 4)), ((0, 0),))
    assert outlines[5] != outlines[0] and outlines[5] != outlines[6]        # the first partition is part of the outline
    assert outlines[7] == outlines[8]
