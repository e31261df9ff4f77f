# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a nest by a few NumPy calls on complete arrays.

Operands become views of the iteration space (axes that they do not use have extent 1). The body runs on them once, the
NumPy reduction of the ALU operation computes folds, and a sum of products of two operands is a matrix product. A body
that uses its output in another way runs step by step over the reduced axes. ``nki.mask`` and ``nki.limits`` have the
same meaning as for tile operations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.scalar.alu import ALU, reduced
from nki_mlir.scalar.sums import product as multiplied
from nki_mlir.targets.interpreter.execute import active_part, check_limits
from nki_mlir.targets.interpreter.scalars import function_of
from nki_mlir.targets.interpreter.windows import IterationWindow
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.nest import Step as NestStep
from nki_mlir.waist.nest_reader import Structured
from nki_mlir.waist.recognize import fold_of, of_integers, product_of

Box = tuple[Sequence[int], Sequence[int]]           # starts and counts of the axes


@dataclass(frozen=True)
class BodyContraction:
    """A contraction: the numbers of the two factors, and the axes of left, right and sum."""

    left: int
    right: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]


@dataclass(frozen=True)
class OutputPlan:
    """The computation of the outputs; it does not need the ``skipped`` values."""

    outputs: "tuple[BodyOutput, ...]"
    skipped: frozenset[int] = frozenset()
    product: BodyContraction | None = None


class Generic:
    """One nest, ready to run on any memory: operations of one structure share it."""

    def __init__(self, read: Structured, operands: int, name: str) -> None:
        """``operands`` is the number of operands, ``name`` the name in errors."""
        self.nest = nest = read.nest
        self.rank, self.limits = len(nest.extents), nest.limits
        self.inputs = len(nest.inputs)
        numbers = [*range(self.inputs), *range(operands - len(nest.outputs), operands)]
        self.windows: list[Any] = [
            IterationWindow(v.type, f"operand {number} of {name}", o.strides, start,
                            frozenset(axis for form in forms for axis, _ in form.axes))
            if isinstance(v.type, ir.MemRefType) else None
            for v, o, start, forms, number in zip(read.values, nest.operands, read.starts, read.subscripts, numbers)]
        self.targets = self.windows[self.inputs:]
        self.body = Body(nest)
        self.missing = [tuple(a for a in range(self.rank) if a not in w.axes) for w in self.targets]
        self.stepped = sorted({a for axes in self.missing for a in axes})
        self.plain = OutputPlan(tuple(self.body.assigned(k) for k in range(len(self.targets))))
        self.plan = self._plan()
        # If a view's layout may decide the order of a sum, the view keeps axes along which it only repeats elements.
        self.axes = [[a if a in w.axes and (w.steps[a] or self.stepped) else -1 for a in range(self.rank)]
                     if w is not None else [] for w in self.windows]
        self.origin = (0,) * self.rank

    def _plan(self) -> OutputPlan | None:
        """Return the computation of all outputs at once; None if the body uses an output so that steps must run one
        after the other."""
        outputs = []
        for k, missing in enumerate(self.missing):
            output = self.body.folded(k) if missing else None
            output = output or self.body.assigned(k)
            if missing and output.reads:
                return None
            outputs.append(output)
        skipped = {self.nest.results[k] for k, output in enumerate(outputs) if output.fold}
        product = self._product(outputs[0]) if len(outputs) == 1 else None
        return OutputPlan(tuple(outputs), frozenset(skipped | ({outputs[0].value} if product else set())), product)

    def _product(self, output: "BodyOutput") -> BodyContraction | None:
        product = product_of(self.nest)
        if output.fold != "add" or product is None or product.rounds:
            return None
        windows = [self.windows[k] for k in product.inputs]
        if windows[0] is None or windows[1] is None:
            return None
        summed, (left, right) = set(self.missing[0]), product.factors
        rows, columns = windows[0].axes - summed, windows[1].axes - summed
        if rows & columns or rows | columns != self.targets[0].axes or not all(summed <= w.axes for w in windows):
            return None
        return BodyContraction(left, right, *(tuple(sorted(axes)) for axes in (rows, columns, summed)))

    # -- running -------------------------------------------------------------------------------------------------------
    def run(self, operands: Sequence[tuple[np.ndarray, int]], symbols: Sequence[int]) -> None:
        """Run the nest on these memrefs and numbers."""
        starts: Sequence[int] = self.origin
        counts: Sequence[int] = self.nest.extents
        active = None
        if self.nest.mask or self.limits:
            part = active_part(self.nest.mask, counts, symbols)
            if part is None:
                return
            starts, counts, active = part
            check_limits(self.limits, symbols, starts, counts, active)
        if self.plan is None or (active is not None and self.plan.product):
            self._step_by_step(operands, symbols, (starts, counts), active)
        elif active is not None:
            self._scattered(operands, symbols, (starts, counts), active, self.plan)
        else:
            self._dense(operands, symbols, (starts, counts), self.plan)

    def _dense(self, operands: Sequence[Any], symbols: Sequence[int], box: Box, plan: OutputPlan) -> None:
        starts, counts = box
        views = [w.view(v, starts, counts, axes) if w is not None else v
                 for w, v, axes in zip(self.windows, operands, self.axes)]

        def position(axis: int) -> np.ndarray:
            along = np.arange(starts[axis], starts[axis] + counts[axis])
            return along.reshape([-1 if a == axis else 1 for a in range(self.rank)])
        targets = views[self.inputs:]
        values = self.body.run([*views[:self.inputs], *targets], position, symbols, plan.skipped)
        results = []
        for number, output in enumerate(plan.outputs):
            if plan.product:
                results.append(_multiply(values, plan.product, counts))
            elif output.fold:
                results.append(reduced(output.fold, np.broadcast_to(values[output.value], counts), self.missing[number],
                                       output.of_integers))
            else:
                value = values[output.value]
                results.append(value.copy() if len(plan.outputs) > 1 and isinstance(value, np.ndarray) else value)
        for number, (output, value, target) in enumerate(zip(plan.outputs, results, targets)):
            if output.fold:
                missing = self.missing[number]
                total = target.reshape(value.shape) if not missing else np.squeeze(target, missing)
                total[...] = ALU[output.fold].numpy(total, value)
            else:
                target[...] = self._last(value, number)

    def _last(self, value: Any, k: int) -> object:
        """Return the last of the values that the body assigns to each element of output ``k``."""
        if not self.missing[k] or np.ndim(value) == 0:
            return value
        return value[tuple(slice(-1, None) if a in self.missing[k] else slice(None) for a in range(self.rank))]

    def _scattered(self, operands: Sequence[object], symbols: Sequence[int], box: Box, active: np.ndarray,
                   plan: OutputPlan) -> None:
        """Run under a mask that does not select a box: gather the active elements one by one, and compute no addresses
        of others."""
        positions = np.argwhere(active).T + np.array(box[0])[:, None]
        elements = [w.elements(v, positions) if w is not None else None for w, v in zip(self.windows, operands)]
        read = [v if at is None else at[0][at[1]] for v, at in zip(operands, elements)]
        values = self.body.run(read, lambda axis: positions[axis], symbols, plan.skipped)
        for number, output in enumerate(plan.outputs):
            value = values[output.value]
            if output.fold:
                self._fold_scattered(operands[self.inputs + number], box, active, number, output, value)
            else:
                buffer, at = elements[self.inputs + number]                            # type: ignore[misc]
                buffer[at] = value

    def _fold_scattered(self, target: object, box: Box, active: np.ndarray, number: int, output: "BodyOutput",
                        value: np.generic | np.ndarray) -> None:
        """Fold under a mask: inactive elements count as the identity; totals without an active element stay."""
        entry, missing = ALU[output.fold or ""], self.missing[number]
        filled = np.full(tuple(box[1]), output.identity)
        filled[active] = value
        touched = active.any(axis=missing)
        remaining = [a for a in range(self.rank) if a not in missing]
        positions = np.zeros((self.rank, int(touched.sum())), np.int64)
        positions[remaining] = np.argwhere(touched).T + np.array(box[0])[remaining][:, None]
        buffer, at = self.targets[number].elements(target, positions)
        buffer[at] = entry.numpy(buffer[at], reduced(output.fold or "", filled, missing, output.of_integers)[touched])

    def _step_by_step(self, operands: Sequence[object], symbols: Sequence[int], box: Box, active: np.ndarray | None
                      ) -> None:
        """Run step by step over the axes that some output lacks, and at once over the other axes."""
        for point in np.ndindex(*(box[1][a] for a in self.stepped)):
            starts, counts = list(box[0]), list(box[1])
            part = [slice(None)] * self.rank
            for axis, p in zip(self.stepped, point):
                starts[axis] += p
                counts[axis] = 1
                part[axis] = slice(p, p + 1)
            if active is None:
                self._dense(operands, symbols, (starts, counts), self.plain)
            elif active[tuple(part)].any():
                self._scattered(operands, symbols, (starts, counts), active[tuple(part)], self.plain)


@np.errstate(all="ignore")
def _multiply(values: list[np.ndarray], product: BodyContraction, counts: Sequence[int]) -> np.ndarray:
    """Compute the sum of products as one matrix product, with the remaining axes in their order."""
    sides = []
    for value, parallel in ((product.left, product.rows), (product.right, product.columns)):
        array = values[value]
        remaining = [a for a in range(array.ndim) if a not in product.summed and a not in parallel]
        size = int(np.prod([counts[a] for a in product.summed], dtype=np.int64))
        sides.append(array.transpose([*product.summed, *parallel, *remaining]).reshape(size, -1))
    axes = [*product.rows, *product.columns]
    result = multiplied(*sides).reshape([counts[a] for a in axes])
    return result.transpose(np.argsort(axes)) if axes != sorted(axes) else result


# -- bodies ------------------------------------------------------------------------------------------------------------
# The body of a nest, compiled to functions of complete arrays. Each output is either assigned or a fold: ``alu(output,
# value)``, if nothing else reads the output. The value of a fold over reduced axes is computed for all elements at once
# and then reduced by the operation's NumPy reduction.

@dataclass
class BodyOutput:
    """One result: ``value`` is its number, or the number of the value that the ALU operation ``fold`` folds in."""

    value: int
    reads: bool                         # whether the output's value before is used, other than by the fold
    fold: str | None = None
    identity: Any = None
    of_integers: bool = False           # whether the folded value is computed only from integers


class Body:
    """The steps of a nest as functions."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.positions: list[tuple[int, NestStep]] = []      # values that are forms of positions
        self.program: list[tuple[int, Callable[..., object], tuple[int, ...]]] = []
        for value, step in enumerate(nest.steps, nest.first_step):
            if step.kind == "position":
                self.positions.append((value, step))
            else:
                function = function_of(step, [nest.dtype_of(v) for v in step.operands])
                self.program.append((value, function, step.operands))

    def run(self, initial: Sequence[Any], position: Callable[[int], Any], symbols: Sequence[int],
            skipped: frozenset[int] = frozenset()) -> list[Any]:
        """Compute all values from the values of inputs and outputs; ``position`` returns the positions along an axis.
        The ``skipped`` values are not computed.
        """
        values = [*initial, *[None] * len(self.nest.steps)]
        for value, step in self.positions:
            form = step.number
            total = form.at(symbols) + sum([c * position(axis) for axis, c in form.axes])
            values[value] = np.asarray(total).astype(step.dtype.numpy)
        for value, function, operands in self.program:
            if value not in skipped:
                values[value] = function(*[values[k] for k in operands])
        return values

    def assigned(self, k: int) -> BodyOutput:
        """Return output ``k`` as a value that may depend on its old value."""
        return BodyOutput(self.nest.results[k], self.nest.uses(self.nest.first_output + k) > 0)

    def folded(self, k: int) -> BodyOutput | None:
        """Return output ``k`` as a fold that has an identity, or None."""
        fold = fold_of(self.nest, k)
        if fold is None or fold.converts or fold.identity is None:
            return None
        identity = fold.dtype.numpy.type(fold.identity)
        return BodyOutput(fold.value, False, fold.fn, identity, of_integers(self.nest, fold.value))
