# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What passes ask: values that indices take, masks as boxes, effects on buffers and arguments, dead code."""
