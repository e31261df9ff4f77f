# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""nki_mlir: an open MLIR toolchain for NKI, the tile language of AWS Trainium and Inferentia.

Importing the package loads neither MLIR nor a framework; each part loads what it needs when it is used.

What users import: ``compat.install`` makes ``nki``, ``neuronxcc.nki``, ``torch_neuronx`` and ``jax_neuronx`` importable
(``python -m nki_mlir SCRIPT`` does so, too), ``frameworks`` has kernels in JAX, PyTorch and StableHLO, ``customop`` C++
operators. ``help(nl)``, ``help(nisa)`` and ``help`` of any of their functions say what they do, with examples that run.
"""

from nki_mlir.passes import packages
from nki_mlir.version import __version__

__all__ = ["__version__"]

packages.register("nki_mlir.transforms", "nki_mlir.conversion", "nki_mlir.targets.neuron.codegen")
