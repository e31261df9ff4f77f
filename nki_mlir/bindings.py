# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The only importer of the MLIR Python bindings: everything else takes them from here.

The bindings are those of the ``torch-mlir`` wheel, or an ``mlir`` package of the same interface where a complete one
is installed. Importing this module costs the import of the bindings (about 0.1 s), so only what handles IR does.
"""

import importlib
import importlib.util
from types import ModuleType
from typing import Any


def _package() -> str:
    """``mlir`` when it is complete, else ``torch_mlir``. A placeholder of that name on the path does not count."""
    for name in ("mlir", "torch_mlir"):
        try:
            if importlib.util.find_spec(f"{name}.ir") and importlib.util.find_spec(f"{name}.dialects.ext"):
                return name
        except ModuleNotFoundError:
            continue
    raise ImportError("no MLIR Python bindings found. fix: pip install torch-mlir")


PACKAGE = _package()


def load(module: str) -> ModuleType:
    """A module of the bindings, for example ``load("dialects.linalg")``."""
    return importlib.import_module(f"{PACKAGE}.{module}")


ir: Any = load("ir")
ext: Any = load("dialects.ext")
