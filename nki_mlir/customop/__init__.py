# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Custom C++ operators for the GpSimd cores: built with the host's compiler, run on an emulation of the engine.

    library = nki_mlir.customop.load("relu", ["relu.cpp"], ["shape.cpp"], multicore=True)
    library.relu(x)                     # NumPy and JAX arrays, PyTorch tensors

It depends on NumPy only. ``nki_mlir.customop.torch_binding``, which scripts import as
``torch_neuronx.xla_impl.custom_op``, also defines the operators in ``torch.ops``.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from nki_mlir.customop import faults
from nki_mlir.customop.build import build_library, recipe
from nki_mlir.customop.findings import Fault, KernelWarning
from nki_mlir.customop.library import Library, Operator, open_library
from nki_mlir.customop.settings import captured_printf, engine
from nki_mlir.dialects import programs
from nki_mlir.dialects.programs import Program

__all__ = ["Fault", "KernelWarning", "Library", "Operator", "captured_printf", "engine", "faults", "load",
           "load_library"]


class LoadedPrograms:
    """Returns functions of the process's libraries to instructions and graphs that name a library."""

    def program(self, library: str, function: str) -> Program:
        from nki_mlir.customop.kernel_binding import program  # start-up: loads the language
        return program(library, function)

    def record(self, state: dict[str, object]) -> object:
        from nki_mlir.customop.graph_binding import record_from  # start-up: loads MLIR
        return record_from(state)


programs.register(LoadedPrograms())


def load(name: str, compute_srcs: Sequence[str | Path], shape_srcs: Sequence[str | Path],
         build_directory: str | Path | None = None, multicore: bool = False, verbose: bool = False,
         extra_cflags: Sequence[str] = (), extra_include_paths: Sequence[str | Path] = (),
         checked: bool | None = None) -> Library:
    """Build ``lib<name>.so`` with the host's C++ compiler, and load it.

    Arguments:
        name: the name of the library file
        compute_srcs: C++ sources of the kernels
        shape_srcs: C++ sources of the shape functions, with the library's ``NEURON_LIBRARY`` block
        build_directory: the directory of the file; by default the current directory
        multicore: run a kernel on all 8 cores instead of one
        verbose: print the compiler's commands and the time
        extra_cflags: flags of the compiler
        extra_include_paths: include directories of the compiler
        checked: check what kernels do, which is slower; by default True, unless ``NKI_MLIR_CUSTOMOP=fast``

    Result:
        A Library: its operators are its attributes.

    Errors:
        The compiler's errors; a library without a ``NEURON_LIBRARY`` block and an operator without its kernel are
        errors.

    Example:
        library = load("relu", ["relu.cpp"], ["relu_shape.cpp"])
        assert np.array_equal(library.relu_forward(np.arange(-2, 2, dtype=np.float32)[None]), [[0, 0, 0, 1]])
    """
    if checked is None:
        checked = os.environ.get("NKI_MLIR_CUSTOMOP", "") != "fast"
    started = time.perf_counter()
    chosen = recipe(name, compute_srcs, shape_srcs, build_directory, multicore, checked, extra_cflags,
                    extra_include_paths, verbose)
    library = open_library(build_library(chosen, Library))
    if verbose:
        print(f"loaded {library} in {time.perf_counter() - started:.1f} s", flush=True)
    return library


def load_library(path: str | os.PathLike[str]) -> Library:
    """Load a library that was built before, by this or another process.

    Arguments:
        path: the library file

    Result:
        A Library.

    Errors:
        A file that is not such a library, and one built for another version of the engine, are errors.

    Example:
        load("relu", ["relu.cpp"], ["relu_shape.cpp"])
        assert "relu_forward" in load_library("librelu.so").operators
    """
    return open_library(path)
