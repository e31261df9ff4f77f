# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The file formats of a program: assembly text and the binary container, which share a codec of fields."""
