# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What JAX and PyTorch find by themselves: entry points ``jax_plugins`` and ``torch.backends``, which do nothing unless
``NKI_MLIR_AUTOLOAD`` names them.

With ``NKI_MLIR_AUTOLOAD=jax,torch`` exported programs that hold kernels run without an import line; ``neuron`` makes
PyTorch's device of that name. It is off otherwise: MLIR would be loaded into each process that imports a framework.
"""

import importlib
import os

SWITCH = "NKI_MLIR_AUTOLOAD"
CHOICES = ("jax", "torch", "neuron")


def asked() -> set[str]:
    """What the environment asks for; raises for a word that means nothing."""
    words = set(os.environ.get(SWITCH, "").replace(",", " ").split())
    if words - {*CHOICES}:
        raise ValueError(f"{SWITCH} has {', '.join(sorted(words - {*CHOICES}))}; it takes {', '.join(CHOICES)}")
    return words


def initialize() -> None:
    """JAX calls it when it looks for backends."""
    if "jax" in asked():
        importlib.import_module("nki_mlir.frameworks.jax")


def torch_backend() -> None:
    """PyTorch calls it at the end of its import."""
    words = asked()
    if "torch" in words:
        importlib.import_module("nki_mlir.frameworks.torch")
    if "neuron" in words:
        importlib.import_module("nki_mlir.frameworks.torch_device").install()
