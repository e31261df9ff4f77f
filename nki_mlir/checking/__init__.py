# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check a kernel for given arguments, and report all findings together."""
