# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that compare several indices, such as a causal mask, whose elements are not boxes.

    s[p, f] = nl.exp(x, mask=p >= f)    is_selected = nl.ndarray((128, 512), dtype=nl.uint8, buffer=nl.sbuf)
                                        nisa.memset(dst=is_selected, value=1)
                                        nisa.affine_select(dst=is_selected, pattern=[[-1, 512]], ...)
                                        exp = nl.ndarray((128, 512), dtype=s.dtype, buffer=nl.sbuf)
                                        nisa.activation(dst=exp, op=nl.exp, data=x)
                                        nisa.tensor_copy_predicated(dst=s, src=exp, predicate=is_selected)

A new tile gets all elements, since the beta generation leaves the others undefined. A reduction gets its identity for
them. A store writes row by row, and each row as many columns as the mask selects.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import eq, ge, gt, le, lt, ne

from nki_mlir.machine import Machine
from nki_mlir.migration import terms
from nki_mlir.migration.engine_rows import EngineRows
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import PSUM, SBUF, Comparison, IndexFact, MaskBound, MaskFact, TensorFact
from nki_mlir.migration.indices import INVERSES
from nki_mlir.migration.operation_text import LATER_ROWS, OperationText
from nki_mlir.migration.views import bound_of, clamped, span

NO_BOX = "the mask does not select a box"
ORDERS = ("less", "less_equal", "greater", "greater_equal")
HOLDS: dict[str, Callable[[int, int], bool]] = {"less": lt, "less_equal": le, "greater": gt, "greater_equal": ge,
                                                "equal": eq, "not_equal": ne}
IDENTITIES = {"add": "0.0", "multiply": "1.0", "maximum": "-math.inf", "minimum": "math.inf"}
ELEMENTWISE = {"nl.load", "nl.copy", "nl.where", "nl.store", "nl.device_print", *(f"nisa.{name}" for name in (
    "activation", "tensor_scalar", "tensor_tensor", "scalar_tensor_tensor", "tensor_copy", "reciprocal", "memset",
    "iota", "affine_select", "tensor_reduce")), *(f"nl.{name}" for name in ("sum", "prod", "max", "min", "mean", "var",
                                                                                   "softmax"))}


def pattern(index: IndexFact, shape: tuple[str, ...] = ()) -> tuple[str, str, str]:
    """Return the pattern of the free axes, the multiplier of the partition and the offset of an index."""
    extents = [axis.extent if axis.extent != "1" or not shape else size
               for axis, size in zip(index.axes, shape or [""] * len(index.axes))]
    free = ", ".join(f"[{axis.step}, {extent}]" for axis, extent in zip(index.axes[1:], extents[1:]))
    return f"[{free or '[0, 1]'}]", index.axes[0].step if index.axes else "0", index.base


class Diagonals(EngineRows):
    """The part of the rewriter for masks that compare several indices."""

    def selecting(self, dst: str, source: str, value: str, comparisons: Iterable[Comparison],
                  shape: tuple[str, ...] = ()) -> list[str]:
        """Return the instructions that write a tile where the comparisons hold, and a number elsewhere."""
        texts = []
        for comparison in comparisons:
            steps, multiplier, offset = pattern(comparison.index, shape)
            shown = f"{self.nl}.{comparison.operator}" + (f", offset={offset}" if offset != "0" else "")
            texts.append(f"{self.nisa}.affine_select(dst={dst}, pattern={steps}, channel_multiplier={multiplier}, "
                         f"on_true_tile={source}, on_false_value={value}, cmp_op={shown})")
            source = dst
        return texts

    def _within(self, mask: MaskFact, shape: tuple[str, ...]) -> tuple[Comparison, ...]:
        """Return the comparisons in the part of the iteration space that a mask's bounds leave."""
        return self._checked((Comparison(clamped(c.index, mask), c.operator) for c in mask.diagonals), shape)

    @staticmethod
    def _checked(comparisons: Iterable[Comparison], shape: tuple[str, ...]) -> tuple[Comparison, ...]:
        comparisons = tuple(comparisons)
        if any(len(c.index.axes) != len(shape) or "?" in shape for c in comparisons):
            raise LeftForAPerson("a mask that compares indices, on a tile whose shape the text does not show")
        return comparisons

    def selected(self, text: str, tensor: TensorFact, mask: MaskFact, operator: str) -> tuple[str, TensorFact]:
        """Return the operand of a reduction or a print, with the operator's identity where a mask does not hold."""
        if operator not in IDENTITIES or mask.alternatives:
            raise LeftForAPerson("a reduction under a mask that does not select a box of elements")
        comparisons = self._within(mask, tensor.shape or ())
        name = self.fresh_name("selected")
        if tensor.memory == PSUM:
            text = f"{self.nl}.copy({text})"
        dtype = tensor.dtype.strip().replace("nl.", f"{self.nl}.", 1)
        if not dtype:
            text = self.named(text, "operand")
            dtype = terms.dtype_of(text)
        self.prelude[-1] += [
            f"{name} = {self.nl}.ndarray({self.shape_text(tensor, text)}, dtype={dtype}, buffer={self.nl}.sbuf)",
            *self.selecting(name, text, IDENTITIES[operator], comparisons, tensor.shape or ())]
        self.report.changed(self.line, f"elements that the mask does not select become {IDENTITIES[operator]}")
        return name, tensor.like(tensor.shape)

    def predicate(self, mask: MaskFact, tensor: TensorFact) -> str:
        """Return the name of a tile with 1 where a mask holds, else 0."""
        shape = tensor.shape or ()
        comparisons = self._within(mask, shape)
        size = f"({', '.join(shape)})"
        parts = [f"({', '.join(pattern(c.index))}, {c.operator!r})" for c in comparisons]
        alternatives = self._checked(mask.alternatives, shape)
        parts += [f"({', '.join(pattern(c.index))}, {c.operator!r}, 'or')" for c in alternatives]
        key = f"({size}, {', '.join(parts)})"
        if key in self.scope.counts:
            return self.scope.counts[key]
        name = self.scope.counts[key] = self.fresh_name("is_selected")
        texts = self.selecting(name, name, "0", comparisons, shape)
        if alternatives:
            inverses = tuple(Comparison(c.index, INVERSES[c.operator]) for c in alternatives)
            texts = self.selecting(name, name, "1", inverses, shape)
        self.prelude[-1] += [f"{name} = {self.nl}.ndarray({size}, dtype={self.nl}.uint8, buffer={self.nl}.sbuf)",
                             f"{self.nisa}.memset(dst={name}, value={'0' if alternatives else '1'})", *texts]
        self.report.changed(self.line, f"the mask becomes a tile of 0 and 1, {name}")
        return name

    def some_selected(self, mask: MaskFact, tensor: TensorFact, largest: Callable[[str], str]
                      ) -> Callable[[], str] | None:
        """Return a function that names a tile with 1 where a mask selects an element of a reduction of ``tensor``, else
        0; None if the mask selects an element in each row. ``largest`` returns the text of the same reduction of
        another tile to its largest elements."""
        if selects_in_each_row(mask.diagonals, tensor.shape or ()):
            return None

        def named() -> str:
            self.report.changed(self.line, "rows in which the mask selects nothing keep their values")
            return self.named(largest(self.predicate(mask, tensor)), "has_some")
        return named

    def predicate_of(self, result: OperationText | None, dst_fact: TensorFact, mask: MaskFact | None) -> str:
        """Return the name of a tile with 1 where the mask of an operation or a copy lets it write a tile; empty if it
        writes all."""
        if result is not None and result.starts_later and (
                result.mask is None or result.mask.selects_no_box or result.name == "total" or any(
                    terms.number(b.low or "0") is None for b in result.mask.bounds if b.axis == -b.rank)):
            raise LeftForAPerson(LATER_ROWS)
        if result is not None and result.some_selected is not None:
            return result.some_selected()
        return self.predicate(mask, dst_fact) if mask is not None and mask.selects_no_box else ""

    def predicated(self, dst: str, dst_fact: TensorFact, mask: MaskFact, write: Callable[[str, TensorFact], list[str]],
                   hint: str) -> list[str]:
        """Return the statements that write the elements of a tile that a mask selects; ``write`` returns statements
        that write all."""
        return self.written_where(self.predicate(mask, dst_fact), dst, dst_fact, write, hint)

    def written_where(self, predicate: str, dst: str, dst_fact: TensorFact,
                      write: Callable[[str, TensorFact], list[str]], hint: str) -> list[str]:
        """Return the statements that write the elements of a tile where the tile ``predicate`` has 1."""
        name = self.fresh_name(hint)
        tile = TensorFact(SBUF, dst_fact.shape, dst_fact.dtype)
        create = (f"{name} = {self.nl}.ndarray({self.shape_text(tile, dst)}, dtype={terms.tensor_of(dst)}.dtype, "
                  f"buffer={self.nl}.sbuf)")
        rows, after = self.updated(dst, dst_fact)
        before = [create, *write(name, tile)]
        if (source := self._copied_tile(before[1:], name, dst_fact)):
            self.scope.used_names.discard(name)
            before, name = [], source
        return [*before, f"{self.nisa}.tensor_copy_predicated(dst={rows}, src={name}, predicate={predicate})", *after]

    def _copied_tile(self, texts: Sequence[str], name: str, dst_fact: TensorFact) -> str:
        """Return the tile that the only statement copies to ``name``, if it has the destination's shape and dtype, so
        that no copy is needed; else an empty text."""
        start = f"{self.nisa}.tensor_copy(dst={name}, src="
        is_copy = len(texts) == 1 and texts[0].startswith(start)
        source = texts[0].removeprefix(start).removesuffix(")") if is_copy else ""
        fact = self.scope.facts.get(source)
        is_alike = isinstance(fact, TensorFact) and fact.on_chip and fact.shape == dst_fact.shape is not None and (
            fact.dtype == dst_fact.dtype != "")
        return source if is_alike else ""

    def make_part(self, result: OperationText, bounds: list[MaskBound]) -> None:
        """Let a new tile also have the elements before those that a mask selects, because other masks index them, and
        all elements of an axis of which a mask may select none."""
        if not bounds:
            return
        if result.fact.shape is None or "?" in result.fact.shape:
            raise LeftForAPerson("a tile of unknown shape under a mask that leaves out its first elements")
        result.computed_shape = result.fact.shape
        shape, items = list(result.fact.shape), [":"] * len(result.fact.shape)
        for bound in bounds:
            axis = 0 if bound.axis == -bound.rank else len(shape) + bound.axis
            count = bound.high
            if 1 < (terms.number(shape[axis]) or 0) < (terms.number(count) or 0):
                count = shape[axis]             # an earlier mask has cut the operand
            result.starts_later |= not axis and bool(bound.low) and result.name != "loaded"
            shape[axis] = bound.extent or terms.simplified(terms.add(bound.low, bound.high))
            items[axis] = span(bound.low or "0", count).replace("nl.ds(", f"{self.nl}.ds(")
        result.part_items = tuple(items)
        result.fact = result.fact.like(tuple(shape))
        result.shape = self.shape_text(result.fact, "")

    def by_rows(self, mask: MaskFact, shape: tuple[str, ...], write: Callable[[MaskFact], str], why: str = NO_BOX
                ) -> str:
        """Return a loop over rows; ``write`` returns the statement that writes the elements of a box."""
        self._within(mask, shape)
        if len(shape) != 2:
            raise LeftForAPerson("a store by rows, of more than two dimensions")
        row, is_some = self.fresh_name("row"), True
        (first, after), (start, stop) = (_span(bound_of(mask, axis), size) for axis, size in zip((-2, -1), shape))
        for comparison in mask.diagonals:
            low, high = _columns(comparison, row)
            is_some = is_some and not low and (terms.number(terms.difference(high, row) or "") or 0) > 0
            if low:
                distance = terms.number(terms.difference(low, row) or "")
                is_later = start == "0" and distance is not None and distance >= 0
                start = low if is_later else terms.largest(start, low)
            stop = terms.smallest(stop, high) if high else stop
        lines: list[str] = []
        if not terms.SIMPLE.match(start):
            name = self.fresh_name("start")
            lines.append(f"{name} = {start}")
            start = name
        count = terms.subtract(stop, start)
        if mask.diagonals:
            lines.append(f"{(name := self.fresh_name('num_columns'))} = {count}")
            count = name
        body = write(MaskFact((MaskBound(-2, row, "1"), MaskBound(-1, start if start != "0" else "", count))))
        if not is_some:
            body = f"if {count} > 0:\n    {body}"
        lines += body.split("\n")
        self.report.changed(self.line, f"the store writes row by row, because {why}")
        rows = after if first == "0" else f"{first}, {after}"
        return "\n    ".join([f"for {row} in range({rows}):", *lines])


def from_first_row(mask: MaskFact, axis: int = 0, is_selected: bool = True) -> MaskFact:
    """Return a mask with the rows before those that it selects, if no engine may start at its first row. A tile of 0
    and 1 selects the rows then, unless the others are those of a new tile (not ``is_selected``)."""
    rows = next((b for b in mask.bounds if b.axis == (axis or -b.rank) and b.low), None)
    if rows is None:
        return mask
    first, count = terms.number(rows.low), terms.number(rows.high)
    if is_selected and first is not None and count is not None and Machine.legal_start_partition(first, count):
        return mask
    after = replace(rows, low="", high=terms.simplified(terms.add(rows.low, rows.high)))
    diagonals = tuple(c for c in mask.comparisons if is_selected and c.varying == [rows.axis])
    return replace(mask, bounds=tuple(after if b is rows else b for b in mask.bounds), diagonals=tuple(dict.fromkeys((
        *mask.diagonals, *diagonals))))


def selects_in_each_row(comparisons: Sequence[Comparison], shape: tuple[str, ...]) -> bool:
    """Return whether one element of the free axes, the first or the last, satisfies all comparisons in each row. False
    if numbers of the text do not show it."""
    def at_element(comparison: Comparison, is_last: bool) -> bool:
        for row in ("0", terms.subtract(shape[0], "1")):
            value = terms.add(comparison.index.base, terms.multiply(comparison.index.axes[0].step, row))
            for axis, size in zip(comparison.index.axes[1:], shape[1:]):
                value = terms.add(value, terms.multiply(axis.step, terms.subtract(size, "1") if is_last else "0"))
            number = terms.number(terms.simplified(value))
            if number is None or not HOLDS[comparison.operator](number, 0):
                return False
        return comparison.operator in ORDERS    # an order holds in all rows if it holds in the first and in the last
    is_known = bool(shape) and "?" not in shape and all(len(c.index.axes) == len(shape) for c in comparisons)
    return is_known and any(all(at_element(c, is_last) for c in comparisons) for is_last in (False, True))


def _span(bound: MaskBound | None, size: str) -> tuple[str, str]:
    """Return the first element of an axis that a bound selects, and the element after the last."""
    if bound is None:
        return "0", size
    return bound.low or "0", terms.simplified(terms.add(bound.low, bound.high)) if bound.low else bound.high


def _columns(comparison: Comparison, row: str) -> tuple[str, str]:
    """Return the first column that a comparison selects in a row, and the column after the last; a text is empty if the
    comparison sets no such limit."""
    rows, columns = comparison.index.axes
    base = terms.add(comparison.index.base, terms.multiply(rows.step, row))
    operator = comparison.operator
    if columns.step == "1":             # base + column against 0
        base = terms.subtract("0", f"({base})")
    elif columns.step == "-1":          # base - column against 0
        operator = {"less": "greater", "greater": "less", "less_equal": "greater_equal", "greater_equal": "less_equal"
                    }.get(operator, operator)
    else:
        raise LeftForAPerson("a store under a mask whose index steps over several columns")
    base, after = terms.simplified(base), terms.simplified(f"({base}) + 1")
    match operator:                     # column against base
        case "less":
            return "", base
        case "less_equal":
            return "", after
        case "greater":
            return after, ""
        case "greater_equal":
            return base, ""
        case "equal":
            return base, after
    raise LeftForAPerson("a store under a mask that leaves out one element")


def is_guard(index: IndexFact, mask: MaskFact) -> bool:
    """Return whether a mask compares an index of several axes that is also the index of a dimension: without the mask
    it may be out of bounds."""
    def steps(other: IndexFact, sign: str) -> list[str]:
        return [terms.multiply(sign, axis.step) for axis in other.axes if axis.step != "0"]
    return any(len(c.varying) > 1 and steps(c.index, sign) == steps(index, "1")
               for c in mask.diagonals for sign in ("1", "-1"))

