# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The custom form of operations: IR text that reads like code. The op classes define how it is printed and read."""
