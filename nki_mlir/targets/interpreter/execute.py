# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles a tile operation to a NumPy function: patterns, conversions and masks around the op class's reference.

Eager execution, the interpreter and the simulator of the instruction stream run operations through here, so only the
class of an instruction defines its result.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nki_mlir.analysis.mask_boxes import Box, RowGroup, in_box, on_group, row_groups, verified_on_box
from nki_mlir.diagnostics import DeviceRules, Location, Unsupported, device_rules, report
from nki_mlir.dialects.access import Linear, Mask, Tile, active_elements, dense, full_tile, masked_box, values_of
from nki_mlir.dialects.nisa.indirect import DataAddressed, IndirectOutOfBounds
from nki_mlir.dialects.op import FRESH, Op, Results, TileField
from nki_mlir.dialects.scalar_body import ArrayScalars, Elementwise
from nki_mlir.dialects.target_rules import TargetRule
from nki_mlir.dialects.verifier import BeyondDimension, OutOfBounds
from nki_mlir.scalar.activation.entry import outside
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import TFLOAT32, DType, convert

Arrays = Sequence[np.ndarray]
Values = Sequence[int]
# starts and counts of a box, and the flags of its active elements
ActiveBox = tuple[list[int], list[int], np.ndarray]
Runner = Callable[[Arrays, Values], None]


class MaskTooWeak(BeyondDimension):
    message = "an index is {elements} outside {dimension}, and neither mask nor if excludes it"


def compile_op(op: Op) -> Runner:
    """Return ``run(arrays, symbol values)``, which executes the operation. The arrays are those of its operands'
    buffers, in the order of ``op.operands()``."""
    if op.mask or op.limits:
        return _masked(op)
    patterns = {f.name: (Pattern(t), k) for k, (f, t) in enumerate(op.operands())}
    compute = op.compute
    fetch = []
    for name, tile in op.sources():
        pattern, number = patterns[name]
        fetch.append((pattern.at, number, compute is not None and compute is not tile.dtype, tile.dtype))
    # For each target, the NumPy dtype of results that need no conversion: none for tfloat32, whose arrays are float32
    # as well, but with fewer bits.
    store = [(patterns[name][0].at, patterns[name][1], tile.dtype, None if tile.dtype is TFLOAT32 else tile.dtype.numpy)
             for name, tile in op.targets()]
    forms = op.index_forms()
    counts = op.iteration().extents if forms else ()
    reference: Callable[..., Results] = op.reference
    if type(op).reference is Elementwise.reference:         # dtypes are computed here, once
        reference = partial(op.body, ArrayScalars(compute))     # type: ignore[attr-defined]
    counted = np.int64 if compute is None else compute.numpy       # the dtype of the values of forms

    def run(arrays: Arrays, values: Values) -> None:
        sources = []
        for at, number, converts, dtype in fetch:
            view = at(arrays[number], values)
            sources.append(convert(view, compute, dtype) if converts else view)     # type: ignore[arg-type]
        for form in forms:
            sources.append(values_of(form, counts, values).astype(counted, copy=False))
        try:
            result = reference(*sources)
        except IndirectOutOfBounds as error:
            raise error.counted_from(op.table_start(values) if isinstance(op, DataAddressed) else 0) from None
        results = result if isinstance(result, tuple) else (result,)
        for (at, number, dtype, plain), value in zip(store, results):
            if value is None:
                continue
            if type(value) is not np.ndarray or value.dtype is not plain:
                value = convert(np.asarray(value), dtype, _result_dtype(value, compute))
            at(arrays[number], values)[...] = value
    return run


def _result_dtype(value: object, compute: DType | None) -> DType | None:
    """Return the dtype that describes a result: an array does not tell tfloat32 from float32."""
    return compute if compute is not None and compute.numpy == np.asarray(value).dtype else None


# -- patterns ----------------------------------------------------------------------------------------------------------
# Access patterns become NumPy views of their buffer's array, with bounds checked on every access.

Start = Callable[[Sequence[int]], int]


def compile_linear(form: Linear) -> Start:
    """Return the form's value as a function of the symbols' values. The function ignores the axes of the form."""
    const, symbols = form.const, form.symbols
    match symbols:
        case ():
            return lambda values: const
        case ((position, c),):
            return lambda values: const + c * values[position]
    return lambda values: const + sum(c * values[position] for position, c in symbols)


class Pattern:
    """A tile's access pattern, prepared for runs: all that is static is computed once, so that ``view`` only adds
    offsets."""

    def __init__(self, tile: Tile, dims: Sequence[tuple[int, int]] | None = None) -> None:
        self.tile = tile
        self.dtype, self.itemsize = tile.dtype.numpy, tile.dtype.itemsize
        self.row = tile.row
        self.dims = tuple(dims if dims is not None else tile.access.dims)
        self.on_chip = tile.on_chip
        self.partitions = tile.base_shape[0] if self.on_chip else 1
        free = self.dims[1:] if self.on_chip else self.dims
        self.low = sum(min(0, step * (count - 1)) for step, count in free)
        self.high = sum(max(0, step * (count - 1)) for step, count in free)
        self.lanes = (self.dims[0][1] - 1) * self.dims[0][0] if self.on_chip else 0
        self.shape = tuple(count for _, count in self.dims)
        steps = [step for step, _ in free]
        self.steps = tuple([self.dims[0][0] * self.row, *steps] if self.on_chip else steps)
        self.strides = tuple(s * tile.dtype.itemsize for s in self.steps)
        self.is_full_array = self.shape == tile.base_shape and self.steps == dense(self.shape)
        access = tile.access
        self.partition = compile_linear(access.partition) if access.partition is not None else lambda values: 0
        self.free = compile_linear(access.free)

    def view(self, array: np.ndarray, partition: int, free: int) -> np.ndarray:
        """Return the elements as a view of a buffer's array. Raise an error if a free offset crosses partitions, or an
        element is outside of the buffer."""
        if free + self.low < 0 or free + self.high >= self.row:
            self.outside("1 (free)" if self.on_chip else "0 (flat)", free + self.low, free + self.high, self.row)
        if partition < 0 or partition + self.lanes >= self.partitions:
            self.outside(0, partition, partition + self.lanes, self.partitions)
        offset = (partition * self.row + free) * self.itemsize
        if self.is_full_array and array.dtype is self.dtype and array.shape == self.shape and type(array) is np.ndarray:
            return array
        return np.ndarray(self.shape, self.dtype, array, offset, self.strides)

    def at(self, array: np.ndarray, values: Sequence[int]) -> np.ndarray:
        return self.view(array, self.partition(values), self.free(values))

    def outside(self, dim: int | str, low: int, high: int, extent: int) -> None:
        raise OutOfBounds(tensor=self.tile.label, dim=dim, low=low, high=high, extent=extent)

    def box(self, array: np.ndarray, values: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> np.ndarray:
        """Return the view of a box of the pattern: ``starts`` and ``counts`` per dim."""
        part = Pattern(self.tile, [(step, n) for (step, _), n in zip(self.dims, counts)])
        moved = [s * step for s, (step, _) in zip(starts, self.dims)]
        partition, free = self.partition(values), self.free(values)
        if self.on_chip:
            return part.view(array, partition + moved[0], free + sum(moved[1:]))
        return part.view(array, 0, free + sum(moved))

    def elements(self, array: np.ndarray, values: Sequence[int], positions: np.ndarray) -> np.ndarray:
        """Return the flat indices, in elements of the dtype, of positions ``[dims, n]``, after a check against the
        buffer."""
        start = self.partition(values) * self.row + self.free(values)
        flat = start + np.dot(self.steps, positions)
        size = array.nbytes // self.tile.dtype.itemsize
        if flat.size and (flat.min() < 0 or flat.max() >= size):
            self.outside("0 (flat)", int(flat.min()), int(flat.max()), size)
        return flat


def flat_view(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return all elements of a contiguous array in one dimension, read as ``dtype``."""
    return np.ndarray(array.nbytes // dtype.itemsize, dtype, array)


# -- masks -------------------------------------------------------------------------------------------------------------
def active_part(mask: Mask, extents: Sequence[int], values: Values
                ) -> tuple[list[int], list[int], np.ndarray | None] | None:
    """Return the box of active elements as starts and counts, and flags of its active elements (None: all are active).
    Return None if no element is active."""
    starts, counts, remaining_mask = masked_box(mask, extents, values)
    if 0 in counts:
        return None
    active = active_elements(remaining_mask, counts, values, starts) if remaining_mask else None
    return None if active is not None and not active.any() else (starts, counts, active)


Patterns = dict[str, tuple[Pattern, int]]       # by field name: an operand's pattern and number


def _masked(op: Op) -> Runner:
    iteration = op.iteration()
    patterns = {f.name: (Pattern(t), k) for k, (f, t) in enumerate(op.operands())}
    boxes: dict[tuple[object, ...], Runner] = {}

    def run(arrays: Arrays, values: Values) -> None:
        part = active_part(op.mask, iteration.extents, values)
        if part is None:
            return
        starts, counts, active = part
        check_limits(op.limits, values, starts, counts, active)
        if active is not None:
            positions = [values_of(f, counts, values, starts) for f in op.index_forms()]
            return _scattered(op, patterns, arrays, values, (starts, counts, active), positions)
        box = (*starts, *counts)
        if box not in boxes:
            boxes[box] = compile_op(verified_on_box(in_box(op, Box(tuple(starts), tuple(counts), ()))))
        boxes[box](arrays, values)
    return run


def check_limits(limits: Mask, values: Values, starts: Sequence[int], counts: Sequence[int],
                 active: np.ndarray | None) -> None:
    for constraint in limits:
        position = values_of(constraint.form, counts, values, starts)
        least = int((position if active is None else position[active]).min())
        if least < 0:
            raise MaskTooWeak(excess=-least)


def _scattered(op: Op, patterns: Patterns, arrays: Arrays, values: Values, box: ActiveBox,
               positions: list[np.ndarray]) -> None:
    """Execute an operation whose active elements form no box: gather them one by one, and compute no addresses of
    others."""
    if op.rows_apart:
        return _by_rows(op, patterns, arrays, values, box)
    if not op.is_loop_nest:
        raise Unsupported(feature=f"a mask that does not select a box of elements on '{op.full_name()}'",
                          instead="mask the operands when they are loaded, or split the operation")
    starts, counts, active = box
    reduced = op.iteration().reduced
    if not reduced:
        coordinates = np.argwhere(active).T + np.array(starts)[:, None]
        return _gathered(op, patterns, arrays, values, list(coordinates), [p[active] for p in positions])
    if _has_identity(op):
        return _filled(op, patterns, arrays, values, box)
    # Results whose active elements are the same along the reduced axes are computed at once.
    varying = sorted({axis for c in op.mask for axis, _ in c.form.axes} - reduced)
    for fixed in itertools.product(*(range(counts[axis]) for axis in varying)):
        at = dict(zip(varying, fixed))
        part = active[tuple(at.get(k, slice(None) if k in reduced else 0) for k in range(len(counts)))]
        if not part.any():
            continue
        along = dict(zip(sorted(reduced), np.argwhere(part).T))
        coordinates = [start + (along[axis] if axis in reduced else np.array([at[axis]]) if axis in at else
                                np.arange(count)) for axis, (start, count) in enumerate(zip(starts, counts))]
        _gathered(op, patterns, arrays, values, coordinates, [])
    return None


def _by_rows(op: Op, patterns: Patterns, arrays: Arrays, values: Values, box: ActiveBox) -> None:
    """Execute an operation whose rows have different active elements: once for each group of equal rows, on copies.
    First copy tiles that are only read, for all groups, because a group may write elements that another one reads."""
    starts, counts, active = box
    small = in_box(op, Box(tuple(starts), tuple(counts), ()))
    axes = small.iteration().axes
    groups = row_groups(small, active)
    copies: list[dict[str, np.ndarray]] = [{} for _ in groups]

    def flat_positions(group: RowGroup, name: str, tile: Tile) -> np.ndarray:
        positions = group.positions(axes[name], tile)
        return Pattern(tile).elements(arrays[patterns[name][1]], values, positions)

    def copied(group: RowGroup, name: str, tile: Tile) -> np.ndarray:
        array = flat_view(arrays[patterns[name][1]], tile.dtype.numpy)
        return array[flat_positions(group, name, tile)].reshape(group.shape(axes[name], tile))
    for is_written in (False, True):
        for group, of_group in zip(groups, copies):
            of_group |= {field.name: copied(group, field.name, tile) for field, tile in small.operands()
                         if field.writes == is_written}
            if is_written:
                on_rows = on_group(small, group, lambda name, tile, shape: replace(
                    full_tile(None, shape, tile.dtype, tile.space), label=tile.label))
                compile_op(on_rows)([of_group[field.name] for field, _ in small.operands()], values)
                for name, tile in small.targets():
                    array = flat_view(arrays[patterns[name][1]], tile.dtype.numpy)
                    array[flat_positions(group, name, tile)] = of_group[name].reshape(-1)


def _gathered(op: Op, patterns: Patterns, arrays: Arrays, values: Values, coordinates: list[np.ndarray],
              positions: list[np.ndarray]) -> None:
    """Return the operation on gathered elements, which coordinates of its axes select.

    Without a reduction, the active elements form one dimension. With one, each axis that is not reduced stays a
    dimension, and the active elements of the reduced axes form one dimension at the last of them.
    """
    iteration, compute = op.iteration(), op.compute
    reduced = iteration.reduced

    def elements(name: str) -> np.ndarray:
        """Return the flat indices of an operand's elements, in the operand's dims."""
        pattern, number = patterns[name]
        axes = iteration.axes[name]
        vectors = []
        for axis, extent in zip(axes, pattern.shape):
            vector = np.zeros(1, np.int64) if axis in reduced and extent == 1 else coordinates[axis]
            dim = axes.index(max(reduced) if axis in reduced else axis) if reduced else 0
            vectors.append(vector.reshape([-1 if d == dim else 1 for d in range(len(axes) if reduced else 1)]))
        spread = np.broadcast_arrays(*vectors)
        return pattern.elements(arrays[number], values, np.stack([c.ravel() for c in spread])).reshape(spread[0].shape)

    sources = []
    for name, tile in op.sources():
        value = flat_view(arrays[patterns[name][1]], tile.dtype.numpy)[elements(name)]
        sources.append(convert(value, compute, tile.dtype) if compute is not None else value)
    sources += [p.astype((compute or op.operands()[0][1].dtype).numpy) for p in positions]
    # Without a reduction, gathered elements lie in one dimension: the reference would transpose, but there is nothing
    # to transpose.
    by_body = not reduced and hasattr(op, "body")
    result = op.body(ArrayScalars(compute), *sources) if by_body else op.reference(*sources)    # type: ignore[attr-defined]
    for (name, tile), value in zip(op.targets(), result if isinstance(result, tuple) else (result,)):
        flat_view(arrays[patterns[name][1]], tile.dtype.numpy)[elements(name)] = convert(
            np.asarray(value), tile.dtype, _result_dtype(value, compute))


def _has_identity(op: Op) -> bool:
    """Return whether an operation is a plain reduction of one source, in which the identity can replace inactive
    elements."""
    fn = getattr(op, "op", None)
    return len(op.sources()) == 1 and fn in ALU and ALU[fn].start is not None


def _filled(op: Op, patterns: Patterns, arrays: Arrays, values: Values, box: ActiveBox) -> None:
    starts, counts, active = box
    iteration, compute = op.iteration(), op.compute
    (source, tile), = op.sources()
    pattern, number = patterns[source]
    flat = pattern.elements(arrays[number], values, np.argwhere(active).T + np.array(starts)[:, None])
    elements = flat_view(arrays[number], tile.dtype.numpy)[flat]
    elements = convert(elements, compute, tile.dtype) if compute is not None else elements
    filled = np.full(tuple(counts), ALU[op.op].identity(compute or tile.dtype), elements.dtype)     # type: ignore[attr-defined]
    filled[active] = elements
    value = op.reference(filled)
    (name, tile), = op.targets()
    pattern, number = patterns[name]
    target_dims = [(0, 1) if k in iteration.reduced else (s, n) for k, (s, n) in enumerate(zip(starts, counts))]
    target = pattern.box(arrays[number], values, [s for s, _ in target_dims], [n for _, n in target_dims])
    touched = active.any(axis=tuple(iteration.reduced), keepdims=True)
    np.copyto(target, convert(np.asarray(value), tile.dtype, _result_dtype(value, compute)), where=touched)


# -- domains -----------------------------------------------------------------------------------------------------------
# Executors that check report values outside of a function's documented domain, because results here are exact.

class OutsideDomain(TargetRule):
    code = "NKI-DOMAIN"
    message = "{fn} of {value:g}, which is outside of its domain, {sign}[{low:g}, {high:g}]"
    why = "the Scalar engine's table of {fn} gives wrong values there; here they are exact"
    fix = "bring the values into the domain first"


def within_domain(op: Op, act: Callable[[], None], at: Callable[[], Location | None]) -> None:
    """Run an operation by ``act``, and report arguments outside of a function's domain; ``at`` returns the location.

    Elements that a mask leaves out read as zeros, which the function does not report.
    """
    level = device_rules()
    if level is DeviceRules.OFF:
        act()
        return
    with outside(zeros=FRESH not in op.extra) as noted:
        act()
    for function, value in noted[:1]:
        low, high = function.valid_range
        report(OutsideDomain(fn=function.name, value=value, sign="+-" if function.by_magnitude else "", low=low,
                             high=high), level, at())


# -- operations that are equal but for where in their buffers tiles start ----------------------------------------------
def floating(op: Op) -> Op:
    """Return the operation with the starts of its tiles as symbols 0, 1, ... (see ``starts``), followed by its other
    symbols."""
    operands = op.operands()
    moved_by = 2 * len(operands)
    fields: dict[str, Any] = {name: shifted(value, moved_by) if isinstance(value, Linear) else value
                              for name, value in op.attribute_values().items()}
    fields |= {field.name: started(tile, 2 * k) for k, (field, tile) in enumerate(operands)}
    return type(op)(symbols=tuple(range(moved_by + len(op.symbols))), **fields)


def shifted(form: Linear, by: int) -> Linear:
    return replace(form, symbols=tuple((k + by, c) for k, c in form.symbols))


def started(tile: Tile, symbol: int) -> Tile:
    partition = None if tile.access.partition is None else Linear(0, ((symbol, 1),))
    return tile.patterned(partition=partition, free=Linear(0, ((symbol + 1, 1),)))


def starts(operands: Sequence[tuple[TileField, Tile]], values: Sequence[int] = ()) -> list[int]:
    """Return the values of a floating operation's symbols: partition and free offset of each tile, then ``values``."""
    offsets: list[int] = []
    for _, tile in operands:
        access = tile.access
        offsets.append(0 if access.partition is None else access.partition.at(values))
        offsets.append(access.free.at(values))
    return [*offsets, *values]
