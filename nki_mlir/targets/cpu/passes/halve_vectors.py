# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""halve-vectors: compute nests that leave the second cache in 32-byte registers, if the host reads faster with them.

before:  add(x, y, out)  each load and store takes a line of the cache, in a register of 64 bytes
after:   add(x, y, out)  two loads or stores take a line

Some processors prefetch lines earlier if two loads read each of them. The pass changes large nests of a few steps that
are instructions for registers of any size. It measures the gain on this host, once. Results keep their bits.
"""

from nki_mlir.targets.cpu import host_measurements
from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.waist.nest import Nest


class HalveVectors(FormChoice, FunctionPass, name="halve-vectors"):
    form = "halves"
    least: int = 0              # bytes of all operands of a nest; 0: those of the second cache
    gain: int = 103             # least ratio in percent of the time in registers of 64 bytes to that in 32, as measured

    def is_worth_it(self, nest: Nest) -> bool:
        least = self.least or host_measurements.caches().second
        return touched_bytes(nest) >= least and (not self.gain or 100 * host_measurements.gain_of_halves() >= self.gain)


def touched_bytes(nest: Nest) -> int:
    """Return the bytes of the elements that the operands of a nest step through."""
    total = 0
    for operand in nest.operands:
        size = operand.dtype.itemsize
        for step, extent in zip(operand.strides, nest.extents):
            size *= extent if step else 1
        total += size
    return total
