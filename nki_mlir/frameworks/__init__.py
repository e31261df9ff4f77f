# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels as custom operators of JAX and PyTorch."""
