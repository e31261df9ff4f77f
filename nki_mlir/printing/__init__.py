# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints modules as NKI Python: a module of any level above the streams becomes a kernel of the current generation."""
