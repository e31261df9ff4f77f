# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Performs a call of an instruction like an earlier one, without its checks.

A kernel whose Python runs its loops calls an instruction thousands of times with tensors of the same shapes. While the
first call of a form is captured, a ``CallRecorder`` notes the operations that it emits and what it notes in the write
history. Later calls of the form repeat this on their tensors. The form of a call has everything that the functions of
such instructions look at (``InstructionEntry.repeats``): they read no other state. What the builder checks depends on
more (scopes, races, rules of the device, reads of unwritten memory), and it checks every operation.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.capture.builder import Builder, Memo
from nki_mlir.capture.strides import Dim
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import HBM, PSUM, Tile
from nki_mlir.dialects.op import Op, TileField
from nki_mlir.language import creation
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current import write_history
from nki_mlir.language.current.memory import Storage
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import DType

TOKENS = FunctionType, np.ufunc, type, DType      # of operators, functions and dtypes
PLAIN = frozenset((type(None), bool, int, float, str))


class ViewOfCall(NamedTuple):
    """The view of a call's tensor, by the tensor's number, as it is (``dims`` is None) or with other dimensions."""

    tensor: int
    dims: tuple[Dim, ...] | None


class VerifiedForm(NamedTuple):
    """The memo of a verified operation, which operations equal that differ only in their buffers and in where their
    tiles start; and of each operand the field, the number of its view, and the form of its tile."""

    memo: Memo
    operands: list[tuple[TileField, int, object]]


@dataclass(eq=False, slots=True)
class EmittedOperation:
    """An operation that a call emits. ``views`` has the numbers of its operands' views. ``verified``:
    what is recorded of the operations that it equals but for buffers and starts."""

    cls: type[Op]
    views: tuple[tuple[str, int | None], ...]
    attributes: dict[str, object]
    verified: VerifiedForm | None = None


class HistoryNote(NamedTuple):
    """A call of a function of the write history, with a view by number, and the storage of a tensor, if it takes it."""

    function: Callable[..., None]
    tensor: int | None
    view: int
    values: tuple[int, ...]


class RecordedCall(NamedTuple):
    """What the calls of a form do with their tensors: the views that they use, and the steps on these."""

    views: list[ViewOfCall]
    steps: list[EmittedOperation | HistoryNote]


class CallRecorder:
    """Notes what a call does with its tensors. ``repeatable``: it does nothing else."""

    def __init__(self, tensors: list[NkiTensor]) -> None:
        self.tensors, self.repeatable, self.call = tensors, True, RecordedCall([], [])

    def emitted(self, cls: type[Op], views: Mapping[str, View | None], mask: object, attributes: dict[str, object]
                ) -> None:
        if mask is not None or not all(type(value) in PLAIN or type(value) is tuple for value in attributes.values()):
            self.repeatable = False
            return
        operands = [(name, None if view is None else self.operand(view)) for name, view in views.items()]
        self.call.steps.append(EmittedOperation(cls, tuple(operands), dict(attributes)))

    def noted(self, function: Callable[..., None], storage: Storage | None, view: View, *values: int) -> None:
        number = self.operand(view)
        tensor = None
        if storage is not None and number is not None:
            tensor = self.call.views[number].tensor
            self.repeatable &= storage is self.tensors[tensor].storage
        if number is not None:
            self.call.steps.append(HistoryNote(function, tensor, number, values))

    def operand(self, view: View) -> int | None:
        """Return the number of a view of one of the call's tensors. If it is of none, the call is not repeatable."""
        alike: ViewOfCall | None = None
        for number, tensor in enumerate(self.tensors):
            if tensor.storage.buffer is view.buffer and (core := tensor.core) is not None:
                if core is view:
                    alike = ViewOfCall(number, None)
                    break
                if alike is None and core.dtype is view.dtype and core.partition.const == view.partition.const and (
                        core.free.const == view.free.const):
                    alike = ViewOfCall(number, view.dims)
        if alike is None or view.mask is not None or view.limits or not (
                view.partition.is_constant and view.free.is_constant):
            self.repeatable = False
            return None
        views = self.call.views
        if alike not in views:
            views.append(alike)
        return views.index(alike)


# -- forms -------------------------------------------------------------------------------------------------------------
def form_of_call(values: Iterable[object]) -> tuple[list[Hashable], list[NkiTensor]] | None:
    """Return the form of a call with these arguments, and its tensors; None if a form cannot express them.

    Tensors in HBM of one form may start at different elements. In PSUM the form has what the write history knows.
    """
    form: list[Hashable] = []
    tensors: list[NkiTensor] = []
    starts: dict[Buffer, tuple[int, int]] = {}              # by buffer its number, and where its first view starts
    for value in values:
        kind = type(value)
        if kind is NkiTensor:
            tensor: NkiTensor = value                       # type: ignore[assignment]
            if tensor.indirection is not None:
                return None
            storage, offset = tensor.storage, tensor.offset
            buffer = storage.buffer
            space = buffer.space
            tensors.append(tensor)
            form += (storage.form, buffer.role, tensor.shape, tensor.strides, tensor.dtype.name)
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
def is_plain(builder: Builder) -> bool:
    """Return whether calls are captured outside of loops of the device and of other kernels."""
    return builder.symbolic and builder.recorder is None and not builder.accumulating and not builder.considering and (
        builder.at_top_level())


def perform(builder: Builder, function: Callable[..., object], arguments: tuple[Any, ...], keywords: dict[str, Any]
            ) -> None:
    """Call an instruction, or repeat what an earlier call of its form did."""
    if not is_plain(builder) or (formed := form_of_call((*arguments, *keywords.values()))) is None:
        function(*arguments, **keywords)
        return
    form, tensors = formed
    key = function, len(arguments), *keywords, *form
    recorded = builder.recorded_calls.get(key)
    if recorded is not None and (views := views_of(recorded, tensors)) is not None:
        repeat(builder, recorded, views, tensors)
        return
    builder.recorder = recorder = CallRecorder(tensors)
    try:
        function(*arguments, **keywords)
    finally:
        builder.recorder = None
    if recorder.repeatable:
        builder.recorded_calls[key] = recorder.call


def views_of(recorded: RecordedCall, tensors: list[NkiTensor]) -> list[View] | None:
    """Return the views on these tensors; None if one reaches out of its tensor, which the checks of a call report."""
    views: list[View] = []
    try:
        for number, dims in recorded.views:
            tensor = tensors[number]
            view = tensor.core or low.core_view(tensor)
            views.append(view if dims is None else view.like(dims=dims))
    except KernelError:
        return None
    return views


def repeat(builder: Builder, recorded: RecordedCall, views: list[View], tensors: list[NkiTensor]) -> None:
    for step in recorded.steps:
        if type(step) is EmittedOperation:
            if step.verified is not None and perform_again(builder, step, views):
                continue
            operands = {name: None if number is None else views[number] for name, number in step.views}
            creation.emit_with(step.cls, operands, None, step.attributes.copy())
            if all(map(creation.has_own_partitions, operands.values())) and not any(
                    view is not None and view.buffer.role == "input" for name, view in operands.items()
                    if name in step.cls.outputs):
                step.verified = verified_form(builder, step, operands, views)
        elif step.tensor is None:                           # type: ignore[union-attr]
            step.function(views[step.view], *step.values)   # type: ignore[union-attr]
        else:
            step.function(tensors[step.tensor].storage, views[step.view], *step.values)     # type: ignore[union-attr]


# -- operations --------------------------------------------------------------------------------------------------------
def verified_form(builder: Builder, emission: EmittedOperation, operands: dict[str, View | None], views: list[View]
                    ) -> VerifiedForm | None:
    """Return what is recorded of an operation on some of these views; None if it must be emitted, so that other views
    replace them."""
    recorded = builder.known_operation(emission.cls, operands, emission.attributes)
    if recorded is None:
        return None
    _, tiles, of_tiles, _, memo = recorded
    numbers = [next((number for number, view in enumerate(views) if view is other), -1) for other in of_tiles]
    if -1 in numbers:
        return None
    return VerifiedForm(memo, [(field, number, tile.form) for (field, tile), number in zip(tiles, numbers)])


def perform_again(builder: Builder, emission: EmittedOperation, views: list[View]) -> bool:
    """Perform a recorded operation on these views, and return True; or return False if they are not of its form."""
    assert emission.verified is not None
    operands: list[tuple[TileField, Tile]] = []
    operand_views: list[View] = []
    op = object.__new__(emission.cls)
    op.__dict__ = fields = emission.verified.memo["fields"].copy()
    for field, number, form in emission.verified.operands:
        view = views[number]
        tile = view._tile or view.plain_tile()
        if tile is None or tile.form is not form:
            return False
        operand_views.append(view)
        operands.append((field, tile))
        fields[field.name] = tile
    builder.advance()
    try:
        builder.perform_verified(op, operands, operand_views, (), emission.verified.memo)
    except KernelError as error:
        if not error.fields:
            error.fields = {field.name: view.buffer for (field, _), view in zip(operands, operand_views)}
        raise error.here() from None
    return True
