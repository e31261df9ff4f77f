# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fuse-instructions: fuse two instructions if the first computes a tile that only the second reads.

before:  t = x - m; e = exp(t); s = sum of e          after:  e, s = exp(x + -m) and its sum
         p = l.T @ r; q[j] = copy p                           q[j] = l.T @ r

| first | second | one |
|---|---|---|
| any | tensor_copy | the first, which writes the copy's destination |
| tensor_scalar that multiplies, adds a negated tile, or both | activation | activation with scale and bias |
| activation, tensor_scalar | tensor_reduce of the result, which others may read, too | the two that also reduce |
| tensor_scalar | tensor_scalar | tensor_scalar of two operations |
| tensor_scalar | tensor_tensor | scalar_tensor_tensor |

Intermediate tiles are float32, in which instructions compute, so that values are rounded as often as the kernel says.
The pass negates a subtrahend in the instruction that computes it (``negate`` of a reduction). An activation that only
copies becomes a tensor_copy, which more engines have. Both instructions stay if the fused one would take longer, break
a rule of the target, or run on an engine that the kernel did not name.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nki_mlir.dialects.access import HBM, PSUM, Access, Tile, same_buffer, same_pattern
from nki_mlir.dialects.free_numbers import FreeNumber, free_number
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.nisa.elementwise import ActivationOp
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.nisa.reduction import ActivationReduceOp, TensorReduceOp, TensorScalarReduceOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.operation_kind import KIND
from nki_mlir.dialects.target_findings import may_replace
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.neuron.codegen.dependences import accessed
from nki_mlir.targets.neuron.codegen.fusion_patterns import PATTERNS, FusedPair, Pattern, redirected, reducing
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Code,
    DeviceBuffer,
    InstructionStep,
    blocks,
    nodes_in,
    tiles_of,
)
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of

REDUCING = (ActivationReduceOp, TensorScalarReduceOp)
APART = 200                     # most steps between two instructions that are fused


class FuseInstructions(RecordsPass, name="fuse-instructions", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        fuse_instructions(code)


def fuse_instructions(code: Code) -> int:
    """Fuse instructions in place, and return the number of removed ones."""
    uses, pairs = uses_of(code), FusedPairs(code.machine)
    return sum(_FusedRun(code.machine, block, run, uses, pairs).fused for block in blocks(code.body)
               for run in list(runs_of(block.nodes)))


@dataclass(eq=False, slots=True)
class BufferUses:
    """The users of a buffer: the steps that write it and the steps that read it, in order, as keys of dicts, from which
    a step is removed in constant time. ``controls``: a branch or register reads it. ``free``: no other code uses it,
    and the compiler chooses its address."""

    writers: dict[InstructionStep, None] = field(default_factory=dict)
    readers: dict[InstructionStep, None] = field(default_factory=dict)
    free: bool = True
    controls: bool = False


Uses = defaultdict[DeviceBuffer, BufferUses]


def uses_of(code: Code) -> Uses:
    by_buffer = Uses(BufferUses)
    for node in nodes_in(code.body):
        if type(node) is InstructionStep:
            record_uses(by_buffer, node)
            continue
        for tile in tiles_of(node):
            uses = by_buffer[tile.handle]
            uses.free, uses.controls = False, True
    for buffer, uses in by_buffer.items():
        if buffer.space == HBM or buffer.fixed or buffer.addresses or buffer.attributes:
            uses.free = False
    return by_buffer


def record_uses(uses: Uses, step: InstructionStep) -> None:
    """Record the buffers that a step uses."""
    sources, targets = accessed(step.op)
    for tile in targets:
        if tile is not None:
            uses[tile.handle].writers[step] = None
    for tile in sources:
        if tile is not None:
            uses[tile.handle].readers[step] = None


class _FusedRun:
    """One run of steps, which are taken in order as the first of two."""

    def __init__(self, machine: Machine, block: Block, run: Sequence[InstructionStep],
                 uses: Uses, pairs: "FusedPairs") -> None:
        self.machine, self.block, self.uses, self.pairs = machine, block, uses, pairs
        self.steps: list[InstructionStep | None] = list(run)
        self.position = {step: k for k, step in enumerate(run)}
        self.fused = 0
        for k in range(len(self.steps)):
            while (step := self.steps[k]) is not None and self.fuse(step, k):
                self.fused += 1
        for step in self.steps:
            if step is not None and (copy := open_copy(step.op)) is not None:
                step.op, step.work = copy, None
        if self.fused:
            removed = set(run).difference(self.steps)
            block.nodes = [node for node in block.nodes if node not in removed]

    def fuse(self, first: InstructionStep, k: int) -> bool:
        """Fuse a step with the step that reads its result; return whether that is possible."""
        if not plain(first.op):
            return False
        targets = [tile for tile in accessed(first.op)[1] if tile is not None]
        if len(targets) != 1 and type(first.op) not in REDUCING:
            return False
        between = targets[0]
        uses = self.uses[between.handle]
        if not uses.free or len(uses.writers) != 1 or first not in uses.writers or (
                first.op.symbols and between.access.symbols_used()):
            return False
        reduces = False
        for second in uses.readers:
            at = self.position.get(second)
            if at is None or not k < at <= k + APART or not plain(second.op):
                return False
            reduces = reduces or type(second.op) is TensorReduceOp
        for second in uses.readers if reduces else ():
            if type(second.op) is TensorReduceOp and self.fuse_reduction(first, second, between):
                return True
        if len(uses.readers) != 1:
            return False
        second, = uses.readers
        reshapes = False
        for tile in accessed(second.op)[0]:
            if tile is not None and tile.handle is between.handle:
                if not same_pattern(tile, between):
                    return False
                reshapes = reshapes or tile.shape != between.shape
        if type(second.op) is TensorCopyOp:
            return self.fuse_copy(first, second, between)
        if reshapes:
            return False
        for pattern in PATTERNS.get((type(first.op), type(second.op)), ()):
            if self.replace(first, second, between, pattern):
                return True
        return False

    # -- the first step replaces both ---------------------------------------------------------------------------------
    def fuse_copy(self, first: InstructionStep, second: InstructionStep, intermediate: Tile) -> bool:
        """Let the first step write to the destination of the copy of its result; return whether that is possible."""
        pair = self.pairs.decided(redirected, first.op, second.op, intermediate)
        if pair is None or self.touched_between(first, second, written_by(second)):
            return False
        if first.op.runs_on is Engine.TENSOR and not all(in_one_bank(t, self.machine) for _, t in second.op.targets()):
            return False
        return self.put(first, second, pair)

    def fuse_reduction(self, first: InstructionStep, second: InstructionStep, intermediate: Tile) -> bool:
        """Let the first step also reduce its result; return whether that is possible."""
        pair = self.pairs.decided(reducing, first.op, second.op, intermediate)
        if pair is None or self.touched_between(first, second, written_by(second)):
            return False
        return self.put(first, second, pair)

    # -- the second step replaces both --------------------------------------------------------------------------------
    def replace(self, first: InstructionStep, second: InstructionStep, intermediate: Tile, pattern: "Pattern") -> bool:
        """Replace the second step by a fused one, and drop the first, if the sources of the first are unchanged. Return
        whether that happened."""
        pair = self.pairs.decided(pattern, first.op, second.op, intermediate)
        if pair is None or self.written_between(first, second, {tile.handle for _, tile in first.op.sources()}):
            return False
        negated = pair.negated
        if negated is not None and not self.can_negate(negated, first):
            return False
        if not self.put(first, second, pair):
            return False
        if negated is not None:
            reduction, = self.uses[negated.handle].writers
            reduction.op = changed(reduction.op, lambda tile: tile, negate=not reduction.op.negate)     # type: ignore[attr-defined]
        return True

    def can_negate(self, tile: Tile, reader: InstructionStep) -> bool:
        """Return whether a tile is a reduction that only this step reads."""
        uses = self.uses[tile.handle]
        if not uses.free or len(uses.writers) != 1 or list(uses.readers) != [reader]:
            return False
        writer, = uses.writers
        return (type(writer.op) is TensorReduceOp and writer.op.compute is FLOAT32 and writer.op.dst.dtype is FLOAT32
                and -1 < self.position.get(writer, -1) < self.position[reader])

    # -- both cases ---------------------------------------------------------------------------------------------------
    def put(self, first: InstructionStep, second: InstructionStep, pair: "FusedPair") -> bool:
        """Replace two operations by one, unless the kernel chose the address of a tile of the removed operation. Return
        whether that happened."""
        fused_step, other = (second, first) if pair.step else (first, second)
        for tile in type(other.op).tiles_in(other.op.__dict__):
            if tile is not None and (tile.handle.fixed or tile.handle.addresses):
                return False                    # another tile may have the same address in the meantime
        for step in (first, second):
            sources, targets = accessed(step.op)
            for tile in sources:
                if tile is not None:
                    self.uses[tile.handle].readers.pop(step, None)
            for tile in targets:
                if tile is not None:
                    self.uses[tile.handle].writers.pop(step, None)
        self.steps[self.position.pop(other)] = None
        fused_step.op, fused_step.work = pair.op, None
        record_uses(self.uses, fused_step)
        return True

    def between(self, first: InstructionStep, second: InstructionStep) -> list[InstructionStep]:
        return [step for step in self.steps[self.position[first] + 1:self.position[second]] if step is not None]

    def written_between(self, first: InstructionStep, second: InstructionStep, buffers: set[object]) -> bool:
        return any(tile.handle in buffers for step in self.between(first, second) for _, tile in step.op.targets())

    def touched_between(self, first: InstructionStep, second: InstructionStep, buffers: set[object]) -> bool:
        return any(tile.handle in buffers for step in self.between(first, second) for tile in tiles_of(step))


# -- pairs -------------------------------------------------------------------------------------------------------------
class PairForm(NamedTuple):
    """The fused operation of pairs that differ only in their buffers. ``tiles``: for each of its tiles the field, the
    operation (0 or 1) and the field that the tile comes from, and its pattern if that changes. ``negated``: the same
    for the tile to negate; ``numbers``: for free numbers, by attribute."""

    op: Op
    step: int
    tiles: tuple[tuple[str, int, str, Access | None], ...]
    negated: tuple[int, str] | None
    numbers: tuple[tuple[str, int, str], ...] = ()


class FusedPairs:
    """Decides by which operation two are replaced. The result is memoized for pairs without masks and symbols that
    differ only in their buffers and in free numbers: ``forms``. ``numbered`` has the same for equal numbers, by a key
    that takes less time to compute."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.forms: dict[object, PairForm | None] = {}
        self.numbered: dict[object, PairForm | None] = {}

    def decided(self, pattern: Pattern, first: Op, second: Op, intermediate: Tile) -> FusedPair | None:
        """Return the fused operation of a pattern for two operations, if the target has it and it takes no longer than
        the two."""
        if first.mask or first.limits or first.symbols or second.mask or second.limits or second.symbols:
            return self.judged(pattern, first, second, intermediate)
        numbers: dict[DeviceBuffer, int] = {}               # operands in the same buffer have the same number
        parts: list[object] = [pattern, first.kind(), second.kind()]
        for op in (first, second):
            for tile in type(op).tiles_in(op.__dict__):
                if tile is None:
                    parts.append(None)
                else:
                    parts += tile._layout or tile.layout, numbers.setdefault(tile.handle, len(numbers))
        key = tuple(parts)
        try:
            form = self.numbered[key]
        except KeyError:
            form = self.form_with_any_numbers(pattern, (first, second), intermediate, key)
            if form is not None and form.numbers:
                op = pair_of(form, (first, second)).op
                op.kind()                                   # copies of the operation share the memo
                form = form._replace(op=op, numbers=())
            self.numbered[key] = form
        return None if form is None else pair_of(form, (first, second))

    def form_with_any_numbers(self, pattern: Pattern, ops: tuple[Op, Op], intermediate: Tile, key: tuple[object, ...]
                              ) -> PairForm | None:
        """Return the form of pairs that may also have other free numbers than these operations, whose key with their
        kinds is ``key``."""
        free = [free_number(op) for op in ops]
        ops = tuple([op if number is None else without_number(op, number, k)            # type: ignore[assignment]
                     for k, (op, number) in enumerate(zip(ops, free), 1)])
        key = (pattern, ops[0].kind(), ops[1].kind(), *key[3:])
        if key not in self.forms:
            pair = self.judged(pattern, *ops, intermediate)
            self.forms[key] = None if pair is None else form_of(pair, ops, free)
        return self.forms[key]

    def judged(self, pattern: Pattern, first: Op, second: Op, intermediate: Tile) -> FusedPair | None:
        if (first.mask, first.limits, first.symbols) != (second.mask, second.limits, second.symbols) and (
                first.mask or second.mask or first.limits or second.limits):
            return None
        pair = pattern(first, second, intermediate)
        if pair is None or not in_float32(pair.op):
            return None
        if any(op.engine not in (Engine.UNKNOWN.value, pair.op.runs_on.value) for op in (first, second)):
            return None                         # an engine that the kernel names
        return pair if self.is_profitable(first, second, pair.op) else None

    def is_profitable(self, first: Op, second: Op, new: Op) -> bool:
        """Return whether the target has the fused operation and it takes no longer than the two."""
        return may_replace(new, [first, second], self.machine) and (
            new.busy_ns(self.machine) <= first.busy_ns(self.machine) + second.busy_ns(self.machine))


def without_number(op: Op, number: FreeNumber, k: int) -> Op:
    """Return the k-th operation of a pair with the number that stands for its number, another one for each k."""
    return changed(op, None, **{number.field: number.standin * k})


def form_of(pair: FusedPair, ops: tuple[Op, Op], free: Sequence[FreeNumber | None] = (None, None)) -> PairForm:
    """Return the form of a pair of operations, in which other numbers stand for free ones."""
    sources = [(number, source.name, tile) for number, op in enumerate(ops) for source, tile in op.operands()]
    pair.op.kind()                              # copies of the operation share the memo
    tiles: list[tuple[str, int, str, Access | None]] = []
    for tile_field, tile in pair.op.operands():
        same = [(number, name, None) for number, name, other in sources if other is tile]
        moved = [(number, name, tile.access) for number, name, other in sources if same_buffer(other, tile)]
        tiles.append((tile_field.name, *(same or moved)[0]))
    negated = [(number, name) for number, name, tile in sources if tile is pair.negated]
    numbers = [(name, k, number.field) for name, kind in pair.op.attributes.items() if kind is float
               for k, number in enumerate(free)
               if number is not None and getattr(pair.op, name) == getattr(ops[k], number.field)]
    return PairForm(pair.op, pair.step, tuple(tiles), negated[0] if negated else None, tuple(numbers))


def pair_of(form: PairForm, ops: tuple[Op, Op]) -> FusedPair:
    """Return the fused operation of a pair of that form."""
    op = object.__new__(type(form.op))
    values, sources = form.op.__dict__.copy(), (ops[0].__dict__, ops[1].__dict__)
    op.__dict__ = values
    for name, number, source, access in form.tiles:
        tile = sources[number][source]
        values[name] = tile if access is None else replace(tile, access=access)
    for name, number, source in form.numbers:
        values[name] = sources[number][source]
        values.pop(KIND, None)
    values["extra"] = ops[form.step].extra
    return FusedPair(op, form.step, None if form.negated is None else sources[form.negated[0]][form.negated[1]])


def in_float32(op: Op) -> bool:
    """Return whether an operation computes in float32, as the two that it replaces do, or keeps the bits of floats.
    With another destination it may compute in integers."""
    return op.compute is FLOAT32 or (op.compute is None and all(tile.dtype.is_float for _, tile in op.sources()))


def plain(op: Op) -> bool:
    """Return whether an operation may be fused: its only effects are on its tiles, and it may move."""
    return not (op.queued or op.acts_outside or (op.extra and is_pinned(op)))


def written_by(step: InstructionStep) -> set[object]:
    return {tile.handle for _, tile in step.op.targets()}


def in_one_bank(tile: Tile, machine: Machine) -> bool:
    """Return whether a tile stays in one bank at any address of its buffer."""
    buffer, bank, access = tile.handle, machine.psum_bank_bytes, tile.access
    if tile.space != PSUM or buffer.fixed or buffer.addresses:
        return False
    _, _, start, after = tile.bounds
    return buffer.bytes_per_partition <= bank or (
        start // bank == (after - 1) // bank
        and all(c * access.dtype.itemsize % bank == 0 for _, c in access.free.symbols))


def open_copy(op: Op) -> TensorCopyOp | None:
    """Return an activation that only copies as a copy on any engine; return other operations unchanged."""
    if type(op) is not ActivationOp or op.engine != Engine.UNKNOWN.value or not op.src.dtype.is_float:
        return None
    if op.fn != "copy" or op.bias is not None or op.scale is not None or op.imm != 1.0:
        return None
    return TensorCopyOp(dst=op.dst, src=op.src, mask=op.mask, limits=op.limits, symbols=op.symbols, ranges=op.ranges,
                        extra=op.extra)
