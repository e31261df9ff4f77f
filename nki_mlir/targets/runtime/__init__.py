# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What native code runs on, apart from what compiles kernels: the machine, its threads and memory, code in memory."""
