# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ALU operators, each defined once: ``ALU`` maps a name to its ``AluOperator``.

Integers wrap. Extrema propagate NaN, and a result of maximum or minimum that is zero is +0: with one zero the folds
do not depend on the order of the elements. Comparisons and logical operators give 1 or 0 in the compute dtype; NaN is
not equal to anything, and is true.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.dtypes import BOOL, DType, Encoding
from nki_mlir.scalar.sums import ordered, reduced_in_order

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter

Axes = tuple[int, ...]
Identity = Callable[[DType], int | float]

ALU: dict[str, "AluOperator"] = {}
ALU_BY_ASM: dict[str, "AluOperator"] = {}


@dataclass(frozen=True, eq=False)
class AluOperator:
    """One operator of the tile instructions.

    ``numpy`` takes arrays of one compute dtype (float32 or an integer dtype) and returns the same dtype; it prints no
    warnings. ``expand(e, dtype, *values)`` builds the same function with the emitter ``e`` on scalars or vectors.
    The two agree bit for bit (NaN with NaN), or within ``ulp`` if that is not 0.
    ``reduce(array, axes)`` folds the axes in C order, from the first element on.
    ``identity(dtype)`` returns the start value of a fold, or None if a fold has none.
    """

    name: str
    arity: int
    group: str                                      # arithmetic, comparison, logical, bitwise, shift, selection
    numpy: Callable[..., np.ndarray]
    expand: "Callable[..., Value]"
    asm: str = ""                                   # the profiler's name, by default ``name``
    floats: bool = True                             # defined for float32
    integers: bool = True                           # defined for integer compute dtypes
    commutative: bool = False
    start: Identity | int | float | None = None
    reduce: Callable[[np.ndarray, Axes], np.ndarray] | None = None
    ulp: float = 0

    def __post_init__(self) -> None:
        quiet = np.errstate(all="ignore")
        object.__setattr__(self, "numpy", quiet(self.numpy))
        if self.reduce is not None:
            object.__setattr__(self, "reduce", quiet(self.reduce))
        object.__setattr__(self, "asm", self.asm or self.name)
        ALU[self.name] = ALU_BY_ASM[self.asm] = self

    def identity(self, dtype: DType) -> int | float | None:
        """Return the value ``i`` such that folding ``i`` in first changes nothing; None if there is none."""
        return self.start(dtype) if callable(self.start) else self.start

    @property
    def on_bits(self) -> bool:
        return self.group in ("bitwise", "shift")

    def __repr__(self) -> str:
        return self.name


def lowest(dtype: DType) -> int | float:
    """Return the identity of maximum."""
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min)


def highest(dtype: DType) -> int | float:
    """Return the identity of minimum."""
    return np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).max)


def fold(ufunc: np.ufunc) -> Callable[[np.ndarray, Axes], np.ndarray]:
    """Return the reduction of a ufunc in the array's own dtype."""
    return lambda array, axes: ufunc.reduce(array, axis=axes, dtype=array.dtype)


def fold_truth(ufunc: np.ufunc) -> Callable[[np.ndarray, Axes], np.ndarray]:
    """Return the reduction of a logical ufunc, as 1 and 0 in the array's own dtype."""
    return lambda array, axes: ufunc.reduce(array != 0, axis=axes).astype(array.dtype)


def flatten(array: np.ndarray, axes: Axes) -> np.ndarray:
    """Return ``array`` with ``axes`` moved to the end and joined into one, in C order."""
    parallel = [i for i in range(array.ndim) if i not in {a % array.ndim for a in axes}]
    reduced_axes = sorted(a % array.ndim for a in axes)
    return array.transpose(parallel + reduced_axes).reshape(*(array.shape[i] for i in parallel), -1)


# -- sums and products

def _reduce_subtract(array: np.ndarray, axes: Axes) -> np.ndarray:
    flat = flatten(array, axes)
    return flat[..., 0] - flat[..., 1:].sum(axis=-1, dtype=array.dtype)


AluOperator("add", 2, "arithmetic", np.add, lambda e, d, a, b: e.add(a, b), commutative=True, start=0,
            reduce=fold(np.add))
AluOperator("subtract", 2, "arithmetic", np.subtract, lambda e, d, a, b: e.sub(a, b), reduce=_reduce_subtract)
AluOperator("multiply", 2, "arithmetic", np.multiply, lambda e, d, a, b: e.mul(a, b), asm="mult", commutative=True,
            start=1, reduce=fold(np.multiply))
AluOperator("divide", 2, "arithmetic", np.divide, lambda e, d, a, b: e.div(a, b), integers=False)
AluOperator("average", 2, "arithmetic", lambda a, b: (a + b) * np.float32(0.5),
            lambda e, d, a, b: e.mul(e.add(a, b), 0.5), integers=False, commutative=True,
            reduce=lambda array, axes: np.mean(array, axis=axes, dtype=array.dtype))


# -- one operand

def _abs(e: "ScalarEmitter", d: DType, a: "Value") -> "Value":
    return a if d.kind is Encoding.UNSIGNED else e.abs(a)


AluOperator("abs", 1, "arithmetic", np.absolute, _abs)
AluOperator("negative", 1, "arithmetic", np.negative, lambda e, d, a: e.neg(a))
AluOperator("square", 1, "arithmetic", np.square, lambda e, d, a: e.mul(a, a))
AluOperator("reciprocal", 1, "arithmetic", lambda a: np.float32(1) / a, lambda e, d, a: e.div(1.0, a), integers=False)
AluOperator("rsqrt", 1, "arithmetic", lambda a: np.float32(1) / np.sqrt(a), lambda e, d, a: e.div(1.0, e.sqrt(a)),
            integers=False)


# -- extrema

def _one_zero(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        array += np.float32(0)
    return array


def _fold_extremum(extremum: np.ufunc) -> Callable[[np.ndarray, Axes], np.ndarray]:
    folded = fold(extremum)
    return lambda array, axes: _one_zero(folded(array, axes))


def _expand_extremum(e: "ScalarEmitter", d: DType, a: "Value", b: "Value", above: str, integer: str) -> "Value":
    if d.is_integer:
        return getattr(e, f"{integer}{'si' if d.kind is Encoding.SIGNED else 'ui'}")(a, b)
    return _expand_float_extremum(e, a, b, above, True, True)


def _expand_float_extremum(e: "ScalarEmitter", a: "Value", b: "Value", above: str, repairs_nans: bool,
                           repairs_zeros: bool) -> "Value":
    number = e.number_of(b)
    if number is not None and not np.isnan(number):
        result = e.select(e.cmp(above, b, a), b, a)         # a where it is NaN
        is_zero = number <= 0 if above == "ogt" else number >= 0        # a may be -0
    else:
        result = e.select(e.cmp(above, a, b), a, b)         # b where either is NaN
        result, is_zero = e.unless_nan(a, result) if repairs_nans else result, True
    return e.add(result, 0.0) if is_zero and repairs_zeros else result


def expand_extremum(e: "ScalarEmitter", name: str, *values: "Value", repairs_nans: bool, repairs_zeros: bool
                    ) -> "Value":
    """Emit maximum, minimum or relu of f32. Without repairs, a NaN of the first of two values may be lost, and a zero
    may have either sign."""
    a, b = values if len(values) == 2 else (*values, e.const(values[0], 0))
    return _expand_float_extremum(e, a, b, "olt" if name == "minimum" else "ogt", repairs_nans, repairs_zeros)


_expand_maximum = partial(_expand_extremum, above="ogt", integer="max")


def _expand_relu(e: "ScalarEmitter", d: DType, a: "Value") -> "Value":
    return a if d.kind is Encoding.UNSIGNED else _expand_maximum(e, d, a, e.const(a, 0))


AluOperator("maximum", 2, "arithmetic", lambda a, b: _one_zero(np.maximum(a, b)), _expand_maximum, asm="max",
            commutative=True, start=lowest, reduce=_fold_extremum(np.maximum))
AluOperator("minimum", 2, "arithmetic", lambda a, b: _one_zero(np.minimum(a, b)),
            partial(_expand_extremum, above="olt", integer="min"), asm="min", commutative=True, start=highest,
            reduce=_fold_extremum(np.minimum))
AluOperator("relu", 1, "arithmetic", lambda a: _one_zero(np.maximum(a, a.dtype.type(0))), _expand_relu)


# -- extrema by magnitude: the value that wins keeps its sign, a tie gives the second operand

def _magnitude(array: np.ndarray) -> np.ndarray:
    """Return |array|; unsigned for integers, where the lowest has no positive counterpart."""
    magnitude = np.absolute(array)
    return magnitude.view(f"u{array.itemsize}") if array.dtype.kind == "i" else magnitude


def _by_magnitude(beats: np.ufunc) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def choose(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        takes_a = beats(_magnitude(a), _magnitude(b))
        if a.dtype.kind == "f":
            takes_a |= np.isnan(a)
        return np.where(takes_a, a, b)
    return choose


def _reduce_by_magnitude(arg: Callable[..., np.ndarray]) -> Callable[[np.ndarray, Axes], np.ndarray]:
    def choose(array: np.ndarray, axes: Axes) -> np.ndarray:
        flat = flatten(array, axes)[..., ::-1]              # of equal magnitudes the last element wins
        return np.take_along_axis(flat, arg(_magnitude(flat), axis=-1, keepdims=True), axis=-1)[..., 0]
    return choose


def _expand_by_magnitude(e: "ScalarEmitter", d: DType, a: "Value", b: "Value", beats: str) -> "Value":
    if d.is_integer:
        return e.select(e.cmp(beats, _abs(e, d, a), _abs(e, d, b)), a, b)
    takes_a = e.cmp("o" + beats[1:], e.abs(a), e.abs(b))
    return e.select(e.or_(takes_a, e.cmp("uno", a, a)), a, b)


def _lowest_magnitude_identity(dtype: DType) -> int | float:
    # In two's complement the lowest integer has the largest magnitude.
    return lowest(dtype) if dtype.kind is Encoding.SIGNED else highest(dtype)


AluOperator("abs_max", 2, "arithmetic", _by_magnitude(np.greater),
            lambda e, d, a, b: _expand_by_magnitude(e, d, a, b, "ugt"), start=0, reduce=_reduce_by_magnitude(np.argmax))
AluOperator("abs_min", 2, "arithmetic", _by_magnitude(np.less),
            lambda e, d, a, b: _expand_by_magnitude(e, d, a, b, "ult"), start=_lowest_magnitude_identity,
            reduce=_reduce_by_magnitude(np.argmin))


# -- remainders and powers. An integer remainder by zero is zero.

def _expand_fmod(e: "ScalarEmitter", d: DType, a: "Value", b: "Value") -> "Value":
    if d.is_float:
        return e.remf(a, b)
    zero = e.cmp("eq", b, 0)
    if d.kind is not Encoding.SIGNED:
        return e.select(zero, e.const(a, 0), e.remui(a, e.select(zero, e.const(b, 1), b)))
    # x rem -1 is 0, and traps for the lowest x when it is computed.
    trivial = e.or_(zero, e.cmp("eq", b, -1))
    return e.select(trivial, e.const(a, 0), e.remsi(a, e.select(trivial, e.const(b, 1), b)))


def _expand_mod(e: "ScalarEmitter", d: DType, a: "Value", b: "Value") -> "Value":
    remainder = _expand_fmod(e, d, a, b)
    if d.is_float:
        opposite = e.cmp("one", e.copysign(1.0, remainder), e.copysign(1.0, b))
        with_sign_of_divisor = e.select(opposite, e.add(remainder, b), remainder)
        return e.select(e.cmp("oeq", remainder, 0.0), e.copysign(0.0, b), with_sign_of_divisor)
    if d.kind is not Encoding.SIGNED:
        return remainder
    opposite = e.and_(e.cmp("slt", e.xor(remainder, b), 0), e.cmp("ne", remainder, 0))
    return e.select(opposite, e.add(remainder, b), remainder)


AluOperator("mod", 2, "arithmetic", np.remainder, _expand_mod)                # the sign of the divisor, as Python's %
AluOperator("fmod", 2, "arithmetic", np.fmod, _expand_fmod)                   # the sign of the dividend, as C's fmod
def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return C's powers. NumPy takes square roots where one exponent of 0.5 is for all bases: they differ for -infinity
    and -0.0."""
    is_root_of_size = (np.asarray(b) == 0.5) & (np.equal(a, 0) | np.equal(a, -np.inf))
    return np.asarray(np.power(np.where(is_root_of_size, np.abs(a), a), b))


AluOperator("power", 2, "arithmetic", _power, lambda e, d, a, b: e.libm("powf", a, b), asm="pow", integers=False,
            ulp=4)


# -- moves

def _select(condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(condition != 0, a, b)


AluOperator("bypass", 1, "selection", lambda a: a, lambda e, d, a: a)
AluOperator("select", 3, "selection", _select, lambda e, d, c, a, b: e.select(e.nonzero(c), a, b))


# -- bits --------------------------------------------------------------------------------------------------------------
# Bitwise operators and shifts, on integers only. A shift amount is read as unsigned. A shift by the width or more
# leaves nothing of the value: the result is 0, or for the arithmetic shift the sign in every bit.

def _all_ones(dtype: DType) -> int:
    if dtype.kind is Encoding.SIGNED:
        return -1
    return 1 if dtype is BOOL else int(np.iinfo(dtype.numpy).max)


def _shift(ufunc: np.ufunc, kind: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return the shift of bits that are read as integers of a kind: u, i."""
    def compute(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = f"{kind}{a.itemsize}"
        return ufunc(a.view(bits), b.view(bits)).view(a.dtype)
    return compute


def _expand_logical_shift(e: "ScalarEmitter", d: DType, a: "Value", b: "Value", shift: str) -> "Value":
    inside = e.cmp("ult", b, d.bits)
    return e.select(inside, getattr(e, shift)(a, e.select(inside, b, e.const(b, 0))), e.const(a, 0))


AluOperator("bitwise_and", 2, "bitwise", np.bitwise_and, lambda e, d, a, b: e.and_(a, b), floats=False,
            commutative=True, start=_all_ones, reduce=fold(np.bitwise_and))
AluOperator("bitwise_or", 2, "bitwise", np.bitwise_or, lambda e, d, a, b: e.or_(a, b), floats=False, commutative=True,
            start=0, reduce=fold(np.bitwise_or))
AluOperator("bitwise_xor", 2, "bitwise", np.bitwise_xor, lambda e, d, a, b: e.xor(a, b), floats=False, commutative=True,
            start=0, reduce=fold(np.bitwise_xor))
# Only the lowest bit of a truth value (a byte of 0 or 1) counts.
AluOperator("invert", 1, "bitwise", np.invert, lambda e, d, a: e.xor(a, 1 if d.kind is Encoding.BOOL else -1),
            asm="bitwise_not", floats=False)

AluOperator("left_shift", 2, "shift", _shift(np.left_shift, "u"),
            lambda e, d, a, b: _expand_logical_shift(e, d, a, b, "shl"), asm="logical_shift_left", floats=False)
AluOperator("right_shift", 2, "shift", _shift(np.right_shift, "u"),
            lambda e, d, a, b: _expand_logical_shift(e, d, a, b, "shrui"), asm="logical_shift_right", floats=False)
AluOperator("arith_shift_right", 2, "shift", _shift(np.right_shift, "i"),
            lambda e, d, a, b: e.shrsi(a, e.minui(b, e.const(b, d.bits - 1))), floats=False)


# -- comparisons -------------------------------------------------------------------------------------------------------
def _truth(predicate: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda *arrays: predicate(*arrays).astype(arrays[0].dtype)


def _comparison(predicate: str) -> "Callable[[ScalarEmitter, DType, Value, Value], Value]":
    """Return the expansion of a comparison: ``predicate`` is gt, ge, lt, le, eq or ne."""
    def expand(e: "ScalarEmitter", d: DType, a: "Value", b: "Value") -> "Value":
        if d.is_float:
            prefix = "u" if predicate == "ne" else "o"
        elif predicate in ("eq", "ne"):
            prefix = ""
        else:
            prefix = "s" if d.kind is Encoding.SIGNED else "u"
        return e.truth(e.cmp(prefix + predicate, a, b), a)
    return expand


AluOperator("equal", 2, "comparison", _truth(np.equal), _comparison("eq"), asm="is_equal", commutative=True)
AluOperator("not_equal", 2, "comparison", _truth(np.not_equal), _comparison("ne"), commutative=True)
AluOperator("greater", 2, "comparison", _truth(np.greater), _comparison("gt"), asm="is_gt")
AluOperator("greater_equal", 2, "comparison", _truth(np.greater_equal), _comparison("ge"), asm="is_ge")
AluOperator("less", 2, "comparison", _truth(np.less), _comparison("lt"), asm="is_lt")
AluOperator("less_equal", 2, "comparison", _truth(np.less_equal), _comparison("le"), asm="is_le")

# NumPy's logical functions are ten times slower on floats than comparisons with zero.
AluOperator("logical_and", 2, "logical", _truth(lambda a, b: (a != 0) & (b != 0)),
            lambda e, d, a, b: e.truth(e.and_(e.nonzero(a), e.nonzero(b)), a),
            commutative=True, start=1, reduce=fold_truth(np.logical_and))
AluOperator("logical_or", 2, "logical", _truth(lambda a, b: (a != 0) | (b != 0)),
            lambda e, d, a, b: e.truth(e.or_(e.nonzero(a), e.nonzero(b)), a),
            commutative=True, start=0, reduce=fold_truth(np.logical_or))
AluOperator("logical_xor", 2, "logical", _truth(lambda a, b: (a != 0) ^ (b != 0)),
            lambda e, d, a, b: e.truth(e.xor(e.nonzero(a), e.nonzero(b)), a),
            commutative=True, start=0, reduce=fold_truth(np.logical_xor))
AluOperator("logical_not", 1, "logical", _truth(lambda a: a == 0), lambda e, d, a: e.truth(e.not_(e.nonzero(a)), a))


# Sums of integers do not depend on the order of their elements: they are exact, and rounded to float32 once. Elements
# are float32 values, as in every operation; float64 holds sums of 2^21 integers of 32 bits exactly.

def reduced(op: str, array: np.ndarray, axes: tuple[int, ...], of_integers: bool) -> np.ndarray:
    """Return the array reduced by an ALU operation; ``of_integers``: its elements were computed only from integers."""
    reduce = ALU[op].reduce
    assert reduce is not None
    if array.dtype == np.float32 and ordered(op):
        return reduced_in_order(op, flatten(array, axes))
    if not of_integers or array.dtype != np.float32:
        return reduce(array, axes)
    with np.errstate(all="ignore"):
        match op:
            case "add" | "subtract":
                return reduce(array.astype(np.float64), axes).astype(np.float32)
            case "average":
                count = np.float32(np.prod([array.shape[axis] for axis in axes]))
                return array.sum(axis=axes, dtype=np.float64).astype(np.float32) / count
    return reduce(array, axes)
