# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules that all operations share: partitions, destinations and bounds, each violated once, with its sentence."""

from typing import Any

import pytest

from nki_mlir.dialects.access import Access, Linear, Tile
from nki_mlir.dialects.verification import verify, verify_bounds

from .findings import headline
from .samples import SAMPLES, A, tile

P129 = "sbuf 129x4xf32"


def with_access(text: str, label: str, **changes: Any) -> Tile:
    base = tile(text, label)
    values = {"partition": base.access.partition, "free": base.access.free, "dims": base.access.dims} | changes
    return Tile(base.handle, base.space, base.base_shape, base.dtype, Access(base.dtype, **values), label)


SHARED: list[tuple[str, dict[str, Any], str]] = [
    ("nki.copy", {"dst": P129, "src": P129}, "number of partitions 129 exceed architecture limitation of 128."),
    ("nki.copy", {"src": with_access("sbuf 129x6xf32", "src", dims=((1, 4), (1, 6)))},
     "number of partitions 129 exceed architecture limitation of 128."),
    ("nki.copy", {"src": with_access("sbuf 8x6xf32", "src", dims=((2, 4), (1, 6)))},
     "operand 'src' steps through partitions by 2"),
    ("nki.copy", {"src": with_access("sbuf 8x6xf32", "src", partition=Linear(7), dims=((-1, 4), (1, 6)))},
     "operand 'src' steps through partitions by -1"),
    ("nki.copy", {"dst": with_access(A, "dst", dims=((0, 4), (1, 6)))}, "operand 'dst' steps through partitions by 0"),
    ("nki.copy", {"dst": with_access("sbuf 4x1xf32", "dst", dims=((1, 4), (0, 6)))},
     "the destination dst[4, 6] float32 in sbuf of 'copy' names the same element more than once"),
    ("nki.store", {"dst": with_access("hbm 6xf32", "dst", dims=((0, 4), (1, 6)))},
     "the destination dst[4, 6] float32 in hbm of 'store' names the same element more than once"),
    ("nki.matmul", {"dst": "psum GxFx2xf32", "moving": "sbuf PxFx2xf32"}, ""),
    ("nki.matmul", {"dst": "psum 2x513xf32", "stationary": "sbuf Px2xf32", "moving": "sbuf Px513xf32"},
     "size of dimension 1 in 'moving[4, 513]' of 'matmul' exceed architecture limitation of 512."),
]


@pytest.mark.parametrize(("name", "changes", "text"), SHARED)
def test_rule_of_all_operations(name: str, changes: dict[str, Any], text: str) -> None:
    op = SAMPLES[name].make(**changes)
    if text:
        assert headline(op) == text
    else:
        verify(op)


def test_broadcast__is_for_sources() -> None:
    verify(SAMPLES["nki.copy"].make(src=with_access(A, "src", dims=((0, 4), (1, 6)))))
    verify(SAMPLES["nki.copy"].make(src=with_access("sbuf 4x1xf32", "src", dims=((1, 4), (0, 6)))))


BOUNDS: list[tuple[str, dict[str, Any], str]] = [
    (A, {"free": Linear(1)}, "`src` on dimension 1 (free): index range [1, 6] exceed dimension size of 6"),
    (A, {"free": Linear(-1)}, "`src` on dimension 1 (free): index range [-1, 4] exceed dimension size of 6"),
    (A, {"free": Linear(0, ((0, 2),))}, "`src` on dimension 1 (free): index range [0, 11] exceed dimension size of 6"),
    (A, {"dims": ((1, 4), (-1, 6))}, "`src` on dimension 1 (free): index range [-5, 0] exceed dimension size of 6"),
    (A, {"partition": Linear(1)}, "`src` on dimension 0: index range [1, 4] exceed dimension size of 4"),
    (A, {"partition": Linear(0, ((0, 1),))}, "`src` on dimension 0: index range [0, 6] exceed dimension size of 4"),
    ("hbm 4x6xf32", {"free": Linear(1)},
     "`src` on dimension 0 (flat): index range [1, 24] exceed dimension size of 24"),
]


@pytest.mark.parametrize(("text", "changes", "described"), BOUNDS)
def test_bounds(text: str, changes: dict[str, Any], described: str) -> None:
    name = "nki.load" if text.startswith("hbm") else "nki.copy"
    op = SAMPLES[name].make(src=with_access(text, "src", **changes), ranges=((0, 3),))
    verify(op)
    with pytest.raises(IndexError) as caught:
        verify_bounds(op, lambda form: form.interval(op.ranges))
    assert caught.value.headline == f"Out-of-bound access for tensor {described}"   # type: ignore[attr-defined]
    assert isinstance(caught.value, SyntaxError)


def test_whole_text_of_a_finding() -> None:
    with pytest.raises(SyntaxError) as caught:
        verify(SAMPLES["nki.copy"].make(dst=P129, src=P129))
    assert str(caught.value) == (
        "error: number of partitions 129 exceed architecture limitation of 128. "
        "[err_num_partition_exceed_arch_limit]\n"
        "  why: axis 0 of an on-chip tile is its partition axis, and the memories have 128 partitions\n"
        "  fix: work on 128 rows at a time, in a loop")
