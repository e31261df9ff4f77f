# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewriting kernels of the beta generation, and of older releases, to the newest release of the current generation."""
