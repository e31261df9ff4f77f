# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The written forms of a program: assembly text and the binary container, on one codec of fields."""
