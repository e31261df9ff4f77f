# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sine, cosine, tangent and arctangent."""

import math

import numpy as np

from nki_mlir.scalar.activation.entry import Activation

Activation("sin", np.sin, None, ulp=2, valid_range=(-math.pi, math.pi))
Activation("cos", np.cos, None, ulp=2, native=False)
Activation("tan", np.tan, None, ulp=4, native=False)
Activation("arctan", np.arctan, None, ulp=2, valid_range=(-math.pi / 2, math.pi / 2))
