# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of a kernel, captured and printed again, is the same text: one kernel for each difference that there was."""

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import scalar
from nki_mlir.printing import allocation_lines

from ..language.generated import kernel_from_text
from ..random_programs.comparing import EXECUTORS
from .reading import printed, reread

X = np.random.default_rng(7).standard_normal((64, 96)).astype(np.float32)
TEXTS = {
    "counted down": """
        left = nl.full((1, 1), 3, nl.int32)
        going = scalar(True)
        while going:
            tile[...] = nl.add(tile, tile)
            left[...] = nl.subtract(left, 1)
            going = scalar(left)
        nl.store(out, tile)""",
    "run-time loops in a loop": """
        for i in nl.sequential_range(2):
            left = nl.full((1, 1), 2, nl.int32)
            going = scalar(True)
            while going:
                tile[:, nl.ds(i * 8, 8)] = nl.add(tile[:, nl.ds(i * 8, 8)], 1.5)
                left[...] = nl.subtract(left, 1)
                going = scalar(left)
        nl.store(out, tile)""",
    "loops that move alike": """
        for i in nl.affine_range(2):
            for j in nl.affine_range(3):
                tile[:, nl.ds(i * 48 + j * 16, 16)] = nl.exp(tile[:, nl.ds(i * 48 + j * 16, 16)])
        nl.store(out, tile)""",
    "a loop from 1": """
        for k in nl.sequential_range(1, 4):
            tile[:, 0:16] = nl.add(tile[:, 0:16], nl.load(x[:, nl.ds(k * 16, 16)]))
        nl.store(out, tile)""",
    "a fill that a masked copy overwrites": """
        kept = nl.zeros((64, 96), nl.float32)
        kept[...] = nl.copy(tile, mask=nl.arange(64)[:, None] < 70)
        nl.store(out, kept)""",
    "a copy onto itself": """
        kept = nl.zeros((64, 96), nl.float32)
        kept[...] = nl.copy(kept)
        kept[...] = nl.load(x)
        nl.store(out, kept)""",
    "rows where no engine begins": """
        part = nl.ndarray((64, 96), nl.float32)
        p = nl.arange(64)[:, None]
        part[...] = nl.exp(tile, mask=p >= 40)
        nl.store(out[40 + nl.arange(24)[:, None], nl.arange(96)[None, :]], part[40:64, :])
        nl.store(out[nl.arange(40)[:, None], nl.arange(96)[None, :]], tile[0:40, :])""",
    "a sum in a masked loop": """
        total = nl.zeros((96, 96), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            total += nisa.nc_matmul(tile, tile, mask=k >= 1)
        nl.store(out, nl.copy(total[0:64, :]))""",
    "a triangle of a tile with an axis of 1": """
        square = nl.ndarray((64, 1, 96), nl.float32)
        square[...] = nl.copy(tile.reshape((64, 1, 96)))
        p, f = nl.arange(64)[:, None, None], nl.arange(96)[None, None, :]
        chosen = nisa.affine_select(pred=p >= f, on_true_tile=square, on_false_value=0.0)
        nl.store(out, chosen.reshape((64, 96)))""",
    "single elements of a diagonal that steps backwards": """
        p, f = nl.arange(3)[:, None], nl.arange(7)[None, :]
        nl.store(out, tile)
        nl.store(out[p * 2, 28 - f * 2], nl.copy(tile[0:3, 0:7]), mask=p == f)""",
    "a transpose by DMA": """
        half = nl.copy(tile, dtype=nl.bfloat16)
        kept = nl.ndarray((2, 64, 96), nl.bfloat16, buffer=nl.private_hbm)
        turned = nl.ndarray((96, 64), nl.bfloat16)
        nl.store(kept[0], half)
        turned[...] = nl.load_transpose2d(kept[0])
        nl.store(out, nl.transpose(nl.copy(turned, dtype=nl.float32)))""",
    "a fill of parts that a loop overwrites": """
        parts = nl.ndarray((64, 96), nl.float32)
        for i in nl.affine_range(2):
            parts[:, nl.ds(i * 48, 24)] = 0.5
            parts[:, nl.ds(i * 48, 24)] = nl.exp(tile[:, nl.ds(i * 48, 24)])
            parts[:, nl.ds(i * 48 + 24, 24)] = 0.5
        nl.store(out, parts)""",
    "a fill that only other iterations read": """
        parts = nl.ndarray((64, 96), nl.float32)
        for i in nl.affine_range(3):
            part = nl.ds(i * 32, 32)
            parts[:, part] = 0.5
            parts[:, part] = nl.add(parts[:, part], tile[:, part], mask=i >= 1)
            parts[:, part] = nl.copy(tile[:, part], mask=i < 1)
        nl.store(out, parts)""",
    "a sum over partitions of a tile with two axes": """
        kept = nl.copy(tile.reshape((64, 8, 12)))
        total = nisa.tensor_partition_reduce(np.add, data=kept)
        tile[0:1, 0:96] = nl.copy(total.reshape((1, 96)))
        nl.store(out, tile)""",
    "a minimum under a mask, with results that nothing reads": """
        least = nl.full((64, 1), 5, nl.float32)
        p, f = nl.arange(64)[:, None], nl.arange(96)[None, :]
        larger = nisa.tensor_scalar_reduce(data=tile, op0=np.maximum, operand0=0.25, reduce_op=np.min,
                                           reduce_res=least, mask=p == f, dtype=nl.float32)
        tile[:, 0:1] = nl.copy(least)
        nl.store(out, tile)""",
    "a product on rows of PSUM where no engine begins": """
        total = nl.zeros((11, 96), nl.float32, buffer=nl.psum)
        total[...] = nisa.nc_matmul(tile[:, 0:11], tile, mask=nl.arange(11)[:, None] >= 6)
        tile[0:11, :] = nl.copy(total)
        nl.store(out, tile)""",
    "a mask along the last of several axes": """
        kept = nl.full((64, 4, 12, 2), 0.5, nl.float32)
        p, f = nl.arange(64)[:, None, None, None], nl.arange(2)[None, None, None, :]
        kept[...] = nl.add(tile.reshape((64, 4, 12, 2)), 1.0, mask=p <= f)
        nl.store(out, kept.reshape((64, 96)))""",
    "a minimum of rows of several axes, where no engine begins": """
        least, p = nl.full((64, 1), 5, nl.float32), nl.arange(64)[:, None, None]
        larger = nisa.tensor_scalar_reduce(data=tile.reshape((64, 8, 12)), op0=np.add, operand0=0.25, reduce_op=np.min,
                                           reduce_res=least, mask=p >= 40, dtype=nl.float32)
        tile[:, 0:1] = nl.copy(least)
        nl.store(out, tile)""",
    "integers under a mask of rows where no engine begins": """
        p, f = nl.arange(64)[:, None], nl.arange(96)[None, :]
        left, numbers = nl.full((1, 1), 2, nl.int32), nl.copy(tile, dtype=nl.uint32)
        going = scalar(True)
        while going:
            bits = nisa.tensor_scalar(numbers, np.bitwise_or, 1, mask=(2 * f + p <= 60) & (p >= 5))
            left[...] = nl.subtract(left, 1)
            going = scalar(left)
        nl.store(out, tile)""",
    "a fill below a predicated copy of a row where no engine begins": """
        kept, p = nl.full((64, 96), 3, nl.float32), nl.arange(64)[:, None]
        nisa.tensor_copy_predicated(src=2.0, dst=kept, predicate=nl.copy(tile, dtype=nl.uint32), mask=p == 14)
        nl.store(out, tile)""",
    "a fill below masks of rows where no engine begins": """
        kept, p, f = nl.full((64, 96), 3, nl.float32), nl.arange(64)[:, None], nl.arange(96)[None, :]
        kept[...] = nl.copy(tile, mask=(f < p) | (f < 4))
        nl.store(out, tile)""",
    "a sum into a part of a tile of five axes": """
        parts, kept = tile.reshape((64, 4, 4, 2, 3)), nl.ndarray((64, 4, 4, 2, 1), nl.float32)
        kept[:, :, 3:4] = nl.sum(parts[:, :, 3:4], axis=4, keepdims=True)
        nl.store(out, tile)""",
    "elements of one row at a run-time position": """
        start, copied = nl.full((1, 1), 3, nl.int32), nl.ndarray((64, 32), nl.float32)
        p, f = nl.arange(64)[:, None], nl.arange(32)[None, :]
        copied[...] = nisa.tensor_copy_dynamic_src(tile[p, start[0, 0] + f], mask=p == 14)
        nl.store(out, tile)""",
    "a selection between a column and integers where no engine begins": """
        p, numbers = nl.arange(64)[:, None], nl.copy(tile, dtype=nl.int32)
        column = nl.full((64, 1), -1, nl.int32)
        kept = nl.where(nl.copy(tile, dtype=nl.uint8), numbers, column, mask=p == 14, dtype=nl.float32)
        kept[0:14, :] = nl.copy(tile[0:14, :])
        kept[15:64, :] = nl.copy(tile[15:64, :])
        nl.store(out, kept)""",
    "a transpose of one row where no engine begins": """
        p, f, part = nl.arange(33)[:, None], nl.arange(36)[None, :], nl.copy(tile[0:33, 0:36])
        turned = nl.copy(nisa.nc_transpose(part, engine=nisa.engine.unknown, mask=(f >= 6) & (p == 21)))
        tile[0:36, 0:33] = nl.copy(turned, mask=(nl.arange(36)[:, None] >= 6) & (nl.arange(33)[None, :] == 21))
        nl.store(out, tile)""",
    "rows in reverse order, in a loop": """
        p, f = nl.arange(32)[:, None], nl.arange(96)[None, :]
        for i in nl.affine_range(2):
            nl.store(out[i * 32 + 31 - p, f], nl.exp(nl.load(x[i * 32 + p, f])))""",
    "single elements of each row": """
        p, f = nl.arange(64)[:, None], nl.arange(96)[None, :]
        nl.store(out, nl.zeros((64, 96), nl.float32))
        nl.store(out[p, f], tile, mask=(p + 2 <= f) & (p + 2 >= f))""",
}
LAUNCHES = {
    "a transpose that the first program does not run": (3, """
        turned = nl.zeros((96, 64), nl.float32, buffer=nl.psum)
        turned[...] = nisa.nc_transpose(tile, mask=(nl.arange(64)[:, None] >= 16) & (g >= 1))
        nl.store(out[g], nl.transpose(nl.copy(turned)))"""),
    "a fill that the first program overwrites": (3, """
        kept = nl.full((64, 96), 0.5, nl.float32)
        total = nl.all_reduce(tile, op=np.add, program_axes=0)
        kept[...] = nl.maximum(kept, tile, mask=g >= 1)
        kept[...] = nl.copy(total, mask=g < 1)
        nl.store(out[g], kept)"""),
    "a fill of results that a lowered mask overwrites": (3, """
        least, p, f = nl.full((64, 1), 5, nl.float32), nl.arange(64)[:, None], nl.arange(96)[None, :]
        total = nl.all_reduce(tile, op=np.add, program_axes=0)
        larger = nisa.tensor_scalar_reduce(data=total, op0=np.maximum, operand0=0.25, reduce_op=np.min,
                                           reduce_res=least, mask=(p == p) & (f >= f), dtype=nl.float32)
        total[:, 0:1] = nl.copy(least)
        nl.store(out[g], total)"""),
    "branches of two programs in each iteration": (2, """
        for i in nl.sequential_range(3):
            tile[...] = nl.add(tile, 1.0)
            if g == 0:
                tile[...] = nl.multiply(tile, 0.5)
            else:
                tile[...] = nl.square(nl.load(x))
        nl.store(out[g], tile)"""),
    "branches of two programs in a run-time loop in a loop": (2, """
        for i in nl.sequential_range(2):
            left = nl.full((1, 1), 3, nl.int32)
            going = scalar(True)
            while going:
                part = nl.load(x[:, 0:32])
                if g == 0:
                    tile[:, 0:32] = nl.add(tile[:, 0:32], part)
                else:
                    tile[:, 32:64] = nl.square(part)
                    tile[:, 64:96] = nl.exp(part)
                left[...] = nl.subtract(left, 1)
                going = scalar(left)
        nl.store(out[g], tile)"""),
    "rows of each program in a run-time loop with a branch": (2, """
        left, rows = nl.full((1, 1), 2, nl.int32), nl.load(x[nl.ds(g * 32, 32), :])
        going = scalar(True)
        while going:
            rows[...] = nl.add(rows, nl.load(x[nl.ds(g * 16, 32), :]))
            if g == 1:
                rows[...] = nl.exp(rows)
            left[...] = nl.subtract(left, 1)
            going = scalar(left)
        nl.store(out[g, nl.ds(g * 32, 32), :], rows)
        nl.store(out[g, nl.ds(32 - g * 32, 32), :], tile[0:32, :])"""),
    "a constant of the second program": (2, """
        if g == 1:
            tile[:, 0:64] = nl.add(tile[:, 0:64], nl.load(nl.shared_identity_matrix(64, dtype=nl.float32)))
        nl.store(out[g], tile)"""),
    "branches of one program, then of the other": (2, """
        if g < 1:
            tile[...] = nl.exp(tile)
        if g == 1:
            tile[...] = nl.square(tile)
        nl.store(out[g], tile)"""),
    "a product of the first program, before and after a reduction": (3, """
        sums = nl.zeros((96, 96), nl.float32, buffer=nl.psum)
        sums[...] = nisa.nc_matmul(tile, tile, mask=g == 0)
        total = nl.all_reduce(tile, op=np.add, program_axes=0)
        total[...] = nl.add(total, sums[0:64, :])
        nl.store(out[g], total)"""),
    "registers of an engine that iterations with a branch share": (2, """
        for i in nl.sequential_range(3):
            part, largest = nl.load(x[:, nl.ds(i * 32, 32)]), nl.zeros((64, 1), nl.float32)
            chosen = nisa.range_select(
                on_true_tile=part, comp_op0=np.greater, comp_op1=np.less, bound0=part[:, 0:1], bound1=part[:, 1:2],
                reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_op=np.max, reduce_res=largest)
            if g == 1:
                tile[:, nl.ds(i * 32, 32)] = nl.exp(part)
            tile[:, nl.ds(i * 32, 1)] = nl.add(largest, 1.0)
        nl.store(out[g], tile)"""),
    "a loop of a branch": (2, """
        for i in nl.affine_range(3):
            if g > 0:
                part = nl.load(x[:, nl.ds(i * 32, 32)])
                nl.store(out[g, :, nl.ds(i * 32, 32)], nl.add(part, 1.0))
            else:
                nl.store(out[g, :, nl.ds(i * 32, 32)], tile[:, nl.ds(i * 32, 32)])"""),
}


def kernel_of(body, programs=None):
    shape = (64, 96) if programs is None else (programs, 64, 96)
    head = f"def kernel(x):\n    out = nl.ndarray({shape}, nl.float32, buffer=nl.shared_hbm)\n    tile = nl.load(x)\n"
    lines = ["    g = nl.program_id(0)"] * (programs is not None)
    lines += [line.removeprefix("    ") for line in body.strip("\n").splitlines()]
    kernel = kernel_from_text(head + "\n".join(lines) + "\n    return out\n", {
        "nl": nl, "nisa": nisa, "np": np, "scalar": scalar}, jit=nki.jit)
    return kernel if programs is None else kernel[programs]


@pytest.mark.parametrize("programs, body", [*[(None, body) for body in TEXTS.values()], *LAUNCHES.values()],
                         ids=[*TEXTS, *LAUNCHES])
def test_second_text_is_the_first(programs, body):
    kernel = kernel_of(body, programs)
    text = printed(kernel, [X])
    again = reread(text)
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), kernel.on(executor)(X))
    assert printed(again, [X]) == text


@nki.jit
def products_of_triangles(x):
    out = nl.ndarray((2, 16, 4), nl.float32, buffer=nl.shared_hbm)
    columns = nl.load(x[0:5, 0:4])
    row, column = nl.arange(16)[None, :, None], nl.arange(4)[None, None, :]
    for i in nl.affine_range(2):
        rows = nl.load(x[nl.ds(5 + 3 * i, 5), 0:16])
        product = nl.zeros((16, 4), nl.float32, buffer=nl.psum)
        product[...] += nisa.nc_matmul(rows, columns, mask=column >= row + i)
        nl.store(out[i], nl.copy(product))
    return out


def test_iterations_whose_masks_select_other_elements_follow_each_other():
    """The capture runs both branches of ``if i == 0`` on their own. The first text has no such branch either."""
    text = printed(products_of_triangles, [X])
    again = reread(text)
    assert "if " not in text and printed(again, [X]) == text
    integers = np.round(X * 8)                     # products of any order have the same bits
    np.testing.assert_array_equal(again(integers), products_of_triangles(integers))


def test_loops_have_the_numbers_of_their_statements():
    for name, loops in (("loops that move alike", ["for i in range(2):", "for j in range(3):"]),
                        ("a loop from 1", ["for k in range(1, 4):"]), ("run-time loops in a loop", ["for i in range(2):"])):
        text = printed(reread(printed(kernel_of(TEXTS[name]), [X])), [X])
        assert [line.strip() for line in text.splitlines() if "for " in line] == loops


def test_steps_of_statements_stay():
    text = """
    out = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.shared_hbm)
    for k in range(0, 96, 32):
        tile = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, nl.ds(k, 32)])
        nisa.dma_copy(dst=out[:, nl.ds(k, 32)], src=tile)
    return out
"""
    head = 'def kernel(x):\n    """x [64, 96] float32."""'
    again = reread(f"@nki.jit\n{head}{text}")
    assert printed(again, [X]).split('float32."""')[1] == text
    np.testing.assert_array_equal(again(X), X)


def test_loops_of_two_branches_begin_with_one_tile():
    text = """
    tile = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    left = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=left, value=3)
    going = nisa.register_alloc()
    nisa.register_load(going, left)
    if program_id == 0:
        def body(going):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1.0)
            nisa.register_load(going, left)
            return going
        nl.while_loop(going, body)
    else:
        def body_2(going_2):
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1.0)
            nisa.register_load(going_2, left)
            return going_2
        nl.while_loop(going, body_2)
    out = nl.ndarray((2, 64, 96), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[program_id], src=tile)
    return out
"""
    kernel = reread(f'@nki.jit\ndef kernel(x):\n    program_id = nl.program_id(0){text}')
    first = printed(kernel, [X])
    assert first.count("nl.while_loop(") == 2
    assert printed(reread(first), [X]) == first
    np.testing.assert_array_equal(reread(first)(X), [X + 1 + 1 + 1, X])


def test_allocations_precede_their_first_use():
    lines = """\
    a = nl.ndarray((2, 2))
    b = nl.ndarray((2, 2))
    c = nl.ndarray((2, 2))
    nisa.memset(dst=b, value=0)
    if program == 0:
        nisa.memset(dst=b, value=a)
    else:
        d = nl.ndarray((2, 2))
        nisa.memset(dst=b, value=1)
        nisa.memset(dst=c, value=d)""".splitlines()
    assert "\n".join(allocation_lines.delay_allocations(lines)) == """\
    b = nl.ndarray((2, 2))
    nisa.memset(dst=b, value=0)
    a = nl.ndarray((2, 2))
    c = nl.ndarray((2, 2))
    if program == 0:
        nisa.memset(dst=b, value=a)
    else:
        nisa.memset(dst=b, value=1)
        d = nl.ndarray((2, 2))
        nisa.memset(dst=c, value=d)"""
