# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attributes of kernels beside their fields: those that users set, and those that follow from the fields."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any, TypeVar

from nki_mlir.diagnostics import NkiMlirError

T = TypeVar("T")
MOST_LAUNCHES = 64                  # grids with which a kernel memoizes itself


class LostKernel(NkiMlirError, AttributeError):                                         # type: ignore[misc]
    code = "NKI-PICKLE"
    message = "a pickled kernel is {name} of module {module}, which cannot be found: {text}"
    why = "as for functions, a pickle has only the name, and the process that loads it imports the module"
    fix = "load it where the module can be imported and still has the kernel"


def takes_attributes(kernel_class: type[T]) -> type[T]:
    """Return a frozen dataclass whose objects take attributes beside the fields, as functions do."""
    names = frozenset(part.name for part in fields(kernel_class))                   # type: ignore[arg-type]

    def set_attribute(kernel: object, name: str, value: object) -> None:
        if name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(kernel, name, value)
        for launches in (vars(kernel)["launches"], vars(kernel)["among"]):      # copies have the attributes, too
            launches.clear()
    kernel_class.__setattr__ = set_attribute                                        # type: ignore[method-assign]
    return kernel_class


class Derived:
    """Attributes that a kernel derives from its fields, once."""

    __name__: str
    __wrapped__: Callable[..., object]
    fixed: tuple[object, ...]
    identity: str
    launches: dict[object, Any]         # copies of the kernel with a launch grid, by grid
    among: dict[object, Any]            # the ``launches`` that contain this kernel

    def memoized(self, key: object, kernel: T) -> T:
        """Memoize the kernel with a launch grid, and return it."""
        if len(self.launches) >= MOST_LAUNCHES:
            self.launches.clear()
        vars(kernel)["among"], self.launches[key] = self.launches, kernel
        return kernel

    def __getattr__(self, name: str) -> Any:
        text = f"'{type(self).__name__}' object has no attribute '{name}'"
        if name == "benchmark_result":
            text = self.without_result()
        raise AttributeError(text, name=name, obj=self)

    def without_result(self) -> str:
        """Return the text of the error for a missing ``benchmark_result``, with the fix."""
        name = self.__name__
        return f"{name} is not measured: call measured = nki.benchmark({name}), then read measured.benchmark_result"
