# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a Python function to builder calls: symbolic indices, tensors, capture, eager execution."""
