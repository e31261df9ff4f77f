# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The beta generation, ``neuronxcc.nki``: the modules that its kernels import."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from . import compiler, isa, language, nki, typing
from .searches import itemsize
from .tensors import Tensor

__all__ = ["MODULES", "NAMES", "Tensor"]

for _name, _module in {"language": language, "isa": isa, "compiler": compiler, "typing": typing}.items():
    setattr(nki, _name, _module)

MODULES: dict[str, Any] = {
    "neuronxcc": SimpleNamespace(nki=nki), "neuronxcc.nki": nki, "neuronxcc.nki.language": language,
    "neuronxcc.nki.isa": isa, "neuronxcc.nki.compiler": compiler, "neuronxcc.nki.typing": typing,
    "neuronxcc.nki.language.constants": SimpleNamespace(sizeinbytes=itemsize, sbuf_min_align=1, psum_min_align=4),
    "neuronxcc.nki.isa.constants": isa,
}
NAMES: dict[str, Any] = {"nki": nki, "nl": language, "nisa": isa, "ncc": compiler, "nt": typing, "np": np,
                         "scalar": typing.scalar, "mutable_tensor": typing.mutable_tensor}
