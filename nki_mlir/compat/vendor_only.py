# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages of the vendor's that ship kernels or are private.

Any name can be imported from them, and is an error when it is called.
"""

import importlib.machinery
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frontend.locations import user_location

if TYPE_CHECKING:
    from importlib.abc import Loader as Loader
else:
    Loader = object                 # what imports look for is there; that module takes 4 ms

PACKAGES = ("neuronxcc.nki.kernels", "neuronxcc.nki.nccl", "neuronxcc.nki._private", "neuronxcc.nki._private_kernels",
            "neuronxcc.nki._pre_prod_kernels", "neuronxcc.nki.compiler.backends.neuron.dimensions",
            "neuronxcc.starfish.penguin",
            "neuronxcc.private_nkl", "nki.kernels", "nki._private", "nki._private_kernels", "nki._pre_prod_kernels",
            "nki.backends")


class VendorOnly(NkiMlirError, RuntimeError):
    code = "NKI-VENDOR-ONLY"
    message = "{name} is the vendor's own, and no part of this toolchain"
    why = "kernels that the vendor ships, and its private modules, are not documented as a language is"
    fix = "call a kernel whose source you have, with nki.jit"


class Stub:
    """A name of such a package. Its attributes are names, too; kernels may be launched and decorated, not called."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]
        self.__module__ = name.rpartition(".")[0]
        self._name = name

    def __getattr__(self, name: str) -> "Stub":
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(f"{self._name}.{name}")

    def __getitem__(self, grid: object) -> "Stub":
        return self

    def __call__(self, *arguments: object, **keywords: object) -> NoReturn:
        raise VendorOnly(name=self._name).located(user_location())

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[object, ...]:
        return ()                               # a class may name it as a base

    def __repr__(self) -> str:
        return f"<{self._name}, which is the vendor's>"


class StubLoader(Loader):
    """Makes modules whose names are stubs."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        def find(name: str) -> Stub:
            if name.startswith("__"):
                raise AttributeError(name)
            return Stub(f"{module.__name__}.{name}")
        module.__dict__["__getattr__"] = find


LOADER = StubLoader()


def spec_of(name: str) -> importlib.machinery.ModuleSpec | None:
    """How to import one of the packages, or anything inside of them; None for other names."""
    if name not in PACKAGES and not name.startswith(tuple([f"{p}." for p in PACKAGES])):
        return None
    return importlib.machinery.ModuleSpec(name, LOADER, is_package=True, origin="nki_mlir")
