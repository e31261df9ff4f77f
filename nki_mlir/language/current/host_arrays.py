# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.tensor`` (``nki.meta.tensor`` in later releases): NumPy's creation functions, for ``nl.shared_constant``.

The arrays are known while a kernel is captured. Their dtypes are the language's, by name or as an object; 64-bit
numbers, NumPy's default, become 32-bit ones where no dtype is given.
"""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from nki_mlir.scalar.dtypes import FLOAT32, dtype_of

F = TypeVar("F", bound=Callable[..., np.ndarray])
Shape = int | Sequence[int]
NARROW = {np.dtype(wide): np.dtype(narrow) for wide, narrow in (
    (np.float64, np.float32), (np.int64, np.int32), (np.uint64, np.uint32))}
MEANINGS = {"shape": "extents, or one extent", "dtype": "the dtype of the elements",
            "fill_value": "the value of each element",
            "n": "rows", "N": "rows", "M": "columns; None means N", "k": "the diagonal: 0 is the main one",
            "a": "an array", "m": "a matrix", "v": "a vector, or a matrix whose diagonal is returned",
            "object": "an array, or numbers in lists", "bounds": "start, stop and step, as for np.arange",
            "start": "the first value", "stop": "the last value", "num": "how many values"}


def creates(example: str) -> Callable[[F], F]:
    """Return a decorator that adds the parameters in ``MEANINGS`` and an example to a function's docstring."""
    def complete(function: F) -> F:
        errors = ("A value that is not a dtype is an error." if "dtype" in signature(function).parameters else
                  "The errors of the NumPy function of this name.")
        parameters = "\n".join(f"    {name}: {MEANINGS[name]}" for name in signature(function).parameters)
        function.__doc__ = (f"{function.__doc__}\n\nArguments:\n{parameters}\n\nResult:\n    An array of NumPy, for "
                            f"nl.shared_constant.\n\nErrors:\n    {errors}\n\n"
                            f"Example:\n    assert np.array_equal({example})\n")
        return function
    return complete


def typed(values: np.ndarray, dtype: object) -> np.ndarray:
    """Convert values to a dtype, by default to their dtype narrowed to at most 32 bits."""
    kind = NARROW.get(values.dtype, values.dtype) if dtype is None else dtype_of(dtype).numpy
    return values.astype(kind)


@creates("tensor.array([[1, 2]], np.float32), [[1, 2]]")
def array(object: Any, dtype: object = None) -> np.ndarray:
    """Create an array from an array or nested lists."""
    return typed(np.array(object), dtype)


@creates("tensor.zeros((2, 3)), np.zeros((2, 3))")
def zeros(shape: Shape, dtype: object = FLOAT32) -> np.ndarray:
    """Create an array of zeros on the host."""
    return typed(np.zeros(shape), dtype)


@creates("tensor.empty((2, 3)).shape, (2, 3)")
def empty(shape: Shape, dtype: object = FLOAT32) -> np.ndarray:
    """Create an array on the host that the program fills; its elements are zeros."""
    return zeros(shape, dtype)


@creates("tensor.ones(3), np.ones(3)")
def ones(shape: Shape, dtype: object = FLOAT32) -> np.ndarray:
    """Create an array of ones on the host."""
    return typed(np.ones(shape), dtype)


@creates("tensor.full((2, 2), 5), [[5, 5], [5, 5]]")
def full(shape: Shape, fill_value: float, dtype: object = None) -> np.ndarray:
    """Create an array on the host that is filled with one value."""
    return typed(np.full(shape, fill_value), dtype)


@creates("tensor.zeros_like(np.ones(3)), np.zeros(3)")
def zeros_like(a: Any, dtype: object = None) -> np.ndarray:
    """Create an array of zeros with the shape of another array, and by default its dtype."""
    return typed(np.zeros_like(a), dtype)


@creates("tensor.ones_like(np.zeros(3)), np.ones(3)")
def ones_like(a: Any, dtype: object = None) -> np.ndarray:
    """Create an array of ones with the shape of another array, and by default its dtype."""
    return typed(np.ones_like(a), dtype)


@creates("tensor.full_like(np.zeros(2), 4.0), [4.0, 4.0]")
def full_like(a: Any, fill_value: float, dtype: object = None) -> np.ndarray:
    """Create an array filled with one value, with the shape of another array, and by default its dtype."""
    return typed(np.full_like(a, fill_value), dtype)


@creates("tensor.arange(2, 5), [2, 3, 4]")
def arange(*bounds: float, dtype: object = None) -> np.ndarray:
    """Create an array of evenly spaced numbers from start to below stop."""
    return typed(np.arange(*bounds), dtype)


@creates("tensor.linspace(0, 1, 3), [0, 0.5, 1]")
def linspace(start: float, stop: float, num: int = 50, dtype: object = FLOAT32) -> np.ndarray:
    """Create an array of evenly spaced numbers from start to stop, inclusive."""
    return typed(np.linspace(start, stop, num), dtype)


@creates("tensor.eye(2, 3), np.eye(2, 3)")
def eye(N: int, M: int | None = None, k: int = 0, dtype: object = FLOAT32) -> np.ndarray:
    """Create a matrix with ones on a diagonal and zeros elsewhere."""
    return typed(np.eye(N, M, k), dtype)


@creates("tensor.identity(3), np.eye(3)")
def identity(n: int, dtype: object = FLOAT32) -> np.ndarray:
    """Create an identity matrix on the host."""
    return typed(np.identity(n), dtype)


@creates("tensor.tri(2), [[1, 0], [1, 1]]")
def tri(N: int, M: int | None = None, k: int = 0, dtype: object = FLOAT32) -> np.ndarray:
    """Create a matrix with ones on and below a diagonal and zeros elsewhere."""
    return typed(np.tri(N, M, k), dtype)


@creates("tensor.tril(np.ones((2, 2))), [[1, 0], [1, 1]]")
def tril(m: Any, k: int = 0) -> np.ndarray:
    """Copy a matrix, with zeros above a diagonal."""
    return typed(np.tril(m, k), None)


@creates("tensor.triu(np.ones((2, 2))), [[1, 1], [0, 1]]")
def triu(m: Any, k: int = 0) -> np.ndarray:
    """Copy a matrix, with zeros below a diagonal."""
    return typed(np.triu(m, k), None)


@creates("tensor.diag([1, 2]), [[1, 0], [0, 2]]")
def diag(v: Any, k: int = 0) -> np.ndarray:
    """Create a matrix with a vector as its diagonal, or return the diagonal of a matrix."""
    return typed(np.diag(v, k), None)


__all__ = ["arange", "array", "diag", "empty", "eye", "full", "full_like", "identity", "linspace", "ones", "ones_like",
           "tri", "tril", "triu", "zeros", "zeros_like"]
