# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads structured operations (``linalg.generic``, fills, copies) into nests.

Results that depend only on types and attributes are memoized; operations of equal structure are read once.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Attribute, Operation, Type, Value, ir, operations_of
from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.dialects import native
from nki_mlir.dialects.access import Linear, Mask
from nki_mlir.dialects.attributes import MalformedAttribute, applied, memoized, read_linear, read_mask
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.scalar.dtypes import BY_MLIR, FLOAT32, INT32, DType
from nki_mlir.waist.generic import generic_of
from nki_mlir.waist.nest import Nest, Operand, Step

DYNAMIC = ir.ShapedType.get_dynamic_stride_or_offset()
STEPS = 1 << 30                             # provisional numbers of steps; old values of outputs are below 0
# Index arithmetic, by the function that computes it from elements.
COMPUTED_INDEX = {"arith.addi": "add", "arith.subi": "subtract", "arith.muli": "multiply", "arith.maxsi": "maximum",
                  "arith.minsi": "minimum"}

FUNCTIONS = ("alu", "activation", "math")    # steps that compute a function of numbers

COPIES = ("linalg.copy", "memref.copy")

Subscripts = Sequence[Linear]               # subscripts of one operand: a form of the axes for each of its dims


@dataclass(frozen=True)
class Structured:
    """An operation as a nest over its own axes, and the SSA values it works on."""

    nest: Nest
    values: tuple[Value, ...]  # values of the inputs, then of the outputs: memrefs, or numbers that no axis moves
    subscripts: tuple[Subscripts, ...]  # subscripts of each
    starts: tuple[int, ...]             # elements from the start of a memref to the start of the nest
    symbols: tuple[Value, ...]            # index values
    gathers: "tuple[GatheredRows, ...]" = ()
    structure: object = field(default_factory=object)       # equal for operations of equal structure


class GatheredRows(NamedTuple):
    """A buffer whose rows a body chooses by elements that it reads, and the other subscripts."""

    op: Operation
    buffer: Value
    subscripts: Subscripts


class MemrefLayout(NamedTuple):
    dtype: DType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@memoized
def layout_of(kind: Type) -> MemrefLayout:
    """Return the layout of a memref type, whose sizes and strides must be static."""
    sizes, dtype, _ = memref_parts(kind)
    strides, offset = ir.MemRefType(kind).get_strides_and_offset()
    if DYNAMIC in strides:
        raise Unsupported(feature=f"the strides of {kind}", instead="give the view static strides")
    return MemrefLayout(dtype, sizes, tuple(strides), offset)


@memoized
def scalar_dtype(kind: Type) -> DType | None:
    """Return the dtype of a scalar type; None for an index."""
    text = str(kind)
    if text != "index" and text not in BY_MLIR:
        raise Unsupported(feature=f"a scalar of type {text}", instead="use an element type of the language")
    return BY_MLIR.get(text)


@memoized
def subscripts_of(mapping: ir.AffineMapAttr) -> list[Linear]:
    """Return the forms that subscript an operand of a structured operation."""
    return [_linear(e) for e in mapping.value.results]


@memoized
def iterators_of(kinds: Attribute) -> tuple[int, frozenset[int]]:
    """Return the number of axes, and the reduced ones. Reads the text, because the class of an element would need an
    import."""
    names = [part for part in str(kinds).split(",") if "<" in part]
    return len(names), frozenset(k for k, name in enumerate(names) if "reduction" in name)


mask_of = memoized(read_mask)


def _linear(e: ir.AffineExpr) -> Linear:
    try:
        return read_linear(e)
    except MalformedAttribute:
        raise Unsupported(feature=f"the subscript {e}", instead="use linear subscripts") from None


def step_of(op: Operation, operands: tuple[int, ...]) -> Step:
    """Return a scalar operation as a step on the values of these numbers."""
    dtype = scalar_dtype(op.results[0].type)
    match op.name:
        case "scalar.convert" | "scalar.wrap" | "scalar.bitcast" if dtype is not None:
            return Step(op.name.removeprefix("scalar."), dtype, operands)
        case "scalar.alu" | "scalar.activation" | "scalar.math" if dtype is not None:
            return Step(op.name.removeprefix("scalar."), dtype, operands, op.attributes["fn"].value)
        case native.LOOKUP if dtype is not None:
            return Step("lookup", dtype, operands, op.attributes["fn"].value)
        case "arith.constant" if dtype is not None:
            number = op.attributes["value"].value
            return Step("constant", dtype, (), "", repr(number) if isinstance(number, float) else int(number))
    raise unreadable(op)


def is_narrow(dtype: DType | None) -> bool:
    """Return whether a dtype is a float that is narrower than the float32 in which functions are computed."""
    return dtype is not None and dtype.is_float and dtype.bits < FLOAT32.bits


def add_steps(op: Operation, operands: Sequence[int], add: Callable[[Step], int]) -> int:
    """Add the steps of a scalar operation on the values of these numbers; return the number of its value.

    ``add`` adds a step and returns the number of its value. A function of floats of less than 32 bits is computed in
    float32 and rounded once.
    """
    step = step_of(op, tuple(operands))
    narrow = [is_narrow(scalar_dtype(v.type)) for v in op.operands]
    if step.kind not in FUNCTIONS or not any(narrow):
        return add(step)
    wide = tuple([add(Step("convert", FLOAT32, (v,))) if is_narrow_operand else v
                  for v, is_narrow_operand in zip(operands, narrow)])
    if not is_narrow(step.dtype):
        return add(replace(step, operands=wide))
    return add(Step("convert", step.dtype, (add(replace(step, dtype=FLOAT32, operands=wide)),)))


def unreadable(op: Operation) -> NkiMlirError:
    return Unsupported(feature=f"'{op.name}' in a scalar expression", instead="use operations of the scalar dialect"
                       ).located(location_of(op))


class Reader:
    """Reads structured operations for the executors."""

    def __init__(self) -> None:
        self.structures: dict[Hashable, Structured] = {}         # by ``structure_key``

    def read(self, op: Operation, inner: Sequence[Operation] | None = None) -> Structured:
        """Return the computation of a ``linalg.generic``, a fill or a copy.

        ``inner`` are the operations of its body, if the caller knows them.
        """
        operands = list(op.operands)
        if op.name == "linalg.fill":
            value = defining(operands.pop(0))
            key: Hashable | None = None if value is None or value.name != "arith.constant" else (
                op.name, operands[0].type, value.attributes["value"])
        elif op.name in COPIES:
            key = op.name, *[value.type for value in operands]
        else:
            key = structure_key(op, operands, operations_of(op, lambda name: True)[1:] if inner is None else inner)
        earlier = self.structures.get(key) if key is not None else None
        if earlier is not None:
            return Structured(earlier.nest, tuple(operands), earlier.subscripts, earlier.starts, (), (),
                              earlier.structure)
        read = structured(op)
        if read.gathers:
            raise unreadable(read.gathers[0].op)
        if key is not None:
            self.structures[key] = read
        return read


def _copied(op: Operation) -> Structured:
    source, target = op.operands
    if layout_of(source.type).dtype is not layout_of(target.type).dtype:
        raise Unsupported(feature=f"'{op.name}' between {source.type} and {target.type}",
                          instead="convert the elements").located(location_of(op))
    extents = layout_of(target.type).sizes
    body = _BodyReader(())
    body.inputs, body.yielded = [(source, _identity(extents))], [0]
    return _structured(extents, frozenset(), body, [target], [_identity(extents)])


def structured(op: Operation) -> Structured:
    """Read a ``linalg.generic``, a fill or a copy."""
    operands = list(op.operands)
    if op.name in COPIES:
        return _copied(op)
    if op.name == "linalg.fill":
        value, target = operands
        if scalar_dtype(value.type) is not layout_of(target.type).dtype:
            raise Unsupported(feature=f"'linalg.fill' of {target.type} with a {value.type}",
                              instead="convert it first").located(location_of(op))
        extents = layout_of(target.type).sizes
        body = _BodyReader(())
        body.yielded = [body.value(value)]
        return _structured(extents, frozenset(), body, [target], [_identity(extents)])
    generic = generic_of(op)
    if generic is None:
        raise unreadable(op)
    attributes, arguments, count = op.attributes, list(generic.block.arguments), len(generic.inputs)
    subscripts = [subscripts_of(ir.AffineMapAttr.get(m)) for m in generic.maps]
    rank, reduced = iterators_of(attributes["iterator_types"])
    inputs = [k for k in range(count) if isinstance(operands[k].type, ir.MemRefType)]
    symbols = [k for k in range(count) if isinstance(arguments[k].type, ir.IndexType)]
    memory = (*inputs, *range(count, len(operands)))
    extents = extents_of(op, [(subscripts[k], layout_of(operands[k].type).sizes) for k in memory], rank)
    body = _BodyReader([operands[k] for k in symbols])
    body.values.update((arguments[k], number) for number, k in enumerate(inputs))
    body.forms.update((arguments[k], Linear(0, ((number, 1),))) for number, k in enumerate(symbols))
    body.inputs = [(operands[k], subscripts[k]) for k in inputs]
    for k in range(count):
        if arguments[k] not in body.values and arguments[k] not in body.forms:      # a number becomes part of the body
            body.values[arguments[k]] = body.value(operands[k])
    body.read(op, arguments[count:])
    mask, limits = (mask_of(attributes[name]) if name in attributes else () for name in ("nki.mask", "nki.limits"))
    return _structured(extents, reduced, body, operands[count:], subscripts[count:], mask, limits)


def _identity(extents: Sequence[int]) -> Subscripts:
    return [Linear(0, (), ((axis, 1),)) for axis in range(len(extents))]


def _structured(extents: tuple[int, ...], reduced: frozenset[int], body: "_BodyReader", outputs: Sequence[Value],
                subscripts: Sequence[Subscripts], mask: Mask = (), limits: Mask = ()) -> Structured:
    values = (*(value for value, _ in body.inputs), *outputs)
    forms = (*(form for _, form in body.inputs), *subscripts)
    operands, starts = zip(*[_operand(v, form, len(extents)) for v, form in zip(values, forms)])
    first_output = len(body.inputs)
    steps, results = body.finish(len(outputs))
    nest = Nest(extents, reduced, operands[:first_output], len(body.symbols), operands[first_output:], steps, results,
                mask, limits)
    return Structured(nest, values, forms, starts, tuple(body.symbols), tuple(body.gathers))


def _operand(value: Value, subscripts: Subscripts, rank: int) -> tuple[Operand, int]:
    """Return the operand with its stride along each axis, and the elements from the start of its memref to its first
    element."""
    strides, start = [0] * rank, 0
    if not isinstance(value.type, ir.MemRefType):
        dtype = scalar_dtype(value.type)
        assert dtype is not None
        return Operand(dtype, tuple(strides)), 0
    layout = layout_of(value.type)
    for subscript, step in zip(subscripts, layout.strides):
        start += subscript.const * step
        for axis, factor in subscript.axes:
            strides[axis] += factor * step
    return Operand(layout.dtype, tuple(strides)), start


def extents_of(op: Operation, operands: Sequence[tuple[Subscripts, Sequence[int]]], rank: int) -> tuple[int, ...]:
    """Return the extents of the loops. An extent is the size of a dim whose subscript is only that axis."""
    extents: dict[int, int] = {}
    for subscripts, sizes in operands:
        for subscript, size in zip(subscripts, sizes):
            if subscript.const == 0 and len(subscript.axes) == 1 and subscript.axes[0][1] == 1:
                extents.setdefault(subscript.axes[0][0], size)
    if len(extents) != rank:
        raise Unsupported(feature="a loop of linalg.generic whose extent no operand determines",
                          instead="subscript some operand by each loop").located(location_of(op))
    return tuple([extents[axis] for axis in range(rank)])


class _BodyReader:
    """Reads the scalar operations of one body. Values have provisional numbers, so that inputs can follow."""

    def __init__(self, symbols: Sequence[Value]) -> None:
        self.inputs: list[tuple[Value, Subscripts]] = []
        self.symbols, self.yielded = list(symbols), list[int]()
        self.gathers: list[GatheredRows] = []
        self.values: dict[Value, int] = {}
        self.forms: dict[Value, Linear] = {}        # index values over axes and symbols
        self.steps: list[Step] = []
        self.inside: dict[Value, Operation] = {}    # operations of the body

    def read(self, op: Operation, outputs: Sequence[Value]) -> None:
        self.values.update((argument, -1 - k) for k, argument in enumerate(outputs))
        for inner in operations_of(op, lambda name: True)[1:]:
            if inner.name == "linalg.yield":
                self.yielded = [self.value(v) for v in inner.operands]
                continue
            result, = inner.results
            self.inside[result] = inner
            dtype = scalar_dtype(result.type)
            if dtype is not None:                   # index values are read where they are used
                self.values[result] = self.operation(inner, dtype)

    def value(self, value: Value) -> int:
        """Return the number of a value. The body computes constants from outside, too; integers become symbols."""
        existing = self.values.get(value)
        if existing is not None:
            return existing
        op, dtype = self.inside.get(value) or defining(value), scalar_dtype(value.type)
        if dtype is None:
            raise Unsupported(feature="an index as a number in a scalar expression", instead="cast it to an integer")
        if op is not None and op.name.startswith(("arith.constant", "scalar.")):
            number = self.operation(op, dtype)
        elif dtype.is_float:
            self.inputs.append((value, ()))
            number = len(self.inputs) - 1
        else:
            number = self.add(Step("position", dtype, (), "", self.symbol(value)))
        self.values[value] = number
        return number

    def operation(self, op: Operation, dtype: DType) -> int:
        if op.name == "arith.index_cast":
            return self.position(op.operands[0], dtype)
        if op.name == "memref.load":
            return self.load(op, dtype)
        return add_steps(op, [self.value(v) for v in op.operands], self.add)

    def symbol(self, value: Value) -> Linear:
        self.symbols.append(value)
        return Linear(0, ((len(self.symbols) - 1, 1),))

    # -- index values --------------------------------------------------------------------------------------------------
    def form(self, value: Value) -> Linear:
        """Return an index value as a form of axes and symbols."""
        if value not in self.forms:
            op = self.inside.get(value)
            if op is None and (outside := defining(value)) is not None and outside.name == "arith.constant":
                op = outside
            self.forms[value] = self.symbol(value) if op is None else self.computed(op)
        return self.forms[value]

    def computed(self, op: Operation) -> Linear:
        match op.name:
            case "arith.constant":
                return Linear(op.attributes["value"].value)
            case "linalg.index":
                return Linear(0, (), ((op.attributes["dim"].value, 1),))
            case "affine.apply":
                form = applied(op.attributes["map"].value, [self.form(v) for v in op.operands])
                if form is None:
                    raise Unsupported(feature=f"the index {op.attributes['map'].value.results[0]}",
                                      instead="use a linear map")
                return form
            case "arith.addi" | "arith.subi":
                left, right = map(self.form, op.operands)
                return left.plus(right, 1 if op.name == "arith.addi" else -1)
        raise unreadable(op)

    def position(self, value: Value, dtype: DType) -> int:
        """Return the number of an index value: a form becomes a position, other values are computed from integers in
        the body."""
        op = self.inside.get(value)
        if op is None or not self.from_data(value):
            return self.add(Step("position", dtype, (), "", self.form(value)))
        if op.name == "arith.index_cast":
            number = self.value(op.operands[0])
            return number if scalar_dtype(op.operands[0].type) is dtype else self.add(Step("convert", dtype, (number,)))
        if op.name not in COMPUTED_INDEX:
            raise unreadable(op)
        operands = tuple([self.position(v, dtype) for v in op.operands])
        return self.add(Step("alu", dtype, operands, COMPUTED_INDEX[op.name]))

    def from_data(self, value: Value) -> bool:
        """Return whether an index value is computed from elements."""
        op = self.inside.get(value)
        return op is not None and (op.name == "arith.index_cast" or any(map(self.from_data, op.operands)))

    # -- elements of other buffers -------------------------------------------------------------------------------------
    def load(self, op: Operation, dtype: DType) -> int:
        """Read an element of a buffer as one more input, or as a gather if data choose the row."""
        buffer, *subscripts = op.operands
        if not any(map(self.from_data, subscripts)):
            forms = [self.form(v) for v in subscripts]
            if not any(form.symbols for form in forms):
                self.inputs.append((buffer, forms))
                return len(self.inputs) - 1
        if not subscripts or any(map(self.from_data, subscripts[1:])):
            raise Unsupported(feature="a subscript that is computed from data, other than the first of a gather",
                              instead="gather rows").located(location_of(op))
        row = self.position(subscripts[0], INT32)
        self.gathers.append(GatheredRows(op, buffer, [self.form(v) for v in subscripts[1:]]))
        return self.add(Step("gather", dtype, (row,), "", len(self.gathers) - 1))

    def add(self, step: Step) -> int:
        """Add a step, and return the number of its value."""
        self.steps.append(step)
        return STEPS + len(self.steps) - 1

    def finish(self, outputs: int) -> tuple[tuple[Step, ...], tuple[int, ...]]:
        """Return steps and results with final numbers."""
        first_output = len(self.inputs)

        def final(number: int) -> int:
            if number < 0:
                return first_output - 1 - number
            return number if number < STEPS else first_output + outputs + number - STEPS
        steps = tuple([Step(s.kind, s.dtype, tuple([final(v) for v in s.operands]), s.name, s.number)
                       for s in self.steps])
        return steps, tuple([final(v) for v in self.yielded])


def structure_key(op: Operation, operands: Sequence[Value], inner: Sequence[Operation]) -> Hashable | None:
    """Return a key that is equal for operations of equal attributes, operand types and bodies.

    Return None if an operand is a number, or if the body uses values from outside: types do not show these.
    """
    types = [value.type for value in operands]
    if not all([isinstance(kind, ir.MemRefType) for kind in types]):
        return None
    number_of: dict[Value, int] = {argument: k for k, argument in enumerate(op.regions[0].blocks[0].arguments)}
    body: list[object] = []

    for operation in inner:
        body.append((operation.name, *operation.attributes.items(),
                     *[number_of.get(value) for value in operation.operands]))
        for result in operation.results:
            number_of[result] = len(number_of)
            body.append(result.type)
    if any([None in step for step in body if type(step) is tuple]):
        return None
    return (*types, *op.attributes.items(), *body)
