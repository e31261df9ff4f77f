# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judges candidate kernels against a reference without a device, in processes that cannot reach what judges them.

A worker (``worker``) holds the reference. Per candidate it has two processes forked: one that runs the candidate's
Python on shapes alone and sends the captured kernel as text (``capture``), and one that runs that text on arrays,
compiles and times it (``judge``). So no line of a candidate ever runs where an input or an expected value is.
"""
