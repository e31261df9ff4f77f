# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes within a level, one file a pass."""
