# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The laws of a machine fitted on what a device measured: kernels to measure (``beta.txt``,
``current.txt``), the CSV they print, the fit."""
