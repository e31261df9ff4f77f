# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The modules that a kernel of the package ``nki`` imports: ``MODULES``, import path -> module.

- ``tensor``: views; ``addresses``: what the run time adds to their place; ``registers``.
- ``operands``: how instructions read and write; operators; accumulators.
- ``elementwise``, ``reductions``, ``products``, ``search``, ``transfers``, ``generators``, ``cores``: instructions,
  a function each, with the section of the document beside it.
- ``language``, ``functions``: nki.language. ``launch``: nki itself, and ranks.
"""

import os
import sys
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ..dtypes import DTYPES, DType
from ..memory import View
from . import (
    cores,
    elementwise,
    enums,
    functions,
    generators,
    language,
    launch,
    packed,
    products,
    reductions,
    registers,
    search,
    transfers,
)
from .addresses import step
from .operands import Instruction
from .registers import VirtualRegister
from .tensor import NkiTensor

Tensor = NkiTensor


class NkiValidationError(AssertionError):
    """A rule of the hardware does not hold."""


def module(name: str, *sources: Any, **names: Any) -> ModuleType:
    result = ModuleType(name)
    for source in sources:
        entries = source.items() if isinstance(source, dict) else vars(source).items()
        vars(result).update({k: v for k, v in entries if not k.startswith("_")})
    vars(result).update(names)
    return result


def steps(source: ModuleType) -> dict[str, Any]:
    """Return the functions and classes that a module defines."""
    defined = {k: v for k, v in vars(source).items() if getattr(v, "__module__", None) == source.__name__}
    return {k: step(v) if isinstance(v, FunctionType) else v for k, v in defined.items()}


dtypes = {("bool_" if name == "bool" else name): d for name, d in DTYPES.items()
          if name not in ("float64", "int64", "uint64")}
nl = module("nki.language", steps(language), {k: step(v) for k, v in functions.FUNCTIONS.items()}, dtypes, sbuf=language.sbuf, psum=language.psum,
            hbm=language.hbm, private_hbm=language.private_hbm, shared_hbm=language.shared_hbm, tile_size=language.tile_size,
            DType=DType, NkiTensor=NkiTensor, range=range, bool=DTYPES["bool"], tensor=launch.annotation,
            sequential_range=language.sequential_range, static_range=language.static_range)
nisa = module("nki.isa", *(steps(m) for m in (elementwise, reductions, products, search, transfers, generators)),
              steps(registers), steps(enums), core_barrier=cores.core_barrier, sendrecv=cores.sendrecv,
              VirtualRegister=VirtualRegister, NkiInstruction=Instruction, NkiValidationError=NkiValidationError,
              get_nc_version=lambda: enums.nc_version[language.generation()], get_nc_sub_version=lambda: int(os.environ.get("NKI_NC_SUB_VERSION", "0")),
              tensor_copy_dynamic_dst=transfers.tensor_copy_dynamic_dst,
              **{f"{n}_engine": enums.engine[n] for n in ("tensor", "vector", "scalar", "gpsimd", "unknown")})
ncc = module("nki.collectives", {k: v for k, v in steps(cores).items() if k not in ("core_barrier", "sendrecv")})
nt = module("nki.typing", tensor=launch.annotation)
host = SimpleNamespace(**{name: getattr(np, name) for name in (
    "arange", "array", "diag", "empty", "eye", "full", "full_like", "identity", "linspace", "ones", "ones_like", "tri", "tril",
    "triu", "zeros", "zeros_like")})
meta = module("nki.meta", tensor=host)
nki = module("nki", steps(launch), dtype=SimpleNamespace(**dtypes), tensor=host, language=nl, isa=nisa, collectives=ncc,
             typing=nt, meta=meta, cpu_simulate=launch.simulate)
MODULES: dict[str, ModuleType | Any] = {
    "nki": nki, "nki.language": nl, "nki.isa": nisa, "nki.collectives": ncc, "nki.typing": nt, "nki.meta": meta,
    "nki.meta.tensor": host, "nki.isa.constants": nisa, "nki.dtype": nki.dtype, "nki.tensor": host}
launch.generation = sys.modules[__name__]
run_ranks = launch.run_ranks
__all__ = ["MODULES", "Tensor", "View", "ncc", "nisa", "nki", "nl", "nt", "packed", "run_ranks"]
