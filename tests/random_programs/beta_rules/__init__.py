# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of the beta generation as rules: each draws operands that it takes and emits one call.

A rule gives False where there is nothing for it here.
"""

from . import (  # noqa: F401
    elementwise,
    instructions,
    less_used,
    memory,
    products,
    programs,
    reductions,
    searches,
    subscripts,
    transfers,
)
