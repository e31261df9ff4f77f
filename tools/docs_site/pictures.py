# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pictures of the site: the levels of a kernel, the memories, tiles of a tensor, access patterns, products."""

import itertools
from collections.abc import Callable

from tools.docs_site.svg import arrow, box, cell, head, label, picture

ROW = 64


def levels() -> str:
    """Draw the levels of a kernel and the executors of each."""
    rows = [("kernel.py", "start", "what you write", "eager", "operation by operation"),
            ("nki", "level", "tile operations", "", ""),
            ("waist", "level", "linalg on tiles", "interpreter", "with all checks"),
            ("nisa", "level", "engine instructions", "jit", "native code for the CPU"),
            ("isa", "level", "streams, semaphores", "isa", "values, time, profile")]
    shapes = [label(90, 16, "levels", look="quiet"), label(345, 16, "executors", look="quiet")]
    for n, (name, look, about, executor, caption) in enumerate(rows):
        y = 26 + n * ROW
        shapes += [box(10, y, 160, 40, look), label(90, y + 17, name, code=True),
                   label(90, y + 33, about, look="small")]
        if n:
            shapes.append(arrow(90, y - ROW + 40, 90, y - 1))
        if executor:
            shapes += [box(260, y, 170, 40, "executor"), label(345, y + 17, executor, code=True),
                       label(345, y + 33, caption, look="small")]
        if executor and executor != "jit":
            shapes.append(arrow(172, y + 20, 258, y + 20))
    y = 26 + ROW
    shapes += [f'<path class="arrow" d="M190,{y + ROW + 20} C235,{y + ROW + 22} 195,{y + 2 * ROW + 20} '
               f'252,{y + 2 * ROW + 20}" fill="none"/>',
               head(251, y + 2 * ROW + 20, 258, y + 2 * ROW + 20),
               box(260, y, 170, 40, "caller"), label(345, y + 17, "JAX, PyTorch"),
               label(345, y + 33, "graphs as StableHLO", look="small"), arrow(258, y + 20, 172, y + 20)]
    return picture(440, 26 + 5 * ROW - 18, "A kernel is lowered through the levels nki, waist, nisa and isa; "
                   "the executors eager, interpreter, jit and isa run it", *shapes)


def memories() -> str:
    """Draw the memories and the engines that move data between them."""
    lanes = [cell(136, 42 + 11 * n, 118, 9, "lane") for n in range(13)]
    banks = [cell(350, 42 + 11 * n, 72, 9, "lane") for n in range(13)]
    shapes = [box(8, 32, 70, 160, "memory"), label(43, 20, "HBM"), label(43, 110, "tensors", look="small"),
              box(128, 32, 134, 160, "memory"), *lanes, label(195, 20, "SBUF: 128 partitions"),
              box(342, 32, 88, 160, "memory"), *banks, label(386, 20, "PSUM: sums"),
              arrow(80, 110, 126, 110, at_both_ends=True), label(103, 100, "DMA", look="small"),
              *(box(8 + 102 * n, 232, 92, 32, "engine", name)
                for n, name in enumerate(("gpsimd", "vector", "scalar", "tensor"))),
              arrow(195, 194, 195, 230, at_both_ends=True), arrow(386, 194, 386, 230, at_both_ends=True),
              arrow(264, 110, 340, 110, at_both_ends=True), label(302, 100, "copies", look="small"),
              label(220, 286, "one partition is one lane: elementwise work stays in it", look="quiet")]
    return picture(440, 296, "HBM, SBUF with 128 partitions, PSUM, and the engines that work on them", *shapes)


def tiles(rows: int, columns: int, tile_rows: int, tile_columns: int) -> str:
    """Draw how a tensor divides into tiles; the last ones may be smaller."""
    scale = min(350 / columns, 200 / rows)
    shapes = []
    for r, c in itertools.product(range(0, rows, tile_rows), range(0, columns, tile_columns)):
        height, width = min(tile_rows, rows - r), min(tile_columns, columns - c)
        full = (height, width) == (tile_rows, tile_columns)
        x, y = 76 + c * scale, 30 + r * scale
        shapes.append(box(x + 1, y + 1, width * scale - 2, height * scale - 2, "tile" if full else "edge"))
        if height * scale > 16 and width * scale > 60:
            shapes.append(label(x + width * scale / 2, y + height * scale / 2 + 4, f"{height} x {width}", look="small"))
    shapes += [label(70, 30 + (r + min(tile_rows, rows - r) / 2) * scale + 4, f"{r}:{min(r + tile_rows, rows)}", "end",
                     "small", code=True) for r in range(0, rows, tile_rows)]
    shapes += [label(76 + (c + min(tile_columns, columns - c) / 2) * scale, 20, f"{c}:{min(c + tile_columns, columns)}",
                     look="small", code=True) for c in range(0, columns, tile_columns)]
    return picture(96 + columns * scale, 40 + rows * scale, f"A tensor of {rows} x {columns} in tiles of "
                   f"{tile_rows} x {tile_columns}", *shapes)


def pattern(partitions: int, elements: int, start: int, *numbers: int) -> str:
    """Draw the elements of an access pattern: in each partition from ``start``, then steps and counts."""
    axes = list(zip(numbers[::2], numbers[1::2]))
    order = {start + sum(i * step for i, (step, _) in zip(index, axes)): n
             for n, index in enumerate(itertools.product(*(range(count) for _, count in axes)))}
    size = min(28, max(18, 400 / elements))
    shapes = [label(80, 40 + size * (p + .65), f"{p}", "end", "small") for p in range(partitions)]
    shapes += [label(90 + size * (e + .5), 30, f"{e}", look="small") for e in range(elements)
               if size > 16 or e % 4 == 0]
    shapes += [label(90, 14, "element of the partition", "start", "quiet")]
    for p in range(partitions):
        for e in range(elements):
            x, y = 90 + e * size, 40 + p * size
            shapes.append(cell(x + 1, y + 1, size - 2, size - 2, "touched" if e in order else "lane"))
            if e in order and size > 16:
                shapes.append(label(x + size / 2, y + size / 2 + 4, str(order[e]), look="small on"))
    description = ", ".join(f"[{step}, {count}]" for step, count in axes)
    return picture(100 + elements * size, 50 + partitions * size, f"What {description} from {start} touches", *shapes)


def product() -> str:
    """Draw the operands and the result of a matrix product on the tensor engine."""
    shapes = [box(20, 40, 80, 130, "memory", "stationary"), label(60, 18, "M columns,", look="small"),
              label(60, 33, "at most 128", look="small"), box(150, 40, 130, 130, "memory", "moving"),
              label(215, 18, "N columns,", look="small"), label(215, 33, "at most 512", look="small"),
              box(330, 60, 100, 90, "tile", "result"), label(380, 50, "[M, N] in PSUM", look="small"),
              label(10, 108, "K", look="small"), label(140, 108, "K", look="small"), label(120, 110, "x"),
              arrow(282, 105, 328, 105),
              label(220, 194, "K lies on the partitions of both, at most 128:", look="quiet"),
              label(220, 211, "the sum goes over them", look="quiet")]
    return picture(440, 220, "A product: stationary [K, M] and moving [K, N] give [M, N] in PSUM", *shapes)


PICTURES: dict[str, Callable[..., str]] = {f.__name__: f for f in (levels, memories, tiles, pattern, product)}
