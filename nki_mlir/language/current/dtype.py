# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.dtype`` as a module: the names of the dtypes."""

from nki_mlir.language.current.language import DTYPES

globals().update(DTYPES)
__all__ = sorted(DTYPES)
