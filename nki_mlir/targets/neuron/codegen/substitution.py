# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers in place of an operation's symbols."""

from collections.abc import Sequence

from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.op import Op, with_forms
from nki_mlir.targets.neuron.codegen.records import Computed, Value, value_range


def with_values(op: Op, symbols: Sequence[Value]) -> Op:
    """The operation with numbers in place of symbols; what is left is numbered anew, in the order given."""
    parts = [plus_number(symbol) for symbol in symbols]
    left: dict[Value, int] = {}
    for base, _ in parts:
        if base is not None:
            left.setdefault(base, len(left))

    def put(form: Linear) -> Linear:
        const, terms = form.const, dict[int, int]()
        for position, c in form.symbols:
            base, number = parts[position]
            const += c * number
            if base is not None:
                terms[left[base]] = terms.get(left[base], 0) + c
        return Linear(const, tuple(sorted((k, c) for k, c in terms.items() if c)), form.axes)

    return with_forms(op, put, symbols=tuple(left), ranges=tuple(value_range(s) for s in left))


def plus_number(value: Value) -> tuple[Value | None, int]:
    """A value as what a register holds (None: nothing) plus a number."""
    match value:
        case int():
            return None, value
        case Computed("add", lhs, int(number)):
            base, more = plus_number(lhs)
            return base, number + more
    return value, 0
