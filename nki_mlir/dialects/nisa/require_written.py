# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The check at the end of a kernel that an output has been written, and errors for unwritten memory."""

from pathlib import PurePath

import numpy as np

from nki_mlir.diagnostics import KernelError, Location
from nki_mlir.dialects.access import SBUF
from nki_mlir.dialects.nisa.meeting import ANY
from nki_mlir.dialects.nisa.opaque import Opaque
from nki_mlir.dialects.op import In
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Work
from nki_mlir.machine.costs import NOTHING
from nki_mlir.scalar.dtypes import INT32


class OutputNotWritten(KernelError):
    code = "err_tensor_output_not_written_to"
    message = "{what}"
    fix = ("write the output with nl.store or nisa.dma_copy, before any loop that may run no iteration, and return "
           "it")


class OutputRead(OutputNotWritten):
    """An output that the kernel reads and never writes: often the operands of a transfer in the wrong order."""

    fix = ("if the statement should write {output}, exchange its operands: nl.store(dst, value), "
           "nisa.dma_copy(dst=..., src=...)")


class UnwrittenTile(KernelError):
    code = "NKI-UNWRITTEN"
    message = "element {element} of {name}, allocated at line {line}, is read before it is written"
    why = "on-chip memory has old values, from this kernel or from another"
    fix = "write all of the tile first, for example with nisa.memset or nl.zeros"


class UnsetRegisters(KernelError):
    code = "NKI-REGISTERS-UNSET"
    message = ("reduce_cmd {command} reads the accumulation registers of the {engine} engine before an instruction "
               "sets them")
    why = "the registers have old values, from this kernel or from another; idle reduces nothing, reduce adds to them"
    fix = "give reduce_cmd=nisa.reduce_cmd.reset_reduce to this instruction or to the first one of the reduction"


def idle(loop: Location) -> str:
    """Return the reason why an output stays unwritten if only this loop writes it."""
    return f"no iteration of the loop at {PurePath(loop.file).name}:{loop.line} ran"


class RequireWrittenOp(Opaque, name="require_written", engines=ANY, mnemonic="REQUIRE_WRITTEN", opcode=0x8F):
    """An error if the flag is 0: the ``output`` of that name has not been written.

    Each write of the output sets the flag; ``reason`` says why no write may have run. A simulation checks, the device
    does not.
    """

    flag: In
    output: str
    reason: str

    def verify(self, check: Check) -> None:
        check.spaces("flag", SBUF)
        check.dtype("flag", INT32)
        check.rule(self.flag.shape == (1, 1), f"the flag must have one element, got {list(self.flag.shape)}",
                   "give it the shape [1, 1]")
        check.unmasked()

    def reference(self, flag: np.ndarray) -> None:
        if not flag.any():
            raise OutputNotWritten(what=f"the output {self.output} is never written: {self.reason}")

    def work(self) -> Work:
        """The device does not execute it."""
        return NOTHING
