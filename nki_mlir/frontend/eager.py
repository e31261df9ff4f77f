# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executes each operation at once with concrete numbers: the oracle for capture, and what a debugger steps through."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki_mlir.dialects.op import Op
from nki_mlir.frontend.builder import Builder, Operands
from nki_mlir.frontend.conditions import happens, masks_of
from nki_mlir.frontend.index import Symbol
from nki_mlir.frontend.tensor import Buffer, View
from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.interpreter.execute import compile_op


class EagerBuilder(Builder):
    """One program of a grid. ``shared`` keeps the outputs that all programs write, in order of creation.

    ``fill`` gives what fresh memory of a dtype holds.
    """

    def __init__(self, grid: tuple[int, ...] = (), point: tuple[int, ...] = (), shared: list[np.ndarray] | None = None,
                 target: str = "trn2", fill: Callable[[DType], float] = lambda dtype: 0.0) -> None:
        super().__init__(grid, target)
        self.point, self.shared, self.taken = point, shared if shared is not None else [], 0
        self.fill = fill

    def program_id(self, axis: int) -> int:
        return self.point[axis]

    def parameter(self, array: np.ndarray, dtype: DType, name: str, role: str = "input") -> Buffer:
        return Buffer(tuple(array.shape), dtype, "hbm", name, handle=array, role=role)

    def allocate(self, shape: tuple[int, ...], dtype: DType, space: str, *, shared: bool = False,
                 partition_dim: int = 0, name: str = "", attributes: dict[str, Any] | None = None) -> Buffer:
        buffer = Buffer(tuple(shape), dtype, space, self.new_name(name), partition_dim,
                        role="output" if shared else "local")
        # Programs of one grid meet in the shared buffers: the n-th one of each is the same memory.
        if shared and self.taken < len(self.shared):
            buffer.handle = self.shared[self.taken]
        else:
            buffer.handle = self.fresh(buffer.physical_shape, dtype)
            if shared:
                self.shared.append(buffer.handle)
        self.taken += shared
        return buffer

    def fresh(self, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
        value = self.fill(dtype)
        return np.full(shape, value, dtype.numpy) if value != 0 else np.zeros(shape, dtype.numpy)

    def allocate_state(self, shape: tuple[int, ...], dtype: DType, name: str) -> Buffer:
        return Buffer(shape, dtype, "sbuf", name, handle=np.zeros(shape, dtype.numpy))

    def constant(self, array: np.ndarray, dtype: DType) -> Buffer:
        return Buffer(tuple(array.shape), dtype, "hbm", self.new_name(), handle=np.ascontiguousarray(array))

    def wrote(self, op: Op, buffer: Buffer, symbols: Sequence[Symbol]) -> None:
        if happens(masks_of(op, symbols)) is not False:
            super().wrote(op, buffer, symbols)

    def perform(self, op: Op, operands: Operands, views: Sequence[View], symbols: Sequence[Symbol],
                known: dict[str, Any]) -> None:
        run = known.get("run")
        if run is None:
            run = known["run"] = compile_op(op)
        run([tile.handle for _, tile in operands], ())
