# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes within a level, the pass class and the pipelines."""
