# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pictures of the site: what a kernel goes through, the memories, tiles of a tensor, access patterns, products."""

import itertools
from collections.abc import Callable

from tools.docs_site.svg import arrow, box, cell, label, picture

ROW = 64


def levels() -> str:
    """A kernel on its way down, and what runs it at each level."""
    rows = [("kernel.py", "start", "", "eager", "NumPy, operation by operation"),
            ("nki", "level", "tile operations, as written", "", ""),
            ("waist", "level", "linalg on tiles", "interpreter", "NumPy, with all checks"),
            ("nisa", "level", "one operation an instruction", "jit", "native code for the CPU"),
            ("isa", "level", "streams, addresses, semaphores", "isa", "simulated values, time, profile")]
    shapes = [label(80, 16, "levels", look="quiet"), label(510, 16, "executors", look="quiet")]
    for n, (name, look, about, executor, what) in enumerate(rows):
        y = 28 + n * ROW
        shapes += [box(10, y, 140, 38, look, name, code=True), label(160, y + 23, about, "start", "quiet")]
        if n:
            shapes.append(arrow(80, y - ROW + 38, 80, y - 1))
        if executor:
            shapes += [box(400, y, 220, 38, "executor"), label(510, y + 17, executor, code=True),
                       label(510, y + 32, what, look="small")]
        if executor and executor != "jit":
            shapes.append(arrow(160 + 6.7 * len(about), y + 19, 398, y + 19))
    y = 28 + ROW
    shapes += [f'<path class="arrow" d="M290,{y + 83} C350,{y + 88} 330,{y + 147} 392,{y + 147}" fill="none"/>',
               f'<path class="head" d="M398,{y + 147} L391,{y + 143.5} L391,{y + 150.5} Z"/>',
               box(400, y, 220, 38, "caller", "JAX, PyTorch, StableHLO"), arrow(398, y + 19, 345, y + 19)]
    return picture(630, 28 + 5 * ROW - 16, "A kernel is lowered through the levels nki, waist, nisa and isa; "
                   "the executors eager, interpreter, jit and isa run it", *shapes)


def memories() -> str:
    """Where data lies, and who moves it."""
    lanes = [cell(212, 44 + 11 * n, 150, 9, "lane") for n in range(14)]
    banks = [cell(474, 44 + 11 * n, 90, 9, "lane") for n in range(14)]
    shapes = [box(10, 30, 110, 170, "memory"), label(65, 110, "HBM"), label(65, 128, "tensors", look="small"),
              box(200, 30, 174, 170, "memory"), *lanes, label(287, 20, "SBUF: 128 partitions"),
              box(462, 30, 114, 170, "memory"), *banks, label(519, 20, "PSUM: sums"),
              arrow(122, 100, 198, 100, both=True), label(160, 90, "DMA", look="small"),
              box(220, 236, 96, 32, "engine", "vector"), box(330, 236, 96, 32, "engine", "scalar"),
              box(110, 236, 96, 32, "engine", "gpsimd"), box(440, 236, 96, 32, "engine", "tensor"),
              arrow(287, 202, 287, 234, both=True), arrow(500, 202, 500, 234, both=True),
              arrow(376, 115, 460, 115, both=True), label(418, 105, "copies", look="small"),
              label(300, 290, "one partition is one lane: elementwise work never crosses it", look="quiet")]
    return picture(590, 300, "HBM, SBUF with 128 partitions, PSUM, and the engines that work on them", *shapes)


def tiles(rows: int, columns: int, tile_rows: int, tile_columns: int) -> str:
    """How a tensor falls into tiles; the last ones may be smaller."""
    scale = min(440 / columns, 230 / rows)
    shapes = []
    starts = itertools.product(range(0, rows, tile_rows), range(0, columns, tile_columns))
    for r, c in starts:
        height, width = min(tile_rows, rows - r), min(tile_columns, columns - c)
        full = (height, width) == (tile_rows, tile_columns)
        x, y = 90 + c * scale, 30 + r * scale
        shapes.append(box(x + 1, y + 1, width * scale - 2, height * scale - 2, "tile" if full else "edge"))
        if min(height, width) * scale > 16:
            shapes.append(label(x + width * scale / 2, y + height * scale / 2 + 4, f"{height} x {width}", look="small"))
    shapes += [label(84, 30 + (r + min(tile_rows, rows - r) / 2) * scale + 4, f"{r}:{min(r + tile_rows, rows)}", "end",
                     "small", code=True) for r in range(0, rows, tile_rows)]
    shapes += [label(90 + (c + min(tile_columns, columns - c) / 2) * scale, 20, f"{c}:{min(c + tile_columns, columns)}",
                     look="small", code=True) for c in range(0, columns, tile_columns)]
    return picture(100 + columns * scale, 44 + rows * scale, f"A tensor of {rows} x {columns} in tiles of "
                   f"{tile_rows} x {tile_columns}", *shapes)


def pattern(partitions: int, elements: int, start: int, *numbers: int) -> str:
    """The elements that an access pattern touches: of each partition from ``start``, then steps and counts."""
    axes = list(zip(numbers[::2], numbers[1::2]))
    order = {start + sum(i * step for i, (step, _) in zip(index, axes)): n
             for n, index in enumerate(itertools.product(*(range(count) for _, count in axes)))}
    size = min(28, 500 / elements)
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
    said = ", ".join(f"[{step}, {count}]" for step, count in axes)
    return picture(100 + elements * size, 50 + partitions * size, f"What {said} from {start} touches", *shapes)


def product() -> str:
    """What one matrix product of the tensor engine takes and gives."""
    shapes = [box(40, 40, 110, 150, "memory", "stationary"), label(95, 30, "M: at most 128 columns", look="small"),
              box(230, 40, 170, 150, "memory", "moving"), label(315, 30, "N: at most 512 columns", look="small"),
              box(450, 60, 140, 110, "tile", "result"), label(520, 30, "[M, N] in PSUM", look="small"),
              label(20, 118, "K", look="small"), label(212, 118, "K", look="small"), label(190, 122, "x"),
              arrow(402, 115, 448, 115),
              label(315, 214, "K lies on the partitions of both, at most 128: the sum goes over them", look="quiet")]
    return picture(600, 224, "A product: stationary [K, M] and moving [K, N] give [M, N] in PSUM", *shapes)


PICTURES: dict[str, Callable[..., str]] = {f.__name__: f for f in (levels, memories, tiles, pattern, product)}
