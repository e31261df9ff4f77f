# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes from one level to another, one file a conversion."""
