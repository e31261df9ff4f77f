# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Performs a call of a function like an earlier one, without its checks.

A kernel whose Python runs its loops calls a function thousands of times with tensors of the same shapes. While the
first call of a form is captured, a ``CallRecorder`` (``recorded_calls.py``) records the tiles that it creates, the
operations that it emits, its entries in the write history, and its warnings. Later calls of the form repeat this on
their tensors. The form of a call has everything that the functions look at: they read no other state
(``InstructionEntry.repeats``, ``repeatable``). The builder's checks depend on further state (scopes, races, reads of
unwritten memory), so the builder checks every operation.
"""

from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any

import numpy as np

from nki_mlir.capture.builder import Builder, current
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.part_forms import constant_access
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import KernelError, Location
from nki_mlir.dialects.access import HBM, PSUM, Tile
from nki_mlir.dialects.op import TileField
from nki_mlir.language import creation
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current import write_history
from nki_mlir.language.current.calls import CURRENT, table_name
from nki_mlir.language.current.errors import warn
from nki_mlir.language.current.memory import Storage
from nki_mlir.language.current.recorded_calls import (
    PLAIN,
    CallRecorder,
    CreatedTensor,
    EmittedOperation,
    HistoryNote,
    RecordedCall,
    ViewOfCall,
    form_of,
)
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import DType

TOKENS = FunctionType, np.ufunc, type, DType      # of operators, functions and dtypes


# -- forms -------------------------------------------------------------------------------------------------------------
def form_of_call(values: Iterable[object]) -> tuple[list[Hashable], list[NkiTensor]] | None:
    """Return the form of a call with these arguments, and its tensors; None if a form cannot express them.

    Tensors in HBM of one form may start at different elements. For tensors in PSUM the form has their entries in the
    write history.
    """
    form: list[Hashable] = []
    tensors: list[NkiTensor] = []
    starts: dict[Buffer, tuple[int, int]] = {}              # buffer -> its number, the start of its first view
    for value in values:
        kind = type(value)
        if kind is NkiTensor:
            tensor: NkiTensor = value                       # type: ignore[assignment]
            if tensor.indirection is not None:
                return None
            offset, buffer = tensor.offset, tensor.storage.buffer
            space = buffer.space
            tensors.append(tensor)
            form.append(tensor.form or form_of(tensor))
            first = starts.get(buffer)
            if space != HBM:
                form.append(offset)
                if space == PSUM and first is None:
                    flags = write_history.known_flags(buffer)
                    if flags is None:
                        return None
                    form.append(flags)
            if first is None:
                starts[buffer] = len(starts), offset
            else:
                form += (first[0], offset - first[1])
        elif kind in PLAIN:
            form.append((kind, value if kind is not float else repr(value)))
        elif isinstance(value, Enum):
            form.append((kind, value.name))
        elif kind is tuple:
            inside = form_of_call(value)                    # type: ignore[arg-type]
            if inside is None or inside[1]:
                return None
            form.append(tuple(inside[0]))
        elif isinstance(value, TOKENS):
            form.append((kind, value))
        else:
            return None
    return form, tensors


# -- calls -------------------------------------------------------------------------------------------------------------
def repeatable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let calls of a function repeat what earlier ones did. It looks at its arguments alone: tensors and numbers."""
    if not hasattr(function, "__signature__"):
        CURRENT.with_defaults(function, table_name(function))

    @wraps(function)
    def run(*arguments: Any, **keywords: Any) -> Any:
        builder = current.get()
        return function(*arguments, **keywords) if builder is None else perform(builder, function, arguments, keywords)
    run.__signature__ = signature(function)                 # type: ignore[attr-defined]
    return run


def is_plain(builder: Builder) -> bool:
    """Return whether calls are captured outside of loops of the device and of other kernels."""
    return builder.symbolic and builder.recorder is None and not builder.accumulating and not builder.considering and (
        builder.at_top_level())


def perform(builder: Builder, function: Callable[..., object], arguments: tuple[Any, ...], keywords: dict[str, Any]
            ) -> object:
    """Call a function, or repeat the steps of an earlier call of its form."""
    if not is_plain(builder) or (formed := form_of_call((*arguments, *keywords.values()))) is None:
        return function(*arguments, **keywords)
    form, tensors = formed
    key = function, len(arguments), *keywords, *form
    recorded = builder.recorded_calls.get(key)
    if recorded is not None and (views := views_of(recorded, tensors)) is not None:
        return repeat(builder, recorded, views, tensors)
    builder.recorder = recorder = CallRecorder(tensors)
    try:
        result = function(*arguments, **keywords)
    finally:
        builder.recorder = None
    if type(result) is NkiTensor and result.indirection is None:
        low.core_view(result)
    if (call := recorder.complete(builder, result)) is not None:
        builder.recorded_calls[key] = call
    return result


def views_of(recorded: RecordedCall, tensors: list[NkiTensor]) -> list[View] | None:
    """Return the views of the call's arguments; None if one reaches out of its tensor, which the checks of a call
    report. Views of tensors that the call creates are added later."""
    views: list[Any] = []
    count = len(tensors)
    for view in recorded.views:
        if view.tensor >= count:
            views.append(None)
            continue
        tensor = tensors[view.tensor]
        core = tensor.core
        if core is None:
            try:
                core = low.core_view(tensor)
            except KernelError:
                return None
        views.append(core if view.dims is None else part_of(core, view))
    return views


def part_of(core: View, of_call: ViewOfCall) -> View:
    """Return a view with other dimensions."""
    part, access = of_call.part, of_call.access
    assert part is not None
    if access is None and part.pattern is not None:         # in HBM
        access = constant_access(core.dtype.name, None, core.free.const, part.pattern)
    return View.of_form(core.buffer, core.partition, core.free, core.dtype, part, access)


def repeat(builder: Builder, recorded: RecordedCall, views: list[View], tensors: list[NkiTensor]) -> NkiTensor | None:
    """Repeat the steps of a call on these tensors, and return its result."""
    at, quick = user_location(3), builder.repeats()
    storages: dict[int, Storage] = {}
    for step in recorded.steps:
        kind = type(step)
        if kind is EmittedOperation:
            if quick and step.verified is not None:         # type: ignore[union-attr]
                perform_again(builder, step, views, at)     # type: ignore[arg-type]
            else:
                emit(builder, step, views)                  # type: ignore[arg-type]
        elif kind is HistoryNote:
            function, number, view, values = step           # type: ignore[misc]
            if number is None:
                function(views[view], *values)
            else:
                assert function is write_history.mark
                storage = storages[number] if number in storages else tensors[number].storage
                storage.written_elements.add(write_history.elements_of(views[view]))
        elif kind is CreatedTensor:
            create(builder, recorded, step, views, storages, at)        # type: ignore[arg-type]
        else:
            warn(step.text)                                 # type: ignore[union-attr]
    returned = recorded.returned
    if returned is None:
        return None
    number, shape, strides, offset, dtype, base, view, form = returned
    result = NkiTensor.opened.of_parts(storages[number], shape, strides, offset, dtype, base)
    object.__setattr__(result, "core", views[view])
    object.__setattr__(result, "form", form)
    return result


def create(builder: Builder, recorded: RecordedCall, step: CreatedTensor, views: list[View],
           storages: dict[int, Storage], at: Location) -> None:
    """Create a tile of a call, and its views."""
    buffer = builder.allocate(step.shape, step.dtype, step.space, at=at)
    core = View.full_tile(buffer)
    for number, view in enumerate(recorded.views):
        if view.tensor == step.number:
            views[number] = core if view.dims is None else part_of(core, view)
    if step.storage is not None:
        region, dtype, identity, verdict = step.storage
        storages[step.number] = Storage(buffer, region, dtype, None, identity, verdict)


# -- operations --------------------------------------------------------------------------------------------------------
def emit(builder: Builder, emission: EmittedOperation, views: list[View]) -> None:
    """Emit an operation on these views, with all checks."""
    operands = {name: None if number is None else views[number] for name, number in emission.views}
    creation.emit_with(emission.cls, operands, None, emission.attributes.copy())


def perform_again(builder: Builder, emission: EmittedOperation, views: list[View], at: Location) -> None:
    """Perform a recorded operation on these views."""
    assert emission.verified is not None
    memo, of_fields = emission.verified
    operands: list[tuple[TileField, Tile]] = []
    operand_views: list[View] = []
    op = object.__new__(emission.cls)
    op.__dict__ = fields = memo["fields"].copy()
    for field, number in of_fields:
        view = views[number]
        tile = view._tile or view.plain_tile()
        assert tile is not None
        operand_views.append(view)
        operands.append((field, tile))
        fields[field.name] = tile
    try:
        builder.perform_again(op, operands, operand_views, memo, at)
    except KernelError as error:
        if not error.fields:
            error.fields = {field.name: view.buffer for (field, _), view in zip(operands, operand_views)}
        raise error.here() from None
