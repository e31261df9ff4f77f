# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The optimizer drops as many instructions of a printed kernel as of the original, whatever form the text has."""

import numpy as np
import pytest

from nki_mlir.language.beta import compiler as ncc
from nki_mlir.language.beta import isa as nisa_beta
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import scalar
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki
from nki_mlir.machine import machine_named
from nki_mlir.printing.kernel_text import KernelText
from nki_mlir.printing.rolled_transfers import roll_transfers

from ..random_programs.comparing import EXECUTORS
from .counts import instructions, launch
from .reading import printed, reread

X = np.random.default_rng(0).integers(-8, 8, (64, 24)).astype(np.float32)


@nki.jit
def loads_at_addresses(x):
    """Each program loads the same rows to the same two addresses."""
    out, program = nl.ndarray((3, 2, 8, 8), nl.float32, buffer=nl.shared_hbm), nl.program_id(0)
    blocks = nl.ndarray((2, nl.par_dim(8), 8), nl.float32, buffer=ncc.sbuf.alloc(
        lambda idx, pdim_size, fdim_size: (0, 101376 + 256 * idx[0])))
    for k in nl.sequential_range(2):
        blocks[k] = nl.load(x[k * 8:k * 8 + 8, 0:8])
    nl.store(out[program, 0], nl.copy(blocks[0]))
    nl.store(out[program, 1], nl.add(blocks[1], program * 2.0))
    return out


@nki.jit
def blocks_at_addresses(x):
    """A loop loads the blocks of three tensors: apart, one after the other, and of the same memory in turn."""
    out = nl.ndarray((3, 3, 8, 8), nl.float32, buffer=nl.shared_hbm)
    apart = nl.ndarray((3, nl.par_dim(8), 8), nl.float32, buffer=ncc.sbuf.alloc(
        lambda idx, pdim_size, fdim_size: (0, 101376 + 256 * idx[0])))
    adjacent = nl.ndarray((3, nl.par_dim(8), 8), nl.float32, buffer=ncc.sbuf.mod_alloc(
        base_addr=113664, num_free_tiles=(3,)))
    in_turn = nl.ndarray((3, nl.par_dim(8), 8), nl.float32, buffer=ncc.sbuf.mod_alloc(
        base_addr=122880, num_free_tiles=(1,)))
    for k in nl.sequential_range(3):
        apart[k] = nl.load(x[k * 8:k * 8 + 8, 0:8])
        adjacent[k] = nl.load(x[k * 8:k * 8 + 8, 8:16])
    adjacent[2, :, 0:4] = 2.0
    for k in nl.sequential_range(3):
        in_turn[k] = nl.load(x[k * 8:k * 8 + 8, 16:24])
        nl.store(out[0, k], nl.copy(apart[k]))
        nl.store(out[1, k], nl.copy(adjacent[k]))
        nl.store(out[2, k], nl.copy(in_turn[k]))
    return out


@current_nki.jit
def tile_at_an_address(x):
    out = current_nl.ndarray((64, 24), current_nl.float32, buffer=current_nl.shared_hbm)
    tile = current_nl.ndarray((64, 24), current_nl.float32, buffer=current_nl.sbuf, address=(0, 4096))
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out


@nki.jit
def loaded_triangle(x):
    """Only the elements on and above the diagonal are loaded."""
    out, tile = nl.ndarray((24, 24), nl.bfloat16, buffer=nl.shared_hbm), nl.full((24, 24), 1, nl.bfloat16)
    p, f = nl.arange(24)[:, None], nl.arange(24)[None, :]
    tile[...] = nl.load(x[p, f], dtype=nl.bfloat16, mask=p <= f)
    nl.store(out, tile)
    return out


@nki.jit
def other_rows(x):
    """An engine starts at the rows before the one that the mask leaves out, and not at those behind it."""
    out, tile = nl.ndarray((5, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x[0:5, 0:8])
    kept = nl.full((5, 8), 3.0, nl.float32)
    kept[...] = nisa_beta.tensor_scalar(tile, np.multiply, 2.0, mask=nl.arange(5)[:, None] != 2)
    nl.store(out, kept)
    return out


@nki.jit
def greatest_of_parts(x):
    """The first iteration copies what it loads."""
    out, total = nl.ndarray((64, 8), nl.float32, buffer=nl.shared_hbm), nl.ndarray((64, 8), nl.float32)
    for k in nl.affine_range(3):
        total[...] = nl.loop_reduce(nl.load(x[0:64, nl.ds(k * 8, 8)]), op=np.maximum, loop_indices=[k])
    nl.store(out, total)
    return out


@nki.jit
def selected_row(x):
    """No engine begins at the row that the mask selects."""
    out, tile = nl.ndarray((64, 24), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    kept = nl.full((64, 24), 1, nl.float32)
    kept[...] = nl.where(tile, nl.add(tile, 1.0), 2, mask=nl.arange(64)[:, None] == 41, dtype=nl.bfloat16)
    nl.store(out, kept)
    return out


@nki.jit
def converted_rows(x):
    """No engine begins at the rows that the mask selects, and the value behind the condition has another dtype."""
    out, tile = nl.ndarray((64, 24), nl.int32, buffer=nl.shared_hbm), nl.load(x)
    small, kept = nl.copy(tile, dtype=nl.int16), nl.full((64, 24), 1, nl.int32)
    kept[...] = nl.where(tile, small, -2.5, dtype=nl.int32, mask=nl.arange(64)[:, None] >= 41)
    nl.store(out, kept)
    return out


@nki.jit
def integers_of_rows(x):
    """The selection is in float32, which has not all of these integers."""
    out, tile = nl.ndarray((64, 24), nl.int32, buffer=nl.shared_hbm), nl.load(x)
    large, kept = nl.add(nl.copy(tile, dtype=nl.int32), 16777217, dtype=nl.int32), nl.full((64, 24), 1, nl.int32)
    kept[...] = nl.where(tile, large, tile, dtype=nl.int32, mask=nl.arange(64)[:, None] >= 41)
    nl.store(out, kept)
    return out


@nki.jit
def rows_from_the_diagonal(x):
    """The greatest of the elements that a mask selects, converted. Each program has another mask."""
    out, program = nl.ndarray((3, 64, 1), nl.bfloat16, buffer=nl.shared_hbm), nl.program_id(0)
    tile, rows = nl.load(x), nl.full((64, 1), 3, nl.bfloat16)
    rows[...] = nl.max(tile, axis=[1], keepdims=True,
                       mask=nl.arange(64)[:, None] >= nl.arange(24)[None, :] + program * 2 - 1)
    nl.store(out[program], nl.all_reduce(rows, op=np.add, program_axes=0))
    return out


@nki.jit
def columns_of_programs(x):
    """Each program reads four columns of its rows from a run-time position on."""
    out, program = nl.ndarray((3, 64, 4), nl.float32, buffer=nl.shared_hbm), nl.program_id(0)
    tile, index = nl.load(x[0:64, nl.ds(program * 8, 8)]), nl.copy(nl.zeros((1, 1), nl.int32))
    chosen = nisa_beta.tensor_copy_dynamic_src(tile[nl.arange(64)[:, None], index[0, 0] + nl.arange(4)[None, :]])
    total = nl.all_reduce(chosen, op=np.add, program_axes=0)
    nl.store(out[program], nl.add(total, tile[:, 4:8]))
    return out


@nki.jit
def triangles(x):
    """Each core stores its part of the same rows."""
    out, program = nl.ndarray((24, 24), nl.float32, buffer=nl.shared_hbm), nl.program_id(0)
    p, f = nl.arange(24)[:, None], nl.arange(24)[None, :]
    if program == 0:
        nl.store(out[p, f], nl.load(x[0:24, :]), mask=p >= f)
    else:
        nl.store(out[p, f], nl.load(x[24:48, :]), mask=p < f)
    return out


@nki.jit
def diagonals(x):
    """The mask of each iteration begins one column later."""
    out, tile = nl.ndarray((2, 8, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x[0:8, 0:8])
    p, f = nl.arange(8)[:, None], nl.arange(8)[None, :]
    for i in nl.sequential_range(2):
        nl.store(out[i], nl.zeros((8, 8), nl.float32))
        nl.store(out[i, p, f], tile, mask=p - f - i >= 0)
    return out


@nki.jit
def counted_down(x):
    """The mask in the loop of the run time differs for each core."""
    out, program = nl.ndarray((2, 64, 24), nl.float32, buffer=nl.shared_hbm), nl.program_id(0)
    left, total = nl.full((1, 1), 3, nl.int32), nl.load(x)
    going = scalar(True)
    while going:
        total[...] = nl.add(total, 1.0, mask=nl.arange(64)[:, None] >= 18 + program * 2)
        left[...] = nl.subtract(left, 1)
        going = scalar(left)
    nl.store(out[program], total)
    return out


@current_nki.jit
def in_fixed_order(x):
    """Nothing reads the tiles whose order is fixed."""
    out = current_nl.ndarray((64, 24), current_nl.float32, buffer=current_nl.shared_hbm)
    for k in current_nl.sequential_range(2):
        tile = current_nl.load(x)
        with current_nl.no_reorder():
            kept = current_nl.ones((64, 24), current_nl.float32, buffer=current_nl.sbuf)
            nisa.tensor_copy(src=tile, dst=kept)
        nisa.dma_copy(out, tile)
    return out


KERNELS = {loads_at_addresses: (3,), blocks_at_addresses: (), tile_at_an_address: (), loaded_triangle: (),
           other_rows: (), converted_rows: (),
           greatest_of_parts: (), selected_row: (), rows_from_the_diagonal: (3,),
           columns_of_programs: (3,), triangles: (2,), diagonals: (), counted_down: (2,),
           in_fixed_order: ()}


@pytest.mark.share(3)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_the_text_has_as_many_instructions(kernel):
    launched = launch(kernel, KERNELS[kernel])
    text = printed(launched, [X])
    again = reread(text, KERNELS[kernel])
    assert instructions(again, [X]).total() == instructions(launched, [X]).total()
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X.copy()), launched.on(executor)(X.copy()))
    second = printed(again, [X])
    assert printed(reread(second, KERNELS[kernel]), [X]) == second


def test_tiles_keep_the_addresses_that_the_kernel_chose():
    """Blocks become tensors, with an address each; a second text has them, too."""
    text = printed(blocks_at_addresses, [X])
    addresses = {"apart": (101376, 101632, 101888), "adjacent": (113664, 113696, 113728), "in_turn": (122880,) * 3}
    for name, expected in addresses.items():
        for k, byte in enumerate(expected):
            assert f"{name}_{k} = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, {byte}))" in text
    assert printed(reread(text), [X]) == text
    assert "buffer=nl.sbuf, address=(0, 4096))" in printed(tile_at_an_address, [X])


def test_many_blocks_stay_one_tensor_whose_place_the_compiler_chooses():
    @nki.jit
    def nine_blocks(x):
        out = nl.ndarray((9, 8, 2), nl.float32, buffer=nl.shared_hbm)
        blocks = nl.ndarray((9, nl.par_dim(8), 2), nl.float32, buffer=ncc.sbuf.mod_alloc(
            base_addr=4096, num_free_tiles=(9,)))
        for k in nl.sequential_range(9):
            blocks[k] = nl.load(x[0:8, nl.ds(k * 2, 2)])
        for k in nl.sequential_range(9):
            nl.store(out[k], blocks[8 - k])
        return out
    text = printed(nine_blocks, [X])
    assert "address=" not in text and "blocks = nl.ndarray((8, 9, 2), dtype=nl.float32, buffer=nl.sbuf)" in text
    np.testing.assert_array_equal(reread(text)(X), [X[0:8, 2 * k:2 * k + 2] for k in range(8, -1, -1)])


def test_loads_under_masks_are_loops_over_rows():
    text = printed(loaded_triangle, [X])
    assert "forkinrange(23):\nnisa.dma_copy(dst=tile[nl.ds(k+1,1),k+1:24],src=x[nl.ds(k+1,1),k+1:24])" in text.replace(" ", "")
    assert "predicated" not in text


def test_stores_under_masks_are_loops_over_rows():
    """The text has no selection, which would read and store elements of the other core."""
    text = printed(triangles[2], [X])
    assert "forkinrange(23):\nnisa.dma_copy(dst=out[nl.ds(k,1),0:k+1],src=" in text.replace(" ", "")
    assert "src=out" not in text and "predicated" not in text


@pytest.mark.parametrize("lines, rolled", [
    (["nisa.dma_copy(dst=o[0, 4:8], src=t[9:10])", "nisa.dma_copy(dst=o[2, 4:9], src=t[8:9])",
      "nisa.dma_copy(dst=o[4, 4:10], src=t[7:8])"],
     ["for k in range(3):", "    nisa.dma_copy(dst=o[k * 2, 4:k + 8], src=t[nl.ds(9 - k, 1)])"]),
    (["nisa.dma_copy(dst=o[1], src=t)", "nisa.dma_copy(dst=o[2], src=t)", "nisa.dma_copy(dst=o[3], src=t)",
      "nisa.dma_copy(dst=o[5], src=t)"],
     ["for k in range(3):", "    nisa.dma_copy(dst=o[k + 1], src=t)", "nisa.dma_copy(dst=o[5], src=t)"]),
    (["nisa.dma_copy(dst=o1[0], src=t)", "nisa.dma_copy(dst=o2[0], src=t)", "nisa.dma_copy(dst=o3[0], src=t)"], None),
    (["nisa.dma_copy(dst=o, src=t)"] * 3, None), (["nisa.dma_copy(dst=o[-1], src=t)", "nisa.dma_copy(dst=o[-2], src=t)",
                                                  "nisa.dma_copy(dst=o[-3], src=t)"], None),
    (["nisa.memset(dst=o[0], value=0)", "nisa.memset(dst=o[1], value=0)", "nisa.memset(dst=o[2], value=0)"], None)],
    ids=["several steps", "an end", "names", "equal", "signs", "no transfers"])
def test_transfers_in_equal_steps_become_loops(lines, rolled):
    text = KernelText(False, machine_named("trn2"))
    text.lines += lines
    roll_transfers(text)
    assert text.lines == (rolled or lines)


def test_only_releases_with_such_regions_fix_the_order():
    assert printed(in_fixed_order, [X]).count("with nl.no_reorder():") == 1
    assert "no_reorder" not in printed(in_fixed_order, [X], release="2.28")
    assert "no_reorder" not in printed(in_fixed_order, [X], generation="beta")


def test_the_scalar_operand_is_the_column_that_the_lowering_chooses():
    """The right one, also where it has integers, of which the current generation takes all."""
    @nki.jit
    def columns(x):
        out = nl.ndarray((2, 8, 1), nl.int32, buffer=nl.shared_hbm)
        left, right = nl.load(x[0:8, 0:1]), nl.copy(nl.load(x[0:8, 1:2]), dtype=nl.int16)
        integers, other = nl.copy(left, dtype=nl.int32), nl.copy(right, dtype=nl.int32)
        nl.store(out[0], nl.multiply(left, right, dtype=nl.int32))
        nl.store(out[1], nl.bitwise_or(integers, other))
        return out
    text = printed(columns, [X])
    assert "data=left, op0=nl.multiply, operand0=right)" in text
    assert "data=integers, op0=nl.bitwise_or, operand0=other)" in text
    left, right = (X[0:8, k:k + 1].astype(np.int32) for k in range(2))
    again = reread(text)
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), [left * right, left | right])
    assert printed(again, [X]) == text


def test_rows_of_a_selection_are_converted_at_the_transfer_only_if_the_values_stay():
    """A selection in float32 rounds large integers, and one of int32 tiles would not."""
    again = reread(printed(integers_of_rows, [X]))
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), integers_of_rows.on(executor)(X))
    assert 16777217 not in integers_of_rows.on("interpreter")(X)
