# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program of the GpSimd cores as one instruction: a custom C++ operator in an instruction stream."""

import json
from math import prod

import numpy as np

from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.nisa.opaque import Opaque
from nki_mlir.dialects.op import In, Out
from nki_mlir.dialects.programs import ResultShape, program
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Work

SOURCES = tuple(f"source{k}" for k in range(6))


class GpsimdCallOp(Opaque, name="gpsimd_call", engines=(Engine.GPSIMD,), mnemonic="GPSIMD_CALL", opcode=0x7E):
    """dst = function(sources, numbers), a function of a library of programs for the GpSimd cores.

    The cores transfer tensors from and to HBM themselves, through their own memories. The counts of transfers and
    bytes, and the ``busy`` cycles of the slowest core, come from an emulation when the program was built.
    """

    dst: Out
    source0: In | None
    source1: In | None
    source2: In | None
    source3: In | None
    source4: In | None
    source5: In | None
    library: str
    function: str
    numbers: str = "[]"             # scalar arguments as JSON
    shapes: str = "[]"              # of the sources as JSON, where the function does not take the tiles' own
    busy: int = 0
    transfers_in: int = 0           # of all cores
    bytes_in: int = 0
    transfers_out: int = 0
    bytes_out: int = 0
    destinations = (HBM,)
    is_loop_nest = False

    def verify(self, check: Check) -> None:
        check.all_in((HBM,), "dst", *SOURCES)
        check.rule(all(isinstance(n, int | float) for n in _parsed(self.numbers)),
                   f"numbers must be a list of numbers as JSON, got {self.numbers}", "write them as in [1, 2.5]")
        check.rule(_fitting(_parsed(self.shapes), [tile.shape for _, tile in self.sources()]),
                   "shapes must be JSON with a shape for each source, of the same number of elements, "
                   f"got {self.shapes}",
                   "give each source a shape of its number of elements")
        check.rule(min(self.busy, self.transfers_in, self.bytes_in, self.transfers_out, self.bytes_out) >= 0,
                   "cycles, transfers and bytes must be 0 or more", "write 0 where there are none")
        check.unmasked(": a custom operator reads and writes complete tensors")

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        shaped = [s.reshape(shape) for s, shape in zip(sources, _parsed(self.shapes))] or sources
        numbers: list[float] = json.loads(self.numbers)
        result = program(self.library, self.function)(shaped, numbers)
        if result.size != prod(self.dst.shape):
            raise ResultShape(function=self.function, library=self.library, shape=list(result.shape),
                              expected=list(self.dst.shape))
        return result.reshape(self.dst.shape)

    def work(self) -> Work:
        """The engine takes the cycles of the program's slowest core in the emulation."""
        return Work("call", self.busy)


def _fitting(shapes: list[object], tiles: list[tuple[int, ...]]) -> bool:
    """Return whether shapes have the same number of elements as the tiles."""
    if shapes and len(shapes) != len(tiles):
        return False
    return all(isinstance(shape, list) and all(isinstance(n, int) for n in shape) and prod(shape) == prod(tile)
               for shape, tile in zip(shapes, tiles))


def _parsed(text: str) -> list[object]:
    """Return the list that a text contains; one that breaks every rule if it contains none."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return [None]
    return fields if isinstance(fields, list) else [None]
