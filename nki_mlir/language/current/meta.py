# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.meta``: arrays made on the host, for ``nl.shared_constant``."""

from types import SimpleNamespace

import numpy as np

from nki_mlir.scalar.dtypes import FLOAT32, dtype_of


def zeros(shape: tuple[int, ...], dtype: object = FLOAT32) -> np.ndarray:
    """Zeros, made on the host.

    Arguments:
        shape: extents
        dtype: of the elements

    Result:
        An array of NumPy, for nl.shared_constant.

    Errors:
        What is no dtype is an error.

    Example:
        assert np.array_equal(tensor.zeros((2, 3)), np.zeros((2, 3)))
    """
    return np.zeros(shape, dtype_of(dtype).numpy)


def arange(*bounds: int, dtype: object = "int32") -> np.ndarray:
    """Numbers in steps, made on the host.

    Arguments:
        bounds: of NumPy's arange
        dtype: of the elements

    Result:
        An array of NumPy, for nl.shared_constant.

    Errors:
        What is no dtype is an error.

    Example:
        assert np.array_equal(tensor.arange(2, 5), [2, 3, 4])
    """
    return np.arange(*bounds).astype(dtype_of(dtype).numpy)


def identity(n: int, dtype: object = FLOAT32) -> np.ndarray:
    """An identity matrix, made on the host.

    Arguments:
        n: its extent
        dtype: of the elements

    Result:
        An array of NumPy, for nl.shared_constant.

    Errors:
        What is no dtype is an error.

    Example:
        assert np.array_equal(tensor.identity(3), np.eye(3))
    """
    return np.eye(n).astype(dtype_of(dtype).numpy)


tensor = SimpleNamespace(zeros=zeros, arange=arange, identity=identity)
__all__ = ["arange", "identity", "tensor", "zeros"]
