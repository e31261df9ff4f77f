# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that random graphs draw for both JAX and PyTorch: functions that take the library's text of each.

``{0}`` of a text is the operand, ``{1}`` the second operand, the axis, the shape or the order of axes.
"""

from collections.abc import Callable
from math import prod

from .writer import FLOATS, INTEGERS, SMALL, GraphWriter, Skip, Value

NUMBERS = (*FLOATS, *INTEGERS)
Rule = Callable[[GraphWriter], Value]


def ranked(value: Value) -> bool:
    return len(value.shape) > 0


def binary(library: str, add: str, multiply: str, subtract: str) -> Rule:
    def draw(w: GraphWriter) -> Value:
        a = w.value(dtypes=NUMBERS)
        b = w.value(shape=a.shape, dtypes=(a.dtype,))
        name, limit = w.pick((add, 2 * SMALL), (multiply, SMALL ** 2), ("maximum", SMALL), ("minimum", SMALL),
                             (subtract, 2 * SMALL))
        if a.dtype == "uint8" and name == subtract:
            raise Skip
        return w.let(f"{library}.{name}({a.text}, {b.text})", a.shape, a.dtype, limit)
    return draw


def of_a_number(*texts: str) -> Rule:
    def draw(w: GraphWriter) -> Value:
        a = w.value(dtypes=NUMBERS)
        number = w.pick(1, 2, 3) if a.dtype == "uint8" else w.pick(-2, -1, 2, 3)
        return w.let(w.pick(*texts).format(a.text, number), a.shape, a.dtype, 3 * SMALL)
    return draw


def spread(w: GraphWriter) -> Value:
    """Broadcasts over an axis on the way."""
    a = w.value(ranked, dtypes=NUMBERS)
    axis = w.below(len(a.shape))
    other = w.value(shape=tuple(1 if k == axis else n for k, n in enumerate(a.shape)), dtypes=(a.dtype,))
    return w.let(f"{a.text} + {other.text}", a.shape, a.dtype, 2 * SMALL)


def rounding(library: str) -> Rule:
    def draw(w: GraphWriter) -> Value:
        a = w.value(dtypes=FLOATS)
        return w.let(f"{library}.{w.pick('floor', 'ceil', 'round', 'trunc')}({a.text} * {w.pick(0.5, 0.25, 1.5)})",
                     a.shape, a.dtype, 2 * SMALL)
    return draw


def any_or_all(any_text: str, all_text: str) -> Rule:
    def draw(w: GraphWriter) -> Value:
        a = w.value(ranked, dtypes=("bool",))
        axis = w.below(len(a.shape))
        return w.let(w.pick(any_text, all_text).format(a.text, axis), a.shape[:axis] + a.shape[axis + 1:], "bool")
    return draw


def transpose(text: str) -> Rule:
    def draw(w: GraphWriter) -> Value:
        a = w.value(lambda v: len(v.shape) > 1)
        order = list(range(len(a.shape)))
        for k in range(len(order) - 1):
            other = k + w.below(len(order) - k)
            order[k], order[other] = order[other], order[k]
        return w.let(text.format(a.text, tuple(order)), tuple(a.shape[k] for k in order), a.dtype)
    return draw


def reshape(text: str) -> Rule:
    def draw(w: GraphWriter) -> Value:
        a = w.value(ranked)
        shapes = [(a.size,), (1, a.size), (a.size, 1), (a.shape[0], -1), (-1, a.shape[-1]), (*a.shape, 1)]
        shapes += [(*a.shape[:k], f, n // f, *a.shape[k + 1:])
                   for k, n in enumerate(a.shape) for f in (2, 3, 4) if n % f == 0]
        shape = w.pick(*shapes)
        full_shape = tuple(a.size // prod(n for n in shape if n > 0) if n == -1 else n for n in shape)
        return w.let(text.format(a.text, shape), full_shape, a.dtype)
    return draw


def slice_of(*texts: str) -> Rule:
    """Texts of a slice name its ``start``, ``stop`` and ``step``, or ``back``, the start from the end."""
    def draw(w: GraphWriter) -> Value:
        a = w.value(ranked)
        parts, shape = [], []
        for n in a.shape:
            start = w.below(n)
            stop, step = start + 1 + w.below(n - start), w.pick(1, 1, 2, 3)
            text = w.pick(*texts) if len(texts) > 1 else texts[0]
            parts.append(text.format(start=start, back=start - n, stop=stop, step=step))
            shape.append(len(range(start, stop, step)))
        return w.let(f"{a.text}[{', '.join(parts)}]", tuple(shape), a.dtype)
    return draw


def concatenation(text: str) -> Rule:
    def draw(w: GraphWriter) -> Value:
        a = w.value(ranked)
        axis = w.below(len(a.shape))
        b = w.value(lambda v: len(v.shape) == len(a.shape) and all(
            k == axis or v.shape[k] == n for k, n in enumerate(a.shape)), dtypes=(a.dtype,)) if w.below(2) else a
        shape = tuple(n + b.shape[k] if k == axis else n for k, n in enumerate(a.shape))
        return w.let(text.format(a.text, b.text, axis), shape, a.dtype)
    return draw
