# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The short way of an eager call: the kernel's entry on the tensors' memory, without the operator.

A call that was planned once, on plain CPU tensors and simple constants, needs no more than its key, new results and the
addresses. Whatever watches or changes operators (a mode, a transformation, a profiler, tracing) sees the operator.
"""

import ctypes
from typing import Any

import torch

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.native import C_ENTRY
from nki_mlir.frameworks.torch_operator import callee_named, layout_of
from nki_mlir.language.arguments import records, refuse_gradient
from nki_mlir.language.closure_state import ClosureState
from nki_mlir.language.kernel import Kernel, default_executor
from nki_mlir.language.specialization import Recent

# The operator's ``kernel``; the tensors of the call that are updated, and the others; what the operator makes; for each
# result of the kernel ("tensor", n), one that was updated, or ("made", n); their structure. All of it is tuples,
# numbers and text, because it is a constant to Dynamo.
Plan = tuple[str, tuple[int, ...], tuple[int, ...], tuple[Any, ...], tuple[tuple[str, int], ...], object]

TENSORS = {torch.Tensor, torch.nn.Parameter}            # no subclass, which may be anything
CONSTANTS = {int, bool, str, type(None)}


class UpdatesWithGradient(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-UPDATE"
    message = "kernel {name} updates a tensor that requires grad, of which no derivative would know"
    fix = "update it under torch.no_grad(), or in a torch.autograd.Function with ctx.mark_dirty and a backward"


def refuse_update(tensors: list[torch.Tensor], kernel: Kernel) -> None:
    if torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):
        raise UpdatesWithGradient(name=kernel.__name__).here()


def differentiable(plan: Plan) -> bool:
    """Whether a call has results of which there could be derivatives: updated tensors may be of any dtype."""
    _, updated, _, outputs, _, _ = plan
    return bool(updated) or any([dtype.is_floating_point for _, dtype, _ in outputs])


class PlannedCall:
    """A planned call. ``order`` has the tensor of each slot of the entry, counted over the call's and the made ones."""

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
        self.seen = ClosureState(kernel.func)

    def holds(self) -> bool:
        """Whether the kernel's Python still sees the same around it."""
        return self.seen.holds() and (self.seen.fixed or ClosureState(self.kernel.func).key == self.seen.key)

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


_LAUNCHES: Recent[object, PlannedCall] = Recent()


def launched(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object]) -> tuple[object] | None:
    """The results of a call, in a tuple; None where it has to go through the operator."""
    tensors: list[torch.Tensor] = []
    launch = _LAUNCHES.get(key_of(kernel, arguments, keywords, tensors))
    if launch is None or watched() or not launch.holds():
        return None
    return (launch(tensors),)


def remember(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object], plan: Plan,
             tensors: list[torch.Tensor]) -> None:
    """Make later calls like this one short, where calls like it can be."""
    key = key_of(kernel, arguments, keywords, [])
    if key is not None and not torch.compiler.is_exporting():
        _LAUNCHES[key] = PlannedCall(kernel, plan, tensors)


def key_of(kernel: Kernel, arguments: tuple[Any, ...], keywords: dict[str, object], tensors: list[torch.Tensor]
           ) -> object:
    """What a call is planned for, with its tensors added; None where an argument is no plain tensor or constant."""
    key = [kernel.func, kernel.grid, kernel.executor or default_executor(), kernel.platform, kernel.by_reference]
    if keywords:
        key += keywords
        arguments = (*arguments, *keywords.values())
    for value in arguments:
        kind = type(value)
        if kind in TENSORS:
            if not value.is_cpu or value.layout is not torch.strided or not value.is_contiguous() or value.is_neg():
                return None
            tensors.append(value)
            key.append(value.shape)
            key.append(value.dtype)
        elif kind in CONSTANTS:
            key += (kind, value)
        elif kind is float:
            key += (kind, repr(value))                  # 0.0 is not -0.0
        else:
            return None
    return tuple(key)


def watched() -> bool:
    """Whether somebody is to see the operators that run."""
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
                or torch._C._functorch.peek_interpreter_stack() is not None
                or torch._C._get_tracing_state() or torch._C._autograd._profiler_enabled())


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
