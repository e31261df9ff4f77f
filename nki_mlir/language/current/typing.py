# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.typing`` (``nt``): annotations of parameters."""

from nki_mlir.language.beta.typing import mutable, mutable_tensor, tensor

__all__ = ["mutable", "mutable_tensor", "tensor"]
