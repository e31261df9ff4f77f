# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The activation functions, each defined once: ``ACTIVATIONS`` maps a name to its ``Activation``."""

from nki_mlir.scalar.activation import elementary, error_function, exponential, logistic, trigonometric
from nki_mlir.scalar.activation.entry import ACTIVATIONS, Activation

__all__ = ["ACTIVATIONS", "Activation", "elementary", "error_function", "exponential", "logistic", "trigonometric"]
