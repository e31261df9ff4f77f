# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The memories that tensors of the beta generation are made in, and the type that ``nl.ndarray`` stands for."""

import functools
import inspect
from collections.abc import Callable
from types import UnionType
from typing import Generic, TypeVar

from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.frontend.tensor import Buffer
from nki_mlir.language.signatures.binding import Description

T = TypeVar("T")


class MemoryRegion(str):
    """A buffer that tensors are made in. ``shared`` ones are seen by all programs of a grid."""

    space: str
    shared: bool

    def __new__(cls, name: str, space: str = "", shared: bool = False) -> "MemoryRegion":
        made = super().__new__(cls, name)
        made.space, made.shared = space or name, shared
        return made

    def __reduce__(self) -> str:
        """Copies are the memory itself."""
        return str(self)


sbuf, psum = MemoryRegion(SBUF), MemoryRegion(PSUM)
hbm = private_hbm = MemoryRegion(HBM)
shared_hbm = MemoryRegion("shared_hbm", HBM, shared=True)
REGIONS = {"sbuf": sbuf, "psum": psum, "hbm": hbm, "private_hbm": hbm, "shared_hbm": shared_hbm}


def region_of(buffer: Buffer) -> MemoryRegion:
    """What ``tensor.buffer`` is to a kernel."""
    return shared_hbm if buffer.role == "output" else REGIONS[buffer.space]


class MakesTensors(Generic[T]):
    """A function that makes tensors of a class, and in annotations and ``isinstance`` stands for that class."""

    def __init__(self, function: Callable[..., T], kind: type[T]) -> None:
        self.kind = kind
        self.hold(function)

    def hold(self, function: Callable[..., T]) -> None:
        """Be this function. ``help()`` shows the documentation of an object, which has to have the signature, too."""
        functools.update_wrapper(self, function)
        self.function = function
        heading, said = f"{function.__name__}{inspect.signature(function)}\n\n", function.__doc__
        self.__doc__ = said.below(heading) if isinstance(said, Description) else f"{heading}{said}"

    def __call__(self, *arguments: object, **keywords: object) -> T:
        return self.function(*arguments, **keywords)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, self.kind)

    def __or__(self, other: type | None) -> UnionType | type[T]:
        return self.kind | other

    def __ror__(self, other: type | None) -> UnionType | type[T]:
        return other | self.kind

    def __repr__(self) -> str:
        return f"nl.{self.__name__}"            # type: ignore[attr-defined]


def makes(kind: type[T]) -> Callable[[Callable[..., T]], MakesTensors[T]]:
    return lambda function: MakesTensors(function, kind)
