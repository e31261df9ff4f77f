# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes, each in a file with its name."""
