# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a function's records as MLIR: nests as ``linalg`` on parts of buffers, loops and branches as ``scf``, index
values as ``arith`` and ``affine``, and the rest in the ``native`` dialect.

``native_reader.py`` reads equal records back. Memory becomes buffers of one axis. Their elements have the type that all
calls use, or are bytes if the calls differ. A buffer of a tile operation has the operation's type.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from nki_mlir.bindings import Attribute, Module, Operation, Value, ir, operations_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects import native
from nki_mlir.dialects.access import HBM, SBUF, ZERO, Access, Linear, Tile
from nki_mlir.dialects.attributes import expression
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.op import changed
from nki_mlir.dialects.source_locations import with_origin
from nki_mlir.scalar.dtypes import BY_MLIR, FLOAT32, UINT8, DType
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.addressed_nest import AddressedNest
from nki_mlir.targets.cpu.code_forms import CODE_FORMS
from nki_mlir.targets.cpu.contraction import RegisterTile, TileProduct
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.image import SITE_BITS
from nki_mlir.targets.cpu.routines import Limits, Routine, RowCopies
from nki_mlir.targets.cpu.tile_registers import PANEL, TileRegisterProduct
from nki_mlir.targets.cpu.values import FUNCTIONS
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.writer import IterationSpace, OperandView, ScalarBody, Writer

FUNCTION_OF = {name: function for function, name in FUNCTIONS.items()}
DIVISIONS = {"floordiv": ir.AffineExpr.get_floor_div, "mod": ir.AffineExpr.get_mod}


def module_of(function: NativeFunction) -> Module:
    """Return a module with the function and the globals that it uses. The module contains a copy, so that the records
    do not change."""
    copy: Any = function.kernel.op.parent.operation.clone()
    module: Module = copy
    for other in operations_of(module, lambda name: name == "func.func"):
        if other.attributes["sym_name"].value == function.kernel.name:
            write_function(function, other)
        else:
            other.erase()
    return module


def write_function(function: NativeFunction, op: Operation) -> None:
    """Replace the body of a function of MLIR by the records."""
    block = op.regions[0].blocks[0]
    for inner in reversed([entry.operation for entry in block.operations]):
        inner.erase()
    with op.context, op.location:
        FunctionWriter(function, op).write()


class FunctionWriter(Writer):
    """Writes one function. ``values`` maps slots to SSA values, ``bases`` symbols of addresses to complete buffers.
    ``index_values`` has the values of enclosing blocks, which need not be computed again.
    """

    def __init__(self, function: NativeFunction, op: Operation) -> None:
        super().__init__()
        self.function, self.op = function, op
        kernel, block = function.kernel, op.regions[0].blocks[0]
        self.location, self.masked, self.emitted = ir.Location.unknown(), False, []
        self.insertion_point = self.outside = ir.InsertionPoint(block)
        self.values: dict[int, Value] = {}
        self.bases: dict[int, Value] = {}
        self.index_values: dict[object, Value] = {}
        for argument, spec in zip(block.arguments, kernel.arguments):
            if spec.kind == "program_id":
                self.values[cpu.FIRST_ID + spec.index] = argument
            else:
                position = spec.index + (len(kernel.inputs) if spec.kind == "shared" else 0)
                self.bases[cpu.FIRST_ID + function.axes + position] = argument
        self.layouts = buffer_layouts(function)

    def write(self) -> None:
        attributes, function = self.op.attributes, self.function
        attributes[native.FUNCTION] = ir.UnitAttr.get()
        if function.notes:
            attributes[native.NOTES] = self.make.value(tuple(function.notes))
        if function.merged > 1:             # the grid without programs that were merged
            grid = function.kernel.grid
            attributes["nki.grid"] = self.make.value((*grid[:-1], grid[-1] // function.merged))
        for number, (name, kind) in function.globals.items():
            self.bases[cpu.CONSTANTS - number] = self.constant_buffer(name, kind)
        for number, nest in function.tables.items():
            self.bases[cpu.CONSTANTS - number] = self.table(nest, len(function.constants[number]))
        self.nodes(function.body)
        self.create("func.return", [])

    # -- structure -----------------------------------------------------------------------------------------------------
    def nodes(self, block: cpu.NativeBlock) -> None:
        outer, self.index_values = self.index_values, dict(self.index_values)
        for node in block.nodes:
            self.node(node)
        self.index_values = outer

    def node(self, node: cpu.Node) -> None:
        match node:
            case cpu.Allocate(buffer):
                marks: dict[str, Attribute] = {native.ZEROED: ir.UnitAttr.get()} if buffer.zeroed else {}
                self.bases[cpu.BUFFERS + buffer.number] = self.buffer(*self.layouts[buffer], marks).handle
            case cpu.NativeLoop():
                marks = {native.ON_POOL: ir.UnitAttr.get()} if node.on_pool else {}
                low, high, step = map(self.index, (node.low, node.high, node.step))
                with self.loop(low, high, step, marks) as variable:
                    self.values[node.slot] = variable
                    self.nodes(node.body)
            case cpu.NativeBranch(condition, then, otherwise):
                self.branch(self.condition(condition), lambda: self.nodes(then),
                            None if otherwise is None else lambda: self.nodes(otherwise))
            case cpu.NativeWhile(test, condition, body):
                def write_test() -> Value:
                    self.nodes(test)
                    return self.condition(condition)
                self.while_loop(write_test, lambda: self.nodes(body))
            case cpu.Spread():
                marks = {native.SPREAD: self.make.value(node.count), **self.marks(node.part)}
                self.nest(node.nest, node.arguments[3::2], marks)
            case cpu.NativeLoad():
                slot, address = addresses(node)
                self.values[slot.const // 8] = self.load(self.part(address, node.dtype, (1,), (1,)), [self.index(ZERO)])
            case cpu.TileCall():
                self.tile_operation(node)
            case cpu.RoutineCall(function, _):
                self.call(node, function)

    def call(self, call: cpu.RoutineCall, function: Routine | str) -> None:
        match function:
            case "nki_check":
                value, site = addresses(call)
                self.check(native.CHECK, [value], site)
            case Limits():
                *symbols, site = addresses(call)
                rank = len(function.extents)
                self.check(native.CHECK_LIMITS, symbols, site, {
                    "extents": ir.DenseI64ArrayAttr.get(list(function.extents)),
                    **{name: self.make.mask(forms, rank, len(symbols))
                       for name, forms in (("mask", function.mask), ("limits", function.limits))}})
            case str():
                slot, *operands = addresses(call)
                self.values[slot.const // 8] = self.scalar(function.removeprefix("nki_"), *operands)
            case TileProduct(nest, fresh, pairs, RegisterTile() as tile):
                rows, columns, *sizes, depth = nest.extents
                self.packed_product(call, (rows, columns), sizes, depth, nest.outputs[0].strides[2], fresh,
                                    "pairs" if pairs else "float32", (tile.rows, tile.vectors))
            case TileRegisterProduct(rows, columns, depth, line, fresh):
                self.packed_product(call, (rows, columns), (PANEL, PANEL), depth, line, fresh, "amx", ())
            case _:
                fixed = {} if isinstance(call, cpu.Compute) else {native.FIXED: ir.UnitAttr.get()}
                marks = self.marks(function) | fixed
                self.nest(nest_of(function), call.arguments, marks)

    # -- index values --------------------------------------------------------------------------------------------------
    def once_in_block(self, key: object, make: Callable[[], Value]) -> Value:
        if key not in self.index_values:
            self.index_values[key] = make()
        return self.index_values[key]

    def index(self, form: Linear) -> Value:
        return self.once_in_block(form, lambda: self._index(form))

    def _index(self, form: Linear) -> Value:
        if not form.symbols:
            return self.number(form.const)
        if form == cpu.slot_value(form.symbols[0][0]):
            return self.as_index(self.values[form.symbols[0][0]])
        return self.applied(*self.expression(form))

    def expression(self, form: Linear) -> tuple[ir.AffineExpr, list[Value]]:
        """Return a linear form as an affine expression, and the values that are its symbols."""
        over = Linear(form.const, tuple([(k, c) for k, (_, c) in enumerate(form.symbols)]))
        return expression(over), [self.index(cpu.slot_value(slot)) for slot, _ in form.symbols]

    def truth(self, form: Linear) -> Value | None:
        """Return a form as a truth value; None if it is another number."""
        if not form.symbols and form.const in (0, 1):
            return self.number(form.const, self.make.i1)
        is_slot = form.symbols and form == cpu.slot_value(form.symbols[0][0])
        value = self.values.get(form.symbols[0][0]) if is_slot else None
        return value if value is not None and value.type == self.make.i1 else None

    def condition(self, form: Linear) -> Value:
        truth = self.truth(form)
        return self.computed("ne", self.index(form), self.index(ZERO)) if truth is None else truth

    def scalar(self, name: str, first: Linear, second: Linear) -> Value:
        """Emit a function of the machine on two values, and return its result."""
        if name in DIVISIONS:
            dividend, symbols = self.expression(first)
            return self.applied(DIVISIONS[name](dividend, second.const), symbols)
        if name in ("andi", "ori", "xori") and (first.symbols or second.symbols):
            first_truth, second_truth = self.truth(first), self.truth(second)
            if first_truth is not None and second_truth is not None:
                return self.computed(FUNCTION_OF[name], first_truth, second_truth)
        return self.computed(FUNCTION_OF[name], self.index(first), self.index(second))

    # -- memory --------------------------------------------------------------------------------------------------------
    def part(self, address: Linear, dtype: DType, sizes: Sequence[int], strides: Sequence[int]) -> Value:
        """Return the part of a buffer that begins at an address."""
        root = next(symbol for symbol, _ in address.symbols if symbol in self.bases)
        numbers = (address.const, *(factor for symbol, factor in address.symbols if symbol != root))
        if any(number % dtype.itemsize for number in numbers):
            raise Unsupported(feature=f"MLIR of {dtype} at {address.const} bytes, which its size does not divide",
                              instead="print the module before the passes of the CPU")
        offset = Linear(address.const // dtype.itemsize, tuple(
            [(symbol, factor // dtype.itemsize) for symbol, factor in address.symbols if symbol != root]))
        start = offset.const if not offset.symbols and offset.const >= 0 else self.index(offset)
        return self.once_in_block((address, dtype, *sizes, *strides),
                                  lambda: self.window(self.with_dtype(root, dtype), start, sizes, strides))

    def with_dtype(self, root: int, dtype: DType) -> Value:
        """Return a buffer with elements of a dtype."""
        *outer, innermost = self.bases[root].type.shape or [1]
        size = innermost * BY_MLIR[str(self.bases[root].type.element_type)].itemsize // dtype.itemsize
        return self.with_shape(root, (*outer, size), dtype)

    def with_shape(self, root: int, shape: tuple[int, ...], dtype: DType) -> Value:
        base = self.bases[root]
        if base.type.element_type == self.make.type(dtype):
            return base
        kind = self.make.memref(shape, dtype, base.type.memory_space.value)
        return self.once_in_block((root, kind), lambda: self.reinterpreted(base, kind))

    def table(self, function: Nest, length: int) -> Value:
        """Return the table of a function of one input."""
        source, target = (operand.dtype for operand in function.operands)
        op = self.create(native.TABLE, [], [self.make.memref((length,), target, HBM)], {}, 1)
        with self.inside(op.regions[0], self.make.type(source)) as block:
            self.scalars(target).steps(function, [block.arguments[0]] * 2)
        return op.results[0]

    # -- computations --------------------------------------------------------------------------------------------------
    def marks(self, routine: Routine) -> dict[str, Attribute]:
        """Return the marks of a nest for facts about its memory."""
        marks: dict[str, Attribute] = {}
        match routine:
            case TileProduct(_, fresh, pairs, _, ahead):
                marks |= {mark: ir.UnitAttr.get() for mark, is_set in ((native.FRESH, fresh), (native.PAIRS, pairs))
                          if is_set}
                if ahead:
                    marks[native.NEXT] = self.make.value(ahead)
            case AddressedNest(_, use, forms):
                if use.streams:
                    marks[native.STREAMS] = ir.DenseI64ArrayAttr.get(list(use.streams))
                if use.ahead:
                    marks[native.AHEAD] = self.make.value(use.ahead)
                if use.fields:
                    marks[native.FIELDS] = ir.UnitAttr.get()
                marks |= {CODE_FORMS[form].mark: ir.UnitAttr.get() for form in forms}
        return marks

    def operand(self, nest: Nest, number: int, address: cpu.Argument) -> OperandView:
        """Return the part of a buffer over which an operand steps. The first operand also has the axes along which no
        operand steps."""
        assert isinstance(address, Linear)
        operand = nest.operands[number]
        axes = tuple([a for a in range(len(nest.extents)) if operand.strides[a]
                      or (number == 0 and not any(o.strides[a] for o in nest.operands))])
        sizes, strides = ([numbers[a] for a in axes] for numbers in (nest.extents, operand.strides))
        return OperandView(self.part(address, operand.dtype, sizes, strides), operand.dtype, axes)

    def nest(self, nest: Nest, arguments: Sequence[cpu.Argument], marks: Mapping[str, Attribute]) -> None:
        """Write a nest on the parts of buffers that begin at the arguments; the last arguments are its symbols."""
        count, rank = len(nest.operands), len(nest.extents)
        views = [self.operand(nest, k, arguments[k]) for k in range(count)]
        inputs, outputs = views[:len(nest.inputs)], views[len(nest.inputs):]
        symbols = tuple([self.index(a) for a in arguments[count:]])                         # type: ignore[arg-type]
        is_plain = len(outputs) == 1 and not (nest.reduced or nest.mask or symbols) and all(
            len(view.axes) == rank for view in views)
        step = nest.step(nest.results[0])
        if native.FRESH in marks:
            self.fill(outputs[0], 0.0, {native.FRESH: marks[native.FRESH]})
        if is_plain and not nest.steps and nest.results == (0,) and len(inputs) == 1:
            self.copy(inputs[0], outputs[0], marks)
        elif is_plain and not inputs and len(nest.steps) == 1 and step is not None and step.kind == "constant":
            self.fill(outputs[0], float(step.number) if step.dtype.is_float else step.number, marks)
        else:
            def body(scalars: ScalarBody, read: Sequence[Value], before: Sequence[Value]) -> list[Value]:
                return scalars.steps(nest, [*read, *before])
            symbol_forms = [Linear(0, tuple([(k, 1) for k in range(nest.symbols)]))]
            space = IterationSpace(rank, nest.reduced, nest.mask, (), symbols)
            self.generic(space, inputs, outputs, FLOAT32, body, symbol_forms, marks)

    def packed_product(self, call: cpu.RoutineCall, panels: Sequence[int], sizes: Sequence[int], depth: int, line: int,
                       fresh: bool, unit: str, tile: Sequence[int]) -> None:
        a, b, out = addresses(call)
        factors = [self.part(address, FLOAT32, (count, depth, size), (depth * size, size, 1))
                   for address, count, size in zip((a, b), panels, sizes)]
        rows, columns = (count * size for count, size in zip(panels, sizes))
        result = self.part(out, FLOAT32, (rows, columns), (line, 1))
        arrays = {name: ir.DenseI64ArrayAttr.get(list(numbers))
                  for name, numbers in (("panels", panels), ("sizes", sizes), ("tile", tile))}
        self.create(native.PACKED_PRODUCT, [*factors, result], [], arrays | {
            name: self.make.value(value)
            for name, value in (("unit", unit), ("depth", depth), ("line", line), ("fresh", fresh))})

    def tile_operation(self, call: cpu.TileCall) -> None:
        op, function, tiles = call.op, call.function, []
        symbols = [self.index(form) for form in call.symbols]
        for (_, tile), region in zip(op.operands(), call.regions):
            root = region.base.symbols[0][0]
            if isinstance(function, RowCopies) and tile.space != HBM and isinstance(region.root, str):
                tile = self.stored_rows(call, function, root, symbols)
            tiles.append(tile.on(self.with_shape(root, tile.base_shape, tile.base_dtype)))
        streams = isinstance(function, RowCopies) and function.streams
        marks: dict[str, Attribute] = {native.STREAMS: ir.DenseI64ArrayAttr.get([0])} if streams else {}
        if isinstance(call, cpu.SpreadSearch):
            marks[native.SPREAD] = self.make.value(call.count)
        new = iter(tiles)
        with self.located(call.site):
            write_op(changed(op, lambda tile: next(new), symbols=tuple(symbols), extra=op.extra | marks), self.make,
                     self.location, self.insertion_point)

    def stored_rows(self, call: cpu.TileCall, rows: RowCopies, root: int, symbols: list[Value]) -> Tile:
        """Return the rows of an array to which gathered rows go, which ``store-rows`` found."""
        kind, piece = self.bases[root].type, call.piece
        dtype, size = rows.row.outputs[0].dtype, rows.row.outputs[0].dtype.itemsize
        assert piece is not None
        start = Linear(piece.offset.const // size, tuple(
            [(len(symbols) + k, factor // size) for k, (_, factor) in enumerate(piece.offset.symbols)]))
        symbols += [self.index(cpu.slot_value(slot)) for slot, _ in piece.offset.symbols]
        tile: Tile = call.op.piece                                                              # type: ignore[attr-defined]
        shape, strides = tile.shape[1:], rows.row.outputs[0].strides
        # in the order in which nests have axes
        is_ordered = list(tile.strides[1:]) == sorted(tile.strides[1:], reverse=True)
        if len(strides) < 2:                # the nest has all axes of a row as one axis
            step = strides[0] if strides else 1
            strides = tuple([step * prod(shape[axis + 1:]) for axis in range(len(shape))])
        dims = ((rows.piece_step, rows.count), *zip(strides, shape))
        if kind.element_type != self.make.type(dtype) or not is_ordered or prod(shape) != rows.row.elements or (
                len(rows.row.extents) > 1 and rows.row.extents != shape):
            raise Unsupported(feature="rows of several axes that are stored where they are gathered, in MLIR",
                              instead="leave the pass store-rows out of the pipeline")
        return Tile(None, HBM, tuple(kind.shape), dtype, Access(dtype, None, start, dims))

    # -- checks --------------------------------------------------------------------------------------------------------
    def check(self, name: str, forms: Sequence[Linear], site: cpu.Argument,
              attributes: Mapping[str, Attribute] = {}) -> None:
        operands = [self.index(form) for form in forms]
        with self.located(site) as (rule, values):
            self.create(name, operands, [], {"rule": self.make.value(rule), "values": self.make.value(values),
                                             **attributes})

    @contextmanager
    def located(self, site: cpu.Argument) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Write at the source location of a failure site; yield the attributes of its error."""
        assert isinstance(site, Linear)
        at, rule, values = self.function.sites[(site.const & ((1 << SITE_BITS) - 1)) - 1]
        before = self.location
        if at is not None:
            location = ir.Location.file(at.file, at.line, at.column + 1)
            self.location = with_origin(at.origin, location) if at.origin else location
        yield rule, values
        self.location = before


def addresses(call: cpu.RoutineCall) -> list[Linear]:
    """Return the arguments of a call that has only numbers and addresses."""
    return [a for a in call.arguments if isinstance(a, Linear)]


def nest_of(routine: Routine | str) -> Nest:
    """Return the nest that a routine computes."""
    if isinstance(routine, AddressedNest | TileProduct):
        return routine.nest
    assert isinstance(routine, Nest)
    return routine


def buffer_layouts(function: NativeFunction) -> dict[cpu.ScratchBuffer, tuple[tuple[int, ...], DType, str]]:
    """Return the shape, dtype and memory of each buffer: of the first tile operation on it, or one row of elements."""
    tiles: dict[cpu.ScratchBuffer, Tile] = {}
    dtypes: dict[int, set[DType]] = {}
    for call in cpu.calls_in(*function.body.nodes):
        if isinstance(call, cpu.TileCall):
            for (_, tile), region in zip(call.op.operands(), call.regions):
                if isinstance(region.root, cpu.ScratchBuffer):
                    tiles.setdefault(region.root, tile)
            continue
        for address, dtype in elements_of(call):
            for symbol, _ in address.symbols if isinstance(address, Linear) else ():
                dtypes.setdefault(symbol - cpu.BUFFERS, set()).add(dtype)

    def layout(buffer: cpu.ScratchBuffer) -> tuple[tuple[int, ...], DType, str]:
        if buffer in tiles:
            tile = tiles[buffer]
            return tile.base_shape, tile.base_dtype, tile.space
        used = dtypes.get(buffer.number, set())
        if len(used) == 1 and buffer.size % (dtype := next(iter(used))).itemsize == 0:
            return (buffer.size // dtype.itemsize,), dtype, SBUF
        return (1, buffer.size), UINT8, SBUF
    return {buffer: layout(buffer) for buffer in function.buffers}


def elements_of(call: cpu.RoutineCall) -> Iterator[tuple[cpu.Argument, DType]]:
    """Yield the addresses of a call with the dtypes of the elements there."""
    match call:
        case cpu.Spread():
            yield from zip(call.arguments[3::2], [o.dtype for o in call.nest.operands])
        case cpu.NativeLoad():
            yield call.arguments[1], call.dtype
        case cpu.RoutineCall(TileRegisterProduct(), arguments):
            yield from ((address, FLOAT32) for address in arguments)
        case cpu.RoutineCall(Nest() | AddressedNest() | TileProduct() as routine, arguments):
            yield from zip(arguments, [o.dtype for o in nest_of(routine).operands])
