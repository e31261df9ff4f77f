# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches the constants, grids and options of a kernel for the fastest that is right.

``source`` writes parameters into a kernel's file, ``kernels`` binds them to a kernel of this process; ``search`` asks
optuna what to try next, whoever judges.
"""
