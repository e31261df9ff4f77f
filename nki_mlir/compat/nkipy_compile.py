# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nkipy.core.compile``, which compiles array programs with the vendor's compiler: every call is refused."""

from enum import Enum
from typing import NoReturn

from nki_mlir.compat.nkipy_runtime import NeedsVendorCompiler


class CompilationTarget(Enum):
    """A target of compilation.

    Example:
        assert CompilationTarget("trn2") is CompilationTarget.TRN2
    """

    TRN1 = "trn1"
    TRN2 = "trn2"
    TRN3 = "trn3"
    DEFAULT = "default"


def trace(func: object = None, **options: object) -> NoReturn:
    """Raise ``NeedsVendorCompiler``: ``nki.jit`` defines kernels."""
    raise NeedsVendorCompiler(what="nkipy.core.compile.trace").here()


def compile_to_neff(trace_kernel: object = None, output_dir: object = None, **options: object) -> NoReturn:
    """Raise ``NeedsVendorCompiler``: ``nki.compiler.driver`` compiles kernels."""
    raise NeedsVendorCompiler(what="nkipy.core.compile.compile_to_neff").here()


def lower_to_nki(trace_kernel: object = None, **options: object) -> NoReturn:
    """Raise ``NeedsVendorCompiler``: this toolchain does not lower array programs to kernels."""
    raise NeedsVendorCompiler(what="nkipy.core.compile.lower_to_nki").here()
