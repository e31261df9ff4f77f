# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Custom C++ operators for the GpSimd cores: built with the host's compiler, run on an emulation of the engine.

    library = nki_mlir.customop.load("relu", ["relu.cpp"], ["shape.cpp"], multicore=True)
    library.relu(x)                     # NumPy and JAX arrays, PyTorch tensors

NumPy alone is needed. ``nki_mlir.customop.torch_binding``, which scripts import as
``torch_neuronx.xla_impl.custom_op``, also makes the operators appear in ``torch.ops``.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nki_mlir.customop import faults
from nki_mlir.customop.build import build_library, recipe
from nki_mlir.customop.findings import Fault, KernelWarning
from nki_mlir.customop.library import Library, open_library
from nki_mlir.customop.operator import Operator
from nki_mlir.customop.settings import captured_printf, engine

__all__ = ["Fault", "KernelWarning", "Library", "Operator", "captured_printf", "engine", "faults", "load",
           "load_library"]


def load(name: str, compute_srcs: Sequence[str | Path], shape_srcs: Sequence[str | Path],
         build_directory: str | Path | None = None, multicore: bool = False, verbose: bool = False,
         extra_cflags: Sequence[str] = (), extra_include_paths: Sequence[str | Path] = (),
         checked: bool | None = None) -> Library:
    """Build ``lib<name>.so`` in a directory, the current one by default, and load it.

    With ``multicore`` a kernel runs on all 8 cores, else on one. The checked build finds what kernels do wrong, the
    fast one does not look; ``checked`` is true unless the environment has ``NKI_MLIR_CUSTOMOP=fast``.
    """
    if checked is None:
        checked = os.environ.get("NKI_MLIR_CUSTOMOP", "") != "fast"
    started = time.perf_counter()
    wanted = recipe(name, compute_srcs, shape_srcs, build_directory, multicore, checked, extra_cflags,
                    extra_include_paths, verbose)
    library = open_library(build_library(wanted, Library))
    if verbose:
        print(f"loaded {library} in {time.perf_counter() - started:.1f} s", flush=True)
    return library


def load_library(path: str | os.PathLike[Any]) -> Library:
    """Load a library that was built before, by any process."""
    return open_library(path)
