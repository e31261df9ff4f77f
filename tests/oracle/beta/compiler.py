# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.compiler``: allocation of tensors and options of the compilation, which change no value (document:
8).
"""

from types import SimpleNamespace
from typing import Any

from .memory_functions import Buffer, psum
from .memory_functions import sbuf as _sbuf

__all__ = ["allocation_scope", "enable_stack_allocator", "force_auto_alloc", "multi_buffer", "no_reorder", "psum",
           "sbuf", "skip_middle_end_transformations"]


def _memory(buffer: Buffer) -> Any:
    """Return ``alloc``, ``mod_alloc`` and ``auto_alloc`` of a memory. Each tensor has separate memory in the oracle.
    """
    def anywhere(*_: Any, **__: Any) -> Buffer:
        return buffer
    return SimpleNamespace(alloc=anywhere, mod_alloc=anywhere, auto_alloc=anywhere, space=str(buffer))


def _transparent(func: Any = None, **_: Any) -> Any:
    """Return a decorator, bare or called, that changes nothing."""
    return func if func is not None else lambda function: function


def _directive(*_: Any, **__: Any) -> Any:
    """Return a directive of loops that is also a scope."""
    from contextlib import nullcontext
    return nullcontext()


sbuf, psum = _memory(_sbuf), _memory(psum)
skip_middle_end_transformations = enable_stack_allocator = force_auto_alloc = _transparent
multi_buffer = no_reorder = allocation_scope = _directive
