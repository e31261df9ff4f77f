# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The builder seam: the language calls a ``Builder``. One executes at once, the other writes MLIR.

``emit`` is common: it broadcasts, applies masks, decides what is proved in bounds and verifies; what then happens to the
operation is the builder's.
"""

import itertools
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from nki_mlir.diagnostics import InternalError, KernelError
from nki_mlir.dialects.op import Elementwise, Op
from nki_mlir.dialects.verifier import verify
from nki_mlir.frontend.errors import OutsideKernel, SharedHbmInside, UnsupportedMask
from nki_mlir.frontend.index import Index, Mask, Symbol
from nki_mlir.frontend.locations import user_location
from nki_mlir.frontend.tensor import Buffer, View, tile_of
from nki_mlir.scalar.dtypes import DType

current: ContextVar["Builder | None"] = ContextVar("builder", default=None)

Site = tuple[str, int, int]


def active(name: str = "a language function") -> "Builder":
    """The builder of the kernel that is running; the named error outside of one."""
    builder = current.get()
    if builder is None:
        raise OutsideKernel(name=name).located(user_location())
    return builder


class Builder:
    """What the language layer needs. ``symbolic`` says whether loops may hand out symbols in place of numbers."""

    symbolic = False

    def __init__(self, grid: tuple[int, ...] = (), target: str = "trn2") -> None:
        self.grid, self.target = grid, target
        self.names = itertools.count()
        self.last: Op | None = None
        self.written: dict[Buffer, Any] = {}        # buffers that an operation writes, with the first place
        self.read: dict[Buffer, Any] = {}
        self.inlined = 0                            # depth of kernels called from the kernel
        self.properties: dict[str, Any] = {}        # state the language keeps for the duration of one run

    # -- what builders do ----------------------------------------------------------------------------------------------
    def allocate(self, shape: tuple[int, ...], dtype: DType, space: str, *, shared: bool = False, partition_dim: int = 0,
                 name: str = "", attributes: dict[str, Any] | None = None) -> Buffer:
        raise InternalError("a builder must allocate")

    def state(self, key: str, shape: tuple[int, ...], dtype: DType) -> Buffer:
        """A zeroed SBUF buffer that lives as long as the kernel, made at its first use: registers, generator states."""
        states = self.properties.setdefault("states", {})
        if key not in states:
            states[key] = self.allocate_state(shape, dtype, key)
        return states[key]

    def allocate_state(self, shape: tuple[int, ...], dtype: DType, name: str) -> Buffer:
        return self.allocate(shape, dtype, "sbuf", name=name)

    def constant(self, array: Any, dtype: DType) -> Buffer:
        """An HBM buffer that holds the array's values."""
        raise InternalError("a builder must make constants")

    def program_id(self, axis: int) -> Any:
        raise InternalError("a builder must know the program id")

    def iteration(self, site: Site) -> None:
        """One more iteration of an unrolled loop begins; capture counts them against the limit."""

    def perform(self, op: Op, views: Sequence[View], symbols: Sequence[Symbol]) -> None:
        raise InternalError("a builder must perform operations")

    def facts(self) -> tuple[Index, ...]:
        """What is known to be ``>= 0`` where the next operation stands: conditions of enclosing ``if``s."""
        return ()

    def at_top_level(self) -> bool:
        """Whether the kernel is outside of loops, branches and inlined kernels."""
        return self.inlined == 0

    # -- common --------------------------------------------------------------------------------------------------------
    def new_name(self, name: str = "") -> str:
        return name or f"t{next(self.names)}"

    def rename(self, buffer: Buffer, name: str) -> None:
        """Name a buffer after the variable it is assigned to: in messages and, where it is output, in the IR."""
        buffer.name = name

    def check_shared(self) -> None:
        if not self.at_top_level():
            raise SharedHbmInside().located(user_location())

    def emit(self, cls: type[Op], views: dict[str, View | None], mask: Any = None, **attributes: Any) -> Op | None:
        """One operation; returns it, or None when its mask is false everywhere.

        ``views`` are by tile field; elementwise sources broadcast to ``dst``. Attributes of kind ``Linear`` are given as
        ``Index`` over the operation's axes.
        """
        try:
            return self._emit(cls, {name: v for name, v in views.items() if v is not None}, mask, attributes)
        except KernelError as error:
            raise error.located(user_location())

    def _emit(self, cls: type[Op], views: dict[str, View], mask: Any, attributes: dict[str, Any]) -> Op | None:
        if mask is False:
            return None
        mask = None if mask is True else mask
        if issubclass(cls, Elementwise) and "dst" in views:
            shape = views["dst"].shape
            for name, view in views.items():
                if view.shape != shape:
                    views[name] = broadcast(view, shape, cls)
        views = {f.name: views[f.name].as_tile() for f in cls.tiles if f.name in views}
        if mask is not None:
            if mask.negated:
                raise UnsupportedMask(what="a mask is a conjunction of comparisons; this one is a negation or an |")
            known = mask.known()
            if known is False:
                return None
            mask = None if known else mask
        facts = self.facts() + (mask.facts if mask is not None else ())
        open_ends = [index for view in views.values() if view.limits for index in view.unproved(facts)]
        indices = [i for view in views.values() for i in (view.partition, view.free) if i.symbols]
        indices += [e for e, _ in mask.terms] if mask is not None else []
        linear = [v for v in attributes.values() if isinstance(v, Index)]
        symbols = self.symbols_of([*indices, *open_ends, *linear])
        place = {s: k for k, s in enumerate(symbols)}
        for name, value in attributes.items():
            if isinstance(value, Index):
                attributes[name] = value.linear(place)
        tiles = {name: tile_of(view, place) for name, view in views.items()}
        op = cls(symbols=tuple(s.value for s in symbols), ranges=tuple((s.first, s.last) for s in symbols),
                 **tiles, **attributes)
        verify(op)
        if mask is not None or open_ends:
            extents = op.iteration().extents
            op.mask = mask.spread(extents).constraints(place) if mask is not None else ()
            op.limits = Mask(tuple((i, False) for i in open_ends)).spread(extents).constraints(place)
        self.note_use(op, list(views.values()))
        self.perform(op, list(views.values()), symbols)
        self.last = op
        return op

    def symbols_of(self, indices: Sequence[Index]) -> list[Symbol]:
        """The symbols used, each once; one whose loop has ended asks for numbers."""
        symbols = list(dict.fromkeys(s for i in indices for s in i.symbols))
        for symbol in symbols:
            if not symbol.usable():
                symbol.ask("its loop variable is used after the loop")
        return symbols

    def note_use(self, op: Op, views: Sequence[View]) -> None:
        reads = {name for name, _ in op.sources()}
        for (field, _), view in zip(op.operands(), views):
            if field.writes and view.buffer not in self.written:
                self.written[view.buffer] = user_location()
            if field.name in reads and view.buffer not in self.read:
                self.read[view.buffer] = user_location()


def broadcast(view: View, shape: tuple[int, ...], cls: type[Op]) -> View:
    """A source with the destination's shape: extents of 1 repeat; extents of 1 in front or behind may be missing."""
    if view.ndim < len(shape) and view.shape == shape[:view.ndim]:
        missing = len(shape) - view.ndim
        if all(n == 1 for n in shape[view.ndim:]):
            view = view.with_unit_dims(range(view.ndim, view.ndim + missing), len(shape))
    if view.ndim > len(shape):
        squeezed = [n for n in view.shape if n != 1]
        if squeezed == [n for n in shape if n != 1]:
            return view.reshape(shape)
    return view.broadcast_to(shape)
