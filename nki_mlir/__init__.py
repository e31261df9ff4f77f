# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""nki_mlir: an open MLIR toolchain for NKI, the tile language of AWS Trainium and Inferentia.

Importing the package loads neither MLIR nor a framework; each part loads what it needs when it is used.
"""

from nki_mlir.passes import packages

__version__ = "0.1.0"

packages.register("nki_mlir.transforms", "nki_mlir.conversion", "nki_mlir.targets.neuron.codegen")
