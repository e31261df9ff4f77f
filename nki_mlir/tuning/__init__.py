# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Search the constants, grids and options of a kernel for the fastest correct choice.

``source`` writes parameters into a kernel's file, ``kernels`` binds them to a kernel of this process, and
``search`` asks optuna for the next choice, independently of the judge.
"""
