# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans of calls with PyTorch tensors, and the fast path of an eager call: the entry on the tensors' memory, without
the operator.

A repeated call with plain CPU tensors and simple constants looks up its key, allocates the results and passes the
addresses. Under modes, transformations, profilers and tracing the call goes through the operator, which they observe.
"""

import ctypes
import sys
from types import FunctionType
from typing import Any

import torch

from nki_mlir.diagnostics import LEVEL, NkiMlirError
from nki_mlir.environment import EXECUTOR, TARGET, raw_values
from nki_mlir.frameworks.registry import C_ENTRY
from nki_mlir.frameworks.torch_operator import TENSORS, callee_named, layout_of, watched
from nki_mlir.frameworks.torch_values import NKI_DTYPE, in_structure
from nki_mlir.language.arguments import values_of
from nki_mlir.language.call_cache import CachedCall, constant, defaults_of
from nki_mlir.language.framework_tensors import records
from nki_mlir.language.kernel import Kernel
from nki_mlir.language.traced_errors import refuse

# The plan of a call: the operator's ``kernel``; the indices of the call's tensors that the kernel updates, and of the
# others; shape, dtype and "starts from zero" of each new tensor; the source of each result, ("tensor", n) if the kernel
# updated tensor n or ("new", n) if it is new tensor n; the structure of the results. It consists of tuples, numbers
# and text, because it is a constant to Dynamo.
Plan = tuple[str, tuple[int, ...], tuple[int, ...], tuple[Any, ...], tuple[tuple[str, int], ...], object]
NO_MEMORY = object()
KEY_DTYPE = {dtype: nki.numpy for dtype, nki in NKI_DTYPE.items()}


class UpdatesWithGradient(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-UPDATE"
    message = "kernel {name} updates a tensor that requires grad, and autograd would not see the update"
    fix = "update it under torch.no_grad(), or in a torch.autograd.Function with ctx.mark_dirty and a backward"


def refuse_update(tensors: list[torch.Tensor], kernel: Kernel) -> None:
    if torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):
        refuse(UpdatesWithGradient, name=kernel.__name__)


def differentiable(plan: Plan) -> bool:
    """Return whether results of a call could have derivatives. Updated tensors count whatever their dtype."""
    _, updated, _, outputs, _, _ = plan
    return bool(updated) or any([dtype.is_floating_point for _, dtype, _ in outputs])


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
        self.is_single = self.structure == 0 and self.returned == (("new", 0),)
        # How to allocate each result: ``empty_like`` a tensor of the same shape and dtype is the fastest.
        self.results = [(next((n for n, t in enumerate(tensors) if not zero and (t.shape, t.dtype) == (shape, dtype)),
                              None), torch.zeros if zero else torch.empty, shape, dtype)
                        for shape, dtype, zero in results]
        self.sizes = [(t.element_size(), t.numel() * t.element_size()) for t in tensors]
        self.kernel, self.differentiable = kernel, differentiable(plan)

    def __call__(self, tensors: list[torch.Tensor]) -> object:
        """Run the kernel and return its results; return ``NO_MEMORY`` if a tensor lacks memory: it was freed, also in
        part, or stands for zeros."""
        if self.updated:
            refuse_update([tensors[n] for n in self.updated], self.kernel)
        new_tensors = [make(shape, dtype=dtype) if like is None else torch.empty_like(tensors[like])
                for like, make, shape, dtype in self.results]
        arguments = tensors + new_tensors
        for tensor, (itemsize, size) in zip(tensors, self.sizes):       # the tensors are contiguous
            if tensor.storage_offset() * itemsize + size > tensor.untyped_storage().nbytes():
                return NO_MEMORY
        addresses = [arguments[n].data_ptr() for n in self.order]
        if 0 in addresses:
            return NO_MEMORY
        status = self.function(self.pointers(*addresses))
        if status:
            raise self.entry.error(status)
        if self.is_single:
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
    if launch is None or watched() or (launch.differentiable and records(tensors)):
        return None
    result = launch(tensors)
    return None if result is NO_MEMORY else (result,)


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
