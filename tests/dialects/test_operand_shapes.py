# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each operand of each operation in other shapes: rules refuse it, or the reference computes the shapes of the results."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import Tile, full_tile
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.programs import PROGRAMS, ResultShape
from nki_mlir.dialects.verification import verify

from .findings import full
from .samples import SAMPLES

CALLS_PROGRAMS = "nisa.gpsimd_call"             # whose shapes the programs check


def other_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for k, extent in enumerate(shape):
        for other in {extent + 1, extent - 1, 2 * extent, extent // 2, 1} - {0, extent}:
            yield (*shape[:k], other, *shape[k + 1:])
    yield (*shape, 1)
    if len(shape) == 2:
        yield (shape[0], 1, shape[1])
        yield shape[:1]


def with_shapes(op: Op) -> Iterator[Op]:
    for _, tile in op.operands():
        for shape in other_shapes(tile.shape):
            other = replace(full_tile(tile.handle, shape, tile.dtype, tile.space), label=tile.label)

            def put(of: Tile, tile: Tile = tile, other: Tile = other) -> Tile:
                return other if of is tile else of
            yield changed(op, put)


def is_accepted(op: Op) -> bool:
    try:
        verify(op)
    except NkiMlirError:
        return False
    return True


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {CALLS_PROGRAMS}))
def test_operands_of_other_shapes_are_refused_or_computed(name: str) -> None:
    op, rng = full(name), np.random.default_rng(0)
    if op.index_forms() or type(op).reference is Op.reference:
        return                                  # elementwise in the iteration space, which the rules are about
    for other in with_shapes(op):
        if not is_accepted(other):
            continue
        sources = [rng.integers(0, 2, tile.shape).astype(tile.dtype.numpy) for _, tile in other.sources()]
        with np.errstate(all="ignore"):
            try:
                results = other.reference(*sources)
            except NkiMlirError:                # an index beyond the smaller table
                continue
        for (_, tile), value in zip(other.targets(), results if isinstance(results, tuple) else (results,)):
            if value is not None:
                np.broadcast_to(value, tile.shape)


def test_results_of_programs_have_the_shape_of_dst(monkeypatch: pytest.MonkeyPatch) -> None:
    op = full(CALLS_PROGRAMS)
    monkeypatch.setitem(PROGRAMS, (op.library, op.function), lambda arrays, numbers: np.zeros(7))     # type: ignore[attr-defined]
    with pytest.raises(ResultShape, match=r"returns a result of shape \[7\], but dst has shape \[") as caught:
        op.reference(*[np.zeros(tile.shape, tile.dtype.numpy) for _, tile in op.sources()])
    assert caught.value.code == "NKI-CUSTOMOP-RESULT"
