# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The language that kernels import: tensors, operations and kernels, one core under the name tables of each
generation.
"""
