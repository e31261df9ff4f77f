# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Analyses for passes: values of indices, masks as boxes, effects on buffers and arguments, dead code, repeats."""
