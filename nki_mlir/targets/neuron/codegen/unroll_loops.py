# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""unroll-loops: unroll loops and programs of the grid, and replace loop variables by numbers.

before:  grid [2]                                     after:  load A[0]
         for i = 0 to 3: load A[program, i]                   load A[1] ...   (6 instructions)

Programs of a grid run one after the other, in row-major order. The pass replaces an ``scf.if`` whose condition becomes
a number by one of its branches. A buffer that a loop's body allocates becomes one buffer for each iteration, so that
iterations overlap. Masks become boxes; the pass splits a transfer whose mask is not a box into rows. If the code would
exceed ``limit`` instructions, its largest outer loops stay loops of the device, with a note; where their bodies are
small, an iteration of the device's loop runs several of the kernel's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from math import prod
from typing import Any, NamedTuple

from nki_mlir.analysis.mask_boxes import box_of, in_box, verified_on_box
from nki_mlir.diagnostics import KernelError, Unsupported, line_prefix
from nki_mlir.dialects.access import Access, Constraint, Linear, Tile
from nki_mlir.dialects.isa.instruction import SourceIteration
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.verification import in_buffer
from nki_mlir.machine import Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Branch,
    Code,
    Computed,
    DeviceBuffer,
    InstructionStep,
    Load,
    Loop,
    LoopVariable,
    Value,
    While,
    compute,
    exchanges_data,
    nodes_in,
    steps_in,
    sub_blocks,
    tiles_of,
    variables_of,
    with_values,
)

UNROLL_LIMIT = 50_000           # instructions
# least instructions that a register loop's body should have: engines synchronize after them
BODY = 1_000


class UnrollLoops(RecordsPass, name="unroll-loops", reads=Level.NISA):
    limit: int = UNROLL_LIMIT   # most instructions; above it the largest outer loops stay loops

    def rewritten(self, code: Code) -> Code:
        return unrolled(with_grid(code), self.limit)


def with_grid(code: Code) -> Code:
    """Return the code with loops over the grid around its body, in place of program ids. For programs that exchange
    data, return the code of one program."""
    body = code.body
    if exchanges_data(code) and prod(code.grid) > 1:
        if code.programs:
            raise Unsupported(feature="one instruction stream for programs that wait for each other",
                              instead="lower the complete kernel, which gives each program its streams")
        return Code(code.name, code.machine, code.globals, body, notes=code.notes)
    for axis in reversed(range(len(code.grid))):
        variable = next((p for p in code.programs if p.axis == axis), None)
        if variable is None:
            variable = LoopVariable(f"program_id_{axis}", 0, code.grid[axis] - 1)
        if code.grid[axis] > 1 or variable in code.programs:
            body = Block([Loop(variable, range(code.grid[axis]), body)])
        variable.axis = None
    return Code(code.name, code.machine, code.globals, body, notes=code.notes)


def unrolled(code: Code, limit: int = UNROLL_LIMIT, body: int = BODY) -> Code:
    """Return the code with all loops unrolled except the loops that ``limit`` leaves; their bodies have about ``body``
    instructions."""
    remaining, sizes = loops_to_keep(code.body, limit)
    notes = list(code.notes)
    for loop in remaining:
        where = line_prefix(loop.location)
        notes.append(f"{where}a loop of {len(loop.span)} iterations stays a register loop: the code would be over "
                     f"{limit} instructions")
    copies = {loop: max(1, min(body, limit) // max(1, sizes[loop.body])) for loop in remaining}
    # A loop around another register loop has one iteration in its body.
    copies |= {loop: 1 for loop in remaining if any(inner in remaining for inner in nodes_in(loop.body))}
    return Code(code.name, code.machine, code.globals, Unroller(copies).block(code.body, {}, {}, fresh=False),
                code.grid, code.programs, notes)


def written_out(body: Block) -> int:
    """Return instructions of code without loops."""
    return _size(body, {})


def does_nothing(body: Block) -> bool:
    """Return whether code has neither instructions nor a loop that may not end."""
    return next(steps_in(body), None) is None and not any(isinstance(node, While) for node in nodes_in(body))


# -- loops that stay ---------------------------------------------------------------------------------------------------
Sizes = dict[object, int]          # the numbers of instructions of loops, branches and blocks


def loops_to_keep(body: Block, limit: int) -> tuple[dict[Loop, None], Sizes]:
    """Return the loops to keep, in order: the largest loop that is not inside of an unrolled one, until the rest fits.

    Also return the sizes of all loops, branches and blocks after unrolling.
    """
    sizes: Sizes = {}
    total = _size(body, sizes)
    remaining: dict[Loop, None] = {}
    if total <= limit:
        return remaining, sizes
    outer = list(_loops(body))
    needed = set(_variables_needed(body)) if outer else ()
    order = count()
    candidates: list[tuple[int, int, Loop]] = []        # the largest loop; of equally large ones, the first

    def add(loops: Iterable[Loop]) -> None:
        for loop in loops:
            if loop.variable not in needed:
                heappush(candidates, (-sizes[loop], next(order), loop))
    add(outer)
    while total > limit and candidates:
        _, _, largest = heappop(candidates)
        remaining[largest] = None
        total -= sizes[largest] - sizes[largest.body]
        add(_loops(largest.body))
    return remaining, sizes


def _loops(block: Block) -> Iterator[Loop]:
    """Yield the outermost loops of a block that have more than one iteration."""
    for node in nodes_beside_steps(block):
        if isinstance(node, Loop) and len(node.span) > 1:
            yield node
        else:
            for inner in sub_blocks(node):
                yield from _loops(inner)


def _size(block: Block, sizes: Sizes) -> int:
    """Return the number of instructions of a block after unrolling. Record in ``sizes`` that of each loop and block in
    it."""
    other_nodes = nodes_beside_steps(block)
    total = len(block.nodes) - len(other_nodes)
    for node in other_nodes:
        inner = sum(_size(b, sizes) for b in sub_blocks(node))
        sizes[node] = inner * len(node.span) if isinstance(node, Loop) else inner
        total += sizes[node]
    sizes[block] = total
    return total


def nodes_beside_steps(block: Block) -> list[Any]:
    """Return the loops, branches and loads of a block, without those inside of them."""
    return [node for node in block.nodes if type(node) is not InstructionStep]


def _variables_needed(block: Block) -> Iterator[LoopVariable]:
    """Return the variables that unrolling must replace by numbers: masks, bounds checked at run time and blocks with
    addresses depend on them."""
    for step in steps_in(block):
        positions = {p for c in (*step.op.mask, *step.op.limits) for p, _ in c.form.symbols}
        positions |= {p for t in tiles_of(step) if t.handle.addresses for p in t.access.symbols_used()}
        for position in sorted(positions):
            yield from variables_of(step.op.symbols[position])


# -- unrolling ---------------------------------------------------------------------------------------------------------
Values = dict[LoopVariable, Value]
Buffers = dict[DeviceBuffer, DeviceBuffer]


class SymbolicOperand(NamedTuple):
    """A tile of an operation, the symbols in its access pattern, and that pattern by the symbols' values."""

    name: str
    tile: Tile
    used: tuple[int, ...]
    accesses: dict[tuple[Value, ...], Access]


class Unroller:
    def __init__(self, rolled: Mapping[Loop, int]) -> None:
        self.rolled = rolled            # the loops to keep, with the number of iterations in one body
        self.index_values: dict[tuple[object, ...], Value] = {}
        self.operands: dict[InstructionStep, list[SymbolicOperand]] = {}
        self.accesses: dict[Access, dict[tuple[Value, ...], Access]] = {}       # by symbols and their values
        self.distinct: dict[Access, Access] = {}        # equal patterns are one object, which is compared faster
        # whether a tile is inside of its buffer for all values of its symbols
        self.safe: dict[InstructionStep, bool] = {}
        # the iteration of the kernel's innermost loop around the current node
        self.iteration: SourceIteration | None = None

    def block(self, block: Block, values: Values, buffers: Buffers, fresh: bool = True) -> Block:
        """Return the unrolled block for these values of the variables around it."""
        copy = Block()
        self.append(copy, block, values, buffers, fresh)
        return copy

    def append(self, target: Block, block: Block, values: Values, buffers: Buffers, fresh: bool = True) -> None:
        """Append the block's nodes; ``fresh``: it is entered more than once, so that its buffers are copied."""
        if block.buffers and fresh:
            buffers = buffers | {buffer: buffer.copied() for buffer in block.buffers}
        target.buffers += [buffers.get(buffer, buffer) for buffer in block.buffers]
        for node in block.nodes:
            if type(node) is InstructionStep:
                op = node.op
                if buffers or op.symbols or op.mask or op.limits:
                    target.nodes += self.step(node, values, buffers)
                else:
                    target.nodes.append(InstructionStep(op, node.location, None, node.iteration or self.iteration))
                continue
            match node:
                case Loop() if node in self.rolled:
                    copies = min(self.rolled[node], len(node.span))
                    multiple = len(node.span) // copies * copies
                    self.loop(target, node, node.span[:multiple:copies], copies, values, buffers)
                    self.iterations(target, node, node.span[multiple:], values, buffers)
                case Loop() if not does_nothing(node.body):     # the number of iterations may be too large to count
                    self.iterations(target, node, node.span, values, buffers)
                case Branch():
                    self.branch(target, node, values, buffers)
                case Load():
                    values[node.variable] = variable = replace(node.variable)
                    target.nodes.append(Load(variable, moved_to(node.tile, buffers), node.location))
                case While():
                    self.while_loop(target, node, dict(values), buffers)

    def iterations(self, target: Block, loop: Loop, span: range, values: Values, buffers: Buffers) -> None:
        outer = self.iteration
        for i in span:
            self.iteration = SourceIteration(loop.location, loop.variable.name, i, outer)
            self.append(target, loop.body, {**values, loop.variable: i}, buffers)
        self.iteration = outer

    def loop(self, target: Block, loop: Loop, span: range, copies: int, values: Values, buffers: Buffers) -> None:
        """Append a register loop over ``span``, with ``copies`` iterations in its body."""
        variable = replace(loop.variable, low=span[0], high=span[-1])
        inner, outer = Block(), self.iteration
        for k in range(copies):
            self.iteration = SourceIteration(loop.location, loop.variable.name, k * loop.span.step, outer, in_loop=True)
            value = self.index_values.setdefault(("add", variable, k * loop.span.step),
                                          Computed("add", variable, k * loop.span.step)) if k else variable
            self.append(inner, loop.body, {**values, loop.variable: value}, buffers)
        self.iteration = outer
        target.nodes.append(Loop(variable, span, inner, loop.location, loop.attributes))

    def while_loop(self, target: Block, node: While, values: Values, buffers: Buffers) -> None:
        test, body = (self.block(inner, values, buffers) for inner in (node.test, node.body))
        target.nodes.append(While(test, self.value(node.condition, values), body, node.location))

    def branch(self, target: Block, node: Branch, values: Values, buffers: Buffers) -> None:
        condition = self.value(node.condition, values)
        if isinstance(condition, int):
            self.append(target, node.then if condition else node.otherwise, values, buffers)
        else:
            then, otherwise = (self.block(inner, values, buffers) for inner in (node.then, node.otherwise))
            target.nodes.append(Branch(condition, then, otherwise, node.location))

    def value(self, value: Value, values: Values) -> Value:
        """Return the value with numbers in place of variables. Equal values of the same variables are one object."""
        match value:
            case int():
                return value
            case LoopVariable():
                return values.get(value, value)
        result = compute(value.op, self.value(value.lhs, values), self.value(value.rhs, values))
        if isinstance(result, Computed):
            result = self.index_values.setdefault((result.op, result.lhs, result.rhs), result)
        return result

    def step(self, step: InstructionStep, values: Values, buffers: Buffers) -> list[InstructionStep]:
        op = step.op
        if op.symbols or op.mask:
            numbers = [values.get(s, s) if type(s) is LoopVariable else self.value(s, values) for s in op.symbols]
            if not (op.mask or op.limits or op.has_linear_attributes) and all([type(n) is int for n in numbers]):
                op = self.stamped(step, numbers, buffers)
            else:
                op = changed(with_values(op, numbers), lambda tile: moved_to(tile, buffers))
        elif buffers:
            op = changed(op, lambda tile: moved_to(tile, buffers))
        try:
            pieces = without_mask(op) if op.mask or op.limits else (op,)
            if step.op.symbols and not op.symbols and not self.is_safe(step):
                check_bounds(pieces)
            return [InstructionStep(piece, step.location, None, step.iteration or self.iteration) for piece in pieces]
        except (KernelError, Unsupported) as error:
            raise error.located(step.location) from None

    def stamped(self, step: InstructionStep, numbers: Sequence[Value], buffers: Buffers) -> Op:
        """Return the step's operation in the buffers of an iteration, with numbers in place of its symbols."""
        op = step.op
        operands = self.operands.get(step)
        if operands is None:
            operands = self.operands[step] = [self.symbolic_operand(field.name, tile) for field, tile in op.operands()]
        copy = object.__new__(type(op))
        fields = copy.__dict__ = op.__dict__.copy()
        fields["symbols"] = fields["ranges"] = ()
        for name, tile, positions, accesses in operands:
            buffer, access = buffers.get(tile.handle, tile.handle), tile.access
            if positions:
                key = tuple([numbers[position] for position in positions])
                numbered = accesses.get(key)
                if numbered is None:
                    numbered = access.over(
                        lambda form: Linear(form.at(numbers), (), form.axes))       # type: ignore[arg-type]
                    numbered = accesses[key] = self.distinct.setdefault(numbered, numbered)
                access = numbered
            elif buffer is tile.handle:
                continue
            fields[name] = tile.starting(buffer, access)
        return copy

    def symbolic_operand(self, name: str, tile: Tile) -> "SymbolicOperand":
        positions = tuple(sorted(tile.access.symbols_used()))
        return SymbolicOperand(name, tile, positions, self.accesses.setdefault(tile.access, {}))

    def is_safe(self, step: InstructionStep) -> bool:
        """Return whether a step's tiles are in their buffers for all values of its symbols, so that its iterations need
        no check."""
        safe = self.safe.get(step)
        if safe is None:
            try:
                check_bounds([step.op])
                safe = True
            except KernelError:
                safe = False
            self.safe[step] = safe
        return safe


def moved_to(tile: Tile, buffers: Buffers) -> Tile:
    buffer = buffers.get(tile.handle, tile.handle)
    return tile if buffer is tile.handle else tile.starting(buffer, tile.access)


# -- masks -------------------------------------------------------------------------------------------------------------
def without_mask(op: Op) -> list[Op]:
    """Return operations without a mask that have the same effect; none if no element is active."""
    if not op.mask and not op.limits:
        return [op]
    bounded_op = bounded(op)
    if bounded_op is None:
        return []
    if not bounded_op.mask:
        pieces = [bounded_op]
    elif any(c.form.symbols for c in bounded_op.mask):
        raise Unsupported(feature=f"a mask of '{op.full_name()}' that depends on a value known at run time only",
                          instead="mask by a loop variable with constant bounds")
    else:
        pieces = list(_rows(bounded_op))
    check_bounds(pieces)
    return pieces


def check_bounds(pieces: Sequence[Op]) -> None:
    for piece in pieces:
        for field, tile in piece.operands():
            in_buffer(tile, interval_of(piece), field.name)


def interval_of(op: Op) -> Callable[[Linear], tuple[int, int]]:
    return lambda form: form.interval(op.ranges)


def bounded(op: Op) -> Op | None:
    """Return the operation on the smallest box that contains its active elements; None if there are none."""
    box = box_of(op.mask, op.iteration().extents, interval_of(op))
    return None if box is None else in_box(op, box) if box.mask else verified_on_box(in_box(op, box))


def _rows(op: Op) -> Iterator[Op]:
    """Return pieces that are boxes: the operation cut along an axis of its mask into single indices.

    A transfer may be cut anywhere. An engine's access starts only at quarters of the partitions. So an instruction is
    cut along free axes, and refused if a partition start remains that the engine does not support.
    """
    if not op.mask:
        if not op.queued and any(t.on_chip and not legal_start(t) for _, t in op.operands()):
            raise Unsupported(feature=f"a mask of '{op.full_name()}' that cuts partitions",
                              instead="select the elements with affine_select or tensor_copy_predicated")
        yield op
        return
    iteration = op.iteration()
    axes = sorted({axis for c in op.mask for axis, _ in c.form.axes}, key=lambda axis: (axis == 0, axis))
    if iteration.reduced & set(axes):
        raise Unsupported(feature=f"a mask that does not select a box of elements on '{op.full_name()}'",
                          instead="mask the operands when they are loaded")
    axis = axes[-1] if op.queued else axes[0]
    for index in range(iteration.extents[axis]):
        at = Constraint(Linear(-index, (), ((axis, 1),)), equal=True)
        piece = bounded(changed(op, lambda tile: tile, mask=(*op.mask, at)))
        if piece is not None:
            yield from _rows(piece)


def legal_start(tile: Tile) -> bool:
    start, count = tile.access.partition, tile.partitions
    assert start is not None
    return Machine.legal_start_partition(start.const, count)
