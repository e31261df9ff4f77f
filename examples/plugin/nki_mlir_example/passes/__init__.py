# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes, each in a file of its name."""
