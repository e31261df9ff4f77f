# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of both generations that tests step through; a logarithm of negative numbers is NaN in them."""

import numpy as np

from nki_mlir.language.arguments import Bound
from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import Kernel, describe_array, is_array

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@nki.jit
def current_logs(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    shifted = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=shifted, data=tile, op0=nl.subtract, operand0=3.0)           # SHIFT current
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.log, data=shifted)                                # LOG current
    nisa.dma_copy(dst=out, src=result)
    return out


@beta.jit
def beta_logs(x):
    out = beta_language.ndarray(x.shape, dtype=x.dtype, buffer=beta_language.shared_hbm)
    tile = beta_language.load(x)
    shifted = beta_language.subtract(tile, 3.0)                                         # SHIFT beta
    result = beta_language.log(shifted)                                                 # LOG beta
    beta_language.store(out, result)
    return out


def bound_to(kernel: Kernel) -> Bound:
    """The kernel's arguments: X."""
    return kernel.bind((X,), {}, is_array, describe_array)


def line_of(text: str) -> int:
    """The line of this file that a comment marks."""
    with open(__file__, encoding="utf-8") as file:
        return next(n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))
