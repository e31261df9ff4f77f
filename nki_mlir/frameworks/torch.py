# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of kernels with PyTorch tensors: eagerly, in ``torch.autograd.Function``, under ``torch.compile`` and
``torch.export``.

Kernels work on the memory of CPU tensors; every other argument is a compile-time constant. A kernel writes its
parameters in place. A kernel has no derivative: to differentiate, call it in the ``forward`` of a
``torch.autograd.Function`` that has a ``backward``.

Dynamo traces ``call`` and evaluates ``plan_traced`` as a constant: capture runs while Dynamo builds the graph, on
only shapes, dtypes and constants, so a compiled graph has one operator for each call and is specialized to its
shapes.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nki_mlir.capture.locations import user_location
from nki_mlir.capture.wrapping import name_of
from nki_mlir.diagnostics import LEVEL, Location, NkiMlirError, warn_once
from nki_mlir.environment import EXECUTOR, TARGET
from nki_mlir.frameworks.debug_output import devices_taken, write_call
from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.frameworks.registry import Callee, SymbolicShape, call_for, callee_for
from nki_mlir.frameworks.torch_arguments import readable, refuse_escaped, refuse_form, refuse_mixed_fakes
from nki_mlir.frameworks.torch_backward import differentiated_once, recorded_call, records_as_on_device
from nki_mlir.frameworks.torch_operator import (
    allocate_results,
    callee_named,
    innermost,
    layout_of,
    names_of,
)
from nki_mlir.frameworks.torch_plans import Plan, differentiable, launched, refuse_update, remember
from nki_mlir.frameworks.torch_values import NKI_DTYPE, in_containers, in_structure, structure_of, with_objects
from nki_mlir.language.argument_memory import ReadOnlyArgument
from nki_mlir.language.arguments import (
    BadArgument,
    ElementType,
    dtype_name,
    leaves_of,
    map_leaves,
)
from nki_mlir.language.call_cache import MOST, CachedCall, CallCache
from nki_mlir.language.closure_state import ClosureState
from nki_mlir.language.compiled_files import leave_in_cache
from nki_mlir.language.framework_tensors import NoDerivative, records, refuse_gradient, refuse_mixed
from nki_mlir.language.kernel import Kernel, default_executor
from nki_mlir.language.traced_errors import refuse, traced_as_constant
from nki_mlir.scalar.dtypes import FLOAT32, DType, dtype_of

TensorKind = tuple[tuple[int, ...], torch.dtype, str]           # shape, dtype, type of its device
DEVICES = {"cpu", "meta", "neuron", "xla"}        # "neuron" tensors wrap CPU tensors, those of ``torch_xla`` are lazy


class NotOnCpu(NkiMlirError, ValueError):
    code = "NKI-TORCH-DEVICE"
    message = "a tensor on device {device} is passed to kernel {name}; kernels run on the CPU here"
    fix = "move it first: x.cpu()"


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
    if torch.compiler.is_dynamo_compiling():
        return call_traced(kernel, arguments, keywords)
    if torch._C._current_graph_task_id() != -1 and torch.is_grad_enabled():
        return differentiated_once(call, kernel, arguments, keywords)
    try:
        fast_result = launched(kernel, arguments, keywords)
    except RuntimeError:
        refuse_escaped((*arguments, *keywords.values()), kernel)
        raise
    if fast_result is not None:
        return fast_result[0]
    proxies: Any = leaves_of((arguments, keywords), lambda value: isinstance(value, torch.fx.Proxy))
    if proxies:                                     # torch.fx.symbolic_trace records the kernel as a function
        return proxies[0][1].tracer.create_proxy("call_function", kernel, arguments, keywords)
    return call_planned(kernel, arguments, keywords)


def call_planned(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object]) -> object:
    """Call a kernel outside of Dynamo: plan the call, store the plan for later calls, and run it."""
    refuse_mixed("torch", kernel, arguments, keywords)
    positional, named, values = without_tensors(arguments, keywords)
    refuse_escaped(values, kernel)
    refuse_form([t for t in values if isinstance(t, torch.Tensor)], kernel)
    tensors = as_tensors(list(map(readable, values)), kernel)
    plan, cached = plan_of(kernel, positional, named, kinds_of(tensors))
    remember(kernel, arguments, keywords, plan, cached, tensors)
    name, updated, _, _, _, _ = plan
    refuse_update([tensors[n] for n in updated], kernel)            # the more specific error comes first
    for n, parameter in zip(updated, names_of(callee_named(name).record)):
        if isinstance(array := values[n], np.ndarray) and not array.flags.writeable:
            raise ReadOnlyArgument(name=parameter).here()
    if differentiable(plan) and records(map(innermost, tensors)) and not torch.compiler.is_exporting():
        if not records_as_on_device(tensors):
            refuse_gradient(kernel.__name__)
        return recorded_call(call, kernel, arguments, keywords, outside_torch(user_location(), kernel),
                             [tensors[n] for n in updated])
    return run_plan(kernel, plan, tensors)


def call_traced(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object]) -> object:
    """Call a kernel in code that Dynamo traces. The plan of the call (``torch_plans``) becomes a constant of the graph.

    Dynamo represents sizes and numbers by symbols, and cannot read the layouts of tensors while it traces a backward
    function.
    """
    arguments, keywords = (map_leaves(values, is_number_or_tensor, guarded) for values in (arguments, keywords))
    fields = {"grid": tuple([number_of(n) for n in kernel.grid]), "has_grid": True, "mode": kernel.mode,
              "target": kernel.target, "executor": kernel.executor, "by_reference": kernel.by_reference,
              "options": kernel.options}
    positional, named, values = without_tensors(arguments, keywords)
    tensors = as_tensors(values, kernel)
    recorded = torch.is_grad_enabled() and any([t.requires_grad for t in tensors])
    plan = plan_traced(type(kernel), kernel.func, fields, kernel.identity, in_containers(positional),
                       in_containers(named), kinds_of(tensors), recorded)
    refuse_update([tensors[n] for n in plan[1]], kernel)
    return run_plan(kernel, plan, tensors)


def without_tensors(arguments: tuple[object, ...], keywords: dict[str, object]
                    ) -> tuple[tuple[object, ...], dict[str, object], list[Any]]:
    """Return a call's arguments and keywords with a mark for each tensor, and the tensors in the order of the marks."""
    tensors: list[Any] = []

    def mark_of(value: Any) -> tuple[type, int]:
        tensors.append(value)
        return (_TensorMark, len(tensors) - 1)
    return map_leaves(arguments, is_tensor, mark_of), map_leaves(keywords, is_tensor, mark_of), tensors


def as_tensors(values: list[Any], kernel: Kernel) -> list[torch.Tensor]:
    """Return PyTorch tensors, and NumPy arrays as tensors on the device of the first one."""
    if not any([isinstance(t, torch.Tensor) for t in values]):
        refuse(NoTorchTensor, name=kernel.__name__)
    device = next(t.device for t in values if isinstance(t, torch.Tensor))
    return [torch.from_numpy(t).to(device) if isinstance(t, np.ndarray) else t for t in values]


def kinds_of(tensors: list[torch.Tensor]) -> tuple[TensorKind, ...]:
    return tuple([(tuple([number_of(n) for n in t.shape]), t.dtype, t.device.type) for t in tensors])


def run_plan(kernel: Kernel, plan: Plan, tensors: list[torch.Tensor]) -> object:
    """Call the operator on the tensors as the plan says, and return the kernel's results."""
    name, updated, read_only, outputs, returned, structure = plan
    if updated:
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
    except AssertionError:
        refuse_mixed_fakes([t for part in arguments if isinstance(part, list) for t in part], kernel)
        raise


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


@traced_as_constant
def plan_traced(cls: type[Kernel], func: Callable[..., object], fields: dict[str, Any], identity: str,
                positional: tuple[object, ...], named: dict[str, object], kinds: tuple[TensorKind, ...],
                recorded: bool) -> Plan:
    """Return the plan of a call that Dynamo traces. Dynamo has no kernel object where the traced code gives the grid,
    so that the kernel is created again from its ``fields``.

    Dynamo guards on ``identity`` and on the code of ``func``.
    ``recorded`` tells whether some tensor requires grad; exported programs are not checked for it.
    """
    kernel = cls(func, specializations=_captures(func), **fields)
    plan, call = plan_of(kernel, with_objects(positional), with_objects(named), kinds)
    compile_again_when_changed(func, call.seen)
    if recorded and not torch.compiler.is_exporting() and differentiable(plan) and not plan[1]:
        refuse_gradient(kernel.__name__)
    return plan


def compile_again_when_changed(func: Callable[..., object], state_at_capture: ClosureState) -> None:
    """Add a guard to the graph that Dynamo is tracing: it fails if a value that the kernel's Python code reads
    changes."""
    context = torch._guards.TracingContext.try_get()
    if context is None or torch.compiler.is_exporting():
        return
    latest, environment = [state_at_capture], settings()

    def holds(_: object) -> bool:
        if not latest[0].holds():
            state_now = state_at_capture.walked_again()
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


@lru_cache(MOST)
def _captures(function: object) -> CallCache:
    return CallCache()


def _make_plan(callee: Callee, tensors: list[int], exporting: bool, is_lazy: bool) -> Plan:
    if not is_lazy:                                         # a program of lazy tensors writes its graph instead
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
