# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of the current generation as rules: each draws operands that it takes and emits one call.

A rule gives False where there is nothing for it here.
"""

from . import elementwise, functions, less_used, memory, patterns, products, programs, reductions, searches, transfers  # noqa: F401
