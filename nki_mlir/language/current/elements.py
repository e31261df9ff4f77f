# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which elements of its outputs a simulation has written: the others are named by a warning."""

from typing import Any

import numpy as np

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Op
from nki_mlir.frontend.tensor import Buffer
from nki_mlir.targets.interpreter.execute import compile_op
from nki_mlir.targets.interpreter.patterns import Pattern

TRIALS = 0x00, 0xA5             # bytes of a destination: what is the same after both was not written


class WrittenElements:
    """Of the outputs of one launch, a byte of flags for each byte of memory."""

    def __init__(self) -> None:
        self.flags: dict[int, np.ndarray] = {}      # by the identity of arrays that the launch keeps
        self.whole: set[int] = set()

    def note(self, op: Op, buffer: Buffer) -> None:
        """An operation, which has run, writes the buffer."""
        memory = buffer.handle
        if id(memory) in self.whole:
            return
        flags = self.flags.setdefault(id(memory), np.zeros_like(memory))
        read = {name for name, _ in op.sources()}
        for field, tile in op.operands():
            if not field.writes or tile.handle is not memory:
                continue
            if (field.name in read or op.mask) and not op.acts_outside:
                self.tried(op, memory, flags)
            elif tile.layout.is_whole:
                self.whole.add(id(memory))
            else:
                marked(tile, flags)

    @staticmethod
    def tried(op: Op, memory: np.ndarray, flags: np.ndarray) -> None:
        """Run the operation, whose class does not say which elements it writes, on other memory."""
        run = compile_op(op)
        for byte in TRIALS:
            trial = np.full(memory.nbytes, byte, np.uint8)
            held = trial.view(memory.dtype).reshape(memory.shape)
            run([held if t.handle is memory else t.handle.copy() if f.writes else t.handle
                 for f, t in op.operands()], ())
            flags.reshape(-1).view(np.uint8)[trial != byte] = 0xFF

    def missing(self, buffer: Buffer) -> tuple[int, Any] | None:
        """How many elements have not been written, and the place of the first; None where all have been."""
        if id(buffer.handle) in self.whole:
            return None
        flags = self.flags[id(buffer.handle)]
        written = flags.view(f"u{flags.dtype.itemsize}") != 0
        left = np.flatnonzero(~written)
        return (len(left), [int(k) for k in np.unravel_index(left[0], flags.shape)]) if len(left) else None


def marked(tile: Tile, flags: np.ndarray) -> None:
    part = Pattern(tile).at(flags, ())
    part.view(f"u{part.dtype.itemsize}")[...] = (1 << 8 * part.dtype.itemsize) - 1
