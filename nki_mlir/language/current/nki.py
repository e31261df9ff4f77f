# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki``: kernels of the current generation."""

from typing import NoReturn

from nki_mlir.language.current.errors import unknown_name
from nki_mlir.language.current.kernel import Kernel, cpu_simulate, jit, simulate
from nki_mlir.language.current.meta import tensor
from nki_mlir.scalar.dtypes import DType as dtype

__all__ = ["Kernel", "cpu_simulate", "dtype", "jit", "simulate", "tensor"]


def __getattr__(name: str) -> NoReturn:
    raise unknown_name("module 'nki'", name, __all__)
