# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dialects: op classes by family, access patterns, and the MLIR operations that are built from them."""
