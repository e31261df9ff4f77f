# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data movement of the tile language: load, store, copy, transpose, memset, iota, device_print."""

from collections.abc import Callable
from contextvars import ContextVar

import numpy as np

from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.op import In, Iteration, NkiOp, Out
from nki_mlir.dialects.scalar_body import Elementwise, ScalarFunctions, V
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Machine, Work
from nki_mlir.machine.costs import NOTHING
from nki_mlir.scalar.dtypes import FLOAT32, INT32, DType

TRANSPOSES = "nki.transposes"   # marks a load that the kernel states as a transpose: load_transpose2d


class Copying(Elementwise):
    """Family: dst = src, converted to dst's dtype once; equal dtypes keep their bits."""

    dst: Out
    src: In
    keeps_bits = True

    def body(self, s: ScalarFunctions[V], src: V) -> V:
        return src


class LoadOp(NkiOp, Copying, name="load"):
    """dst (on chip) = src (HBM)."""

    def verify(self, check: Check) -> None:
        check.in_hbm("src")
        check.on_chip("dst")
        check.same_shape("dst", "src")


class StoreOp(NkiOp, Copying, name="store"):
    """dst (HBM) = src (on chip)."""

    def verify(self, check: Check) -> None:
        check.in_hbm("dst")
        check.on_chip("src")
        check.same_shape("dst", "src")


class CopyOp(NkiOp, Copying, name="copy"):
    """dst = src, both on chip; they may overlap, since all reads precede the writes."""

    def verify(self, check: Check) -> None:
        check.on_chip_of_one_shape("dst", "src")


class Transposing(Copying):
    """Family: dst[f, p] = src[p, f]; equal dtypes keep their bits."""

    broadcasts = False

    @property
    def largest(self) -> dict[int, int]:
        """The largest extents by axis of the source. The axis that becomes the partition has at most 128."""
        return {1: Machine.partitions}

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.rule(len(self.src.shape) == 2, f"transposes 2-D tiles, got {list(self.src.shape)}",
                   "reshape it to two dimensions")
        for axis, limit in self.largest.items():
            check.at_most("src", axis, self.src.shape[axis], limit)
        check.shape("dst", self.src.shape[::-1])

    def iteration(self) -> Iteration:
        return Iteration(self.src.shape, {"dst": (1, 0), "src": (0, 1)})

    def reference(self, src: np.ndarray) -> np.ndarray:
        return src.T


class TransposeOp(NkiOp, Transposing, name="transpose"):
    """dst[f, p] = src[p, f]: partitions become the free axis."""


def constant_compute(dtype: DType) -> DType:
    """Return the dtype of a constant before it is written: 32-bit integers do not survive float32."""
    return dtype if dtype.is_integer and dtype.bits >= 32 else FLOAT32


class Filling(Elementwise):
    """Family: dst = value, converted to dst's dtype."""

    dst: Out
    value: float

    def verify(self, check: Check) -> None:
        check.on_chip("dst")

    @property
    def compute(self) -> DType:
        return constant_compute(self.dst.dtype)

    def body(self, s: ScalarFunctions[V]) -> V:
        return s.constant(self.value)


class Counting(Elementwise):
    """Family: dst[i] = expression(i), affine over dst's axes and the op's symbols, in int32."""

    dst: Out
    expression: Linear

    def verify(self, check: Check) -> None:
        check.on_chip("dst")

    @property
    def compute(self) -> DType:
        return INT32

    def index_forms(self) -> tuple[Linear, ...]:
        return (self.expression,)

    def body(self, s: ScalarFunctions[V], position: V) -> V:
        return position


class MemsetOp(NkiOp, Filling, name="memset"):
    """dst = value, converted to dst's dtype."""


class IotaOp(NkiOp, Counting, name="iota"):
    """dst[i] = expression(i), an affine expression over dst's axes and the op's symbols, in int32."""


print_sink: ContextVar[Callable[[str, np.ndarray], None]] = ContextVar(
    "print_sink", default=lambda prefix, value: print(f"{prefix}\n{value}"))


class DevicePrintOp(NkiOp, name="device_print", mnemonic="DEVICE_PRINT", opcode=0xFF):
    """Pass the tile to the print sink of the running program. A simulation prints, the device does not."""

    src: In
    prefix: str
    is_loop_nest = False
    keeps_bits = True

    def iteration(self) -> Iteration:
        return Iteration(self.src.shape, {"src": tuple(range(len(self.src.shape)))})

    def reference(self, src: np.ndarray) -> None:
        print_sink.get()(self.prefix, src.copy())

    def work(self) -> Work:
        return NOTHING
