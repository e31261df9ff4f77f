# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records the steps of a function's call on its tensors, so that ``repeated_calls.py`` can repeat them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from nki_mlir.capture import part_forms
from nki_mlir.capture.builder import Builder, Memo
from nki_mlir.capture.strides import Dim, Shape
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.dialects.access import HBM, PSUM, Access
from nki_mlir.dialects.op import Op, TileField
from nki_mlir.language import creation
from nki_mlir.language.current.memory import MemoryRegion, Storage
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import DType

PLAIN = frozenset((type(None), bool, int, float, str))


# -- forms -------------------------------------------------------------------------------------------------------------
@lru_cache(1 << 16)
def _form(*parts: object) -> object:
    """Return the object for these properties of tensors, another one after the cache has evicted it."""
    return object()


def form_of(tensor: NkiTensor) -> object:
    """Return the object that is the same for tensors that differ only in their memory and in their start in it."""
    form = tensor.form
    if form is None:
        storage = tensor.storage
        form = _form(storage.form, storage.buffer.role, tensor.shape, tensor.strides, tensor.dtype.name)
        object.__setattr__(tensor, "form", form)
    return form


# -- what calls do -----------------------------------------------------------------------------------------------------
class ViewOfCall(NamedTuple):
    """A view of one of the call's tensors: as it is (``dims`` is None), or with other dimensions. The tensors that the
    call creates are numbered after its arguments. ``part`` and ``access``: the form and, on chip, the access of a view
    with other dimensions."""

    tensor: int
    dims: tuple[Dim, ...] | None
    part: part_forms.PartForm | None = None
    access: Access | None = None


class VerifiedForm(NamedTuple):
    """The memo of a verified operation, and of each operand the field and the number of its view."""

    memo: Memo
    operands: list[tuple[TileField, int]]


@dataclass(eq=False, slots=True)
class EmittedOperation:
    """An operation that a call emits. ``views`` has the numbers of its operands' views. ``verified`` is its form; None
    if each call has to emit it with all checks."""

    cls: type[Op]
    views: tuple[tuple[str, int | None], ...]
    attributes: dict[str, object]
    verified: VerifiedForm | None = None


class HistoryNote(NamedTuple):
    """A call of a function of the write history. Its arguments are a view and, unless ``tensor`` is None, the storage
    of a tensor, both by number."""

    function: Callable[..., None]
    tensor: int | None
    view: int
    values: tuple[int, ...]


class ShownWarning(NamedTuple):
    """A warning that the call shows at its line."""

    text: str


@dataclass(eq=False, slots=True)
class CreatedTensor:
    """A tile that a call creates: its number, and its storage if the language allocates it."""

    number: int
    shape: tuple[int, ...]
    dtype: DType
    space: str
    storage: tuple[MemoryRegion, DType, bool, bool] | None = None


class ReturnedTensor(NamedTuple):
    """The tensor that a call returns: a view of the created tensor with the number ``tensor``. ``view`` is the number
    of its core view; ``form`` is its form, which the results of all repetitions share."""

    tensor: int
    shape: Shape
    strides: tuple[int, ...]
    offset: int
    dtype: DType
    base: tuple[int, ...]
    view: int
    form: object


Step = EmittedOperation | HistoryNote | CreatedTensor | ShownWarning


@dataclass(eq=False, slots=True)
class RecordedCall:
    """The record of the calls of a form: the views that they use of their tensors, and the steps on these."""

    views: list[ViewOfCall] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    returned: ReturnedTensor | None = None


class CallRecorder:
    """Records the steps of a call on its tensors. ``repeatable``: it does nothing else."""

    def __init__(self, tensors: list[NkiTensor]) -> None:
        self.tensors, self.repeatable, self.call = tensors, True, RecordedCall()
        self.emissions: list[tuple[EmittedOperation, dict[str, View | None]]] = []
        self.created: dict[Buffer, CreatedTensor] = {}
        self.storages: list[Storage] = []

    # -- what builders and the language report -------------------------------------------------------------------------
    def emitted(self, cls: type[Op], views: Mapping[str, View | None], mask: object, attributes: dict[str, object]
                ) -> None:
        if mask is not None or not all(type(value) in PLAIN or type(value) is tuple for value in attributes.values()):
            self.repeatable = False
            return
        operands = [(name, None if view is None else self.operand(view)) for name, view in views.items()]
        emission = EmittedOperation(cls, tuple(operands), dict(attributes))
        self.call.steps.append(emission)
        self.emissions.append((emission, dict(views)))

    def noted(self, function: Callable[..., None], storage: Storage | None, view: View, *values: int) -> None:
        if storage is None and view.buffer.space != PSUM:
            return                              # the history has flags of PSUM only
        number = self.operand(view)
        tensor = None
        if storage is not None and number is not None:
            tensor = self.call.views[number].tensor
            storages = [t.storage for t in self.tensors]
            if tensor < len(storages):
                self.repeatable &= storage is storages[tensor]
            else:
                self.repeatable &= any(storage is s for s in self.storages)
        if number is not None:
            self.call.steps.append(HistoryNote(function, tensor, number, values))

    def allocated(self, buffer: Buffer, is_plain: bool) -> None:
        """Note a new buffer. It ``is_plain`` if it has neither a name nor other attributes."""
        if not is_plain or buffer.space == HBM or buffer.partition_dim or len(buffer.shape) < 2:
            self.repeatable = False
            return
        step = CreatedTensor(len(self.tensors) + len(self.created), buffer.shape, buffer.dtype, buffer.space)
        self.created[buffer] = step
        self.call.steps.append(step)

    def stored(self, storage: Storage) -> None:
        """Note the storage of a new buffer."""
        step = self.created.get(storage.buffer)
        if step is None or step.storage is not None or storage.address is not None:
            self.repeatable = False
            return
        step.storage = storage.region, storage.dtype, storage.identity, storage.verdict
        self.storages.append(storage)

    def warned(self, text: str) -> None:
        self.call.steps.append(ShownWarning(text))

    # -- views ---------------------------------------------------------------------------------------------------------
    def operand(self, view: View) -> int | None:
        """Return the number of a view of one of the call's tensors. If it is of none, the call is not repeatable."""
        if view.mask is not None or view.limits or not (view.partition.is_constant and view.free.is_constant):
            self.repeatable = False
            return None
        of_call = self.of_argument(view) or self.of_created(view)
        if of_call is None:
            self.repeatable = False
            return None
        views = self.call.views
        if of_call not in views:
            views.append(of_call)
        return views.index(of_call)

    def of_argument(self, view: View) -> ViewOfCall | None:
        same_part: ViewOfCall | None = None
        for number, tensor in enumerate(self.tensors):
            if tensor.storage.buffer is view.buffer and (core := tensor.core) is not None:
                if core is view:
                    return ViewOfCall(number, None)
                if same_part is None and core.dtype is view.dtype and core.partition.const == view.partition.const and (
                        core.free.const == view.free.const):
                    same_part = self.part(number, view)
        return same_part

    def of_created(self, view: View) -> ViewOfCall | None:
        step = self.created.get(view.buffer)
        if step is None or view.dtype is not view.buffer.dtype or view.partition.const or view.free.const:
            return None
        if view.dims == part_forms.complete_dims(view.buffer.shape, 0):
            return ViewOfCall(step.number, None)
        return self.part(step.number, view)

    @staticmethod
    def part(number: int, view: View) -> ViewOfCall:
        buffer, tile = view.buffer, view.plain_tile()
        part = part_forms.PartForm(view.dims, view.shape, None if tile is None else tile.access.dims,
                                   None if tile is None else tile.form)
        return ViewOfCall(number, view.dims, part, None if tile is None or not buffer.on_chip else tile.access)

    # -- the end of the call -------------------------------------------------------------------------------------------
    def complete(self, builder: Builder, result: object) -> RecordedCall | None:
        """Return the record of the call, which has returned ``result``; None if it cannot be repeated."""
        if self.repeatable and result is not None:
            self.returns(result)
        if not self.repeatable:
            return None
        for emission, views in self.emissions:
            if self.repeatable and not (any(
                    view is not None and view.buffer.role == "input" for name, view in views.items()
                    if name in emission.cls.outputs)):
                emission.verified = self.verified_form(builder, emission, views)
            if not all(map(creation.has_a_partition_for_each_lane, views.values())):
                emission.verified = None
        self.repeatable &= not self.created or all(emission.verified for emission, _ in self.emissions)
        return self.call if self.repeatable else None

    def returns(self, result: object) -> None:
        tensor = result if isinstance(result, NkiTensor) else None
        step = None if tensor is None else self.created.get(tensor.storage.buffer)
        if tensor is None or step is None or step.storage is None or tensor.indirection is not None or (
                tensor.core is None):
            self.repeatable = False
            return
        view = self.operand(tensor.core)
        if view is not None:
            self.call.returned = ReturnedTensor(step.number, tensor.shape, tensor.strides, tensor.offset, tensor.dtype,
                                                tensor.base, view, form_of(tensor))

    def verified_form(self, builder: Builder, emission: EmittedOperation, views: dict[str, View | None]
                      ) -> VerifiedForm | None:
        """Return the form of an emitted operation; None if later calls must emit it with all checks."""
        recorded = builder.known_operation(emission.cls, views, emission.attributes)
        if recorded is None:
            return None
        _, tiles, of_tiles, _, memo = recorded
        numbers = [self.operand(view) for view in of_tiles]
        if None in numbers:
            return None
        return VerifiedForm(memo, [(f, n) for (f, _), n in zip(tiles, numbers) if n is not None])
