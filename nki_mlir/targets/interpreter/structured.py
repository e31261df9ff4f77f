# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``linalg.generic`` as a few NumPy calls on whole arrays.

Operands become views of the iteration space (axes they do not use have extent 1), the body runs on them once, folds
are reduced with the ALU operation's own reduction, and a sum of products of two operands is a matrix product. What
cannot be had that way, a body that uses its output otherwise, goes step by step over the reduced axes. ``nki.mask`` and
``nki.limits`` are what they are for tile operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Mask, masked_box
from nki_mlir.dialects.attributes import MalformedAttribute, read_linear, read_mask
from nki_mlir.dialects.places import place_of
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.integer_sums import reduced
from nki_mlir.targets.interpreter.bodies import Body, Output
from nki_mlir.targets.interpreter.execute import check_limits, holds
from nki_mlir.targets.interpreter.steps import Env, Step, executes
from nki_mlir.targets.interpreter.views import Window

if TYPE_CHECKING:
    from nki_mlir.targets.interpreter.module import FunctionCompiler

Box = tuple[Sequence[int], Sequence[int]]           # starts and counts of the axes


@dataclass(frozen=True)
class Product:
    """A contraction: the places of the two factors, and the axes of left, right and sum."""

    left: int
    right: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """How outputs are computed; operations at ``skipped`` places are not needed for it."""

    outputs: tuple[Output, ...]
    skipped: frozenset[int] = frozenset()
    product: Product | None = None


class Generic:
    """One ``linalg.generic``, ready to run."""

    def __init__(self, code: "FunctionCompiler", op: Any) -> None:
        attributes, operands = op.attributes, list(op.operands)
        inputs = attributes["operandSegmentSizes"][0]
        maps = [a.value for a in attributes["indexing_maps"]]
        self.rank = maps[0].n_dims
        self.operands = [self._operand(code, v, m, k) for k, (v, m) in enumerate(zip(operands, maps))]
        self.inputs, self.targets = self.operands[:inputs], self.operands[inputs:]
        self.symbols = _trailing_indices(operands[:inputs])
        self.extents = self._extents(op, maps)
        self.mask: Mask = read_mask(attributes["nki.mask"]) if "nki.mask" in attributes else ()
        self.limits: Mask = read_mask(attributes["nki.limits"]) if "nki.limits" in attributes else ()
        self.body = Body(op.regions[0].blocks[0], inputs, self.rank)
        self.missing = [tuple(a for a in range(self.rank) if a not in w.axes) for w in self.targets]
        self.stepped = sorted({a for axes in self.missing for a in axes})
        self.plain = Plan(tuple(self.body.assigned(k) for k in range(len(self.targets))))
        self.plan = self._plan()
        # A view keeps an axis along which it only repeats where its layout may decide the order of a sum.
        self.axes = [[a if a in w.axes and (w.steps[a] or self.stepped) else -1 for a in range(self.rank)]
                     if isinstance(w, Window) else [] for w in self.operands]
        self.origin = (0,) * self.rank

    # -- compiling -----------------------------------------------------------------------------------------------------
    def _operand(self, code: "FunctionCompiler", value: Any, mapping: Any, number: int) -> Any:
        """A window, or the slot of a scalar."""
        slot = code.slot(value)
        if not isinstance(value.type, ir.MemRefType):
            return slot
        try:
            forms = [read_linear(e) for e in mapping.results]
        except MalformedAttribute:
            raise Unsupported(feature=f"the indexing map {mapping}", instead="use linear subscripts") from None
        return Window(value.type, slot, f"operand {number} of linalg.generic", [dict(f.axes) for f in forms],
                      [f.const for f in forms], self.rank)

    def _extents(self, op: Any, maps: list[Any]) -> tuple[int, ...]:
        """The loops' extents, from the dims that are subscripted by one axis alone."""
        extents: dict[int, int] = {}
        for window, mapping in zip(self.operands, maps):
            for k, e in enumerate(mapping.results):
                if isinstance(e, ir.AffineDimExpr):
                    extents.setdefault(e.position, window.sizes[k])
        if len(extents) != self.rank:
            raise Unsupported(feature="a loop of linalg.generic whose extent no operand gives",
                              instead="subscript some operand by each loop").located(place_of(op))
        return tuple(extents[axis] for axis in range(self.rank))

    def _plan(self) -> Plan | None:
        """All outputs at once; None where an output is read in a way that needs one step after the other."""
        outputs = []
        for k, missing in enumerate(self.missing):
            output = self.body.folded(k) if missing else None
            output = output or self.body.assigned(k)
            if missing and output.reads:
                return None
            outputs.append(output)
        skipped = {self.body.yielded[k] for k, output in enumerate(outputs) if output.fold}
        product = self._product(outputs[0]) if len(outputs) == 1 else None
        return Plan(tuple(outputs), frozenset(skipped | ({outputs[0].place} if product else set())), product)

    def _product(self, output: Output) -> Product | None:
        arguments = self.body.product(output.place) if output.fold == "add" else None
        if arguments is None or self.body.uses[output.place] != 1:
            return None
        windows = [self.operands[a] for a in arguments]
        if not all(isinstance(w, Window) for w in windows):
            return None
        summed = set(self.missing[0])
        rows, columns = (w.axes - summed for w in windows)
        if rows & columns or rows | columns != self.targets[0].axes or any(not summed <= w.axes for w in windows):
            return None
        left, right = self.body.factors(output.place)
        if rows and columns and min(columns) < min(rows):
            left, right, rows, columns = right, left, columns, rows
        return Product(left, right, *(tuple(sorted(axes)) for axes in (rows, columns, summed)))

    # -- running -------------------------------------------------------------------------------------------------------
    def __call__(self, env: Env) -> None:
        starts: Sequence[int] = self.origin
        counts: Sequence[int] = self.extents
        active = None
        if self.mask or self.limits:
            values = [env[slot] for slot in self.inputs[len(self.inputs) - self.symbols:]]
            starts, counts, rest = masked_box(self.mask, self.extents, values)
            if 0 in counts:
                return
            active = holds(rest, values, starts, counts) if rest else None
            if active is not None and not active.any():
                return
            check_limits(self.limits, values, starts, counts, active)
        if self.plan is None or (active is not None and self.plan.product):
            self._step_by_step(env, starts, counts, active)
        elif active is not None:
            self._scattered(env, (starts, counts), active, self.plan)
        else:
            self._dense(env, (starts, counts), self.plan)

    def _dense(self, env: Env, box: Box, plan: Plan) -> None:
        starts, counts = box
        views = [w.view(env, starts, counts, axes) if isinstance(w, Window) else env[w]
                 for w, axes in zip(self.operands, self.axes)]
        indices: list[Any] = [None] * self.rank
        for axis in self.body.indices:
            along = np.arange(starts[axis], starts[axis] + counts[axis])
            indices[axis] = along.reshape([-1 if a == axis else 1 for a in range(self.rank)])
        values = self.body.run(views, indices, plan.skipped)
        results = []
        for k, output in enumerate(plan.outputs):
            if plan.product:
                results.append(_multiply(values, plan.product, counts))
            elif output.fold:
                results.append(reduced(output.fold, np.broadcast_to(values[output.place], counts), self.missing[k],
                                       output.of_integers))
            else:
                value = values[output.place]
                results.append(value.copy() if len(plan.outputs) > 1 and isinstance(value, np.ndarray) else value)
        for k, (output, value) in enumerate(zip(plan.outputs, results)):
            target = views[len(self.inputs) + k]
            if output.fold:
                total = target.reshape(value.shape) if not self.missing[k] else np.squeeze(target, self.missing[k])
                total[...] = ALU[output.fold].numpy(total, value)
            else:
                target[...] = self._last(value, k)

    def _last(self, value: Any, k: int) -> Any:
        """Of values that are assigned to one element, the last."""
        if not self.missing[k] or np.ndim(value) == 0:
            return value
        return value[tuple(slice(-1, None) if a in self.missing[k] else slice(None) for a in range(self.rank))]

    def _scattered(self, env: Env, box: Box, active: np.ndarray, plan: Plan) -> None:
        """The active elements are no box: they are gathered one by one, no other address is formed."""
        positions = np.argwhere(active).T + np.array(box[0])[:, None]
        places = [w.elements(env, positions) if isinstance(w, Window) else None for w in self.operands]
        read = [env[w] if at is None else at[0][at[1]] for w, at in zip(self.operands, places)]
        values = self.body.run(read, list(positions), plan.skipped)
        for k, output in enumerate(plan.outputs):
            value = values[output.place]
            if output.fold:
                self._fold_scattered(env, box, active, k, output, value)
            else:
                buffer, at = places[len(self.inputs) + k]                       # type: ignore[misc]
                buffer[at] = value

    def _fold_scattered(self, env: Env, box: Box, active: np.ndarray, k: int, output: Output, value: Any) -> None:
        """Inactive elements count as the operation's identity; totals with no active element stay."""
        entry, missing = ALU[output.fold or ""], self.missing[k]
        filled = np.full(tuple(box[1]), output.identity)
        filled[active] = value
        touched = active.any(axis=missing)
        kept = [a for a in range(self.rank) if a not in missing]
        positions = np.zeros((self.rank, int(touched.sum())), np.int64)
        positions[kept] = np.argwhere(touched).T + np.array(box[0])[kept][:, None]
        buffer, at = self.targets[k].elements(env, positions)
        buffer[at] = entry.numpy(buffer[at], reduced(output.fold or "", filled, missing, output.of_integers)[touched])

    def _step_by_step(self, env: Env, starts: Sequence[int], counts: Sequence[int], active: np.ndarray | None) -> None:
        """One after the other over the axes that some output does not have, at once over the rest."""
        for point in np.ndindex(*(counts[a] for a in self.stepped)):
            own_starts, own_counts = list(starts), list(counts)
            part: list[Any] = [slice(None)] * self.rank
            for axis, p in zip(self.stepped, point):
                own_starts[axis] += p
                own_counts[axis] = 1
                part[axis] = slice(p, p + 1)
            if active is None:
                self._dense(env, (own_starts, own_counts), self.plain)
            elif active[tuple(part)].any():
                self._scattered(env, (own_starts, own_counts), active[tuple(part)], self.plain)


@np.errstate(all="ignore")
def _multiply(values: list[Any], product: Product, counts: Sequence[int]) -> np.ndarray:
    """The sum of products as one matrix product, with the axes that remain in their order."""
    sides = []
    for place, own in ((product.left, product.rows), (product.right, product.columns)):
        array = values[place]
        others = [a for a in range(array.ndim) if a not in product.summed and a not in own]
        size = int(np.prod([counts[a] for a in product.summed], dtype=np.int64))
        sides.append(array.transpose([*product.summed, *own, *others]).reshape(size, -1))
    kept = [*product.rows, *product.columns]
    result = (sides[0].T @ sides[1]).reshape([counts[a] for a in kept])
    return result.transpose(np.argsort(kept)) if kept != sorted(kept) else result


def _trailing_indices(inputs: list[Any]) -> int:
    """How many of the last inputs are index values."""
    count = 0
    while count < len(inputs) and isinstance(inputs[-1 - count].type, ir.IndexType):
        count += 1
    return count


@executes("linalg.generic")
def _generic(code: "FunctionCompiler", op: Any) -> Step:
    return code.located(op, Generic(code, op))
