# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``nisa`` dialect: engine instructions, a file for each family."""
