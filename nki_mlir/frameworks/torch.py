# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of kernels with PyTorch tensors: eagerly, in ``torch.autograd.Function``, under ``torch.compile`` and
``torch.export``.

Kernels work on the memory of CPU tensors; every other argument is a compile-time constant. A kernel writes its
parameters in place. A kernel has no derivative: to differentiate, call it in the ``forward`` of a
``torch.autograd.Function`` that has a ``backward``.

Dynamo traces ``call`` and evaluates ``plan_traced`` as a constant: capture runs while Dynamo builds the graph, on
shapes, dtypes and constants alone, so a compiled graph has one operator for each call and is specialized to its
shapes.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch

from nki_mlir.capture.locations import user_location
from nki_mlir.capture.wrapping import name_of
from nki_mlir.diagnostics import LEVEL, Location, NkiMlirError, refuse, warn_once
from nki_mlir.environment import EXECUTOR, TARGET, raw_values
from nki_mlir.frameworks.debug_output import devices_taken, write_call
from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.frameworks.registry import C_ENTRY, Callee, SymbolicShape, call_for, callee_for
from nki_mlir.frameworks.torch_backward import differentiated_once
from nki_mlir.frameworks.torch_operator import (
    TENSORS,
    allocate_results,
    callee_named,
    innermost,
    layout_of,
    names_of,
    watched,
)
from nki_mlir.frameworks.torch_values import NKI_DTYPE, in_containers, in_structure, structure_of, with_objects
from nki_mlir.language.argument_memory import ReadOnlyArgument
from nki_mlir.language.arguments import (
    BadArgument,
    ElementType,
    MaskedArgument,
    dtype_name,
    leaves_of,
    map_leaves,
    values_of,
)
from nki_mlir.language.call_cache import MOST, CachedCall, CallCache, constant, defaults_of
from nki_mlir.language.closure_state import ClosureState
from nki_mlir.language.compiled_files import leave_in_cache
from nki_mlir.language.framework_tensors import NoDerivative, records, refuse_gradient
from nki_mlir.language.kernel import Kernel, default_executor
from nki_mlir.scalar.dtypes import FLOAT32, DType, dtype_of

TensorKind = tuple[tuple[int, ...], torch.dtype, str]           # shape, dtype, type of its device
DEVICES = {"cpu", "meta", "neuron", "xla"}        # "neuron" tensors wrap CPU tensors, those of ``torch_xla`` are lazy


class NotOnCpu(NkiMlirError, ValueError):
    code = "NKI-TORCH-DEVICE"
    message = "a tensor on device {device} is passed to kernel {name}; kernels run on the CPU here"
    fix = "move it first: x.cpu()"


class NotStrided(NkiMlirError, TypeError):
    code = "NKI-TORCH-LAYOUT"
    message = "{what} is passed to kernel {name}; kernels read dense tensors of numbers"
    fix = "convert it first: {convert}"


class NotScripted(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-TRACE"
    message = "kernel {name} is called while torch.jit.trace records, and TorchScript has no kernels"
    fix = "use torch.export.export or torch.compile"


class UpdatesWithGradient(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-UPDATE"
    message = "kernel {name} updates a tensor that requires grad, and autograd would not see the update"
    fix = "update it under torch.no_grad(), or in a torch.autograd.Function with ctx.mark_dirty and a backward"


class NoTorchTensor(NkiMlirError, TypeError):
    code = "NKI-TORCH-ARGUMENTS"
    message = "kernel {name} is called without a PyTorch tensor in a function that torch.compile traces"
    fix = "pass tensors, or call the kernel outside of that function"


class SymbolicShapeWarning(UserWarning):
    """The warning that a dimension which an export may leave open becomes a number, because a kernel is compiled for
    its shapes."""


class _TensorMark:
    """The mark in ``(_TensorMark, n)``, which stands for the n-th tensor in arguments without their tensors."""


def call(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object]) -> object:
    """Call a kernel and return its results as tensors, in the structure in which the kernel returns them. Dynamo
    traces this function."""
    if not torch.compiler.is_dynamo_compiling():
        if torch._C._current_graph_task_id() != -1 and torch.is_grad_enabled():
            return differentiated_once(call, kernel, arguments, keywords)
        fast_result = launched(kernel, arguments, keywords)
        if fast_result is not None:
            return fast_result[0]
        proxies: Any = leaves_of((arguments, keywords), lambda value: isinstance(value, torch.fx.Proxy))
        if proxies:                                 # torch.fx.symbolic_trace records the kernel as a function
            return proxies[0][1].tracer.create_proxy("call_function", kernel, arguments, keywords)
    tensors: list[torch.Tensor] = []

    def take(value: Any) -> tuple[type, int]:
        tensors.append(value)
        return (_TensorMark, len(tensors) - 1)
    grid = kernel.grid
    if torch.compiler.is_dynamo_compiling():        # Dynamo has symbols for sizes and numbers
        arguments, keywords = (map_leaves(values, is_number_or_tensor, guarded) for values in (arguments, keywords))
        grid = tuple([number_of(n) for n in grid])
    positional, named = map_leaves(arguments, is_tensor, take), map_leaves(keywords, is_tensor, take)
    if not torch.compiler.is_dynamo_compiling():    # Dynamo cannot read layouts in a backward
        if any([isinstance(t, np.ma.MaskedArray) for t in tensors]):
            raise MaskedArgument().here()
        refuse_form([t for t in tensors if isinstance(t, torch.Tensor)], kernel)
    if not any([isinstance(t, torch.Tensor) for t in tensors]):
        refuse(NoTorchTensor, name=kernel.__name__)
    device = next(t.device for t in tensors if isinstance(t, torch.Tensor))
    arrays: dict[int, Any] = {n: t for n, t in enumerate(tensors) if isinstance(t, np.ndarray)}
    tensors = [torch.from_numpy(t).to(device) if isinstance(t, np.ndarray) else t for t in tensors]
    kinds: Any = tuple([(tuple([number_of(n) for n in t.shape]), t.dtype, t.device.type) for t in tensors])
    if torch.compiler.is_dynamo_compiling():
        recorded = torch.is_grad_enabled() and any([t.requires_grad for t in tensors])
        fields = {"grid": grid, "has_grid": True, "mode": kernel.mode, "target": kernel.target,
                  "executor": kernel.executor, "by_reference": kernel.by_reference, "options": kernel.options}
        plan = plan_traced(type(kernel), kernel.func, fields, kernel.identity, in_containers(positional),
                           in_containers(named), kinds, recorded)
    else:
        plan, before = plan_of(kernel, positional, named, kinds)
        remember(kernel, arguments, keywords, plan, before, tensors)
        refuse_update([tensors[n] for n in plan[1]], kernel)        # the more specific error comes first
        for n, parameter in zip(plan[1], names_of(callee_named(plan[0]).record)):
            if n in arrays and not arrays[n].flags.writeable:
                raise ReadOnlyArgument(name=parameter).here()
        if differentiable(plan) and records(map(innermost, tensors)) and not torch.compiler.is_exporting():
            refuse_gradient(kernel.__name__)
    name, updated, read_only, outputs, returned, structure = plan
    if updated:
        if torch.compiler.is_dynamo_compiling():
            refuse_update([tensors[n] for n in updated], kernel)
        new_tensors = allocate_results(outputs, tensors[updated[0]])
        launch(kernel, torch.ops.nki.call_, [*(tensors[n] for n in updated), *new_tensors],
               [tensors[n] for n in read_only], name)
    else:
        new_tensors = launch(kernel, torch.ops.nki.call, [tensors[n] for n in read_only], name)
    return in_structure(structure, [tensors[n] if kind == "tensor" else new_tensors[n] for kind, n in returned])


def launch(kernel: Kernel, operator: Callable[..., Any], *arguments: object) -> Any:
    """Call the operator. Its errors are reported at the call of the kernel."""
    if torch.compiler.is_dynamo_compiling():
        return operator(*arguments)
    try:
        return operator(*arguments)
    except (NoDerivative, BadArgument) as error:
        error.at = outside_torch(user_location(), kernel)
        raise error from None


def refuse_form(tensors: list[torch.Tensor], kernel: Kernel) -> None:
    """Raise ``NotStrided`` for nested, sparse and quantized tensors, and ``NotScripted`` while ``torch.jit.trace``
    records."""
    for t in tensors:
        if t.is_nested:
            description = "a nested tensor"
            convert = "x.to_padded_tensor(0.0), or call the kernel on each of x.unbind()"
        elif t.layout is not torch.strided:
            description, convert = f"a tensor of layout {t.layout}", "x.to_dense()"
        elif t.is_quantized:
            description = f"a quantized tensor of {t.dtype}"
            convert = "x.dequantize(), or x.int_repr() for its integers"
        else:
            continue
        raise NotStrided(what=description, convert=convert, name=kernel.__name__).here()
    if torch._C._get_tracing_state() is not None:
        raise NotScripted(name=kernel.__name__).here()


def refuse_symbols(kernel: Kernel, kinds: tuple[TensorKind, ...]) -> None:
    """Raise ``SymbolicShape`` if a dimension that the exported program has to leave open has become a number:
    PyTorch's error does not mention kernels. Where PyTorch may choose (``Dim.AUTO``), warn instead."""
    from torch.fx.experimental.symbolic_shapes import StatelessSymbolicContext  # start-up: it imports SymPy
    mode = torch._guards.detect_fake_mode()
    tracked = mode.shape_env.tracked_fakes if mode is not None and mode.shape_env is not None else None
    sizes = {n for shape, _, _ in kinds for n in shape}
    for fake in tracked or ():
        constraints = fake.symbolic_context
        if not isinstance(constraints, StatelessSymbolicContext):
            continue
        for dim, size in enumerate(fake.fake.shape):
            number = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else None
            if number in sizes:
                description = f"dimension {dim} of {origin_of(fake.source)}, which becomes {number}"
                error = SymbolicShape(name=kernel.__name__, what=description,
                                      instead="Dim.STATIC and Dim.AUTO fix the size, and torch.compile recompiles")
                if (constraints.constraint_sizes or {dim: None})[dim] is not None:
                    raise error.here()
                warn_once(f"{error.headline}; {error.advice[1]}", SymbolicShapeWarning,
                          outside_torch(user_location(), kernel))


def outside_torch(at: Location | None, kernel: Kernel) -> Location | None:
    """Return the location to report: ``at``, or the kernel's definition where ``at`` is in PyTorch, since Dynamo hides
    the caller's line."""
    return kernel.location if at is not None and Path(at.file).is_relative_to(Path(torch.__file__).parent) else at


def origin_of(source: Any) -> str:
    """Return PyTorch's name for an input of the program."""
    return str(source.name() if callable(source.name) else source.name)


def is_number_or_tensor(value: object) -> bool:
    return isinstance(value, (int, float)) or is_tensor(value)


def is_tensor(value: object) -> bool:
    return isinstance(value, (torch.Tensor, np.ndarray))


def guarded(value: Any) -> object:
    """Return a tensor unchanged, and a number for one that Dynamo guards on."""
    return value if is_tensor(value) else number_of(value)


def number_of(value: Any) -> Any:
    """Return a number unchanged; for a symbol, the number that it stands for, on which PyTorch then guards. To Dynamo
    a symbol is of the class ``int``."""
    if type(value) in (int, float) and not torch.compiler.is_dynamo_compiling():
        return value
    from torch.fx.experimental.symbolic_shapes import guard_scalar  # start-up: it imports SymPy
    return guard_scalar(value)


# -- planning ----------------------------------------------------------------------------------------------------------
# How a call runs: the operator's ``kernel``; the indices of the call's tensors that the kernel updates, and of the
# others; shape, dtype and "starts from zero" of each new tensor; the source of each result, ("tensor", n) if the kernel
# updated tensor n or ("new", n) if it is new tensor n; the structure of the results. It consists of tuples, numbers
# and text, because it is a constant to Dynamo.
Plan = tuple[str, tuple[int, ...], tuple[int, ...], tuple[Any, ...], tuple[tuple[str, int], ...], object]


def plan_of(kernel: Kernel, positional: tuple[object, ...], named: dict[str, object], kinds: tuple[TensorKind, ...]
            ) -> tuple[Plan, CachedCall]:
    """Return the plan of a call and the cached call with its capture. Plan it where this is the first call of its
    kind."""
    exporting = torch.compiler.is_exporting()
    if exporting:
        refuse_symbols(kernel, kinds)
    for _, _, device in kinds:
        if device not in DEVICES:
            raise NotOnCpu(device=device, name=kernel.__name__).here()
    bound = kernel.bind(positional, named, _is_slot, lambda index: _describe(kinds[index[1]]))
    call = call_for(kernel, bound)
    on = kernel.executor or default_executor()
    tensor = [bound.tensors[index][1] for index in range(len(bound.tensors))]
    is_lazy = any(device == "xla" for _, _, device in kinds)
    run_key = "plan", on, exporting, tuple(tensor), is_lazy
    if run_key not in call.runs:
        call.runs[run_key] = _make_plan(callee_for(kernel, bound, call=call), tensor, exporting, is_lazy)
        if is_lazy or devices_taken:
            leave_in_cache(call.capture)
    return call.runs[run_key], call


def plan_traced(cls: type[Kernel], func: Callable[..., object], fields: dict[str, Any], identity: str,
                positional: tuple[object, ...], named: dict[str, object], kinds: tuple[TensorKind, ...],
                recorded: bool) -> Plan:
    """Return the plan of a call that Dynamo traces. Dynamo has no kernel object where the traced code gives the grid,
    so that the kernel is created again from its ``fields``.

    Dynamo guards on ``identity`` and on the code of ``func``.
    ``recorded`` tells whether some tensor requires grad; exported programs are not checked for it.
    """
    kernel = cls(func, specializations=_captures(func), **fields)
    positional, named = with_objects(positional), with_objects(named)
    try:
        plan, call = plan_of(kernel, positional, named, kinds)
        compile_again_when_changed(func, call.seen)
        if recorded and not torch.compiler.is_exporting() and differentiable(plan) and not plan[1]:
            refuse_gradient(kernel.__name__)
        return plan
    except NkiMlirError as error:
        error.at = outside_torch(error.at, kernel)
        raise


def compile_again_when_changed(func: Callable[..., object], state_at_capture: ClosureState) -> None:
    """Add a guard to the graph that Dynamo is tracing: it fails if what the kernel's Python code reads changes."""
    context = torch._guards.TracingContext.try_get()
    if context is None or torch.compiler.is_exporting():
        return
    latest, environment = [state_at_capture], settings()

    def holds(_: object) -> bool:
        if not latest[0].holds():
            state_now = state_at_capture.again()
            if state_now.key != state_at_capture.key:
                return False
            latest[0] = state_now
        return settings() == environment

    def create(builder: Any, guard: object) -> None:
        text = [f"what kernel {name_of(func)} sees is unchanged"]
        add = builder.guard_manager.root.add_lambda_guard
        try:
            add(holds, text, None)
        except TypeError:                           # PyTorch before 2.10
            add(holds, text)
    from torch._dynamo.source import GlobalStateSource  # start-up: Dynamo, which has a context only where it runs
    context.guards_context.dynamo_guards.add(torch._guards.Guard(GlobalStateSource(), create))


def settings() -> tuple[object, ...]:
    """Return the settings of the environment that decide how a call runs."""
    return EXECUTOR.raw(), TARGET.raw(), LEVEL.raw()


plan_traced._dynamo_marked_constant = True          # type: ignore[attr-defined]


@lru_cache(MOST)
def _captures(function: object) -> CallCache:
    return CallCache()


def _make_plan(callee: Callee, tensors: list[int], exporting: bool, is_lazy: bool) -> Plan:
    if not is_lazy:                                         # for lazy tensors the graph is written instead
        write_call(callee.record)
    record, form = callee.record, callee.record.form
    tensor = [tensors[index] for index in form.operands]            # operand -> tensor of the call
    operand = {result: operand for operand, result in form.aliases.items()}
    new_results = [n for n in range(len(form.results)) if n not in operand]
    returned = tuple(("tensor", tensor[operand[n]]) if n in operand else ("new", new_results.index(n))
                     for n in form.returned)
    return (record.config if exporting else callee.key, tuple(tensor[k] for k in form.aliases),
            tuple(t for k, t in enumerate(tensor) if k not in form.aliases), layout_of(callee).results, returned,
            structure_of(record.structure, len(returned)))


def _is_slot(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[0] is _TensorMark


def _describe(kind: TensorKind) -> tuple[tuple[int, ...], DType]:
    shape, dtype, _ = kind
    if not shape:                       # refused by its parameter's name, whatever its dtype
        return shape, NKI_DTYPE.get(dtype, FLOAT32)
    if dtype in NKI_DTYPE:
        return shape, NKI_DTYPE[dtype]
    try:
        return shape, dtype_of(dtype_name(dtype))
    except TypeError as error:
        description = f"a tensor of dtype {dtype} is passed to a kernel"
        raise ElementType.of(description, dtype, error, "x.to(torch.float32)").here() from None


def refuse_update(tensors: list[torch.Tensor], kernel: Kernel) -> None:
    if torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):
        refuse(UpdatesWithGradient, name=kernel.__name__)


def differentiable(plan: Plan) -> bool:
    """Return whether results of a call could have derivatives. Updated tensors count whatever their dtype."""
    _, updated, _, outputs, _, _ = plan
    return bool(updated) or any([dtype.is_floating_point for _, dtype, _ in outputs])


# -- the fast path of an eager call: the entry on the tensors' memory, without the operator ----------------------------
# A repeated call with plain CPU tensors and simple constants looks up its key, allocates the results and passes the
# addresses. Under modes, transformations, profilers and tracing the call goes through the operator, which they observe.
KEY_DTYPE = {dtype: nki.numpy for dtype, nki in NKI_DTYPE.items()}


class PlannedCall:
    """The fast path of a planned call: it passes the tensors' addresses to the kernel's entry.

    ``order`` has for each slot of the entry the index of its tensor, counted over the call's tensors and then the
    new ones.
    """

    def __init__(self, kernel: Kernel, plan: Plan, tensors: list[torch.Tensor]) -> None:
        name, self.updated, inputs, results, self.returned, self.structure = plan
        callee, count = callee_named(name), len(tensors)
        tensor_indices = {"updated": self.updated, "tensors": inputs, "results": range(count, count + len(results))}
        self.order = [tensor_indices[group][n] for group, n in layout_of(callee).order]
        self.entry = callee.entry
        self.function = C_ENTRY(self.entry.address)
        self.pointers = ctypes.c_void_p * len(self.order)
        self.one = self.structure == 0 and self.returned == (("new", 0),)
        # How to allocate each result: ``empty_like`` a tensor of the same shape and dtype is the fastest.
        self.results = [(next((n for n, t in enumerate(tensors) if not zero and (t.shape, t.dtype) == (shape, dtype)),
                              None), torch.zeros if zero else torch.empty, shape, dtype)
                        for shape, dtype, zero in results]
        self.kernel, self.differentiable = kernel, differentiable(plan)

    def __call__(self, tensors: list[torch.Tensor]) -> object:
        if self.updated:
            refuse_update([tensors[n] for n in self.updated], self.kernel)
        if self.differentiable and records(tensors):
            refuse_gradient(self.kernel.__name__)
        new_tensors = [make(shape, dtype=dtype) if like is None else torch.empty_like(tensors[like])
                for like, make, shape, dtype in self.results]
        arguments = tensors + new_tensors
        status = self.function(self.pointers(*[arguments[n].data_ptr() for n in self.order]))
        if status:
            raise self.entry.error(status)
        if self.one:
            return new_tensors[0]
        if self.updated:
            torch.autograd.graph.increment_version([t for t in (tensors[n] for n in self.updated)
                                                    if not t.is_inference()])
        values = [tensors[n] if kind == "tensor" else new_tensors[n] for kind, n in self.returned]
        return in_structure(self.structure, values)


def launched(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object]) -> tuple[object] | None:
    """Run the fast path of a call and return its results in a tuple with one element. Return None if the call has to
    go through the operator."""
    tensors: list[torch.Tensor] = []
    key, variant = key_of(kernel, arguments, keywords, tensors)
    call = None if key is None else kernel.specializations.find(key)
    launch: PlannedCall | None = None if call is None else call.runs.get(variant)
    if launch is None or watched():
        return None
    return (launch(tensors),)


def remember(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object], plan: Plan, call: CachedCall,
             tensors: list[torch.Tensor]) -> None:
    """Store the plan for the fast path of later calls with the same key, unless the program is being exported."""
    key, variant = key_of(kernel, arguments, keywords, [])
    if key is not None and not torch.compiler.is_exporting():
        call.runs[variant] = PlannedCall(kernel, plan, tensors)


def key_of(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object], tensors: list[torch.Tensor]
           ) -> tuple[tuple[object, ...] | None, object]:
    """Return the cache key of a call and the options that decide how it runs. The key is None unless all tensors are
    plain and all constants simple.

    It appends the call's tensors to ``tensors``, in the order of the call.
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


class TorchKernel(FrameworkKernel):
    """``FrameworkKernel`` for PyTorch tensors of any device, including ``meta``: it reads only shapes and dtypes.

    Example:
        dumped = TorchKernel(double).dump_config(torch.ones(4, 8, device="meta"))
        assert [shape for _, shape in dumped.return_types] == [(4, 8)]
    """

    def is_framework_tensor(self, t: object) -> bool:
        return is_tensor(t)

    def translate_to_neuron_dtype(self, _dtype: Any) -> object:
        return NKI_DTYPE.get(_dtype, _dtype)


__all__ = ["TorchKernel"]
