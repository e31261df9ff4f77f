# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise operations, copies and folds as loops over vectors.

Values that do not change in the inner loops are loaded and computed before them: every operation reads its sources
before it writes, so an earlier load sees the same value. Under a mask the code loads nothing before it has computed the
mask.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from nki_mlir.bindings import ir
from nki_mlir.scalar.conversion_expansion import shortened_nan
from nki_mlir.scalar.dtypes import BFLOAT16
from nki_mlir.targets.cpu.body import NestEvaluator, Point
from nki_mlir.targets.cpu.delayed_stores import DelayedStores, delayed_outputs
from nki_mlir.targets.cpu.extrema import Unrepaired, folded_extrema, unrepaired
from nki_mlir.targets.cpu.lanes import FITTED, FunctionEmitter, Value
from nki_mlir.targets.cpu.roundings import keeping_nans, last_roundings, shortened_inputs, stored_roundings
from nki_mlir.targets.cpu.schedule import LIGHT, ORDERLESS, UNROLLED, Schedule, transposed_operands, weight_of
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.recognize import Fold, integer_sums

if TYPE_CHECKING:
    from nki_mlir.targets.cpu.narrow_extrema import NarrowExtremum

LONGEST_PREFETCH = 4 * host.LINE             # most bytes that one prefetch covers
BLOCKS_AHEAD = 2                       # blocks by which prefetches of transposed blocks are ahead of the loop

Carried = list[Value]


@dataclass(frozen=True)
class MemoryUse:
    """The facts about the memory of a nest's operands.

    Each entry names an operand by its number. ``streams``: outputs that streaming stores write. ``ahead``: inputs that
    a loop prefetches, each with the distance in bytes. ``fields``: inputs that are loaded together, each as (input,
    other input of the same layout, elements by which the former begins later).
    """

    streams: tuple[int, ...] = ()
    ahead: tuple[tuple[int, int], ...] = ()
    fields: tuple[tuple[int, int, int], ...] = ()


class Loops:
    """Emits one nest at the current insertion point, with one loop for each axis.

    If ``forms`` has ``words``, bfloat16 along the vector axis are loaded as pairs: in each 32 lanes, even elements
    precede odd ones.
    """

    def __init__(self, code: FunctionEmitter, nest: Nest, plan: Schedule, symbols: Sequence[Value],
                 use: MemoryUse = MemoryUse(), forms: Sequence[str] = ()) -> None:
        self.code, self.nest, self.plan, self.streams = code, nest, plan, use.streams
        self.words = "words" in forms
        self.ahead: dict[int, int | Value] = dict(use.ahead)
        self.fields = {k: (base, offset) for k, base, offset in use.fields}
        # extrema that are repaired after their fold
        self.extrema = folded_extrema(nest, plan.carried) if "extrema" in forms else {}
        without_repair = unrepaired(nest) if "extrema" in forms else Unrepaired()
        self.body = NestEvaluator(code, nest, symbols, plan.vector, keeping_nans(nest) if "nans" in forms else (),
                                  without_repair.or_zeros(self.extrema.values()),
                                  stored_roundings(nest, plan) if self.words and not host.multiplies_pairs() else ())
        self.shortened = shortened_inputs(nest) if "nans" in forms else frozenset()
        self.split = sum(a not in nest.reduced for a in plan.order)         # loops outside of the folds
        # sums that are kept in float64
        self.sums = {k: v for k, v in integer_sums(nest).items() if k in plan.carried}
        self.narrow: dict[int, NarrowExtremum] = {}
        if "compares" in forms:
            from nki_mlir.targets.cpu.narrow_extrema import narrow_extrema  # start-up: few kernels have one
            self.narrow = narrow_extrema(nest, plan)
        self.tables = {step.operands[1]: step.name.startswith(FITTED) for step in nest.steps if step.kind == "lookup"}
        # Rounding to bfloat16 has a branch: values that are loaded before the branch would be converted after it, from
        # registers.
        self.loads_late = any(o.dtype is BFLOAT16 for o in nest.outputs)
        # vectors of a partial result
        self.slots = [self.narrow[fold.output].slots if fold.output in self.narrow else 1 for fold in plan.folds]
        self.rounds = "rounds" in forms
        self.blocked = transposed_operands(nest, plan)
        delayed = delayed_outputs(nest, plan) if "delays" in forms else ()
        self.delayed = DelayedStores(code, self.body, delayed, self.put)
        self.block_results = dict[int, list[Value]]()   # the results of a block by output, one vector a position

    def emit(self, pointers: Sequence[Value]) -> None:
        self.level(0, Point(tuple(pointers), {}), [])

    def level(self, depth: int, point: Point, carried: Carried) -> Carried:
        """Emit the loops from ``depth`` on."""
        if not self.nest.mask:
            point = self.load(depth, point)
        if depth == self.split and self.plan.carried and not carried:
            self.folded(depth, point)
            return []
        return self.descend(depth, point, carried)

    def descend(self, depth: int, point: Point, carried: Carried) -> Carried:
        if depth == len(self.plan.order):
            return self.innermost(point, carried)
        if self.plan.order[depth] == self.plan.vector:
            return self.vector_loop(depth, point, carried)
        return self.scalar_loop(depth, point, carried)

    # -- loops ---------------------------------------------------------------------------------------------------------
    def scalar_loop(self, depth: int, point: Point, carried: Carried) -> Carried:
        axis = self.plan.order[depth]
        extent = self.nest.extents[axis]
        inner = self.plan.order[depth:]
        if self.plan.vector not in inner and len(inner) <= 2 and extent <= UNROLLED and weight_of(self.nest) <= LIGHT:
            for k in range(extent):
                carried = self.level(depth + 1, self.moved(point, axis, k), carried)
            return carried
        end = 0
        if len(inner) == 1 and point.lanes > 1 and point.active is None and self.blocked:
            end = extent // point.lanes * point.lanes
            carried = self.code.loop(range(0, end, point.lanes), carried,
                                     lambda i, c: self.block(self.moved(point, axis, i), c))
        if end == extent:
            return carried
        return self.code.loop(range(end, extent), carried,
                              lambda i, c: self.level(depth + 1, self.moved(point, axis, i), c))

    # -- blocks --------------------------------------------------------------------------------------------------------
    def block(self, point: Point, carried: Carried) -> Carried:
        """Emit one position of the innermost axis for each lane, from the point's position on.

        Registers transpose the operands that are contiguous along that axis: loads and stores then take whole vectors.
        """
        axis, lanes, inputs = self.plan.order[-1], point.lanes, len(self.nest.inputs)
        transposed = {k: self.code.transposed([self.fetch_along(k, point, lane) for lane in range(lanes)])
                  for k in self.blocked if k < inputs and k not in point.values}
        self.block_results = {k - inputs: [] for k in self.blocked if k >= inputs}
        start = point.positions[axis]
        for n in range(lanes):
            row_point = self.moved(point, axis, n)
            positions = {**point.positions, axis: self.code.linear(n, [(start, 1)])}
            row_values = {k: rows[n] for k, rows in transposed.items()}
            row_point = replace(row_point, positions=positions).with_values(row_values)
            carried = self.level(len(self.plan.order), row_point, carried)
        pending, self.block_results = self.block_results, {}
        for output, values in pending.items():
            operand = self.nest.operands[inputs + output]
            for lane, value in enumerate(self.code.transposed(values)):
                self.code.put(value, self.lane_address(inputs + output, point, lane), 1, operand.dtype, lanes, None)
        return carried

    def lane_address(self, operand: int, point: Point, lane: int) -> Value:
        """Return the address of an operand's element in a lane."""
        tile = self.nest.operands[operand]
        step = tile.strides[self.plan.vector]                                              # type: ignore[index]
        return self.code.at(point.pointers[operand], lane * step, self.code.element(tile.dtype))

    def fetch_along(self, operand: int, point: Point, lane: int) -> Value:
        """Load the elements of a lane at the positions of a block.

        Where rows lie on separate pages, the processor cannot predict the next row, so this prefetches the rows of
        a later block.
        """
        tile, address = self.nest.operands[operand], self.lane_address(operand, point, lane)
        size = tile.dtype.itemsize
        if abs(tile.strides[self.plan.vector]) * size >= host.PAGE:                        # type: ignore[index]
            self.code.prefetch(address, BLOCKS_AHEAD * point.lanes * size, into_first=True)
        return self.code.fetch(address, 1, tile.dtype, point.lanes, None)

    def vector_loop(self, depth: int, point: Point, carried: Carried) -> Carried:
        axis, lanes, unroll = self.plan.order[depth], self.plan.lanes, self.plan.unroll
        extent = self.nest.extents[axis]
        point = replace(point, lanes=lanes)

        def vectors(start: Value | int, carried: Carried, count: int) -> Carried:
            """Emit ``count`` vectors from a position on, each with its own partial results."""
            after, slots_per_vector = list(carried), sum(self.slots)
            for k in range(count):
                slots = slice(k * slots_per_vector, (k + 1) * slots_per_vector) if slots_per_vector else slice(None)
                position = start + k * lanes if isinstance(start, int) else self.code.linear(k * lanes, [(start, 1)])
                after[slots] = self.level(depth + 1, self.moved(point, axis, position), after[slots])
            return after
        begin = 0
        for count in (unroll, 1) if unroll > 1 else (1,):
            width = count * lanes
            end = begin + (extent - begin) // width * width
            if end - begin == width:
                carried = vectors(begin, carried, count)
            elif end > begin:
                carried = self.repeated(point, axis, range(begin, end, width), carried, partial(vectors, count=count))
            begin = end
        if begin < extent:
            tail_point = replace(point, active=self.code.first_lanes(lanes, extent - begin) if lanes > 1 else None)
            slots = sum(self.slots) or len(carried)
            results = self.level(depth + 1, self.moved(tail_point, axis, begin), carried[:slots])
            carried = [*results, *carried[slots:]]
        return carried

    def repeated(self, point: Point, axis: int, span: range, carried: Carried,
                 vectors: Callable[[Value | int, Carried], Carried]) -> Carried:
        """Emit a loop over the vectors of an axis; each iteration computes several of them."""
        if not self.delayed.outputs:
            return self.code.loop(span, carried, vectors)

        def points(start: Value | int) -> list[Point]:
            offsets = range(0, span.step, point.lanes)
            return [self.moved(point, axis, start + k if isinstance(start, int) else self.code.linear(k, [(start, 1)]))
                    for k in offsets]
        return self.delayed.loop(span, carried, vectors, points)

    def moved(self, point: Point, axis: int, position: Value | int) -> Point:
        """Return the point at a position of an axis."""
        pointers = self.code.moved(self.nest.operands, point.pointers, axis, position)
        return replace(point, pointers=tuple(pointers), positions={**point.positions, axis: position})

    # -- values --------------------------------------------------------------------------------------------------------
    def step_of(self, operand: int, point: Point) -> int:
        """Return the elements from one lane to the next."""
        return self.nest.operands[operand].strides[self.plan.vector] if point.lanes > 1 else 0   # type: ignore[index]

    def fetch(self, operand: int, point: Point) -> Value:
        dtype = self.nest.operands[operand].dtype
        self.prefetch_ahead(operand, point)
        if self.is_divided(operand, point) and all(operand != e.operand for e in self.narrow.values()):
            return self.code.even_and_odd(point.pointers[operand], point.lanes)
        value = self.code.fetch(point.pointers[operand], self.step_of(operand, point), dtype, point.lanes, point.active)
        return shortened_nan(self.code, value) if operand in self.shortened else value

    def is_divided(self, operand: int, point: Point) -> bool:
        """Return whether the lanes of an operand have first the even elements, then the odd ones."""
        return self.words and point.lanes > 1 and point.active is None and self.step_of(operand, point) == 1

    def prefetch_ahead(self, operand: int, point: Point) -> None:
        """Prefetch the lines of a vector in another chunk, or in one of the next rows."""
        if operand in self.ahead and point.lanes > 1:
            reach = self.step_of(operand, point) * point.lanes * self.nest.operands[operand].dtype.itemsize
            ahead = self.ahead[operand]
            for line in range(0, min(max(reach, 1), LONGEST_PREFETCH), host.LINE):
                distance = ahead + line if isinstance(ahead, int) else self.code.linear(line, [(ahead, 1)])
                self.code.prefetch(point.pointers[operand], distance, into_first=not isinstance(ahead, int))

    def put(self, value: Value, output: int, point: Point) -> None:
        operand = len(self.nest.inputs) + output
        if output in self.block_results:
            self.block_results[output].append(self.code.spread(value, point.lanes))
            return
        if self.is_divided(operand, point):
            self.code.put_even_and_odd(self.code.spread(value, point.lanes), point.pointers[operand], point.lanes,
                                       output in self.streams)
            return
        self.code.put(self.code.spread(value, point.lanes), point.pointers[operand], self.step_of(operand, point),
                      self.nest.outputs[output].dtype, point.lanes, point.active, output in self.streams)

    def load(self, depth: int, point: Point) -> Point:
        """Load the inputs that do not change in the remaining loops, and compute the values that depend on these
        alone."""
        inner_axes = self.plan.order[depth:]
        point = point.with_values({k: (point.pointers[k], self.code.polynomials(point.pointers[k])) if is_fitted else
                                   point.pointers[k] for k, is_fitted in self.tables.items() if k not in point.values})
        missing = [k for k, o in enumerate(self.nest.inputs)
                  if k not in point.values and not any(o.strides[a] for a in inner_axes)]
        together = self.fetched_together(missing, point) if point.lanes > 1 and point.active is None else {}
        computes_later = not inner_axes and self.rounds_untested(point)
        for k in missing:
            if k not in together:
                late = self.loads_late and not computes_later
                point = self.body.advance(point, self.delayed.left_out) if late else point
                point = point.with_values({k: self.fetch(k, point)})
        point = point.with_values(together)
        return point if computes_later else self.body.advance(point, self.delayed.left_out)

    def rounds_untested(self, point: Point) -> bool:
        """Return whether all registers of a body are rounded before one test for denormals."""
        return self.rounds and point.lanes % (2 * host.lanes()) == 0 and point.active is None

    def advanced(self, point: Point) -> Point:
        """Compute the rest of a body, then round the stored values. If the body reads rounded values again, code tests
        for denormals after the body, and computes the body once more if it finds one."""
        if not self.rounds_untested(point):
            return self.body.advance(point, self.delayed.left_out)
        last = last_roundings(self.nest, BFLOAT16)
        self.code.untested = rounded = list[tuple[list[Value], Value]]()
        usual = self.body.advance(point, last)
        self.code.untested = None
        if rounded:
            read_later = [value for value in self.read_behind_body(last) if value not in point.values]

            def exact() -> list[Value]:
                exact_point = self.body.advance(point, last)
                return [exact_point.values[value] for value in read_later]
            values = self.code.unless_denormal(rounded, [usual.values[value] for value in read_later], exact)
            usual = point.with_values(dict(zip(read_later, values)))
        return usual.with_values({value: self.body.step(step, usual.values, usual)
                                  for value, step in last.items() if value not in self.delayed.left_out})

    def read_behind_body(self, last: Mapping[int, Step]) -> list[int]:
        """List the values that the loop stores or folds after the body. For a rounding in ``last``, the list has its
        operand instead."""
        nest, plan = self.nest, self.plan
        stored = [nest.results[k] for k in range(len(nest.outputs)) if k not in plan.carried]
        folded = [fold.value for fold in plan.folds if fold.output not in self.narrow] if plan.folds else [
            self.sums.get(k, nest.results[k]) for k in plan.carried]
        return [*dict.fromkeys([last[value].operands[0] if value in last else value
                                for value in (*stored, *folded)])]

    def fetched_together(self, wanted_inputs: Sequence[int], point: Point) -> dict[int, Value]:
        """Load inputs that alternate in memory, with the same vector loads for all of them."""
        loaded: dict[int, Value] = {}
        for base_input in dict.fromkeys(base for k in wanted_inputs if k in self.fields
                                        for base, _ in (self.fields[k],)):
            tile = self.nest.operands[base_input]
            self.prefetch_ahead(base_input, point)
            fields = self.code.fields(point.pointers[base_input], self.step_of(base_input, point), tile.dtype,
                                      point.lanes,
                                      1 + max(offset for base, offset in self.fields.values() if base == base_input))
            loaded |= {k: fields[offset] for k, (base, offset) in self.fields.items() if base == base_input
                       and k in wanted_inputs}
        return loaded

    # -- one element, or one vector ------------------------------------------------------------------------------------
    def innermost(self, point: Point, carried: Carried) -> Carried:
        if not self.nest.mask:
            return self.compute(point, carried)
        active = self.body.holds(self.nest.mask, point)
        any_active = active
        if point.lanes > 1:
            vector = self.code.vector
            any_active = vector.reduction(ir.IntegerType.get_signless(1), vector.CombiningKind.OR, active)
        branch = self.code.scf.IfOp(any_active, [v.type for v in carried], has_else=bool(carried))
        with ir.InsertionPoint(branch.then_block):
            after = self.compute(self.load(len(self.plan.order), replace(point, active=active)), carried)
            self.code.scf.YieldOp(after)
        if carried:
            with ir.InsertionPoint(branch.else_block):
                self.code.scf.YieldOp(carried)
        return list(branch.results)

    def compute(self, point: Point, carried: Carried) -> Carried:
        """Store the outputs that are not carried. Return the new values of the carried outputs."""
        nest, plan = self.nest, self.plan
        old = {}
        for k in range(len(nest.outputs)):
            number = nest.first_output + k
            if k not in plan.carried and nest.uses(number):
                old[number] = self.fetch(len(nest.inputs) + k, point)
        if not plan.folds:
            old |= {nest.first_output + k: value for k, value in zip(plan.carried, carried) if k not in self.sums}
        point = self.advanced(point.with_values(old))
        for k, result in enumerate(nest.results):
            if k not in plan.carried and not self.delayed.carry(k, point):
                self.put(point.values[result], k, point)
        if not plan.folds:
            return [self.added(old, point.values[self.sums[k]], point) if k in self.sums else
                    self.code.spread(point.values[nest.results[k]], point.lanes)
                    for k, old in zip(plan.carried, carried)]
        return [value for fold, partial in zip(plan.folds, self.partials(carried))
                for value in self.collect(fold, partial, point)]

    # -- folds ---------------------------------------------------------------------------------------------------------
    def folded(self, depth: int, point: Point) -> None:
        """Emit the reduced loops. Registers start from the values of the carried outputs, which are stored at the
        end."""
        plan, first_output = self.plan, len(self.nest.inputs)
        if not plan.folds:
            start = [self.zero(point.lanes) if k in self.sums else
                     self.code.spread(self.fetch(first_output + k, point), point.lanes) for k in plan.carried]
            for k, value in zip(plan.carried, self.descend(depth, point, start)):
                rounded = self.rounded(value, self.fetch(first_output + k, point)) if k in self.sums else value
                self.put(self.code.add(rounded, 0.0) if k in self.extrema else rounded, k, point)
            return
        start = [value for fold in plan.folds for value in self.start(fold)]
        parts = self.descend(depth, point, start * plan.unroll)
        slots_per_vector = sum(self.slots)
        partials = [self.partials(parts[k:k + slots_per_vector]) for k in range(0, len(parts), slots_per_vector)]
        for fold, *partials_of_fold in zip(plan.folds, *partials):
            total = self.reduce_lanes(fold, self.tree(fold, self.registers(fold, partials_of_fold)))
            old = self.fetch(first_output + fold.output, point)
            if fold.output in self.sums:
                self.put(self.rounded(total, old), fold.output, point)
                continue
            inputs = {v: total if v == fold.value else old for v in fold.step.operands}
            self.put(self.body.step(fold.step, inputs, point), fold.output, point)

    def start(self, fold: Fold) -> list[Value]:
        """Return the vectors from which a partial result starts."""
        code, lanes = self.code, self.plan.lanes
        if fold.output in self.narrow:
            return self.narrow[fold.output].start(code, lanes)
        if fold.output in self.sums:
            return [self.zero(lanes)]
        kind = code.shaped(code.element(self.nest.outputs[fold.output].dtype), lanes)
        return [code.constant(kind, fold.identity)]                                         # type: ignore[arg-type]

    def partials(self, carried: Carried) -> list[list[Value]]:
        """Divide the vectors that a loop carries among the folds."""
        values = iter(carried)
        return [[next(values) for _ in range(count)] for count in self.slots]

    def registers(self, fold: Fold, partials: Sequence[list[Value]]) -> list[Value]:
        """Return the partial results of a fold as vectors that fill a register each, in the order of the elements."""
        if fold.output in self.narrow:
            extremum, (total, *later_partials) = self.narrow[fold.output], partials
            for later_partial in later_partials:
                total = extremum.combine(self.code, total, later_partial)
            partials = [[extremum.result(self.code, total)]]
        parts = [part for partial in partials for value in partial for part in self.code.pieces(value, host.lanes())]
        return self.code.in_order(parts) if self.words and fold.fn not in ORDERLESS else parts

    def collect(self, fold: Fold, partial: list[Value], point: Point) -> list[Value]:
        """Fold one more vector into a partial result; lanes that do not count add nothing."""
        if fold.output in self.narrow:
            extremum = self.narrow[fold.output]
            return extremum.collect(self.code, partial, point.values[extremum.operand])
        total, = partial
        if fold.output in self.sums:
            return [self.added(total, point.values[fold.value], point)]
        value = self.code.spread(point.values[fold.value], point.lanes)
        if point.active is not None:
            assert fold.identity is not None
            value = self.code.select(point.active, value, self.code.const(value, fold.identity))
        return [self.combine(fold, total, value)]

    def combine(self, fold: Fold, a: Value, b: Value) -> Value:
        if fold.output in self.sums:
            return self.code.add(a, b)
        old = self.nest.first_output + fold.output
        return self.body.step(fold.step, {old: a, fold.value: b}, Point((), {}, {}, self.plan.lanes),
                              repairs_zeros=fold.output not in self.extrema)

    # -- sums of integers ----------------------------------------------------------------------------------------------
    def zero(self, lanes: int) -> Value:
        return self.code.constant(self.code.shaped(ir.F64Type.get(), lanes), 0.0)

    def added(self, total: Value, value: Value, point: Point) -> Value:
        """Add a value, or a vector of values, to a sum in float64; lanes that do not count add nothing."""
        wide = self.code.extf(self.code.spread(value, point.lanes), "f64")
        if point.active is not None:
            wide = self.code.select(point.active, wide, self.zero(point.lanes))
        return self.code.add(total, wide)

    def rounded(self, total: Value, old: Value) -> Value:
        """Add a sum to the value of an output, rounded once. A sum of 0 leaves the value unchanged."""
        code = self.code
        old = code.spread(old, self.lanes_of(total))
        return code.select(code.cmp("oeq", total, 0.0), old, code.add(old, code.truncf(total, "f32")))

    @staticmethod
    def lanes_of(value: Value) -> int:
        return value.type.shape[0] if isinstance(value.type, ir.VectorType) else 1

    def tree(self, fold: Fold, parts: Carried) -> Value:
        while len(parts) > 1:
            parts = [self.combine(fold, a, b) for a, b in zip(parts[::2], parts[1::2])] + parts[len(parts) & ~1:]
        return parts[0]

    def reduce_lanes(self, fold: Fold, value: Value) -> Value:
        """Fold the lanes of a vector into one scalar, by halves."""
        vector, lanes = self.code.vector, self.lanes_of(value)
        while lanes > 1:
            lanes //= 2
            low, high = (vector.ShuffleOp(value, value, range(k, k + lanes)).result for k in (0, lanes))
            value = self.combine(fold, low, high)
        return vector.ExtractOp(value, [], [0]).result if isinstance(value.type, ir.VectorType) else value


def stored_bytes(output: Operand, plan: Schedule) -> int:
    """Return the bytes of a vector, or of the part that one instruction stores."""
    return min(plan.lanes * output.dtype.itemsize, host.LINE)
