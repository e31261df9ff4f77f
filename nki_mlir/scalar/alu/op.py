# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an ALU operation is: its NumPy form, its expansion into IR and its reduction in one record."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.dtypes import DType

if TYPE_CHECKING:
    from nki_mlir.bindings import Value

Axes = tuple[int, ...]
Identity = Callable[[DType], int | float]

ALU: dict[str, "AluOperator"] = {}
ALU_BY_ASM: dict[str, "AluOperator"] = {}


@dataclass(frozen=True, eq=False)
class AluOperator:
    """One operator of the tile instructions.

    ``numpy`` takes arrays of one compute dtype (float32 or an integer dtype) and returns the same dtype; it prints no
    warnings. ``expand(e, dtype, *values)`` builds the same function with the emitter ``e`` on scalars or vectors.
    The two agree bit for bit (NaN with NaN), or within ``ulp`` where that is not 0.
    ``reduce(array, axes)`` folds the axes away in C order, from the first element on.
    ``identity(dtype)`` is the start value of a fold, or None where a fold has none.
    """

    name: str
    arity: int
    group: str                                      # arithmetic, comparison, logical, bitwise, shift, selection
    numpy: Callable[..., np.ndarray]
    expand: "Callable[..., Value]"
    asm: str = ""                                   # the profiler's name; ``name`` where it says nothing
    floats: bool = True                             # defined for float32
    integers: bool = True                           # defined for integer compute dtypes
    commutative: bool = False
    start: Identity | int | float | None = None
    reduce: Callable[[np.ndarray, Axes], np.ndarray] | None = None
    ulp: float = 0

    def __post_init__(self) -> None:
        quiet = np.errstate(all="ignore")
        object.__setattr__(self, "numpy", quiet(self.numpy))
        if self.reduce is not None:
            object.__setattr__(self, "reduce", quiet(self.reduce))
        object.__setattr__(self, "asm", self.asm or self.name)
        ALU[self.name] = ALU_BY_ASM[self.asm] = self

    def identity(self, dtype: DType) -> int | float | None:
        """The value ``i`` for which folding ``i`` in first changes nothing."""
        return self.start(dtype) if callable(self.start) else self.start

    def __repr__(self) -> str:
        return self.name


def lowest(dtype: DType) -> int | float:
    """The identity of maximum."""
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min)


def highest(dtype: DType) -> int | float:
    """The identity of minimum."""
    return np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).max)


def fold(ufunc: np.ufunc) -> Callable[[np.ndarray, Axes], np.ndarray]:
    """The reduction of a ufunc in the array's own dtype."""
    return lambda array, axes: ufunc.reduce(array, axis=axes, dtype=array.dtype)


def fold_truth(ufunc: np.ufunc) -> Callable[[np.ndarray, Axes], np.ndarray]:
    """The reduction of a logical ufunc, as 1 and 0 in the array's own dtype."""
    return lambda array, axes: ufunc.reduce(array != 0, axis=axes).astype(array.dtype)


def flatten(array: np.ndarray, axes: Axes) -> np.ndarray:
    """``array`` with ``axes`` moved to the end and joined into one, in C order."""
    kept = [i for i in range(array.ndim) if i not in {a % array.ndim for a in axes}]
    last = sorted(a % array.ndim for a in axes)
    return array.transpose(kept + last).reshape(*(array.shape[i] for i in kept), -1)
