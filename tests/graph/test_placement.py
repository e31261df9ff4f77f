# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nests of graphs on tiles: values of random nests against NumPy, and the tiles that the placement chooses."""

import numpy as np
import pytest

from nki_mlir.diagnostics import Unsupported

from .nests import Operation, memref, placed, run, small_machine, steps

# Few partitions and short rows of PSUM, so that small nests have several boxes along each axis.
SMALL = small_machine(partitions=16, psum_free_max=24, moving_free_max=20)
EXTENTS = (1, 2, 3, 5, 16, 17, 33)


def alu(fn: str, *operands: str, kind: str, result: str = "new") -> str:
    return f'%{result} = "scalar.alu"({", ".join("%" + o for o in operands)}) {{fn = "{fn}"}} : ' \
           f'({", ".join([kind] * len(operands))}) -> {kind}'


def elementwise(extents, inputs, output, kind="f32", **fields) -> Operation:
    """The product of the inputs."""
    lines = [alu("multiply", f"m{k - 1}" if k > 1 else "p0", f"p{k}", kind=kind, result=f"m{k}")
             for k in range(1, len(inputs))]
    last = "p0" if len(inputs) == 1 else f"m{len(inputs) - 1}"
    return Operation(extents, inputs, output, kind, "\n".join([*lines, alu("add", last, last, kind=kind)]),
                     lambda first, *others: 2 * np.prod(np.broadcast_arrays(first, *others), axis=0), **fields)


def fold(extents, inputs, output, kind="f32", fn="add", scale=False, square=False, **fields) -> Operation:
    """A fold of the input, of its double or of its square."""
    value = "v" if scale or square else "p0"
    lines = [alu("multiply" if square else "add", "p0", "p0", kind=kind, result="v")] if value == "v" else []
    return Operation(extents, inputs, output, kind, "\n".join([*lines, alu(fn, "old", value, kind=kind)]),
                     lambda a: a * a if square else a + a if scale else a, fold=fn, **fields)


def product(extents, inputs, output, kind="f32", computed=(False, False), **fields) -> Operation:
    """A sum of products in float32, of two inputs or of the double of some."""
    lines, names = [], []
    for k, double in enumerate(computed):
        name = f"p{k}"
        if kind != "f32":
            lines.append(f'%x{k} = "scalar.convert"(%{name}) : ({kind}) -> f32')
            name = f"x{k}"
        if double:
            lines.append(alu("add", name, name, kind="f32", result=f"y{k}"))
            name = f"y{k}"
        names.append(name)
    lines.append(alu("multiply", *names, kind="f32", result="m"))
    if kind == "f32":
        lines.append(alu("add", "old", "m", kind="f32"))
    else:
        lines += [f'%wide = "scalar.convert"(%old) : ({kind}) -> f32', alu("add", "wide", "m", kind="f32", result="sum"),
                  f'%new = "scalar.convert"(%sum) : (f32) -> {kind}']
    return Operation(extents, inputs, output, kind, "\n".join(lines), lambda a, b: a * b * 2 ** sum(computed),
                     fold="add", **fields)


def drawn(random: np.random.Generator, axes: int, least: int = 0) -> tuple[int, ...]:
    """Return some axes in any order."""
    return tuple(map(int, random.permutation(axes)[:random.integers(least, axes + 1)]))


def random_operation(seed: int) -> Operation:
    random = np.random.default_rng(seed)
    kind = seed % 4
    axes = int(random.integers(2 if kind == 3 else 1, 5))
    extents = tuple(map(int, random.choice(EXTENTS, axes)))
    large = max(extents) >= 16
    output = drawn(random, axes, axes if kind == 0 else 0)
    inputs = [drawn(random, axes) for _ in range((int(random.integers(1, 4)), 1, 1, 2)[kind])]
    missing = {*range(axes)} - {*output}.union(*inputs)
    inputs[0] = (*inputs[0], *sorted(missing))
    fields = {"padding": tuple(map(int, random.integers(0, 3, 3)))} if random.integers(2) else {}
    if kind == 0 and len(inputs) == 1 and random.integers(2):
        return Operation(extents, tuple(inputs), output, "f32", "", lambda a: a, result="p0", **fields)
    if kind == 0:
        return elementwise(extents, tuple(inputs), output, kind=str(random.choice(["f32", "i32"])), **fields)
    fields["start"] = random.choice([None, 0.0, 1.0, -1.0])
    if kind == 3:
        stray = random.choice(["lr", "lo", "ro", "lro", "lro", "l", "r", "o"], axes)
        roles = random.permutation(["lr", "lo", "ro", *stray][:axes] if random.integers(4) else stray)
        inputs = [tuple(int(a) for a in random.permutation(axes) if letter in roles[a]) for letter in "lr"]
        output = tuple(int(a) for a in random.permutation(axes) if "o" in roles[a])
        return product(extents, tuple(inputs), output, computed=tuple(map(bool, random.integers(0, 2, 2))),
                       kind="f32" if large else str(random.choice(["f32", "bf16"])), **fields)
    dtype = "i32" if kind == 1 and random.integers(2) else "f32"
    functions = ["add", "maximum", "minimum", "multiply"][:3 if large else 4]
    functions += ["bitwise_and", "bitwise_or", "bitwise_xor"] if dtype == "i32" else []
    return fold(extents, tuple(inputs), output, kind=dtype, fn=str(random.choice(functions)),
                scale=bool(random.integers(2)), **fields)


def agrees(operation: Operation, monkeypatch, machine=SMALL) -> None:
    inputs, before = operation.arrays(np.random.default_rng(0))
    module = placed(operation.text, monkeypatch, machine)
    np.testing.assert_array_equal(run(module, inputs, before), operation.expected(inputs, before), operation.text)


@pytest.mark.parametrize("part", range(4))
def test_random_nests(part, monkeypatch):
    for seed in range(part * 30, part * 30 + 30):
        agrees(random_operation(seed), monkeypatch)


def sums(extents, left, right, output, **fields):
    return product(extents, (left, right), output, start=0.0, **fields)


@pytest.mark.parametrize("operation, expected", [
    # All elements in the order of memory: as many partitions as divide them, or 128 and a rest.
    (elementwise((1600,), ((0,),), (0,)), "load 100x16, compute 100x16, store 100x16"),
    (elementwise((10007,), ((0,),), (0,)),
     "load 128x78, compute 128x78, store 128x78, load 23, compute 23x1, store 23x1"),
    (elementwise((127,), ((0,),), (0,)), "load 127, compute 127x1, store 127x1"),
    (elementwise((16 * 131,), ((0,),), (0,)), "load 16x131, compute 16x131, store 16x131"),
    (elementwise((15 * 131,), ((0,),), (0,)),
     "load 128x15, compute 128x15, store 128x15, load 45, compute 45x1, store 45x1"),
    (elementwise((100, 2600), ((0, 1),), (0, 1)),
     "2 load 125x1024, 2 compute 125x1024, 2 store 125x1024, load 125x32, compute 125x32, store 125x32"),
    # A row of at least 256 elements for each partition, if there are more rows than partitions and the result stays.
    (elementwise((300, 256), ((0, 1),), (0, 1)),
     "2 load 128x256, 2 compute 128x256, 2 store 128x256, load 44x256, compute 44x256, store 44x256"),
    (elementwise((300, 255), ((0, 1),), (0, 1)), "load 125x612, compute 125x612, store 125x612"),
    (elementwise((127, 256), ((0, 1),), (0, 1)), "load 128x254, compute 128x254, store 128x254"),
    (elementwise((4437, 256), ((0, 1),), (0, 1)),
     "34 load 128x256, 34 compute 128x256, 34 store 128x256, load 85x256, compute 85x256, store 85x256"),
    (elementwise((4438, 256), ((0, 1),), (0, 1)),
     "8 load 128x1024, 8 compute 128x1024, 8 store 128x1024, load 128x684, compute 128x684, store 128x684"),
    (elementwise((2, 2), ((1, 0),), (0, 1)), "load 2x2, compute 2x2, store 2x2"),
    # Several axes: partitions go along the longest; along contiguous elements of the result, if it is twice as long.
    (elementwise((300, 70), ((1, 0),), (0, 1)),
     "2 load 128x70, 2 compute 128x70, 2 store 128x70, load 44x70, compute 44x70, store 44x70"),
    (elementwise((50, 90), ((1, 0),), (0, 1)), "load 50x90, compute 50x90, store 50x90"),
    (elementwise((50, 101), ((1, 0),), (0, 1)), "load 50x101, compute 50x101, store 50x101"),
    (elementwise((7, 30, 20), ((0, 1, 2), (0, 2)), (0, 1, 2)), "2 load 30x7x20, compute 30x7x20, store 30x7x20"),
    (elementwise((9, 130, 256), ((0, 1, 2), (0, 2)), (0, 1, 2)),
     "18 load 128x1x256, 9 compute 128x1x256, 9 store 128x1x256, 9 load 2x1x256, 9 compute 2x1x256, 9 store 2x1x256"),
    (elementwise((9, 130, 255), ((0, 1, 2), (0, 2)), (0, 1, 2)),
     "6 load 128x3x255, 3 compute 128x3x255, 3 store 128x3x255, 3 load 2x3x255, 3 compute 2x3x255, 3 store 2x3x255"),
    # Many operands: the tiles are shorter, powers of two.
    (elementwise((128, 1024), ((0, 1), (1,), (0, 1), (1,), (0,)), (0, 1)),
     "8 load 128x512, load 128, 2 compute 128x512, 2 store 128x512"),
    # Rows of an input that all partitions read are loaded once.
    (elementwise((300, 700), ((0, 1), (1,)), (0, 1)),
     "3 load 128x700, 2 compute 128x700, 2 store 128x700, load 44x700, compute 44x700, store 44x700"),
    # Folds: a partition for each result, rows of at most 1,024 elements.
    (fold((300, 1100), ((0, 1),), (0,), start=0.0),
     "2 load 128x1024, 2 fill 128, 4 compute 128, 2 load 128x76, 2 store 128, load 44x1024, fill 44, 2 compute 44, "
     "load 44x76, store 44"),
    (fold((300, 70), ((0, 1),), (1,), start=0.0), "load 70x300, fill 70, compute 70, store 70"),
    (fold((30, 70, 2), ((0, 1, 2),), (1,), start=0.0), "load 70x30x2, fill 70, compute 70, store 70"),
    # No engine folds integers, except bit by bit: halves are combined.
    (fold((5, 7), ((0, 1),), (0,), kind="i32", start=0),
     "load 5x7, fill 5, compute 5x7, compute 5x3, compute 5x2, compute 5x1, 2 compute 5, store 5"),
    (fold((5, 7), ((0, 1),), (0,), kind="i32", fn="bitwise_xor", start=0), "load 5x7, fill 5, compute 5, store 5"),
    # One result: partial sums of as many rows as divide the elements, then their sum.
    (fold((300, 700), ((0, 1),), (), start=0.0),
     "load 125x1024, fill 125, 2 compute 125, load 125x656, transpose 1x125, fill 1, compute 1, store 1"),
    (fold((128,), ((0,),), (), start=0.0), "load 1x128, fill 1, compute 1, store 1"),
    (fold((129,), ((0,),), (), start=0.0),
     "load 43x3, fill 43, compute 43, transpose 1x43, fill 1, compute 1, store 1"),
    (fold((3, 200), ((1, 0),), (), start=0.0),
     "load 100x3x2, fill 100, compute 100, transpose 1x100, fill 1, compute 1, store 1"),
    (fold((2003,), ((0,),), (), start=0.0), "load 1x1024, fill 1, 2 compute 1, load 1x979, store 1"),
    # Products: summed elements along the partitions, 128 rows and 512 columns of a result; an operand whose rows go
    # along the other axis is transposed on chip, and tiles of the left factor stay for all columns.
    (sums((130, 600, 140), (2, 0), (2, 1), (0, 1)),
     "load 128x128, load 128x512, fill 128x512, 2 multiply 128x512, load 12x128, load 12x512, compute 128x512, "
     "store 128x512, load 128x88, fill 128x88, 2 multiply 128x88, load 12x88, compute 128x88, store 128x88, "
     "load 128x2, fill 2x512, 2 multiply 2x512, load 12x2, compute 2x512, store 2x512, fill 2x88, 2 multiply 2x88, "
     "compute 2x88, store 2x88"),
    (sums((20, 30, 40), (0, 2), (1, 2), (0, 1)),
     "load 20x40, transpose 40x20, load 30x40, transpose 40x30, fill 20x30, multiply 20x30, compute 20x30, "
     "store 20x30"),
    (sums((1, 30, 40), (0, 2), (2, 1), (0, 1)),
     "load 40x30, load 40x1, fill 30x1, multiply 30x1, compute 30x1, store 30x1"),
    (sums((30, 40), (0, 1), (1,), (0,)),
     "load 30x40, transpose 40x30, load 40x1, fill 30x1, multiply 30x1, compute 30x1, store 30x1"),
    (sums((40,), (0,), (0,), ()), "2 load 40x1, fill 1x1, multiply 1x1, compute 1x1, store 1x1"),
    (sums((3, 20, 30, 40), (0, 3, 1), (0, 3, 2), (0, 1, 2)),
     "3 load 40x20, 3 load 40x30, 3 fill 20x30, 3 multiply 20x30, 3 compute 20x30, 3 store 20x30"),
    (sums((20, 30, 4, 50), (3, 0, 2), (2, 3, 1), (0, 1)),
     "load 50x80, 4 load 50x30, fill 20x30, 4 multiply 20x30, compute 20x30, store 20x30"),
    (sums((2, 30, 2), (0, 2), (2, 1), (0, 1)),
     "load 2x2, transpose 2x2, load 2x30, fill 2x30, multiply 2x30, compute 2x30, store 2x30"),
    (sums((129, 3, 129), (0, 2), (2, 1), (0, 1)),
     "load 128x128, transpose 128x128, load 128x3, fill 128x3, 2 multiply 128x3, load 1x128, load 1x3, "
     "compute 128x3, store 128x3, load 128x1, fill 1x3, 2 multiply 1x3, load 1x1, compute 1x3, store 1x3"),
    # An axis that both lack: the product is computed again for each element of it, if rows of the result stay together.
    (sums((2, 20, 30, 40), (3, 1), (3, 2), (0, 1, 2)),
     "load 40x20, load 40x30, 2 fill 20x30, 2 multiply 20x30, 2 compute 20x30, 2 store 20x30"),
    # No products: a summed axis that one factor lacks, an innermost axis of the result that both lack, squares.
    (sums((20, 30, 4, 50), (0, 2, 3), (3, 1), (0, 1)),
     "4 load 30x5x4x50, load 30x50, 4 fill 30x5, 4 compute 30x5, 4 store 30x5"),
    (sums((20, 30, 40, 2), (0, 2), (2, 1), (0, 1, 3)),
     "2 load 30x10x40, load 30x40, 2 fill 30x10x2, 2 compute 30x10x2, 2 store 30x10x2"),
    (fold((20, 30), ((0, 1),), (0,), start=0.0, square=True), "load 20x30, fill 20, compute 20, store 20"),
    # What is computed from an input is computed once, not for each product.
    (sums((20, 30, 40), (2, 0), (2, 1), (0, 1), computed=(True, False)),
     "load 20x40, compute 20x40, transpose 40x20, load 40x30, fill 20x30, multiply 20x30, compute 20x30, store 20x30"),
    (sums((30, 40), (0, 1), (1,), (0,), computed=(True, False)), "2 load 30x40, fill 30, compute 30, store 30"),
    (sums((20, 30, 40), (2, 0), (2, 1), (0, 1), kind="bf16"),
     "load 40x20, load 40x30, fill 20x30, multiply 20x30, compute 20x30, store 20x30"),
    (sums((20, 30), (0, 1), (0, 1), (0,), computed=(True, False)),
     "2 load 20x30, fill 20, compute 20, store 20"),
], ids=lambda value: "" if isinstance(value, str) else "x".join(map(str, value.extents)))
def test_tiles(operation, expected, monkeypatch):
    assert steps(placed(operation.text, monkeypatch)) == expected


def test_tiles_of_the_left_factor_stay_up_to_a_number(monkeypatch):
    """64 of 66 stay for the second part of the columns, where the cache has room for none."""
    operation = sums((2, 21, 16 * 66), (2, 0), (2, 1), (0, 1))
    machine = small_machine(partitions=16, psum_free_max=24, moving_free_max=20, sbuf_bytes_per_partition=12)
    assert steps(placed(operation.text, monkeypatch, machine)) == (
        "68 load 16x2, 66 load 16x20, fill 2x20, 66 multiply 2x20, compute 2x20, store 2x20, 66 load 16x1, fill 2x1, 66 multiply 2x1, compute 2x1, store 2x1")


def program(*, rows: int, columns: int, second: str, shape: str) -> str:
    """The sums of rows of %a, then an elementwise operation on them: %r has this shape."""
    a, sums, r = (memref(s, "f32") for s in ((rows, columns), (rows,), (rows, columns) if shape == "matrix" else (rows,)))
    return f"""
func.func @k(%a: {a}, %r: {r} {{nki.shared = 0 : i64}}) attributes {{nki.results = [1]}} {{
  %t = memref.alloc() : {sums}
  %c = arith.constant 0.0 : f32
  linalg.fill ins(%c : f32) outs(%t : {sums})
  linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}} ins(%a : {a}) outs(%t : {sums}) {{
  ^bb0(%x: f32, %old: f32):
    %s = "scalar.alu"(%old, %x) {{fn = "add"}} : (f32, f32) -> f32
    linalg.yield %s : f32
  }}
  {second.replace("A", a).replace("SUMS", sums).replace("R", r)}
  return
}}"""


DOUBLED = """linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%t : SUMS) outs(%r : R) {
  ^bb0(%x: f32, %old: f32):
    %s = "scalar.alu"(%x, %x) {fn = "add"} : (f32, f32) -> f32
    linalg.yield %s : f32
  }"""
SHARES = """linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%a, %t : A, SUMS) outs(%r : R) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %s = "scalar.alu"(%x, %y) {fn = "subtract"} : (f32, f32) -> f32
    linalg.yield %s : f32
  }"""


@pytest.mark.parametrize("rows, columns, second, shape, expected", [
    (300, 7, DOUBLED, "vector", "2 load 128x7, 2 fill 128, 2 compute 128, load 44x7, fill 44, compute 44, 2 compute 128x1, 2 store 128x1, compute 44x1, store 44x1"),
    (130, 300, SHARES, "matrix", "load 128x300, fill 128, compute 128, load 2x300, fill 2, compute 2, compute 128x300, store 128x300, compute 2x300, store 2x300"),
], ids=["folds of rows", "rows and their folds"])
def test_tiles_of_earlier_operations_are_not_loaded_again(rows, columns, second, shape, expected, monkeypatch):
    module = placed(program(rows=rows, columns=columns, second=second, shape=shape), monkeypatch)
    assert steps(module) == expected
    a = np.random.default_rng(0).integers(-2, 3, (rows, columns)).astype(np.float32)
    wanted = 2 * a.sum(1) if shape == "vector" else a - a.sum(1, keepdims=True)
    np.testing.assert_array_equal(run(module, [a], np.zeros_like(wanted)), wanted)


def gather(extents, indices, columns, *, view=None, table=(9, 4, 3), from_table=False) -> str:
    """%r[d0, ...] = 2 * a[the sum of the indices, the columns], for indices by axes (``"p"``: a row of %p is the index)
    and columns by axis or number; ``view`` is (offsets, sizes, strides) of a part of the table %a."""
    kinds = [memref([extents[a] for a in axes], "i32") for axes in indices]
    entire, result, names = memref(table, "f32"), memref(extents, "f32"), [f"d{a}" for a in range(len(extents))]
    lines, base, part = [], "%a", entire
    if view is not None:
        offsets, sizes, strides = map(list, view)
        steps = [int(np.prod(table[d + 1:])) for d in range(len(table))]
        start = sum(o * s for o, s in zip(offsets, steps))
        base, part = "%v", memref(sizes, "f32", f"strided<{[a * b for a, b in zip(strides, steps)]}, offset: {start}>, ")
        lines.append(f"%v = memref.subview %a{offsets} {sizes} {strides} : {entire} to {part}")
    maps = [f"affine_map<({', '.join(names)}) -> ({', '.join(names[a] for a in axes)})>"
            for axes in (*indices, range(len(extents)))]
    body = [f"%i{k} = arith.index_cast %x{k} : i32 to index" for k in range(len(indices))]
    last = "%i0"
    for k in range(1, len(indices)):
        body.append(f"%s{k} = arith.addi {last}, %i{k} : index")
        last = f"%s{k}"
    if from_table:
        body += [f"%y = memref.load %p[{last}] : {memref((table[0],), 'i32')}", "%row = arith.index_cast %y : i32 to index"]
        last = "%row"
    subscripts = [last]
    for k, (axis, more) in enumerate(columns):
        body += [f"%c{k} = arith.constant {more} : index"]
        body += [f"%d{k} = linalg.index {axis} : index", f"%e{k} = arith.addi %d{k}, %c{k} : index"] if axis >= 0 else []
        subscripts.append(f"%{'e' if axis >= 0 else 'c'}{k}")
    body.append(f"%l = memref.load {base}[{', '.join(subscripts)}] : {part}")
    body.append(alu("add", "l", "l", kind="f32"))
    arguments = [f"%a: {entire}", f"%p: {memref((table[0],), 'i32')}", *(f"%n{k}: {t}" for k, t in enumerate(kinds)),
                 f"%r: {result} {{nki.shared = 0 : i64}}"]
    lines.append(f"linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = "
                 f"[{', '.join(['PARALLEL'] * len(names))}]}} ins({', '.join(f'%n{k}' for k in range(len(kinds)))} : "
                 f"{', '.join(kinds)}) outs(%r : {result}) {{".replace("PARALLEL", '"parallel"'))
    lines.append(f"^bb0({', '.join([*(f'%x{k}: i32' for k in range(len(kinds))), '%old: f32'])}):")
    return (f"func.func @k({', '.join(arguments)}) attributes {{nki.results = [{len(arguments) - 1}]}} {{\n"
            + "\n".join([*lines, *body, "linalg.yield %new : f32\n}\nreturn\n}"]))


@pytest.mark.parametrize("extents, indices, columns, fields", [
    ((20, 5), [(0,)], [(1, 0)], {"table": (9, 5)}),
    ((3, 7, 4), [(0, 1)], [(2, 0)], {"table": (9, 4)}),
    ((16, 1), [(0,)], [(1, 0)], {"table": (9, 1)}),
    ((5, 17), [(0, 1)], [], {"table": (9,)}),
    ((6, 4, 3), [(0,)], [(1, 0), (2, 0)], {}),
    ((6, 3, 4), [(0,)], [(2, 0), (1, 0)], {}),                  # columns in another order
    ((6, 7, 4, 3), [(0,), (1,)], [(2, 0), (3, 0)], {}),         # two indices for a row
    ((6, 2, 4, 3), [(0,)], [(2, 0), (3, 0)], {}),               # one row for several results
    ((33, 4, 3), [(0,)], [(1, 0), (2, 0)], {"from_table": True}),
    ((6, 2, 3), [(0,)], [(1, 0), (2, 0)], {"view": ((0, 1, 0), (9, 2, 3), (1, 2, 1))}),
    ((6, 4, 2), [(0,)], [(1, 0), (2, 0)], {"view": ((1, 0, 1), (8, 4, 2), (1, 1, 1))}),
    ((6, 2, 2), [(0,)], [(1, 0), (2, 0)], {"view": ((1, 1, 0), (4, 2, 2), (2, 2, 2))}),
    ((6, 3), [(0,)], [(-1, 0), (1, 0)], {"view": ((0, 2, 0), (9, 1, 3), (1, 1, 1))}),
    ((33, 1, 3), [(0,)], [(1, 0), (2, 0)], {"view": ((0, 3, 0), (9, 1, 3), (1, 1, 1))}),
    ((6, 3, 3), [(0,)], [(1, 1), (2, 0)], {}),                  # other columns
    ((6, 3), [(0,)], [(-1, 1), (1, 0)], {"table": (9, 2, 3)}),  # one column
    ((6, 2, 3), [(0,)], [(1, 0), (2, 0)], {}),                  # some columns
    ((3, 4, 3), [(0,)], [(1, 0), (0, 0)], {}),                  # columns that the row's axis selects
    ((6, 3), [(0,)], [(1, 0), (1, 0)], {"table": (9, 3, 3)}),   # a diagonal
], ids=str)
def test_gathers(extents, indices, columns, fields, monkeypatch):
    module = placed(gather(extents, indices, columns, **fields), monkeypatch, SMALL)
    random = np.random.default_rng(0)
    table = fields.get("table", (9, 4, 3))
    a, p = random.integers(-99, 99, table).astype(np.float32), random.permutation(table[0]).astype(np.int32)
    offsets, sizes, strides = fields.get("view", ([0] * len(table), table, [1] * len(table)))
    view = a[tuple(slice(o, o + n * s, s) for o, n, s in zip(offsets, sizes, strides))]
    most = (sizes[0] - 1) // len(indices)
    numbers = [random.integers(0, most + 1, [extents[k] for k in axes], np.int32) for axes in indices]
    at = np.indices(extents)
    row = sum(n[tuple(at[k] for k in axes)] for n, axes in zip(numbers, indices))
    row = p[row] if fields.get("from_table") else row
    expected = 2 * view[(row, *(more + (at[axis] if axis >= 0 else 0) for axis, more in columns))]
    np.testing.assert_array_equal(run(module, [a, p, *numbers], np.zeros(extents, np.float32)), expected)


def test_operations_with_an_operand_on_chip_stay_as_they_are(monkeypatch):
    """Kernels that a graph calls have their own tiles."""
    tile, home = 'memref<4x5xf32, "sbuf">', memref((4, 5), "f32")
    copy = """linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins({}) outs({}) {{ ^bb0(%x: f32, %old: f32): linalg.yield %x : f32 }}"""
    body = [f"%t = memref.alloc() : {tile}", copy.format(f"%a : {home}", f"%t : {tile}"),
            copy.format(f"%t : {tile}", f"%r : {home}")]
    module = placed(f"func.func @k(%a: {home}, %r: {home} {{nki.shared = 0 : i64}}) attributes {{nki.results = [1]}} {{"
                    + "\n".join(body) + "\nreturn }", monkeypatch)
    assert steps(module) == "load 4x5, store 4x5" and str(module).count("memref.alloc") == 1


def test_a_fold_that_no_engine_computes_is_refused(monkeypatch):
    with pytest.raises(Unsupported, match="a reduction whose body is not a sum, product, minimum, maximum or logical"):
        placed(fold((5, 7), ((0, 1),), (0,), fn="power").text, monkeypatch)


def test_a_fold_that_subtracts__adds_the_negative(monkeypatch):
    operation = fold((5, 37), ((0, 1),), (0,), fn="subtract")
    (values,), before = operation.arrays(np.random.default_rng(0))
    got = run(placed(operation.text, monkeypatch, SMALL), [values], before)
    np.testing.assert_array_equal(got, before - values.sum(1))


@pytest.mark.parametrize("rows, columns, loaded", [
    (512, 32, "load 128x128, "), (512, 256, "8 load 128x128, "), (500, 32, "3 load 128x32, ")])
def test_short_rows_of_a_factor__go_several_to_a_partition(rows, columns, loaded, monkeypatch):
    """Four rows of 128 bytes are one run of 512; longer rows, and rows that 128 does not divide, go one by one."""
    operation = sums((1, columns, rows), (0, 2), (2, 1), (0, 1))
    assert loaded in steps(placed(operation.text, monkeypatch))
    agrees(operation, monkeypatch, small_machine())


@pytest.mark.parametrize("columns, loaded", [(512, "2 load 128x128, "), (1024, "4 load 128x128, ")])
def test_short_rows_of_a_transposed_factor__fill_at_most_all_partitions(columns, loaded, monkeypatch):
    """Two rows of 256 bytes go to a partition, so 512 rows take two tiles."""
    operation = sums((1, columns, 64), (0, 2), (1, 2), (0, 1))
    assert loaded in steps(placed(operation.text, monkeypatch))
    agrees(operation, monkeypatch, small_machine())
