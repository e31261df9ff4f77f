# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mistakes that authors of kernels make first, and what they are told: ``beta.txt`` and ``current.txt``."""
