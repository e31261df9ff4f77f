# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of a kernel for some arguments: everything that can be found, in one report."""
