# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels on PyTorch tensors: eagerly, in ``torch.autograd.Function``, under ``torch.compile`` and ``torch.export``.

Tensors are CPU tensors and used where they are; every other argument is a compile-time constant. A parameter that the
kernel writes is updated in place and returned. A kernel has no derivative: to differentiate, call it in the ``forward``
of a ``torch.autograd.Function`` and give that a ``backward``.

``call`` is traced by Dynamo, which takes ``plan_traced`` as a constant: capture runs while the graph is being made, on
shapes, dtypes and constants alone, so a compiled graph has one operator per kernel and is specialised to its shapes.
"""

import ast
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import StatelessSymbolicContext, guard_scalar

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.diagnostics.errors import warn_once
from nki_mlir.frameworks import torch_batching  # noqa: F401  makes an operator
from nki_mlir.frameworks.calls import SymbolicShape, callee_for
from nki_mlir.frameworks.debug_output import write_call
from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.frameworks.torch_launch import Plan, differentiable, launched, put, refuse_update, remember
from nki_mlir.frameworks.torch_operator import layout_of, made_for
from nki_mlir.frameworks.torch_values import NKI_DTYPE
from nki_mlir.frontend.locations import user_location
from nki_mlir.language.arguments import BadArgument, map_leaves, records, refuse_gradient
from nki_mlir.language.closure_state import closure_state
from nki_mlir.language.kernel import Kernel, default_executor
from nki_mlir.language.specialization import MOST, Recent
from nki_mlir.scalar.dtypes import DType

DEVICES = {"cpu", "meta", "neuron", "xla"}        # tensors of ``torch_device`` are on the CPU, of ``torch_xla`` lazy


class NotOnCpu(NkiMlirError, ValueError):
    code = "NKI-TORCH-DEVICE"
    message = "a tensor on device {device} is passed to kernel {name}; kernels run on the CPU here"
    fix = "move it first: x.cpu()"


class SymbolicShapeWarning(UserWarning):
    """A dimension that an export is to leave open becomes a number, because a kernel is compiled for its shapes."""


class _TensorMark:
    """Marks ``(_Place, n)``: the n-th tensor, in arguments whose tensors were taken out."""


def call(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object]) -> object:
    """The kernel's results as tensors, in the structure in which it returns them."""
    if not torch.compiler.is_dynamo_compiling():
        known = launched(kernel, arguments, keywords)
        if known is not None:
            return known[0]
    tensors: list[torch.Tensor] = []

    def take(value: Any) -> tuple[type, int]:
        tensors.append(value)
        return (_TensorMark, len(tensors) - 1)
    grid = kernel.grid
    if torch.compiler.is_dynamo_compiling():        # to which sizes and numbers are symbols
        arguments, keywords = (map_leaves(given, is_number, guard_scalar) for given in (arguments, keywords))
        grid = tuple([guard_scalar(n) for n in grid])                          # type: ignore[misc]
    positional, named = map_leaves(arguments, is_tensor, take), map_leaves(keywords, is_tensor, take)
    device = next(t.device for t in tensors if isinstance(t, torch.Tensor))
    tensors = [torch.from_numpy(t).to(device) if isinstance(t, np.ndarray) else t for t in tensors]
    kinds = tuple([(tuple([guard_scalar(n) for n in t.shape]), t.dtype, t.device.type) for t in tensors])
    if torch.compiler.is_dynamo_compiling():
        recorded = torch.is_grad_enabled() and any([t.requires_grad for t in tensors])
        plan = plan_traced(type(kernel), kernel.func, grid, kernel.mode, kernel.target, kernel.executor,
                           kernel.by_reference, kernel.options, positional, named, kinds, recorded)
    else:
        plan = plan_of(kernel, positional, named, kinds)
        remember(kernel, arguments, keywords, plan, tensors)
        refuse_update([tensors[n] for n in plan[1]], kernel)        # the more special error comes first
        if differentiable(plan) and records(tensors) and not torch.compiler.is_exporting():
            refuse_gradient(kernel.__name__)
    name, updated, others, outputs, returned, structure = plan
    if updated:
        if torch.compiler.is_dynamo_compiling():
            refuse_update([tensors[n] for n in updated], kernel)
        made = made_for(outputs, tensors[updated[0]])
        torch.ops.nki.call_([*(tensors[n] for n in updated), *made], [tensors[n] for n in others], name)
    else:
        made = torch.ops.nki.call([tensors[n] for n in others], name)
    return put(structure, [tensors[n] if kind == "tensor" else made[n] for kind, n in returned])


def refuse_symbols(kernel: Kernel, kinds: tuple[Any, ...]) -> None:
    """An error of dimensions of the exported program that have become numbers though they are to stay open; PyTorch's
    own says nothing of kernels. Where it may choose (``Dim.AUTO``) a warning."""
    mode = torch._guards.detect_fake_mode()
    known = mode.shape_env.tracked_fakes if mode is not None and mode.shape_env is not None else None
    sizes = {n for shape, _, _ in kinds for n in shape}
    for fake in known or ():
        asked = fake.symbolic_context
        if not isinstance(asked, StatelessSymbolicContext):
            continue
        for dim, size in enumerate(fake.fake.shape):
            number = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else None
            if number in sizes:
                what = f"dimension {dim} of {origin_of(fake.source)}, which becomes {number}"
                error = SymbolicShape(name=kernel.__name__, what=what,
                                      instead="Dim.STATIC and Dim.AUTO do, and torch.compile compiles anew")
                if (asked.constraint_sizes or {dim: None})[dim] is not None:
                    raise error.here()
                warn_once(f"{error.headline}; {error.advice[1]}", SymbolicShapeWarning,
                          outside_torch(user_location(), kernel))


def outside_torch(at: Location | None, kernel: Kernel) -> Location | None:
    """Under Dynamo the caller's line is not on the stack: the kernel's own."""
    return kernel.location if at is not None and Path(at.file).is_relative_to(Path(torch.__file__).parent) else at


def origin_of(source: Any) -> str:
    """What PyTorch calls an input of the program."""
    return str(source.name() if callable(source.name) else source.name)


def is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def is_tensor(value: object) -> bool:
    return isinstance(value, (torch.Tensor, np.ndarray))


# -- planning ----------------------------------------------------------------------------------------------------------
_PLANS: Recent[object, Plan] = Recent()


def plan_of(kernel: Kernel, positional: tuple[object, ...], named: dict[str, object], kinds: tuple[object, ...]
            ) -> Plan:
    """The plan of a call, made once for its shapes and constants."""
    on = kernel.executor or default_executor()
    exporting = torch.compiler.is_exporting()
    around = closure_state(kernel.func, (*positional, *named.values()))
    key = (kernel.func, kernel.grid, on, kernel.platform, kernel.by_reference, exporting, len(positional), tuple(named),
           kinds, around)
    if exporting:
        refuse_symbols(kernel, kinds)
    plan = _PLANS.used(key)
    if plan is None:
        plan = _PLANS[key] = _make_plan(kernel, positional, named, kinds, exporting)
    return plan


def plan_traced(cls: type[Kernel], func: Callable[..., object], grid: tuple[int, ...], mode: str, target: str | None,
                executor: str | None, by_reference: bool | None, options: dict[str, object],
                positional: tuple[object, ...], named: dict[str, object], kinds: tuple[object, ...], recorded: bool
                ) -> Plan:
    """``plan_of`` for Dynamo, which has no kernel object where the grid was given in the traced code.

    ``recorded``: some tensor requires grad. An exported program is not differentiated here.
    """
    kernel = cls(func, grid, True, mode, target, executor, by_reference, options, _specializations(func))
    try:
        plan = plan_of(kernel, positional, named, kinds)
        if recorded and not torch.compiler.is_exporting() and differentiable(plan) and not plan[1]:
            refuse_gradient(kernel.__name__)
        return plan
    except NkiMlirError as error:
        error.at = outside_torch(error.at, kernel)
        raise


plan_traced._dynamo_marked_constant = True          # type: ignore[attr-defined]


@lru_cache(MOST)
def _specializations(function: object) -> Recent[Any, Any]:
    return Recent()


def _make_plan(kernel: Kernel, positional: tuple[object, ...], named: dict[str, object], kinds: tuple[Any, ...],
               exporting: bool) -> Plan:
    for _, _, device in kinds:
        if device not in DEVICES:
            raise NotOnCpu(device=device, name=kernel.__name__).here()
    bound = kernel.bind(positional, named, _is_slot, lambda place: _describe(kinds[place[1]]))
    callee = callee_for(kernel, bound)
    if all(device != "xla" for _, _, device in kinds):      # whose whole graph is written
        write_call(callee.record)
    record, form = callee.record, callee.record.form
    tensor = [bound.tensors[place][1] for place in form.operands]           # operand -> tensor of the call
    operand = {result: operand for operand, result in form.aliases.items()}
    made = [n for n in range(len(form.results)) if n not in operand]
    returned = tuple(("tensor", tensor[operand[n]]) if n in operand else ("made", made.index(n)) for n in form.returned)
    return (record.config if exporting else callee.key, tuple(tensor[k] for k in form.aliases),
            tuple(t for k, t in enumerate(tensor) if k not in form.aliases), layout_of(callee).results, returned,
            structure_of(record.structure, len(returned)))


# -- the structure of results ------------------------------------------------------------------------------------------
def structure_of(text: str, count: int) -> object:
    """The structure that ``language.results`` writes as text, in tuples: a number, None, or (kind, contents, names)."""
    def tree(node: Any) -> object:
        match node:
            case int() | None:
                return node
            case str():
                place, shape = node.split(":")
                return "view", (int(place),), tuple(int(n) for n in shape.split("x"))
            case dict():
                return "dict", tuple(map(tree, node.values())), tuple(node)
        return type(node).__name__, tuple(map(tree, node)), ()
    return 0 if text == "one" else tree(tuple(range(count)) if text == "tuple" else ast.literal_eval(text))


def _is_slot(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[0] is _TensorMark


def _describe(kind: tuple[tuple[int, ...], torch.dtype, str]) -> tuple[tuple[int, ...], DType]:
    shape, dtype, _ = kind
    if dtype not in NKI_DTYPE:
        known = ", ".join(str(d).removeprefix("torch.") for d in NKI_DTYPE)
        raise BadArgument(what=f"a tensor of dtype {dtype} is passed to a kernel; the language has {known}").here()
    return shape, NKI_DTYPE[dtype]


class TorchKernel(FrameworkKernel):
    """``FrameworkKernel`` for PyTorch tensors of any device, also of ``meta``: only shape and dtype are asked.

    Example:
        dumped = TorchKernel(double).dump_config(torch.ones(4, 8, device="meta"))
        assert [shape for _, shape in dumped.return_types] == [(4, 8)]
    """

    def is_framework_tensor(self, t: object) -> bool:
        return is_tensor(t)

    def translate_to_neuron_dtype(self, _dtype: Any) -> object:
        return NKI_DTYPE.get(_dtype, _dtype)


__all__ = ["TorchKernel"]
