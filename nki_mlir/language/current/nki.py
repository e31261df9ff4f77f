# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki``: kernels of the current generation."""

from typing import NoReturn

from nki_mlir.language.current import dtype
from nki_mlir.language.current.errors import unknown_name
from nki_mlir.language.current.kernel import (
    Kernel,
    baremetal,
    benchmark,
    cpu_simulate,
    jit,
    profile,
    simulate,
    simulate_kernel,
    trace,
)
from nki_mlir.language.current.meta import tensor

__all__ = ["Kernel", "baremetal", "benchmark", "cpu_simulate", "dtype", "jit", "profile", "simulate", "simulate_kernel",
           "tensor", "trace"]
MODULES = ("collectives", "compiler", "isa", "language", "meta", "typing")           # submodules


def __dir__() -> list[str]:
    return sorted([*__all__, *MODULES])


def __getattr__(name: str) -> NoReturn:
    raise unknown_name("module 'nki'", name, __all__)
