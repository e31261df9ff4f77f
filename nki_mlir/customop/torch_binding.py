# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_neuronx.xla_impl.custom_op``: custom operators as ``torch.ops.<library>.<operator>``.

They run eagerly, under ``torch.compile`` and in programs of ``torch.export``. Shape functions are their fake
implementations, so a program is specialized to its shapes. They have no derivative: train a model through a
``torch.autograd.Function`` whose forward and backward call operators. The first library imports PyTorch.
"""

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nki_mlir import customop
from nki_mlir.customop.abi import DTYPES, PARAMETERS
from nki_mlir.customop.library import DenseArray, Library, Operator
from nki_mlir.customop.settings import current_engine
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.framework_tensors import refuse_freed

if TYPE_CHECKING:
    import torch

__all__ = ["load", "load_library"]


class NotDifferentiable(NkiMlirError, RuntimeError):
    code = "NKI-CUSTOMOP-GRADIENT"
    message = "operator {name} is differentiated, and a custom operator has no derivative"
    fix = "call it in a torch.autograd.Function whose backward calls another operator"


def load(name: str, compute_srcs: Sequence[str | Path], shape_srcs: Sequence[str | Path],
         build_directory: str | Path | None = None, multicore: bool = False, verbose: bool = False,
         extra_cflags: Sequence[str] = (), extra_include_paths: Sequence[str | Path] = (),
         checked: bool | None = None) -> Library:
    """Build ``lib<name>.so``, load it, and define its operators; see ``nki_mlir.customop.load``."""
    return register(customop.load(name, compute_srcs, shape_srcs, build_directory, multicore, verbose, extra_cflags,
                                  extra_include_paths, checked))


def load_library(path: str | os.PathLike[str]) -> Library:
    """Load a library that was built before, and define its operators."""
    return register(customop.load_library(path))


# -- definitions -------------------------------------------------------------------------------------------------------
# Qualified name -> the current operator, and PyTorch's record of it.
_REGISTERED: "dict[str, tuple[Operator | None, torch.library.Library]]" = {}


def register(library: Library) -> Library:
    """Define the operators of a library in PyTorch. Operators of a rebuilt library replace the old ones."""
    for operator in library.operators.values():
        name = f"{library.name}::{operator.name}"
        registered, record = _REGISTERED.get(name, (None, None))
        if registered is operator:
            continue
        if record is not None:
            record._destroy()
        _REGISTERED[name] = operator, define(operator, name)
    return library


def registered() -> dict[str, Operator]:
    """Return the operators that are currently defined, by their names in PyTorch."""
    return {name: operator for name, (operator, _) in _REGISTERED.items() if operator is not None}


def define(operator: Operator, name: str) -> "torch.library.Library":
    """Define the operator in PyTorch. The definition exists as long as the returned library object."""
    import torch  # an optional package
    record = torch.library.Library(operator.library.name, "FRAGMENT")
    schema = ", ".join(f"{PARAMETERS[p][1]} arg{k}" for k, p in enumerate(operator.parameters))
    record.define(f"{operator.name}({schema}) -> Tensor")
    record.impl(operator.name, lambda *arguments: on_cpu(operator, arguments), "CPU")
    torch.library.register_fake(name, lambda *arguments: abstractly(operator, arguments), lib=record)
    backward = refuse_gradient()

    def remember(ctx: Any, inputs: tuple[object, ...], output: object) -> None:
        ctx.shapes = [x.shape if isinstance(x, torch.Tensor) else None for x in inputs]

    def differentiate(ctx: Any, gradient: object) -> tuple[object, ...]:
        return tuple(None if s is None else backward(gradient, list(s), operator.signature) for s in ctx.shapes)
    torch.library.register_autograd(name, differentiate, setup_context=remember, lib=record)
    return record


@cache
def refuse_gradient() -> Callable[..., object]:
    """Define an operator that raises when it runs. It stands for the gradient, because compiled programs have a
    backward pass that may never run."""
    import torch  # an optional package
    record = torch.library.Library("nki_mlir_customop", "DEF")
    record.define("no_derivative(Tensor gradient, SymInt[] shape, str name) -> Tensor")

    def refuse(gradient: object, shape: object, name: str) -> object:
        raise NotDifferentiable(name=name)
    record.impl("no_derivative", refuse, "CPU")
    torch.library.register_fake("nki_mlir_customop::no_derivative",
                                lambda gradient, shape, name: gradient.new_empty(shape), lib=record)
    _REGISTERED["nki_mlir_customop::no_derivative"] = None, record          # the definition ends with the record
    return torch.ops.nki_mlir_customop.no_derivative


# -- calls -------------------------------------------------------------------------------------------------------------
def call(operator: Operator, arguments: Sequence[object]) -> object:
    """Call an operator on tensors through ``torch.ops``."""
    import torch  # an optional package
    register(operator.library)
    return getattr(getattr(torch.ops, operator.library.name), operator.name)(*arguments)


def on_cpu(operator: Operator, arguments: Sequence[Any]) -> object:
    """Run the operator on CPU tensors. Raise ``FreedTensor`` for one that lacks memory."""
    refuse_freed([a for p, a in zip(operator.parameters, arguments) if p == "T"], f"operator {operator.name}")
    dense = [a.contiguous() if p == "T" else float(a) for p, a in zip(operator.parameters, arguments)]
    values = operator.values(dense, lambda tensor: tensor.data_ptr())
    shape, code = operator.infer(values)
    result = new(shape, code)
    operator.run(values, DenseArray(result.data_ptr(), code, shape), current_engine())
    return result


def abstractly(operator: Operator, arguments: Sequence[Any]) -> object:
    values = [a if p == "T" else float(a) for p, a in zip(operator.parameters, arguments)]       # or symbols
    device = next((a.device for a in values if not isinstance(a, float)), "cpu")
    return new(*operator.infer(operator.values(values, lambda tensor: 0)), device)


def new(shape: tuple[int, ...], code: int, device: "torch.device | str" = "cpu") -> "torch.Tensor":
    import torch  # an optional package
    return torch.empty(shape, dtype=getattr(torch, DTYPES[code].name), device=device)
