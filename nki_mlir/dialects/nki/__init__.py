# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``nki`` dialect: operations of the tile language, a file for each family."""
