# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules as NKI Python: from the ``nki`` level to a kernel of the current generation."""
