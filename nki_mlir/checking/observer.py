# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Observe each operation of an eager run: values that stop being finite or leave their range, and roundings.

The observer compares each result with that of the class's reference in float64 on the same operands.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from nki_mlir.capture.locations import user_location
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.checking.dead_stores import DeadStores
from nki_mlir.checking.element_order import moves_by_dma, overwritten_operand, repeated_element
from nki_mlir.checking.float64_shadow import Float64Shadow
from nki_mlir.checking.report import ERROR, WARNING, CheckFinding, StatementError
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import BOOL, DType
from nki_mlir.targets.interpreter.execute import Pattern

LARGEST = float(np.finfo(np.float32).max)
SHOWN = 4                       # most operands whose values a message states
ADDS = {"add", "subtract"}      # operations that accumulate
COPIES = {"copy", "load", "store", "tensor_copy", "dma_copy"}  # operations whose result has the values of their source


class OperationObserver:
    """Collect the findings of the operations of one run. The programs of a grid share one instance.

    ``adds_repeatedly``: a scatter that adds may add to one element several times.
    """

    def __init__(self, adds_repeatedly: bool) -> None:
        self.adds_repeatedly = adds_repeatedly
        self.findings: list[CheckFinding] = []
        self.rounding: dict[tuple[Location | None, str], float] = {}
        self.reported: set[tuple[str, Location | None]] = set()
        self.stores = DeadStores()
        self.shadow = Float64Shadow()
        self.narrow_sums: dict[tuple[Location | None, Buffer], int] = {}
        self.races: list[NkiMlirError] = []     # what the race check of the programs has reported

    def perform(self, op: Op, views: Sequence[View], run: Callable[[], None]) -> None:
        """Run an operation and check its results."""
        at = user_location()
        if op.mask or op.limits:                    # its tiles may have more elements than it touches
            self.perform_masked(op, run, at)
        else:
            before = {name: np.array(values(tile)) for name, tile in op.sources()}
            wide = {name: self.shadow.read(tile) if tile.dtype.is_float else before[name]
                    for name, tile in op.sources()}
            run()
            for _, tile in op.targets():
                if tile.dtype.is_float:
                    self.report_nonfinite(op, tile, before, at)
            self.compare(op, before, at)
            self.shadow.record(op, wide, before, (at, described(op)), partial(self.in_float64, op))
        self.check_order(op, views, at)
        self.stores.record(op, views, (at, described(op)))
        self.note_sum(op, views, at)

    def perform_masked(self, op: Op, run: Callable[[], None], at: Location | None) -> None:
        """Run a masked operation and check the elements of its targets that the mask selects."""
        arrays = {name: np.asarray(tile.handle) for name, tile in (*op.sources(), *op.targets()) if tile.dtype.is_float}
        before = {name: numbers(arrays[name]) for name, _ in op.targets() if name in arrays}
        sources = {name: numbers(arrays[name]) for name, _ in op.sources() if name in arrays}
        run()
        for name, old in before.items():
            result = numbers(arrays[name])
            if any(not np.isfinite(s).all() for s in sources.values()):
                continue
            if (is_new := ~np.isfinite(result) & np.isfinite(old)).any():
                self.tell_origin(op, result, is_new, sources, at)

    def broken_rule(self, error: NkiMlirError, at: Location | None, uncertain: bool) -> None:
        """Report a rule of the device that the kernel breaks."""
        self.findings.append(CheckFinding("device-rule", WARNING if uncertain else ERROR, error.headline,
                                          error.at or at, error.advice[1], error.code))

    def reshaping_copy(self, op: str, dst: Sequence[int], src: Sequence[int]) -> None:
        """Report a DMA between tensors of different shapes."""
        self.report("dma-shape", WARNING, f"{op} moves a tensor of shape {list(src)} into one of shape {list(dst)}: "
                    f"the copy pairs elements in row-major order", user_location(),
                    f"give both the same shape, for example with src.reshape({tuple(dst)}), if you want that order")

    def check_order(self, op: Op, views: Sequence[View], at: Location | None) -> None:
        """Report an instruction whose result depends on the order of its elements."""
        if (overwritten := overwritten_operand(op, views)) is not None:
            name, index = overwritten
            self.report("race", ERROR if moves_by_dma(op) else WARNING, f"{described(op)} reads {name}{list(index)} "
                        "for one element of its result, and overwrites it with another one", at,
                        "write to another tensor, or copy the operand first")
        adds = getattr(op, "rmw", "bypass") != "bypass"
        if not (adds and self.adds_repeatedly) and (repeated := repeated_element(op, views)) is not None:
            name, index = repeated
            verb = "adds to" if adds else "writes different values to"
            self.report("race", ERROR if adds else WARNING, f"{described(op)} {verb} {name}{list(index)} several times",
                        at, "combine what has equal indices first" if adds else "give each element another index")

    def note_sum(self, op: Op, views: Sequence[View], at: Location | None) -> None:
        """Report a sum that rounds to 16 bits or fewer after each addition."""
        read = {name for name, _ in op.sources()}
        operands = list(zip(op.operands(), views))
        sources = {view.buffer for (field, _), view in operands if field.name in read}
        adds = bool(ADDS & {op.name, *map(str, op.attribute_values().values())})
        for (field, tile), view in operands if adds else ():
            if field.writes and view.buffer in sources and tile.dtype.is_float and tile.dtype.itemsize < 4:
                self.narrow_sums[at, view.buffer] = count = self.narrow_sums.get((at, view.buffer), 0) + 1
                if count == 2:
                    self.report("precision", WARNING, f"{described(op)} adds repeatedly to {view.buffer.name}, "
                                f"which is {tile.dtype}, and rounds each sum", at,
                                "accumulate in float32, and convert once at the end")

    def end(self, has_idle_loops: bool, results: Sequence[object] = ()) -> None:
        """Finish a run that returned these arrays. Loops whose bodies did not run may read results that no other
        statement reads."""
        self.findings += self.stores.findings(has_idle_loops, results)
        for result in results:
            if isinstance(result, np.ndarray) and (worst := self.shadow.largest_error(result)) is not None:
                error, (at, operation), loss = worst
                self.report("precision", WARNING, f"{operation} loses digits that its operands have: they differ from "
                            f"float64 by {loss.operands:.1g} of their largest elements, its result by "
                            f"{loss.result:.1g}, and an output of the kernel by {error:.1g}", at,
                            "do not subtract nearly equal numbers: center or scale the operands first")

    # -- values --------------------------------------------------------------------------------------------------------
    def report_nonfinite(self, op: Op, tile: Tile, before: dict[str, np.ndarray], at: Location | None) -> None:
        """Report the first element that becomes NaN without a NaN operand, or infinite from finite operands."""
        result = numbers(values(tile))
        nonfinite = ~np.isfinite(result) & ~np.isin(result, infinities(op))
        if not nonfinite.any():
            return
        operands = {name: numbers(b) for name, b in before.items()}
        nonfinite &= ~tainted(operands, result.shape, lambda b: ~np.isfinite(b)) | (
            np.isnan(result) & ~tainted(operands, result.shape, np.isnan))
        if not nonfinite.any():
            return
        index = first_of(nonfinite)
        source = next(iter(operands.values())) if len(operands) == 1 else None
        wide = self.in_float64(op, before)
        if wide is None:
            wide = source                           # a copy converts
        if wide is not None and wide.shape == result.shape and np.isfinite(wide[index]):
            self.report("range", WARNING, f"{described(op)} gives {wide[index]:.6g} at {list(index)}, which "
                        f"{tile.dtype} cannot hold: it becomes {shown_number(result[index])}", at,
                        "scale the values, or use a wider dtype")
            return
        self.tell_origin(op, result, nonfinite, operands, at)

    def tell_origin(self, op: Op, result: np.ndarray, nonfinite: np.ndarray, operands: dict[str, np.ndarray],
                    at: Location | None) -> None:
        """Report a statement's first NaN, or its first infinity, with the operands that it is computed from."""
        nan = nonfinite & np.isnan(result)
        index = first_of(nan if nan.any() else nonfinite)
        listing = ", ".join(f"{name} = {shown(b, index, result.shape)}" for name, b in list(operands.items())[:SHOWN])
        self.report("not-finite", ERROR if nan.any() else WARNING, f"{described(op)} computes the first "
                    f"{shown_number(result[index])}, at {list(index)}" + (f", of {listing}" if listing else ""), at,
                    "keep the operands within the function's domain")

    def compare(self, op: Op, before: dict[str, np.ndarray], at: Location | None) -> None:
        """Measure the rounding error of only this operation, relative to float64."""
        targets = [tile for _, tile in op.targets()]
        if len(targets) != 1:
            return
        wide = self.in_float64(op, before)
        dtype = targets[0].dtype
        result = numbers(values(targets[0]))
        if wide is None or wide.shape != result.shape:
            return
        if dtype.is_integer:
            self.check_integers(op, wide, result, dtype, at)
            return
        finite = np.isfinite(wide) & np.isfinite(result)
        largest = float(np.abs(wide[finite]).max(initial=0.0))
        if largest:
            error = float(np.abs(wide[finite] - result[finite]).max(initial=0.0)) / largest
            key = at, described(op)
            self.rounding[key] = max(self.rounding.get(key, 0.0), error)

    def check_integers(self, op: Op, wide: np.ndarray, result: np.ndarray, dtype: DType, at: Location | None) -> None:
        """Report integers that exceed the range of their dtype."""
        if dtype is BOOL:
            return
        limits, rounded = np.iinfo(dtype.numpy), np.rint(wide)
        outside = np.isfinite(wide) & ((rounded > limits.max) | (rounded < limits.min))
        if outside.any():
            index = tuple(int(k) for k in np.argwhere(outside)[0])
            self.report("range", WARNING, f"{described(op)} gives {wide[index]:.6g} at {list(index)}, which {dtype} "
                        f"cannot hold: it becomes {result[index]:.0f}", at, "use a wider dtype")

    def in_float64(self, op: Op, before: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Compute the result from the same operands in float64. Return None if the operation is not a function of
        numbers."""
        if len(before) == 1 and op.name in COPIES and not op.index_forms():
            return numbers(*before.values())
        if op.mask or op.limits or op.index_forms() or op.keeps_bits or not op.is_loop_nest or op.acts_outside or (
                len(before) != len(op.sources())):
            return None
        try:
            with np.errstate(all="ignore"):
                wide = op.reference(*(numbers(b) for b in before.values()))
        except Exception:                           # a reference may accept only the dtypes of its class
            return None
        return np.asarray(wide, np.float64) if isinstance(wide, np.ndarray) else None

    def report(self, kind: str, severity: str, message: str, at: Location | None, fix: str = "") -> None:
        """Record a finding, at most one of its kind for each line."""
        if (kind, at) not in self.reported:
            self.reported.add((kind, at))
            self.findings.append(CheckFinding(kind, severity, message, at, fix))

    def errors(self) -> list[StatementError]:
        """Return the rounding errors of the statements, the largest first."""
        ranked = sorted(self.rounding.items(), key=lambda item: -item[1])
        return [StatementError(at, name, error) for (at, name), error in ranked if error > 0]


def described(op: Op) -> str:
    """Return an operation's name with the function that it computes, or the function of the language that emits it."""
    function = op.__dict__.get("fn") or op.__dict__.get("op")
    if function and op.name in ("unary", "binary", "binary_scalar"):
        return f"nl.{function}"
    return f"{op.name} ({function})" if function else op.name


def values(tile: Tile) -> np.ndarray:
    """Return the tile's elements."""
    return Pattern(tile).at(np.asarray(tile.handle), ())


def numbers(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).astype(np.float64)


def tainted(operands: dict[str, np.ndarray], shape: tuple[int, ...], condition: Callable[[np.ndarray], np.ndarray]
            ) -> np.ndarray:
    """Mark the elements of a result whose operands satisfy a condition. Any element may depend on an operand of
    another shape."""
    mask = np.zeros(shape, np.bool_)
    for operand in operands.values():
        bad_elements = condition(operand)
        mask |= bad_elements if operand.shape == shape else bad_elements.any()
    return mask


def infinities(op: Op) -> list[float]:
    """Return the infinities that a kernel passes to an operation, such as the -inf of a causal mask. A limit of float32
    in a selection counts as one if the result is narrower (documents of ``range_select``)."""
    constants = [float(v) for v in op.attribute_values().values() if isinstance(v, (float, np.floating))]
    return [float(np.copysign(np.inf, v)) for v in constants if np.isinf(v) or (op.chooses and abs(v) >= LARGEST)]


def first_of(chosen: np.ndarray) -> tuple[int, ...]:
    """Return the index of the first marked element."""
    return tuple(int(k) for k in np.unravel_index(int(np.argmax(chosen)), chosen.shape))


def shown_number(value: float) -> str:
    return "NaN" if np.isnan(value) else f"{value}"


def shown(array: np.ndarray, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Return an operand's value at an element of the result, or its range, as text."""
    if array.shape == shape:
        return f"{float(array[index]):.6g}"
    wide = numbers(array)
    return f"{wide.min():.6g} to {wide.max():.6g}"
