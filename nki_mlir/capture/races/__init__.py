# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds races between iterations of parallel loops, and between programs of a grid."""
