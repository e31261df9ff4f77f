# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A stack of four tiles: the tensor over which kernels loop, an output like it, and a factor for each of its tiles."""

import numpy as np

from nki_mlir.language.beta import language as nl

from .running import numbers

X = numbers(4, 16, 8)


def output(x):
    return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)


def each(scales):
    return X * np.float32(scales)[:, None, None]
