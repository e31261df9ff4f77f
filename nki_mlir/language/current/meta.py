# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.meta``: arrays made on the host, for ``nl.shared_constant``."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from nki_mlir.scalar.dtypes import FLOAT32, dtype_of


def zeros(shape: Any, dtype: Any = FLOAT32) -> np.ndarray:
    return np.zeros(shape, dtype_of(dtype).numpy)


def arange(*bounds: int, dtype: Any = "int32") -> np.ndarray:
    return np.arange(*bounds).astype(dtype_of(dtype).numpy)


def identity(n: int, dtype: Any = FLOAT32) -> np.ndarray:
    return np.eye(n).astype(dtype_of(dtype).numpy)


tensor = SimpleNamespace(zeros=zeros, arange=arange, identity=identity)
