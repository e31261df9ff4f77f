# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass class, the registry of passes, the contract of each level, and the pipelines between levels."""
