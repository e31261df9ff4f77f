# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime of native code, apart from the compiler: the machine, its threads and memory, code in memory."""
