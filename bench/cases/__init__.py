# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The workloads: importing this registers all of them."""

import importlib
from pathlib import Path

import nki_mlir.compat

nki_mlir.compat.install()           # kernels are written against the vendor's names

for file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    importlib.import_module(f"cases.{file.stem}")
