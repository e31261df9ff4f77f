# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instruction selection: from one structured operation to engine instructions that the hardware accepts."""
