# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The activation functions, each defined once: ``ACTIVATIONS`` maps a name to its ``ActivationFunction``."""

from nki_mlir.scalar.activation import elementary, sigmoid, trigonometric
from nki_mlir.scalar.activation.entry import ACTIVATIONS, ActivationFunction

__all__ = ["ACTIVATIONS", "ActivationFunction", "elementary", "sigmoid", "trigonometric"]
