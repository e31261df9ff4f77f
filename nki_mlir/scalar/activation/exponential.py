# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exponential and logarithm."""

import numpy as np

from nki_mlir.scalar.activation.entry import Activation

Activation("exp", np.exp, None, ulp=1)
Activation("log", np.log, None, ulp=1, valid_range=(2.0**-64, 2.0**64))
