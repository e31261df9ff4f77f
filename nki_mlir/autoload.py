# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The entry points ``jax_plugins`` and ``torch.backends``, which JAX and PyTorch call; they do nothing unless
``NKI_MLIR_AUTOLOAD`` names them.

With ``NKI_MLIR_AUTOLOAD=jax,torch`` exported programs with kernels run without an import line; ``neuron`` creates
PyTorch's device of that name. It is off by default: MLIR would be loaded into each process that imports a framework.
"""

import importlib
import os
import warnings

SWITCH = "NKI_MLIR_AUTOLOAD"
CHOICES = ("jax", "torch", "neuron")


def listed() -> set[str]:
    """Return the names that the environment lists. Warn of unknown ones: an error would become PyTorch's, with two
    tracebacks, in each program that imports it."""
    names = set(os.environ.get(SWITCH, "").replace(",", " ").split())
    if unknown := names - {*CHOICES}:
        warnings.warn(f"{SWITCH} has {', '.join(sorted(unknown))}; it takes {', '.join(CHOICES)}", stacklevel=3)
    return names & {*CHOICES}


def initialize() -> None:
    """Import the JAX adapter if it is listed. JAX calls this when it looks for backends."""
    if "jax" in listed():
        importlib.import_module("nki_mlir.frameworks.jax")


def torch_backend() -> None:
    """Import the PyTorch adapter, and its device, if they are listed. PyTorch calls this at the end of its import."""
    names = listed()
    if "torch" in names:
        importlib.import_module("nki_mlir.frameworks.torch")
    if "neuron" in names:
        importlib.import_module("nki_mlir.frameworks.torch_device").install()
