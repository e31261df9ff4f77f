# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules as NKI Python: from any level above the streams to a kernel of the current generation."""
