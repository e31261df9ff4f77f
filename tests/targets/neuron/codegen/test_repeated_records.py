# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""With which cluster of patterns a tile of a repeated group moves."""

from dataclasses import replace
from typing import Any

import pytest

from nki_mlir.conversion.movable_patterns import PatternCluster
from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.dtypes import BFLOAT16
from nki_mlir.targets.neuron.codegen.repeated_records import NoTemplate, cluster_of
from tests.dialects.samples import tile

CLUSTERS = [PatternCluster(0, 0, 0, 99), PatternCluster(1, 0, 0, 4), PatternCluster(1, 8, 8, 16)]


def part(first: int, columns: int) -> Any:
    return tile("sbuf 4x16xf32").patterned(free=Linear(first), dims=((1, 4), (1, columns)))


@pytest.mark.parametrize("slot, first, columns, number", [
    (2, 0, 16, -1), (0, 0, 16, 0), (1, 0, 4, 1), (1, 1, 2, 1), (1, 8, 8, 2), (1, 15, 1, 2), (1, 8, 1, 2)])
def test_tile__moves_with_the_cluster_around_it(slot: int, first: int, columns: int, number: int) -> None:
    assert cluster_of(part(first, columns), slot, CLUSTERS) == number


@pytest.mark.parametrize("first, columns", [(0, 5), (4, 4), (7, 2), (0, 16), (2, 8)])
def test_tile_beyond_every_cluster__has_no_template(first: int, columns: int) -> None:
    with pytest.raises(NoTemplate, match=r"^$"):
        cluster_of(part(first, columns), 1, CLUSTERS)


def test_view_in_another_dtype__has_no_template() -> None:
    view = tile("sbuf 4x16xf32")
    other = replace(view, access=replace(view.access, dtype=BFLOAT16, dims=((1, 4), (1, 8))))
    with pytest.raises(NoTemplate, match=r"^$"):
        cluster_of(other, 0, CLUSTERS)
    assert cluster_of(other, 2, CLUSTERS) == -1
