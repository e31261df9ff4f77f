# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations whose data select elements, against loops over the elements: indices out of bounds, edges, all shapes."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from nki_mlir.dialects.nisa.indirect import IndirectOutOfBounds, rows_of
from nki_mlir.dialects.verification import verify

from .samples import SAMPLES, arrays_of, run, tile

KEEP = 255


def numbered(shape: tuple[int, ...], first: int) -> np.ndarray:
    """Different integers as float32, which sums of two of them keep exactly."""
    return np.arange(first, first + np.prod(shape), dtype=np.float32).reshape(shape)


# -- a pattern whose start is read from a tile -------------------------------------------------------------------------
PATTERN = {"start": 2, "steps": (1, 2), "scale": 3, "extent": 4}
ROWS, COLUMNS, WIDTH = 4, 3, 16
INDICES = [(0,), (3,), (4,), (-1,), (5,), (0, 1, 2, 3), (3, 4, -1, 0), (-2, 4, 5, 1), (3, 3, 3, 3)]


def positions(indices: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """The column of the table for each element of the piece whose index and column are in bounds."""
    result = {}
    for row, column in product(range(ROWS), range(COLUMNS)):
        index = indices[row if len(indices) > 1 else 0]
        at = PATTERN["start"] + row + 2 * column + PATTERN["scale"] * index
        if 0 <= index < PATTERN["extent"] and 0 <= at < WIDTH:
            result[row, column] = at
    return result


@pytest.mark.parametrize("indices", INDICES)
@pytest.mark.parametrize("table_rows", (1, ROWS))
@pytest.mark.parametrize("name", ("nisa.dynamic_read", "nisa.dynamic_write"))
def test_patterns__skip_indices_and_columns_out_of_bounds(name: str, table_rows: int, indices: tuple[int, ...]) -> None:
    table_field, piece_field = ("src", "dst") if name == "nisa.dynamic_read" else ("dst", "src")
    tiles: dict[str, Any] = {table_field: f"sbuf {table_rows}x{WIDTH}xf32", piece_field: f"sbuf {ROWS}x{COLUMNS}xf32",
                             "index": f"sbuf {len(indices)}x1xi32"}
    attributes = PATTERN | ({"rmw": "add"} if name == "nisa.dynamic_write" else {})
    table, piece = numbered((table_rows, WIDTH), 1), numbered((ROWS, COLUMNS), 100)
    arrays = {table_field: table, piece_field: piece, "index": np.array(indices, np.int32).reshape(-1, 1)}
    op = SAMPLES[name].make(**tiles, **attributes, mode="skip")
    verify(op)
    result = run(op, arrays)
    expected_table, expected_piece, good = table.copy(), piece.copy(), positions(indices)
    for (row, column), at in good.items():
        if name == "nisa.dynamic_read":
            expected_piece[row, column] = table[row if table_rows > 1 else 0, at]
        else:
            expected_table[row if table_rows > 1 else 0, at] += piece[row, column]
    np.testing.assert_array_equal(result[piece_field], expected_piece)
    np.testing.assert_array_equal(result[table_field], expected_table)
    strict = SAMPLES[name].make(**tiles, **attributes, mode="error")
    if len(good) == ROWS * COLUMNS:
        np.testing.assert_array_equal(run(strict, arrays)[table_field], expected_table)
        return
    with pytest.raises(IndirectOutOfBounds, match=r"index -?\d+ is out of bounds for axis 0 with size") as caught:
        run(strict, arrays)
    outside = [index for index in indices if not 0 <= index < PATTERN["extent"]]
    if outside:
        assert (caught.value.values["row"], caught.value.values["rows"]) == (outside[0], PATTERN["extent"])
        assert caught.value.values["index"] == PATTERN["start"] + PATTERN["scale"] * outside[0]
    else:
        first = min((r, c) for r, c in product(range(ROWS), range(COLUMNS)) if (r, c) not in good)
        at = PATTERN["start"] + first[0] + 2 * first[1] + PATTERN["scale"] * indices[first[0] if len(indices) > 1 else 0]
        assert (caught.value.values["index"], caught.value.values["size"]) == (at, WIDTH)


# -- rows that an index tile selects -----------------------------------------------------------------------------------
@pytest.mark.parametrize("indices", [(0, 4, 2), (-1, 5, 0), (4, 4, 4), (-5, 100, -2147483648), (1, 5, 1)])
@pytest.mark.parametrize("inner", [(6,), (3, 2)])
@pytest.mark.parametrize("name", ("nisa.dma_gather", "nisa.dma_scatter"))
def test_rows__skip_indices_out_of_bounds(name: str, inner: tuple[int, ...], indices: tuple[int, ...]) -> None:
    table_field, piece_field = ("src", "dst") if name == "nisa.dma_gather" else ("dst", "src")
    text = "x".join(map(str, inner))
    tiles: dict[str, Any] = {table_field: f"hbm 5x{text}xf32", piece_field: f"sbuf 3x{text}xf32", "index": "sbuf 3x1xi32"}
    table, piece = numbered((5, *inner), 1), numbered((3, *inner), 100)
    arrays = {table_field: table, piece_field: piece, "index": np.array(indices, np.int32).reshape(-1, 1)}
    op = SAMPLES[name].make(**tiles, mode="skip")
    verify(op)
    axes = [*range(1, len(inner) + 1)]
    assert op.iteration().extents == (3, *inner, 5)
    assert op.iteration().axes == {piece_field: (0, *axes), table_field: (len(inner) + 1, *axes),
                                   "index": (0, len(inner) + 1)}
    result = run(op, arrays)
    expected_table, expected_piece = table.copy(), piece.copy()
    for row, index in enumerate(indices):
        if 0 <= index < 5 and name == "nisa.dma_gather":
            expected_piece[row] = table[index]
        elif 0 <= index < 5:
            expected_table[index] += piece[row]
    np.testing.assert_array_equal(result[piece_field], expected_piece)
    np.testing.assert_array_equal(result[table_field], expected_table)
    outside = [index for index in indices if not 0 <= index < 5]
    if outside:
        with pytest.raises(IndirectOutOfBounds, match="is out of bounds for axis 0 with size") as caught:
            run(SAMPLES[name].make(**tiles, mode="error"), arrays)
        assert (caught.value.values["row"], caught.value.values["rows"]) == (outside[0], 5)


@pytest.mark.parametrize("indices, rows", [((1, 3, 2, 0), {0, 1, 2, 3}), ((7, 7, 8, -1), {7}), ((-1, -8, 9, 8), set())])
@pytest.mark.parametrize("name", ("nisa.dma_gather", "nisa.dma_scatter"))
def test_elements_that_rows_select(name: str, indices: tuple[int, ...], rows: set[int]) -> None:
    op = SAMPLES[name].make(mode="skip")
    arrays = arrays_of(op) | {"index": np.array(indices, np.int32).reshape(-1, 1)}
    selected = op.accessed_elements(arrays, ())
    np.testing.assert_array_equal(selected, np.broadcast_to(np.isin(np.arange(8), [*rows])[:, None], (8, 6)))


def test_rows_of_a_table() -> None:
    """On chip they are those of the tile; in HBM the distance is that of the pattern, in the elements of the tensor."""
    assert rows_of(tile("sbuf 5x3x2xf32")) == (6, 30, 5) and rows_of(tile("hbm 5x3x2xf32")) == (6, 30, 5)
    assert rows_of(tile("hbm 8x6xf32").patterned(dims=((12, 4), (1, 3)))) == (12, 48, 4)
    assert rows_of(tile("sbuf 8x6xf32").patterned(dims=((1, 4), (1, 3)))) == (3, 12, 4)


def test_program__gets_its_sources_in_other_shapes() -> None:
    op = SAMPLES["nisa.gpsimd_call"].make(shapes="[[6, 4], [], [1, 1], [1], [1], [1]]", dst="hbm 4x6xf32")
    verify(op)
    arrays = arrays_of(op)
    added = sum(float(arrays[f"source{k}"][0]) for k in range(1, 6))
    np.testing.assert_allclose(run(op, arrays)["dst"], 2 * arrays["source0"].reshape(6, 4).T + added, rtol=1e-6)


# -- one or two indices of dimensions, which run-time values move ------------------------------------------------------
@pytest.mark.parametrize("name, offset, index, size, row, rows", [
    ("dma_dynamic_read", (8, 0), 72, 216, 8, 8), ("dma_dynamic_read", (-1, 0), -9, 216, -1, 8),
    ("dma_dynamic_read", (0, 3), 9, 216, 9, 9), ("dma_dynamic_read", (8, 3), 75, 216, 8, 8),
    ("tensor_copy_dynamic_src", 4, 8, 8, 8, 8), ("tensor_copy_dynamic_src", 5, 9, 8, 9, 8),
    ("tensor_copy_dynamic_src", -1, -1, 8, -1, 8), ("tensor_copy_dynamic_dst", 4, 8, 8, 8, 8)])
def test_index_beyond_its_dimension__is_counted_from_the_start_of_the_tensor(
        name: str, offset: Any, index: int, size: int, row: int, rows: int) -> None:
    op = SAMPLES[f"nisa.{name}"].make()
    arrays = arrays_of(op)
    arrays["offset"][:] = 0
    run(op, arrays)
    arrays["offset"][:] = offset
    with pytest.raises(IndirectOutOfBounds, match="is out of bounds") as caught:
        run(op, arrays)
    assert caught.value.values == {"index": index, "size": size, "row": row, "rows": rows}


def test_index_beyond_a_part_on_chip__is_counted_in_the_part() -> None:
    """An engine addresses the part alone; a transfer counts from the start of the tensor in HBM."""
    every_other = tile("sbuf 4x16xf32", "src").patterned(dims=((1, 4), (2, 8)))
    op = SAMPLES["nisa.tensor_copy_dynamic_src"].make(src=every_other)
    arrays = arrays_of(op)
    arrays["offset"][:] = 4
    with pytest.raises(IndirectOutOfBounds, match="index 8 is out of bounds for axis 0 with size 8"):
        run(op, arrays)


# -- partitions that a list selects ------------------------------------------------------------------------------------
@pytest.mark.parametrize("written, read", [(1, 1), (3, 2), (32, 32), (33, 33), (40, 64), (64, 40), (96, 32), (128, 128)])
@pytest.mark.parametrize("seed", range(3))
def test_shuffle__selects_in_each_quadrant(written: int, read: int, seed: int) -> None:
    rng = np.random.default_rng((seed, written, read))
    shuffle = [int(n) if rng.random() < 0.8 else KEEP for n in rng.integers(0, min(read, 32), 32)]
    op = SAMPLES["nisa.nc_stream_shuffle"].make(dst=tile(f"sbuf {written}x2xf32"), src=tile(f"sbuf {read}x2xf32"),
                                                shuffle=tuple(shuffle))
    verify(op)
    dst, src = numbered((written, 2), 1), numbered((read, 2), 1000)
    expected = dst.copy()
    for partition in range(written):
        source, quadrant = shuffle[partition % 32], partition - partition % 32
        if source != KEEP:
            expected[partition] = src[quadrant + source if quadrant + source < read else source]
    np.testing.assert_array_equal(run(op, {"dst": dst, "src": src})["dst"], expected)
