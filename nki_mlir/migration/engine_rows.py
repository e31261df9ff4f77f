# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of a tile from a partition where no engine can start: a DMA moves them to a separate tile, and back.

    both[16:48, :] = nl.exp(x)          rows = nl.ndarray((32, 8), dtype=both.dtype, buffer=nl.sbuf)
                                        nisa.activation(dst=rows, op=nl.exp, data=x)
                                        nisa.dma_copy(dst=both[16:48, :], src=rows)
"""

import re
from collections.abc import Callable, Sequence

from nki_mlir.machine import Machine
from nki_mlir.migration import terms
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import PSUM, TensorFact
from nki_mlir.migration.indices import Indices

FIRST_ROWS = re.compile(r"\w+\[(?:\w+\.ds\((?P<start>\d+), (?P<count>\d+)\)|(?P<first>\d+):(?P<after>\d+))[,\]]")
TRANSFERS = {"nl.load", "nl.store", "nl.load_transpose2d", "nl.atomic_rmw", "nisa.dma_copy", "nisa.dma_transpose"}
REASON = "a DMA moves these rows, because engines start only at certain partitions"


def is_between(text: str, tensor: TensorFact) -> bool:
    """Return whether the numbers of a view prove that its rows begin at a partition where no engine can start."""
    match = FIRST_ROWS.match(text)
    if match is None or not tensor.on_chip:
        return False
    first_row = int(match["start"] or match["first"] or 0)
    count = int(match["count"]) if match["count"] else int(match["after"]) - first_row
    return not Machine.legal_start_partition(first_row, count)


class EngineRows(Indices):
    """Adds the copies of rows."""

    def shape_text(self, tensor: TensorFact, like: str) -> str:
        """Return the text of a tile's shape."""
        if tensor.shape is not None and "?" not in tensor.shape:
            return self.tuple_text(tensor.shape)
        if tensor.shape is not None and like:
            return self.tuple_text([f"{terms.factor(like)}.shape[{k}]" if s == "?" else s
                                    for k, s in enumerate(tensor.shape)])
        return f"{terms.factor(like)}.shape"

    def tuple_text(self, sizes: Sequence[str]) -> str:
        """Return sizes as a tuple, or as the shape of a tensor if they are all of its dimensions."""
        name = sizes[0].removesuffix(".shape[0]") if sizes else ""
        fact = self.scope.facts.get(name)
        is_shape = isinstance(fact, TensorFact) and fact.rank == len(sizes) and not fact.blocks
        if is_shape and list(sizes) == [f"{name}.shape[{k}]" for k in range(len(sizes))]:
            return f"{name}.shape"
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def operand(self, text: str, tensor: TensorFact) -> tuple[str, TensorFact]:
        """Return the operand of an instruction: a copy of the rows if they begin where no engine can start."""
        if not is_between(text, tensor):
            return text, tensor
        rows = self._rows(text, tensor)
        self.prelude[-1].append(f"{self.nisa}.dma_copy(dst={rows}, src={text})")
        return rows, tensor

    def destination(self, text: str, tensor: TensorFact, write: Callable[[str], Sequence[str]]) -> list[str]:
        """Return the statements that write a view; ``write`` returns those for the text of a destination."""
        texts = list(write(text))
        if not is_between(text, tensor) or all(line.startswith(f"{self.nisa}.dma_") for line in texts):
            return texts
        rows = self._rows(text, tensor)
        return [*write(rows), f"{self.nisa}.dma_copy(dst={text}, src={rows})"]

    def _rows(self, text: str, tensor: TensorFact) -> str:
        """Return the name of a new tile for the rows of a view."""
        if tensor.memory == PSUM:
            raise LeftForAPerson("rows of PSUM from a partition at which no engine starts")
        rows = self.fresh("rows")
        self.prelude[-1].append(f"{rows} = {self.nl}.ndarray({self.shape_text(tensor, text)}, "
                                f"dtype={text.partition('[')[0]}.dtype, buffer={self.nl}.sbuf)")
        self.report.changed(self.line, REASON)
        return rows
