# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.compiler`` (``ncc``): buffers and compiler directives.

Directives are kept on the kernel; they do not change values.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nki_mlir.language.beta import language
from nki_mlir.language.kernel import unwrap


class _Buffers:
    """``ncc.sbuf`` and ``ncc.psum``."""

    def __init__(self, region: Any) -> None:
        self.region = region

    def auto_alloc(self) -> Any:
        """The compiler chooses the address: the same as ``nl.sbuf`` or ``nl.psum``."""
        return self.region


sbuf, psum = _Buffers(language.sbuf), _Buffers(language.psum)


def _directive(name: str) -> Callable:
    def decorate(func: Any = None, **options: Any) -> Any:
        if func is None:
            return lambda function: decorate(function, **options)
        kernel = unwrap(func)
        return replace(kernel, options=kernel.options | {name: options or True}, specializations={})
    decorate.__name__ = decorate.__qualname__ = name
    decorate.__doc__ = f"Marks a kernel ``{name}``."
    return decorate


skip_middle_end_transformations = _directive("skip_middle_end_transformations")
enable_stack_allocator = _directive("enable_stack_allocator")
force_auto_alloc = _directive("force_auto_alloc")
