# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the op classes are: every module in the folders of the op families, so that no list is kept by hand."""

import importlib
from functools import cache
from pathlib import Path

FAMILIES = ("nki", "nisa")


@cache
def load() -> None:
    """Import every family, which registers its classes in ``dialects.op.REGISTRY``."""
    here = Path(__file__).parent
    for family in FAMILIES:
        for file in sorted((here / family).glob("*.py")):
            if file.stem != "__init__":
                importlib.import_module(f"{__package__}.{family}.{file.stem}")
