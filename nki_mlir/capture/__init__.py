# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns a kernel's Python function into builder calls: symbolic indices, tensors, tracing, eager execution."""
