# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fit the laws of a machine on measurements of a device: the kernels to measure (``beta.txt``, ``current.txt``), the
CSV that they print, the fit.
"""
