# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels on PyTorch tensors: eagerly, in ``torch.autograd.Function``, under ``torch.compile`` and ``torch.export``.

Kernels work on the memory of CPU tensors; every other argument is a compile-time constant. A kernel updates a
parameter that it writes in place, and returns it. A kernel has no derivative: to differentiate, call it in the
``forward`` of a ``torch.autograd.Function`` and give that a ``backward``.

``call`` is traced by Dynamo, which takes ``plan_traced`` as a constant: capture runs while Dynamo builds the graph, on
shapes, dtypes and constants alone, so a compiled graph has one operator per kernel and is specialised to its shapes.
"""

import ast
import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch._dynamo.source import GlobalStateSource
from torch.fx.experimental.symbolic_shapes import StatelessSymbolicContext, guard_scalar

from nki_mlir.capture.locations import user_location
from nki_mlir.capture.wrapping import name_of
from nki_mlir.diagnostics import LEVEL, Location, NkiMlirError, warn_once
from nki_mlir.environment import EXECUTOR, TARGET, raw_values
from nki_mlir.frameworks.debug_output import devices_taken, write_call
from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.frameworks.registry import C_ENTRY, Callee, SymbolicShape, call_for, callee_for
from nki_mlir.frameworks.torch_operator import NKI_DTYPE, TENSORS, callee_named, layout_of, made_for, watched
from nki_mlir.language.arguments import (
    BadArgument,
    ElementType,
    MaskedArgument,
    NoDerivative,
    dtype_name,
    leaves_of,
    map_leaves,
    records,
    refuse_gradient,
    values_of,
)
from nki_mlir.language.call_cache import MOST, CachedCall, CallCache, constant, defaults_of
from nki_mlir.language.closure_state import ClosureState
from nki_mlir.language.kernel import Kernel, default_executor
from nki_mlir.language.left_files import leave_in_cache
from nki_mlir.scalar.dtypes import DType, dtype_of

TensorKind = tuple[tuple[int, ...], torch.dtype, str]           # shape, dtype, type of its device
DEVICES = {"cpu", "meta", "neuron", "xla"}        # tensors of ``torch_device`` are on the CPU, of ``torch_xla`` lazy


class NotOnCpu(NkiMlirError, ValueError):
    code = "NKI-TORCH-DEVICE"
    message = "a tensor on device {device} is passed to kernel {name}; kernels run on the CPU here"
    fix = "move it first: x.cpu()"


class NotStrided(NkiMlirError, TypeError):
    code = "NKI-TORCH-LAYOUT"
    message = "{what} is passed to kernel {name}; kernels read tensors that have all elements, as numbers"
    fix = "convert it first: {convert}"


class NotScripted(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-TRACE"
    message = "kernel {name} is called while torch.jit.trace records, and TorchScript has no kernels"
    fix = "use torch.export.export or torch.compile"


class UpdatesWithGradient(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-UPDATE"
    message = "kernel {name} updates a tensor that requires grad, of which no derivative would know"
    fix = "update it under torch.no_grad(), or in a torch.autograd.Function with ctx.mark_dirty and a backward"


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
        proxies: Any = leaves_of((arguments, keywords), lambda value: isinstance(value, torch.fx.Proxy))
        if proxies:                                 # of torch.fx.symbolic_trace, to which a kernel is a function
            return proxies[0][1].tracer.create_proxy("call_function", kernel, arguments, keywords)
    tensors: list[torch.Tensor] = []

    def take(value: Any) -> tuple[type, int]:
        tensors.append(value)
        return (_TensorMark, len(tensors) - 1)
    grid = kernel.grid
    if torch.compiler.is_dynamo_compiling():        # to which sizes and numbers are symbols
        arguments, keywords = (map_leaves(given, is_number, guard_scalar) for given in (arguments, keywords))
        grid = tuple([guard_scalar(n) for n in grid])                          # type: ignore[misc]
    positional, named = map_leaves(arguments, is_tensor, take), map_leaves(keywords, is_tensor, take)
    if not torch.compiler.is_dynamo_compiling():    # which refuses to read layouts in a backward
        if any([isinstance(t, np.ma.MaskedArray) for t in tensors]):
            raise MaskedArgument().here()
        refuse_form([t for t in tensors if isinstance(t, torch.Tensor)], kernel)
    device = next(t.device for t in tensors if isinstance(t, torch.Tensor))
    tensors = [torch.from_numpy(t).to(device) if isinstance(t, np.ndarray) else t for t in tensors]
    kinds: Any = tuple([(tuple([guard_scalar(n) for n in t.shape]), t.dtype, t.device.type) for t in tensors])
    if torch.compiler.is_dynamo_compiling():
        recorded = torch.is_grad_enabled() and any([t.requires_grad for t in tensors])
        plan = plan_traced(type(kernel), kernel.func, grid, kernel.mode, kernel.target, kernel.executor,
                           kernel.by_reference, kernel.options, kernel.identity, positional, named, kinds, recorded)
    else:
        plan, before = plan_of(kernel, positional, named, kinds)
        remember(kernel, arguments, keywords, plan, before, tensors)
        refuse_update([tensors[n] for n in plan[1]], kernel)        # the more special error comes first
        if differentiable(plan) and records(tensors) and not torch.compiler.is_exporting():
            refuse_gradient(kernel.__name__)
    name, updated, others, outputs, returned, structure = plan
    if updated:
        if torch.compiler.is_dynamo_compiling():
            refuse_update([tensors[n] for n in updated], kernel)
        made = made_for(outputs, tensors[updated[0]])
        launch(kernel, torch.ops.nki.call_, [*(tensors[n] for n in updated), *made], [tensors[n] for n in others], name)
    else:
        made = launch(kernel, torch.ops.nki.call, [tensors[n] for n in others], name)
    return put(structure, [tensors[n] if kind == "tensor" else made[n] for kind, n in returned])


def launch(kernel: Kernel, operator: Callable[..., Any], *arguments: object) -> Any:
    """Call the operator; its error is at the call of the kernel."""
    if torch.compiler.is_dynamo_compiling():
        return operator(*arguments)
    try:
        return operator(*arguments)
    except (NoDerivative, BadArgument) as error:
        error.at = outside_torch(user_location(), kernel)
        raise error from None


def refuse_form(tensors: list[torch.Tensor], kernel: Kernel) -> None:
    """Raises of tensors that are not a number at each index, and where what is called is recorded for TorchScript."""
    for t in tensors:
        if t.is_nested:
            what, convert = "a nested tensor", "x.to_padded_tensor(0.0), or call the kernel on each of x.unbind()"
        elif t.layout is not torch.strided:
            what, convert = f"a tensor of layout {t.layout}", "x.to_dense()"
        elif t.is_quantized:
            what, convert = f"a quantized tensor of {t.dtype}", "x.dequantize(), or x.int_repr() for its integers"
        else:
            continue
        raise NotStrided(what=what, convert=convert, name=kernel.__name__).here()
    if torch._C._get_tracing_state() is not None:
        raise NotScripted(name=kernel.__name__).here()


def refuse_symbols(kernel: Kernel, kinds: tuple[TensorKind, ...]) -> None:
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
# The operator's ``kernel``; the tensors of the call that are updated, and the others; what the operator makes; for each
# result of the kernel ("tensor", n), one that was updated, or ("made", n); their structure. All of it is tuples,
# numbers and text, because it is a constant to Dynamo.
Plan = tuple[str, tuple[int, ...], tuple[int, ...], tuple[Any, ...], tuple[tuple[str, int], ...], object]


def plan_of(kernel: Kernel, positional: tuple[object, ...], named: dict[str, object], kinds: tuple[TensorKind, ...]
            ) -> tuple[Plan, CachedCall]:
    """The plan of a call, and the capture that it runs."""
    exporting = torch.compiler.is_exporting()
    if exporting:
        refuse_symbols(kernel, kinds)
    for _, _, device in kinds:
        if device not in DEVICES:
            raise NotOnCpu(device=device, name=kernel.__name__).here()
    bound = kernel.bind(positional, named, _is_slot, lambda place: _describe(kinds[place[1]]))
    call = call_for(kernel, bound)
    on = kernel.executor or default_executor()
    tensor = [bound.tensors[place][1] for place in range(len(bound.tensors))]
    way = "plan", on, exporting, tuple(tensor), any(device == "xla" for _, _, device in kinds)
    if way not in call.runs:
        call.runs[way] = _make_plan(callee_for(kernel, bound, call=call), tensor, *way[2:])
        if way[-1] or devices_taken:
            leave_in_cache(call.capture)
    return call.runs[way], call


def plan_traced(cls: type[Kernel], func: Callable[..., object], grid: tuple[int, ...], mode: str, target: str | None,
                executor: str | None, by_reference: bool | None, options: dict[str, object],
                identity: str, positional: tuple[object, ...], named: dict[str, object], kinds: tuple[TensorKind, ...],
                recorded: bool) -> Plan:
    """``plan_of`` for Dynamo, which has no kernel object where the grid was given in the traced code.

    Dynamo compares ``identity`` at each call, and of ``func`` the code alone.
    ``recorded``: some tensor requires grad. An exported program is not differentiated here.
    """
    kernel = cls(func, grid, True, mode, target, executor, by_reference, options, _captures(func))
    try:
        compile_again_when_changed(func, (*positional, *named.values()))
        plan, _ = plan_of(kernel, positional, named, kinds)
        if recorded and not torch.compiler.is_exporting() and differentiable(plan) and not plan[1]:
            refuse_gradient(kernel.__name__)
        return plan
    except NkiMlirError as error:
        error.at = outside_torch(error.at, kernel)
        raise


def compile_again_when_changed(func: Callable[..., object], constants: tuple[object, ...]) -> None:
    """Add a guard to the graph that Dynamo is making: the kernel's Python sees what it sees now."""
    context = torch._guards.TracingContext.try_get()
    if context is None or torch.compiler.is_exporting():
        return
    first = ClosureState(func, constants)
    latest, environment = [first], settings()

    def holds(_: object) -> bool:
        if not latest[0].holds():
            now = ClosureState(func, constants)
            if now.key != first.key:
                return False
            latest[0] = now
        return settings() == environment

    def create(builder: Any, guard: object) -> None:
        text = [f"what kernel {name_of(func)} sees is unchanged"]
        add = builder.guard_manager.root.add_lambda_guard
        try:
            add(holds, text, None)
        except TypeError:                           # PyTorch before 2.10
            add(holds, text)
    context.guards_context.dynamo_guards.add(torch._guards.Guard(GlobalStateSource(), create))


def settings() -> tuple[object, ...]:
    """What the environment says about calls."""
    return EXECUTOR.raw(), TARGET.raw(), LEVEL.raw()


plan_traced._dynamo_marked_constant = True          # type: ignore[attr-defined]


@lru_cache(MOST)
def _captures(function: object) -> CallCache:
    return CallCache()


def _make_plan(callee: Callee, tensors: list[int], exporting: bool, numbers: tuple[int, ...], is_lazy: bool) -> Plan:
    if not is_lazy:                                         # whose whole graph is written
        write_call(callee.record)
    record, form = callee.record, callee.record.form
    tensor = [tensors[place] for place in form.operands]            # operand -> tensor of the call
    operand = {result: operand for operand, result in form.aliases.items()}
    made = [n for n in range(len(form.results)) if n not in operand]
    returned = tuple(("tensor", tensor[operand[n]]) if n in operand else ("made", made.index(n)) for n in form.returned)
    return (record.config if exporting else callee.key, tuple(tensor[k] for k in form.aliases),
            tuple(t for k, t in enumerate(tensor) if k not in form.aliases), layout_of(callee).results, returned,
            structure_of(record.structure, len(returned)))


def _is_slot(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[0] is _TensorMark


def _describe(kind: TensorKind) -> tuple[tuple[int, ...], DType]:
    shape, dtype, _ = kind
    if dtype in NKI_DTYPE:
        return shape, NKI_DTYPE[dtype]
    try:
        return shape, dtype_of(dtype_name(dtype))
    except TypeError as error:
        what = f"a tensor of dtype {dtype} is passed to a kernel"
        raise ElementType.of(what, dtype, error, "x.to(torch.float32)").here() from None


def refuse_update(tensors: list[torch.Tensor], kernel: Kernel) -> None:
    if torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):
        raise UpdatesWithGradient(name=kernel.__name__).here()


def differentiable(plan: Plan) -> bool:
    """Whether a call has results of which there could be derivatives: updated tensors may be of any dtype."""
    _, updated, _, outputs, _, _ = plan
    return bool(updated) or any([dtype.is_floating_point for _, dtype, _ in outputs])


# -- the short way of an eager call: the entry on the tensors' memory, without the operator ----------------------------
# A call that was planned once, on plain CPU tensors and simple constants, needs no more than its key, new results and
# the addresses. Whatever watches or changes operators (a mode, a transformation, a profiler, tracing) sees the
# operator.
KEY_DTYPE = {dtype: nki.numpy for dtype, nki in NKI_DTYPE.items()}


class PlannedCall:
    """A planned call. ``order`` has the tensor of each slot of the entry, counted over the call's and new ones."""

    def __init__(self, kernel: Kernel, plan: Plan, tensors: list[torch.Tensor]) -> None:
        name, self.updated, others, results, self.returned, self.structure = plan
        callee, count = callee_named(name), len(tensors)
        places = {"updated": self.updated, "tensors": others, "results": range(count, count + len(results))}
        self.order = [places[group][n] for group, n in layout_of(callee).order]
        self.entry = callee.entry
        self.function = C_ENTRY(self.entry.address)
        self.pointers = ctypes.c_void_p * len(self.order)
        self.one = self.structure == 0 and self.returned == (("made", 0),)
        # How to make each result: like a tensor of the call where one fits, which is the quickest.
        self.results = [(next((n for n, t in enumerate(tensors) if not zero and (t.shape, t.dtype) == (shape, dtype)),
                              None), torch.zeros if zero else torch.empty, shape, dtype)
                        for shape, dtype, zero in results]
        self.kernel, self.differentiable = kernel, differentiable(plan)

    def __call__(self, tensors: list[torch.Tensor]) -> object:
        if self.updated:
            refuse_update([tensors[n] for n in self.updated], self.kernel)
        if self.differentiable and records(tensors):
            refuse_gradient(self.kernel.__name__)
        made = [make(shape, dtype=dtype) if like is None else torch.empty_like(tensors[like])
                for like, make, shape, dtype in self.results]
        used = tensors + made
        status = self.function(self.pointers(*[used[n].data_ptr() for n in self.order]))
        if status:
            raise self.entry.error(status)
        if self.one:
            return made[0]
        if self.updated:
            torch.autograd.graph.increment_version([t for t in (tensors[n] for n in self.updated)
                                                    if not t.is_inference()])
        return put(self.structure, [tensors[n] if kind == "tensor" else made[n] for kind, n in self.returned])


def launched(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object]) -> tuple[object] | None:
    """The results of a call, in a tuple; None where it has to go through the operator."""
    tensors: list[torch.Tensor] = []
    key, way = key_of(kernel, arguments, keywords, tensors)
    call = None if key is None else kernel.specializations.find(key)
    launch: PlannedCall | None = None if call is None else call.runs.get(way)
    if launch is None or watched():
        return None
    return (launch(tensors),)


def remember(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object], plan: Plan, call: CachedCall,
             tensors: list[torch.Tensor]) -> None:
    """Make later calls like this one short, where calls like it can be: those whose tensors come in the same order."""
    key, way = key_of(kernel, arguments, keywords, [])
    if key is not None and not torch.compiler.is_exporting():
        call.runs[way] = PlannedCall(kernel, plan, tensors)


def key_of(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object], tensors: list[torch.Tensor]
           ) -> tuple[tuple[object, ...] | None, object]:
    """The key of a call on plain tensors and simple constants, None of others, and what decides how it runs.

    Its tensors are added to ``tensors``, in the order in which the call has them.
    """
    function, values = kernel.func, arguments
    if type(function) is not FunctionType:
        return None, None
    if keywords:
        values = tuple(values_of(function, arguments, keywords).values())
        tensors += [t for t in (*arguments, *keywords.values()) if isinstance(t, torch.Tensor)]
    elif (missing := function.__code__.co_argcount - len(arguments)) or function.__code__.co_kwonlyargcount:
        values += defaults_of(function, missing)
    executor, target, level = raw_values(EXECUTOR.key, TARGET.key, LEVEL.key)
    key = [function, kernel.fixed, target, level]
    for value in values:
        if type(value) in TENSORS:
            tensor: torch.Tensor = value                    # type: ignore[assignment]
            if (not tensor.is_cpu or tensor.layout is not torch.strided or not tensor.is_contiguous()
                    or tensor.is_neg() or tensor.is_nested):
                return None, None
            key += tensor.shape, KEY_DTYPE.get(tensor.dtype)
            if not keywords:
                tensors.append(tensor)
        elif (part := constant(value)) is not None:
            key += part
        else:
            return None, None
    return tuple(key), ("torch", kernel.executor or executor or "_XLAC" in sys.modules, *keywords)


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


def put(structure: Any, values: list[torch.Tensor]) -> Any:
    """The results in their structure; traced by Dynamo."""
    if structure is None or isinstance(structure, int):
        return None if structure is None else values[structure]
    kind, contents, names = structure
    made = [put(part, values) for part in contents]
    if kind == "view":
        return made[0].reshape(names)
    if kind == "dict":
        return dict(zip(names, made))
    return made if kind == "list" else tuple(made)


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
