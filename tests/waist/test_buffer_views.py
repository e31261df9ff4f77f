# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subviews of buffers, one of another, at numbers and at loop variables: element by element, and as instructions."""

import random

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.targets.interpreter.module import compile_function

SHAPE = (24, 30)
TURNS = 2                           # of a loop whose variable some views start at


def kernel(views: str, last: str, kind: str, shape: tuple[int, ...]) -> str:
    source = "x".join(map(str, SHAPE))
    result = "x".join(map(str, (TURNS * shape[0], *shape[1:])))
    piece = f"memref<{'x'.join(map(str, shape))}xf32, strided<[{shape[1]}, 1], offset: ?>, \"hbm\">"
    return f"""func.func @k(%x: memref<{source}xf32, "hbm">, %out: memref<{result}xf32, "hbm"> {{nki.shared = 0 : i64}})
    attributes {{nki.results = [1]}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %turns = arith.constant {TURNS} : index
  scf.for %i = %c0 to %turns step %c1 {{
    {views}
    %rows = affine.apply affine_map<(d0) -> (d0 * {shape[0]})>(%i)
    %to = memref.subview %out[%rows, 0] [{shape[0]}, {shape[1]}] [1, 1] : memref<{result}xf32, "hbm"> to {piece}
    linalg.copy ins({last} : {kind}) outs(%to : {piece})
  }}
  return
}}"""


def run(text: str, *passes: str) -> np.ndarray:
    with shared_context():
        module = ir.Module.parse(text)
    run_passes(module, [pass_named(name) for name in passes])
    function = the_kernel(module)
    results = [np.zeros(a.shape, np.float32) for a in function.shared]
    compile_function(function)((), [np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)], results)
    return results[0]


@pytest.mark.parametrize("seed", range(12))
def test_views_of_views(seed):
    rng = random.Random(seed)
    buffer = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    pieces, value, lines = [buffer] * TURNS, "%x", []
    kind, strides = f'memref<{SHAPE[0]}x{SHAPE[1]}xf32, "hbm">', [SHAPE[1], 1]
    for level in range(1 + seed % 2):
        shape = pieces[0].shape
        steps = [rng.choice((1, 1, 2)) for _ in shape]
        sizes = [rng.randint(1, max(1, (n - TURNS) // (2 * step))) for n, step in zip(shape, steps)]
        # By the loop's variable; a view of such a view has no offset that is a number.
        moves = [1 if seed % 2 and not level else rng.choice((0, 1)) if n > 1 else 0 for n in shape]
        starts = [rng.randint(0, n - (size - 1) * step - 1 - (TURNS - 1) * move)
                  for n, step, size, move in zip(shape, steps, sizes, moves)]
        pieces = [piece[tuple(slice(s + m * turn, s + m * turn + (n - 1) * step + 1, step)
                              for s, m, n, step in zip(starts, moves, sizes, steps))]
                  for turn, piece in enumerate(pieces)]
        offsets = [f"%s{level}{d}" if m else str(s) for d, (s, m) in enumerate(zip(starts, moves))]
        lines += [f"%s{level}{d} = affine.apply affine_map<(d0) -> (d0 + {s})>(%i)"
                  for d, (s, m) in enumerate(zip(starts, moves)) if m]
        strides = [a * b for a, b in zip(strides, steps)]
        new = f'memref<{sizes[0]}x{sizes[1]}xf32, strided<{strides}, offset: ?>, "hbm">'
        flat = sum(s * a // b for s, a, b in zip(starts, strides, steps))
        if not any(moves) and "?" not in kind:
            new = new.replace("offset: ?", f"offset: {flat}") if flat else new.replace(", offset: ?", "")
        lines.append(f"%v{level} = memref.subview {value}[{', '.join(offsets)}] {sizes} {steps} : {kind} to {new}")
        value, kind = f"%v{level}", new
    text = kernel("\n    ".join(lines), value, kind, pieces[0].shape)
    wanted = np.concatenate(pieces)
    np.testing.assert_array_equal(run(text), wanted)
    np.testing.assert_array_equal(run(text, "linalg-to-nisa"), wanted)


def test_a_view_of_fewer_dims_is_refused():
    text = kernel('%v = memref.subview %x[0, 3] [6, 1] [1, 1] : memref<24x30xf32, "hbm"> to '
                  'memref<6xf32, strided<[30], offset: 3>, "hbm">\n'
                  '    %w = memref.subview %x[0, 3] [6, 1] [1, 1] : memref<24x30xf32, "hbm"> to '
                  'memref<6x1xf32, strided<[30, 1], offset: 3>, "hbm">\n'
                  '    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], '
                  'iterator_types = ["parallel"]} ins(%v : memref<6xf32, strided<[30], offset: 3>, "hbm">) '
                  'outs(%v : memref<6xf32, strided<[30], offset: 3>, "hbm">) { ^bb0(%a: f32, %b: f32): linalg.yield %a : f32 }',
                  "%w", 'memref<6x1xf32, strided<[30, 1], offset: 3>, "hbm">', (6, 1))
    with pytest.raises(Unsupported, match="keep the rank"):
        run(text, "linalg-to-nisa")


@pytest.mark.parametrize("passes", [(), ("linalg-to-nisa",)], ids=["nests", "instructions"])
@pytest.mark.parametrize("sizes, steps", [((4, 2), (1, 4)), ((5, 3), (0, 1)), ((2, 6), (30, 2)), ((1, 7), (9, 3)),
                                          ((6, 1), (1, 1)), ((3, 1), (30, 7))], ids=str)
def test_elements_of_a_tile_that_another_view_names(sizes, steps, passes):
    """A first step of 0 repeats a row in each partition, one of a row counts partitions, another stays in its row."""
    offset, shape, piece = 2 * SHAPE[1] + 1, "x".join(map(str, SHAPE)), "x".join(map(str, sizes))
    kind = f'memref<{piece}xf32, strided<{[*steps]}, offset: {offset}>, "sbuf">'
    views = f"""%tile = memref.alloc() : memref<{shape}xf32, "sbuf">
    linalg.copy ins(%x : memref<{shape}xf32, "hbm">) outs(%tile : memref<{shape}xf32, "sbuf">)
    %v = memref.reinterpret_cast %tile to offset: [{offset}], sizes: {[*sizes]}, strides: {[*steps]}
        : memref<{shape}xf32, "sbuf"> to {kind}"""
    elements = offset + np.add.outer(*(step * np.arange(size) for step, size in zip(steps, sizes)))
    np.testing.assert_array_equal(run(kernel(views, "%v", kind, sizes), *passes), np.tile(elements, (TURNS, 1)))


@pytest.mark.parametrize("passes", [(), ("linalg-to-nisa",)], ids=["nests", "instructions"])
@pytest.mark.parametrize("rows_of_tile, step", [(30, 1), (30, 2), (0, 1)], ids=["rows", "each second row", "one row"])
def test_one_partition_of_a_view__has_no_step(rows_of_tile, step, passes):
    """A piece of one partition may have any step: no partition follows. The view may repeat one row."""
    kind, row = f'memref<6x5xf32, strided<[{rows_of_tile}, 1], offset: 61>, "sbuf">', 3 * rows_of_tile
    piece = f'memref<1x4xf32, strided<[{rows_of_tile * step}, 1], offset: {61 + row + 1}>, "sbuf">'
    views = f"""%tile = memref.alloc() : memref<24x30xf32, "sbuf">
    linalg.copy ins(%x : memref<24x30xf32, "hbm">) outs(%tile : memref<24x30xf32, "sbuf">)
    %all = memref.reinterpret_cast %tile to offset: [61], sizes: [6, 5], strides: [{rows_of_tile}, 1]
        : memref<24x30xf32, "sbuf"> to {kind}
    %v = memref.subview %all[3, 1] [1, 4] [{step}, 1] : {kind} to {piece}"""
    elements = 61 + row + 1 + np.arange(4)
    np.testing.assert_array_equal(run(kernel(views, "%v", piece, (1, 4)), *passes), np.tile(elements, (TURNS, 1)))
