# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts access patterns, masks and plain values to MLIR attributes, and back.

``#nki.access<f32, affine_map<()[s0] -> (0, s0 * 4)>, [[1, 128], [4, 64]]>`` is a pattern: its dtype, a map from the
op's symbols to (partition, free offset) on chip or (offset) in HBM, and ``[step, count]`` pairs, partition first.
A mask is an integer set whose dims are the op's iteration axes and whose symbols are the op's symbols.
"""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from nki_mlir.bindings import Attribute, Context, Type, ext, ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import Access, Constraint, Linear, Mask, Tile
from nki_mlir.scalar.dtypes import BY_MLIR, DType


class Nki(ext.Dialect, name="nki"):
    """The tile language."""


class AccessAttr(Nki.Attribute, name="access"):
    """The access pattern of an operand: dtype, starts, ``[step, count]`` pairs."""

    dtype: ir.TypeAttr
    starts: ir.AffineMapAttr
    dims: ir.ArrayAttr


T = TypeVar("T")
Plain = str | float | tuple["Plain", ...]           # values of fields and marks, except affine forms

LARGEST_STEP = 1 << 40          # limit of steps and extents; a pattern of one element may have any step
NO_MASK = "affine_set<() : (0 == 0)>"


class MalformedAttribute(ValueError):
    """Raised for an attribute from a file that does not have the documented form."""


class Attributes:
    """Builds attributes and types in the current context, each distinct one once."""

    def __init__(self) -> None:
        self.memo: dict[object, Attribute] = {}
        self.types: dict[object, Type] = {}
        self.no_mask: Attribute = ir.Attribute.parse(NO_MASK)
        self.i1, self.i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
        self.index = ir.IndexType.get()

    def value(self, value: Plain) -> Attribute:
        """Return the attribute for a plain Python value of an op's field."""
        key = type(value), repr(value) if isinstance(value, float) else value        # 0.0 and -0.0 are equal
        if key not in self.memo:
            self.memo[key] = self._value(value)
        return self.memo[key]

    def _value(self, value: Plain) -> Attribute:
        match value:
            case bool():
                return ir.IntegerAttr.get(self.i1, int(value))
            case str():
                return ir.StringAttr.get(value)
            case float():
                return ir.FloatAttr.get_f64(value)
            case int():
                return ir.IntegerAttr.get(self.i64, value)
            case tuple():
                return ir.ArrayAttr.get([self._value(v) for v in value])
        raise TypeError(f"no attribute for {value!r}")

    def type(self, dtype: DType) -> Type:
        """Return the MLIR type of an element."""
        if dtype.name not in self.types:
            self.types[dtype.name] = ir.Type.parse(dtype.mlir)
        return self.types[dtype.name]

    def memref(self, shape: tuple[int, ...], dtype: DType, space: str) -> Type:
        """Return a type such as ``memref<128x512xf32, "sbuf">``."""
        key = (shape, dtype.name, space)
        if key not in self.types:
            extents = "".join(f"{n}x" for n in shape)
            self.types[key] = ir.Type.parse(f'memref<{extents}{dtype.mlir}, "{space}">')
        return self.types[key]

    def access(self, access: Access, symbols: int) -> Attribute:
        """Return the attribute ``#nki.access`` of a pattern whose starts are forms of ``symbols`` symbols."""
        key = (access, symbols)
        if (attribute := self.memo.get(key)) is None:
            starts = [access.free] if access.partition is None else [access.partition, access.free]
            affine = ir.AffineMap.get(0, symbols, [expression(form) for form in starts])
            parts = [ir.TypeAttr.get(self.type(access.dtype)), ir.AffineMapAttr.get(affine), self.value(access.dims)]
            attribute = self.memo[key] = ir.DynamicAttr.get(AccessAttr.attr_name, parts)
        return attribute

    def accesses(self, tiles: Sequence[Tile], symbols: int) -> Attribute:
        """Return the attribute ``access`` of an operation on tiles."""
        return ir.ArrayAttr.get([self.access(tile.access, symbols) for tile in tiles])

    def linear(self, form: Linear, axes: int, symbols: int) -> Attribute:
        """Return a linear form as an affine map attribute."""
        return ir.AffineMapAttr.get(ir.AffineMap.get(axes, symbols, [expression(form)]))

    def mask(self, mask: Mask, axes: int, symbols: int) -> Attribute:
        """Return a mask as an integer set attribute over ``axes`` iteration axes and ``symbols`` symbols."""
        if not mask:
            return self.no_mask
        key = ("mask", mask, axes, symbols)
        if key not in self.memo:
            forms, flags = [expression(c.form) for c in mask], [c.equal for c in mask]
            self.memo[key] = ir.IntegerSetAttr.get(ir.IntegerSet.get(axes, symbols, forms, flags))
        return self.memo[key]


def expression(form: Linear) -> ir.AffineExpr:
    """Return the affine expression of a linear form: axes are dims, symbols symbols."""
    total = ir.AffineExpr.get_constant(form.const)
    for position, c in form.symbols:
        total = total + ir.AffineExpr.get_symbol(position) * c
    for axis, c in form.axes:
        total = total + ir.AffineExpr.get_dim(axis) * c
    return total


def reported(op: ir.OpView, name: str, verify: Callable[[], None]) -> bool:
    """Return whether an operation is valid; an error that ``verify`` raises becomes a diagnostic at its location."""
    try:
        verify()
        return True
    except NkiMlirError as error:
        problem = f"{error.headline} [{error.code}]"
    except MalformedAttribute as error:
        problem = str(error)
    except Exception as error:          # would otherwise cross MLIR, which has no exceptions
        problem = f"internal error: {type(error).__name__}: {error} [NKI-INTERNAL]"
    op.location.emit_error(f"'{name}' op {problem}")
    return False


# -- reading back ------------------------------------------------------------------------------------------------------
def elements(array: Attribute) -> list[Any]:
    """Return the elements of an array attribute, or raise an error: the bindings cannot read locations."""
    try:
        return list(array)
    except TypeError:
        raise MalformedAttribute(f"{array} has an element that is a location") from None


def read_mask(attribute: Attribute) -> Mask:
    """Return the constraints of a mask; none for the neutral one.

    The bindings build integer set attributes but do not read them, so the text is read as an affine map, which has the
    same expressions.
    """
    text = str(attribute)
    if text == NO_MASK:
        return ()
    if not text.startswith("affine_set<"):
        raise MalformedAttribute(f"{text} is not a mask 'affine_set<...>'")
    space, _, body = text.removeprefix("affine_set<").removesuffix(">").partition(" : ")
    terms = [re.fullmatch(r"(.*) (==|>=) 0", part.strip()) for part in body[1:-1].split(",")]
    if not all(terms):
        raise MalformedAttribute(f"{text} is not a mask 'affine_set<...>'")
    forms = ", ".join(t[1] for t in terms if t)
    text = f"affine_map<{space} -> ({forms})>"
    results = ir.AffineMapAttr(ir.Attribute.parse(text, attribute.context)).value.results
    return tuple(Constraint(read_linear(e), t[2] == "==") for e, t in zip(results, terms) if t)


def read_linear(expression: ir.AffineExpr) -> Linear:
    """Return the linear form of an affine expression; raise ``MalformedAttribute`` for mod and div."""
    match expression:
        case ir.AffineConstantExpr():
            return Linear(expression.value)
        case ir.AffineDimExpr():
            return Linear(0, (), ((expression.position, 1),))
        case ir.AffineSymbolExpr():
            return Linear(0, ((expression.position, 1),))
        case ir.AffineAddExpr():
            return read_linear(expression.lhs).plus(read_linear(expression.rhs))
        case ir.AffineMulExpr():
            left, right = read_linear(expression.lhs), read_linear(expression.rhs)    # MLIR has a constant on the right
            if not (right.symbols or right.axes):
                return Linear().plus(left, right.const)
    raise MalformedAttribute(f"'{expression}' is not linear")


_BINARY: dict[type, str] = {ir.AffineAddExpr: "add", ir.AffineMulExpr: "mult", ir.AffineModExpr: "mod",
                            ir.AffineFloorDivExpr: "floordiv"}


def affine_value(expression: ir.AffineExpr, operands: Sequence[T], dims: int, number: Callable[[int], T],
                 combine: Callable[[str, T, T], T]) -> T:
    """Evaluate an affine expression on operands, dims first, then symbols: ``combine`` adds, multiplies and divides."""
    match expression:
        case ir.AffineConstantExpr():
            return number(expression.value)
        case ir.AffineDimExpr():
            return operands[expression.position]
        case ir.AffineSymbolExpr():
            return operands[dims + expression.position]
    assert isinstance(expression, ir.AffineBinaryExpr)
    left, right = (affine_value(side, operands, dims, number, combine) for side in (expression.lhs, expression.rhs))
    if isinstance(expression, ir.AffineCeilDivExpr):
        return combine("mult", combine("floordiv", combine("mult", left, number(-1)), right), number(-1))
    return combine(_BINARY[type(expression)], left, right)


def applied(mapping: ir.AffineMap, operands: Sequence[Linear]) -> Linear | None:
    """Return the value of an affine map for forms as operands; None if the map is not linear."""
    try:
        (result,) = mapping.results
        form = read_linear(result)
    except (MalformedAttribute, ValueError):
        return None
    total = Linear(form.const)
    for position, c in (*form.axes, *((mapping.n_dims + s, c) for s, c in form.symbols)):
        total = total.plus(operands[position], c)
    return total


_KINDS: dict[type, tuple[type[Attribute], str]] = {
    str: (ir.StringAttr, "a string"), float: (ir.FloatAttr, "a float"), bool: (ir.BoolAttr, "a bool"),
    int: (ir.IntegerAttr, "an integer"), tuple: (ir.ArrayAttr, "an array of integers"),
    Linear: (ir.AffineMapAttr, "an affine map with one result")}


def read_value(attribute: Attribute, kind: type, name: str = "value") -> Any:
    """Return the plain value of a field's attribute; raise ``MalformedAttribute`` if it has another kind."""
    expected, wording = _KINDS[kind]
    if isinstance(attribute, expected):
        if kind is tuple and all(isinstance(a, ir.IntegerAttr) for a in elements(attribute)):
            return tuple(a.value for a in attribute)
        if kind is Linear and len(attribute.value.results) == 1:
            return read_linear(attribute.value.results[0])
        if kind not in (tuple, Linear):
            return kind(attribute.value)
    raise MalformedAttribute(f"attribute '{name}' is {attribute}, which must be {wording}")


# -- memos of types and attributes -------------------------------------------------------------------------------------
# A context has each type and attribute once, however many operations use it. Only the memo of the latest context is
# kept: a process has one context for its kernels, a tool one for its file.

_latest: tuple[object, dict[object, object]] = (None, {})

K = TypeVar("K", bound="Type | Attribute")


def table_of(context: Context) -> dict[object, Any]:
    """Return the memo of a context."""
    global _latest
    latest = _latest                # another thread may change it from here on
    if latest[0] is not context:
        latest = _latest = context, {}
    return latest[1]


def memoized(read: Callable[[K], T]) -> Callable[[K], T]:
    """Memoize a function of one type or attribute per context."""
    @wraps(read)
    def lookup(of: K) -> T:
        table: dict[object, T] = table_of(of.context)
        key = read, of
        if key not in table:
            table[key] = read(of)
        return table[key]
    return lookup


@memoized
def read_access(attribute: Attribute) -> Access:
    """Return the pattern of an ``AccessAttr``; raise ``MalformedAttribute`` if it is none."""
    if not isinstance(attribute, AccessAttr):
        raise MalformedAttribute(f"{attribute} is not an access pattern '#nki.access<...>'")
    starts = [read_linear(e) for e in ir.AffineMapAttr(attribute.starts).value.results]
    if len(starts) not in (1, 2) or any(form.axes for form in starts):
        raise MalformedAttribute(f"starts {attribute.starts} are not (offset) or (partition, offset) of symbols")
    return Access(element_type(attribute.dtype), starts[0] if len(starts) == 2 else None, starts[-1],
                  read_dims(attribute.dims))


@memoized
def element_type(attribute: Attribute) -> DType:
    """Return the element type that a type attribute names; raise ``MalformedAttribute`` if the language lacks it."""
    element = str(ir.TypeAttr(attribute).value)
    if element not in BY_MLIR:
        raise MalformedAttribute(f"'{element}' is not an element type of the language")
    return BY_MLIR[element]


@memoized
def read_dims(attribute: Attribute) -> tuple[tuple[int, int], ...]:
    """Return the (step, count) pairs of a pattern; raise ``MalformedAttribute`` if they are none."""
    pairs = elements(ir.ArrayAttr(attribute))
    if not all(isinstance(d, ir.ArrayAttr) and [type(n) for n in elements(d)] == [ir.IntegerAttr] * 2 for d in pairs):
        raise MalformedAttribute(f"dims {attribute} are not [step, count] pairs")
    dims = tuple((d[0].value, d[1].value) for d in pairs)
    if not dims or any(count < 1 for _, count in dims):
        raise MalformedAttribute(f"dims {attribute} have an extent below 1")
    if any(abs(step) > LARGEST_STEP or count > LARGEST_STEP for step, count in dims):
        raise MalformedAttribute(f"dims {attribute} have a step or an extent of more than {LARGEST_STEP:,}")
    return dims
