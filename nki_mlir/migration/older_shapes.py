# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes views of older releases of the current generation whose sizes a newer release refuses.

    t = nl.ndarray((128, 128), ...)                 before 2.31: the first elements of each partition
    t.reshape((128, 32))                            t[:, 0:32]

    y = nl.ndarray((64, 128), ...)                  before 2.30: ``y`` without the dimension of one element
    nisa.dma_transpose(y, x, axes=(2, 1, 0))        nisa.dma_transpose(y.expand_dim(1), x, axes=(2, 1, 0))
"""

from collections.abc import Mapping

import libcst as cst

from nki_mlir.language.signatures.table import RELEASES
from nki_mlir.migration import terms
from nki_mlir.migration.expressions import MODULE

EQUAL_COUNTS, EQUAL_RANKS = RELEASES.index("2.31"), RELEASES.index("2.30")      # the first releases that demand these
LEFT_RESHAPE = "a reshape to fewer elements: slice the tensor first"
LEFT_TRANSPOSE = "nisa.dma_transpose into a tensor of fewer dimensions: insert those of one element (.expand_dim)"


def shape_of(node: cst.BaseExpression | None) -> tuple[str, ...]:
    """Return the texts of the sizes in a shape, empty if the text does not show them."""
    if not isinstance(node, cst.Tuple | cst.List) or any(isinstance(e, cst.StarredElement) for e in node.elements):
        return ()
    return tuple(MODULE.code_for_node(e.value) for e in node.elements)


def first_elements(tensor: str, before: tuple[str, ...], after: tuple[str, ...], numbers: Mapping[str, str]
                   ) -> str | None:
    """Return the view of the first elements of each partition that a reshape to fewer elements was, "" if no release
    takes the shape, and None if the text does not show that there are fewer. ``numbers``: constants of the file."""
    old, new = ([terms.number(numbers.get(text, text)) for text in shape] for shape in (before, after))
    sizes = [n for n in (*old, *new) if n is not None]
    if not before or not after or len(sizes) < len(before) + len(after) or min(sizes) < 1:
        return None
    count, size = (terms.number(terms.product(map(str, shape))) for shape in (new, old))
    assert count is not None and size is not None
    if count >= size:
        return None
    if old[0] != new[0] or len(new) < 2:
        return ""
    rows = tensor if len(before) == 2 else f"{tensor}.reshape(({before[0]}, {terms.product(before[1:])}))"
    part = f"{rows}[:, 0:{terms.product(after[1:])}]"
    return part if len(after) == 2 else f"{part}.reshape(({', '.join(after)}))"


def with_dimensions(dst: str, rank: int, transposed_rank: int) -> str:
    """Return the destination of a transpose with the dimensions of one element that the transposed source has, empty
    if the text does not show which they are: all but the first and the last one."""
    if rank != 2:
        return ""
    return dst + "".join(f".expand_dim({k})" for k in range(1, transposed_rank - 1))
