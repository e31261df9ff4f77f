# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.meta``: arrays on the host, for ``nl.shared_constant``."""

from nki_mlir.language.current import host_arrays as tensor

__all__ = ["tensor"]
