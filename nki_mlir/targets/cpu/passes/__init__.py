# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes on the records of a kernel function for the CPU, one a file of its name."""
