# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The custom form of operations: IR text that reads like code, generated from the op classes, and read back."""
