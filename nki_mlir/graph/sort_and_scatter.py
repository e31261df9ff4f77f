# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites operations that upstream passes lack: ``stablehlo.sort`` and ``stablehlo.scatter``, and saturating
conversions.

A sort or scatter becomes a call of a new function with loops over elements; its region that compares or combines
becomes a function as well. A sort is a stable merge sort that starts from runs of one element. A scatter applies its
updates one by one and skips windows that do not fit into the result.

Conversions saturate: a float outside of the range of an integer type becomes the nearest integer in it, NaN becomes 0,
as in XLA and on the engines.

before:  %n = arith.fptosi %x : f32 to i8            (undefined outside of -129 < %x < 128)
after:   the same between comparisons of %x with the ends of the type, which choose -128, 127 or 0
"""

from collections.abc import Sequence

from nki_mlir.bindings import Module, Operation, Value, ir, load, operations_of
from nki_mlir.dialects.creation import declared, terminator, value_of
from nki_mlir.graph.upstream import define, exchange_for_call


def rewrite_sequential(module: Module) -> None:
    """Replace all sorts and scatters of static shape."""
    operations = operations_of(module, lambda name: name in ("stablehlo.sort", "stablehlo.scatter"))
    for number, op in enumerate(operations):
        if not all(ir.RankedTensorType(v.type).has_static_shape for v in op.operands):
            continue
        name = f"{op.name.partition('.')[2]}.{number}"
        step = f"{name}.step"
        text = MergeSort(op, step).function(name) if op.name == "stablehlo.sort" else scatter_text(op, name, step)
        if text is None:
            continue
        outline(module, op, step)
        define(module, text, op, 1)         # the first function only declares the step
        exchange_for_call(op, name)


def outline(module: Module, op: Operation, name: str) -> None:
    """Turn the region of an operation into a function, with copies of the constants that it uses from outside."""
    block = op.regions[0].blocks[0]
    copies = {}
    for inner in [entry.operation for entry in block.operations]:
        for k, value in enumerate(inner.operands):
            if not isinstance(value.owner, ir.Block) and value.owner.operation.block != block:
                if value not in copies:
                    with ir.InsertionPoint.at_block_begin(block):
                        copies[value] = value.owner.operation.clone().operation.results[0]
                inner.operands[k] = copies[value]
    end = terminator(block)
    kind = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in end.operands])
    with op.context, op.location:
        with ir.InsertionPoint(end):
            ir.Operation.create("func.return", operands=list(end.operands))
        end.erase()
        with ir.InsertionPoint(module.body):
            function = declared(ir.StringAttr.get(name), ir.TypeAttr.get(kind))
        block.append_to(function.regions[0])


class Lines:
    """The text of nested loops that carry tensors."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indices: set[int] = set()

    def add(self, *lines: str) -> None:
        self.lines += lines

    def index(self, value: int) -> str:
        self.indices.add(value)
        return f"%n{value}"

    def constants(self) -> list[str]:
        return [f"%n{n} = arith.constant {n} : index" for n in sorted(self.indices)]

    def opened(self, variable: str, extent: int, result: str, carried: Sequence[str], initial: Sequence[str],
               kinds: Sequence[str]) -> None:
        """Add the head of a loop that counts from 0; its results are ``result#0`` and so on."""
        arguments = ", ".join(f"{c} = {g}" for c, g in zip(carried, initial))
        self.add(f"{result}:{len(kinds)} = scf.for {variable} = {self.index(0)} to {self.index(extent)} step "
                 f"{self.index(1)} iter_args({arguments}) -> ({', '.join(kinds)}) {{")

    def closed(self, values: Sequence[str], kinds: Sequence[str]) -> None:
        self.add(f"scf.yield {', '.join(values)} : {', '.join(kinds)}", "}")


def sort_axis(op: Operation) -> int:
    """Return the axis of a sort; the last one if it does not say."""
    axis = op.attributes["dimension"].value if "dimension" in op.attributes else -1
    return int(axis % ir.RankedTensorType(op.operands[0].type).rank)


class MergeSort:
    """The text of a function that sorts tensors together along an axis: it merges runs of 1, 2, 4, ... elements in
    pairs. ``step`` is the comparison, a function on scalars of all tensors. Equal elements keep their order."""

    def __init__(self, op: Operation, step: str) -> None:
        operands = [ir.RankedTensorType(v.type) for v in op.operands]
        self.step, self.shape, self.axis = step, list(operands[0].shape), sort_axis(op)
        self.kinds, self.elements = [str(kind) for kind in operands], [str(kind.element_type) for kind in operands]
        self.types, self.pairs = ", ".join(self.kinds), ", ".join(f"tensor<{e}>, tensor<{e}>" for e in self.elements)
        self.text = Lines()

    def names(self, form: str) -> list[str]:
        """Return a name for each tensor, with its number for ``{}``."""
        return [form.format(k) for k in range(len(self.kinds))]

    def at(self, position: str) -> str:
        """Return the indices of an element of a line: the loops over the other axes select the line."""
        return ", ".join(position if d == self.axis else f"%d{d}" for d in range(len(self.shape)))

    def function(self, name: str) -> str:
        """Return the function ``name``, after a declaration of ``step``."""
        other_axes = [d for d in range(len(self.shape)) if d != self.axis]
        width, current = 1, self.names("%x{}")
        while width < self.shape[self.axis]:
            source, inner = current, current
            for depth, d in enumerate(other_axes):
                carried = self.names(f"%w{width}_{depth}_{{}}")
                self.text.opened(f"%d{d}", self.shape[d], f"%r{width}_{depth}", carried, inner, self.kinds)
                inner = carried
            merged = self.merge(width, source, inner)
            for depth in reversed(range(len(other_axes))):
                self.text.closed(merged, self.kinds)
                merged = self.names(f"%r{width}_{depth}#{{}}")
            current, width = merged, 2 * width
        operands = ", ".join(f"%x{k}: {kind}" for k, kind in enumerate(self.kinds))
        return "\n".join([f'func.func private @"{self.step}"({self.pairs}) -> tensor<i1>',
                          f'func.func private @"{name}"({operands}) -> ({self.types}) {{', *self.text.constants(),
                          *self.text.lines, f"return {', '.join(current)} : {self.types}", "}"])

    def merge(self, width: int, source: list[str], target: list[str]) -> list[str]:
        """Merge the runs of ``width`` elements of a line of ``source``, pair by pair, into ``target``."""
        text, count, extent = self.text, len(self.kinds), self.shape[self.axis]
        n, w = text.index(extent), text.index(width)
        carried, inside = self.names(f"%m{width}_{{}}"), self.names(f"%t{width}_{{}}")
        arguments = ", ".join(f"{c} = {g}" for c, g in zip(carried, target))
        carried_text = ", ".join(f"{c} = {g}" for c, g in zip(inside, carried))
        last_index = text.index(extent - 1)
        text.add(f"%q{width}:{count} = scf.for %lo = {text.index(0)} to {n} step {text.index(2 * width)} iter_args("
                 f"{arguments}) -> ({self.types}) {{",
                 f"%e1 = arith.addi %lo, {w} : index", f"%mid = arith.minsi %e1, {n} : index",
                 f"%e2 = arith.addi %e1, {w} : index", f"%hi = arith.minsi %e2, {n} : index",
                 f"%l{width}:{count + 2} = scf.for %k = %lo to %hi step {text.index(1)} iter_args("
                 f"%i = %lo, %j = %mid, {carried_text}) -> (index, index, {self.types}) {{",
                 f"%ic = arith.minsi %i, {last_index} : index", f"%jc = arith.minsi %j, {last_index} : index")
        self.compare(source)
        text.add("%none = arith.cmpi sge, %i, %mid : index", "%more = arith.cmpi slt, %j, %hi : index",
                 "%both = arith.andi %more, %less : i1", "%right = arith.ori %none, %both : i1",
                 f"%i1 = arith.addi %i, {text.index(1)} : index", f"%j1 = arith.addi %j, {text.index(1)} : index",
                 "%in = arith.select %right, %i, %i1 : index", "%jn = arith.select %right, %j1, %j : index")
        for k, (kind, element) in enumerate(zip(self.kinds, self.elements)):
            text.add(f"%v{k} = arith.select %right, %b{k}, %a{k} : {element}",
                     f"%u{k} = tensor.insert %v{k} into {inside[k]}[{self.at('%k')}] : {kind}")
        text.closed(["%in", "%jn", *self.names("%u{}")], ["index", "index", *self.kinds])
        text.closed([f"%l{width}#{k + 2}" for k in range(count)], self.kinds)
        return self.names(f"%q{width}#{{}}")

    def compare(self, source: list[str]) -> None:
        """Set ``%less`` to whether the element at ``%jc`` comes before the element at ``%ic``."""
        for k, (kind, element) in enumerate(zip(self.kinds, self.elements)):
            self.text.add(f"%a{k} = tensor.extract {source[k]}[{self.at('%ic')}] : {kind}",
                          f"%b{k} = tensor.extract {source[k]}[{self.at('%jc')}] : {kind}",
                          f"%ta{k} = tensor.from_elements %a{k} : tensor<{element}>",
                          f"%tb{k} = tensor.from_elements %b{k} : tensor<{element}>")
        operands = ", ".join(self.names("%tb{0}, %ta{0}"))
        self.text.add(f'%tl = func.call @"{self.step}"({operands}) : ({self.pairs}) -> tensor<i1>',
                      "%less = tensor.extract %tl[] : tensor<i1>")


def scatter_text(op: Operation, name: str, step: str) -> str | None:
    """Return a function ``name`` of the operand, indices and updates of a scatter, which calls ``step`` for each
    update.

    Return None for a scatter of several operands.
    """
    if len(op.operands) != 3:
        return None
    target, updates = (ir.RankedTensorType(op.operands[k].type) for k in (0, 2))
    kinds, element, text = [str(v.type) for v in op.operands], str(target.element_type), Lines()
    carried, inner = "%x", "%x"
    for d in range(updates.rank):
        inner = f"%w{d}"
        text.opened(f"%d{d}", updates.shape[d], f"%r{d}", [inner], [carried], [kinds[0]])
        carried = inner
    indices, inside = scattered_to(op, text)
    subscript, scalar = ", ".join(indices), f"tensor<{element}>"
    update = ", ".join(f"%d{d}" for d in range(updates.rank))
    text.add(f"%new = scf.if {inside} -> ({kinds[0]}) {{", f"%o = tensor.extract {inner}[{subscript}] : {kinds[0]}",
             f"%v = tensor.extract %u[{update}] : {kinds[2]}", f"%to = tensor.from_elements %o : {scalar}",
             f"%tv = tensor.from_elements %v : {scalar}",
             f'%ts = func.call @"{step}"(%to, %tv) : ({scalar}, {scalar}) -> {scalar}',
             f"%n = tensor.extract %ts[] : {scalar}", f"%m = tensor.insert %n into {inner}[{subscript}] : {kinds[0]}",
             f"scf.yield %m : {kinds[0]}", "} else {", f"scf.yield {inner} : {kinds[0]}", "}")
    result = "%new"
    for d in reversed(range(updates.rank)):
        text.closed([result], [kinds[0]])
        result = f"%r{d}#0"
    return "\n".join([f'func.func private @"{step}"({scalar}, {scalar}) -> {scalar}',
                      f'func.func private @"{name}"(%x: {kinds[0]}, %i: {kinds[1]}, %u: {kinds[2]}) -> {kinds[0]} {{',
                      *text.constants(), *text.lines, f"return {result} : {kinds[0]}", "}"])


def scattered_to(op: Operation, text: Lines) -> tuple[list[str], str]:
    """Return where a scatter writes the update of loops ``%d0``, ``%d1``, ...: the index in each dim, and whether the
    complete window is in bounds, as XLA requires. StableHLO's specification would skip only the elements outside."""
    starts, windows = index_parts(op, text)
    updates = ir.RankedTensorType(op.operands[2].type)
    indices, inside = [], "%always"
    text.add("%always = arith.constant true")
    for d, extent in enumerate(ir.RankedTensorType(op.operands[0].type).shape):
        total = starts[d][0] if starts[d] else text.index(0)
        for k, part in enumerate(starts[d][1:]):
            text.add(f"%f{d}_{k} = arith.addi {total}, {part} : index")
            total = f"%f{d}_{k}"
        size = updates.shape[windows[d]] if d in windows else 1
        text.add(f"%c{d} = arith.cmpi ult, {total}, {text.index(extent - size + 1)} : index",
                 f"%all{d} = arith.andi %c{d}, {inside} : i1")
        inside = f"%all{d}"
        if d in windows:
            text.add(f"%t{d} = arith.addi {total}, %d{windows[d]} : index")
            total = f"%t{d}"
        indices.append(total)
    return indices, inside


def index_parts(op: Operation, text: Lines) -> tuple[list[list[str]], dict[int, int]]:
    """Return the terms of the start of the window in each dim of the target: numbers out of ``indices``, and variables
    of loops; and the dim of the updates that goes along a window, by the dim of the target."""
    numbers = load("_mlir_libs._stablehlo").ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    target, indices, updates = (ir.RankedTensorType(v.type) for v in op.operands)
    windows, vector = list(numbers.update_window_dims), numbers.index_vector_dim
    outer = [d for d in range(updates.rank) if d not in windows]
    dims = [d for d in range(indices.rank) if d != vector]            # a dim of indices -> the loop that walks it
    walk = {dim: f"%d{d}" for dim, d in zip(dims, outer)}
    parts: list[list[str]] = [[] for _ in range(target.rank)]
    for c, d in enumerate(numbers.scattered_dims_to_operand_dims):
        at = ", ".join(text.index(c) if k == vector else walk[k] for k in range(indices.rank))
        text.add(f"%s{c} = tensor.extract %i[{at}] : {indices}",
                 f"%p{c} = arith.index_cast %s{c} : {indices.element_type} to index")
        parts[d].append(f"%p{c}")
    for d, dim in zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims):
        parts[d].append(walk[dim])
    fixed = [*numbers.inserted_window_dims, *numbers.input_batching_dims]
    return parts, dict(zip([d for d in range(target.rank) if d not in fixed], windows))


# -- conversions that saturate -----------------------------------------------------------------------------------------
UNORDERED, NOT_BELOW, BELOW = 14, 3, 4          # predicates of arith.cmpf


def saturate_conversions(module: Module) -> None:
    """Rewrite ``arith.fptosi`` and ``arith.fptoui``."""
    for op in operations_of(module, lambda name: name in ("arith.fptosi", "arith.fptoui")):
        if isinstance(op.operands[0].type, ir.FloatType):
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(_saturated(op))
            op.erase()


def _saturated(op: Operation) -> Value:
    arith, x, kind = load("dialects.arith"), op.operands[0], op.results[0].type
    bits = kind.width
    low, end = (-(1 << (bits - 1)), 1 << (bits - 1)) if op.name == "arith.fptosi" else (0, 1 << bits)
    value = value_of(op.name, kind, x)
    for predicate, other, chosen in ((NOT_BELOW, end, end - 1), (BELOW, low, low), (UNORDERED, None, 0)):
        limit = x if other is None else arith.constant(x.type, ir.FloatAttr.get(x.type, float(other)))
        bits_of = chosen - (1 << bits) if chosen >> (bits - 1) == 1 else chosen         # the constant is signed
        instead = arith.constant(kind, ir.IntegerAttr.get(kind, bits_of))
        value = arith.select(arith.cmpf(predicate, x, limit), instead, value)
    return value
