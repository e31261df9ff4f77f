# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fuse-instructions: fuse two instructions if the first computes a tile that only the second reads.

before:  t = x - m; e = exp(t); s = sum of e          after:  e, s = exp(x + -m) and its sum
         p = l.T @ r; q[j] = copy p                           q[j] = l.T @ r

| first | second | one |
|---|---|---|
| any | tensor_copy | the first, which writes where the copy went |
| tensor_scalar that multiplies, adds a negated tile, or both | activation | activation with scale and bias |
| activation, tensor_scalar | tensor_reduce of the result, which others may read, too | the two that also reduce |
| tensor_scalar | tensor_scalar | tensor_scalar of two operations |
| tensor_scalar | tensor_tensor | scalar_tensor_tensor |

Tiles between are float32, which is what instructions compute in, so that nothing is rounded less often than the kernel
says. What is subtracted is negated where it is computed (``negate`` of a reduction). An activation that only copies
becomes a tensor_copy, which more engines have. Both instructions stay where the one would take longer, is against a
rule of the target, or on another engine than the kernel names for one of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM, PSUM, Linear, Tile, dense
from nki_mlir.dialects.nisa.elementwise import ActivationOp, ScalarTensorTensorOp, TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nisa.matmul import NcMatmulOp, NcTransposeOp
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.nisa.reduction import ActivationReduceOp, TensorReduceOp, TensorScalarReduceOp
from nki_mlir.dialects.op import Op, changed, with_forms
from nki_mlir.dialects.target_findings import findings
from nki_mlir.dialects.verification import verify
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Code,
    DeviceBuffer,
    InstructionStep,
    blocks,
    nodes_in,
    tiles_of,
    value_range,
)
from nki_mlir.targets.neuron.codegen.schedule_instructions import NO_REORDER, runs_of

REDUCING = (ActivationReduceOp, TensorScalarReduceOp)
APART = 200                     # steps between two instructions that become one
REDIRECTED = (ActivationOp, ActivationReduceOp, NcMatmulOp, NcTransposeOp, ScalarTensorTensorOp, TensorReduceOp,
              TensorScalarOp, TensorScalarReduceOp, TensorTensorOp)     # whose result goes where a copy of it went


class FuseInstructions(RecordsPass, name="fuse-instructions", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        fuse_instructions(code)


def fuse_instructions(code: Code) -> int:
    """Fuse instructions in place, and return the number of those that it removed."""
    uses, judged = uses_of(code), dict[object, bool]()
    return sum(_FusedRun(code.machine, block, run, uses, judged).fused for block in blocks(code.body)
               for run in list(runs_of(block.nodes)) if len(run) > 1)


@dataclass(eq=False)
class BufferUses:
    """The users of a buffer: the steps that write it, those that read it, in order, as keys of dicts from which a
    step is removed in constant time; ``free``: nobody else does, and the compiler places it."""

    writers: dict[InstructionStep, None] = field(default_factory=dict)
    readers: dict[InstructionStep, None] = field(default_factory=dict)
    free: bool = True


def uses_of(code: Code) -> dict[DeviceBuffer, BufferUses]:
    by_buffer: dict[DeviceBuffer, BufferUses] = {}
    for node in nodes_in(code.body):
        if not isinstance(node, InstructionStep):
            for tile in tiles_of(node):
                by_buffer.setdefault(tile.handle, BufferUses()).free = False
            continue
        note(by_buffer, node)
    for buffer, uses in by_buffer.items():
        if buffer.space == HBM or buffer.fixed or buffer.addresses or buffer.attributes:
            uses.free = False
    return by_buffer


def note(uses: dict[DeviceBuffer, BufferUses], step: InstructionStep) -> None:
    for _, tile in step.op.targets():
        of_buffer(uses, tile.handle).writers[step] = None
    for _, tile in step.op.sources():
        of_buffer(uses, tile.handle).readers[step] = None


def of_buffer(uses: dict[DeviceBuffer, BufferUses], buffer: DeviceBuffer) -> BufferUses:
    """Return the uses of a buffer, which are none at first."""
    buffer_uses = uses.get(buffer)
    if buffer_uses is None:
        buffer_uses = uses[buffer] = BufferUses()
    return buffer_uses


class _FusedRun:
    """One run of steps, which are taken in order as the first of two. ``judged``: whether operations that differ in
    their buffers alone may become one."""

    def __init__(self, machine: Machine, block: Block, run: Sequence[InstructionStep],
                 uses: dict[DeviceBuffer, BufferUses], judged: dict[object, bool]) -> None:
        self.machine, self.block, self.uses, self.judged = machine, block, uses, judged
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
        """Fuse a step with the one that reads its result; return whether that is possible."""
        if not plain(first.op) or (len(first.op.targets()) != 1 and type(first.op) not in REDUCING):
            return False
        (_, between), *_ = first.op.targets()
        uses = self.uses[between.handle]
        if not uses.free or len(uses.writers) != 1 or first not in uses.writers or between.access.symbols_used():
            return False
        for second in uses.readers:
            if (at := self.position.get(second)) is None or not k < at <= k + APART or not plain(second.op):
                return False
        for second in uses.readers:
            if type(second.op) is TensorReduceOp and self.fuse_reduction(first, second, between):
                return True
        if len(uses.readers) != 1:
            return False
        second, = uses.readers
        if any(tile.access != between.access for _, tile in second.op.sources() if tile.handle is between.handle):
            return False
        if type(second.op) is TensorCopyOp:
            return self.fuse_copy(first, second, between)
        for pattern in PATTERNS.get((type(first.op), type(second.op)), ()):
            if self.replace(first, second, between, pattern):
                return True
        return False

    # -- the first step takes over -------------------------------------------------------------------------------------
    def fuse_copy(self, first: InstructionStep, second: InstructionStep, intermediate: Tile) -> bool:
        """Let the first step write to the destination of the copy of its result; return whether that is possible."""
        op = second.op
        assert isinstance(op, TensorCopyOp)
        if type(first.op) not in REDIRECTED or first.op.compute is not FLOAT32 or op.dst.shape != intermediate.shape:
            return False
        if intermediate.dtype is not FLOAT32 and intermediate.dtype is not op.dst.dtype:
            return False
        if (first.op.mask or op.mask or first.op.limits or op.limits) and (first.op.mask, first.op.limits) != (
                op.mask, op.limits):
            return False
        if self.touched_between(first, second, {op.dst.handle}) or reads(first.op, op.dst.handle):
            return False
        first_op, copy = in_one(first.op, op)
        assert isinstance(copy, TensorCopyOp)
        if first_op.runs_on is Engine.TENSOR and not in_one_bank(copy.dst, self.machine):
            return False
        new = changed(first_op, lambda tile: copy.dst if tile.handle is intermediate.handle else tile)
        return self.put(first, second, new, first)

    def fuse_reduction(self, first: InstructionStep, second: InstructionStep, intermediate: Tile) -> bool:
        """Let the first step reduce its result, too; return whether that is possible."""
        op = second.op
        assert isinstance(op, TensorReduceOp)
        if intermediate.dtype is not FLOAT32 or op.negate or not reads_whole(op, intermediate) or (
                first.op.compute is not FLOAT32 or op.compute is not FLOAT32):
            return False
        if (first.op.mask, first.op.limits) != (op.mask, op.limits) or reads(first.op, op.dst.handle):
            return False
        if self.touched_between(first, second, {op.dst.handle}):
            return False
        first_op, reduction = in_one(first.op, op)
        assert isinstance(reduction, TensorReduceOp)
        rows, *_ = reduction.dst.access.dims
        total = reduction.dst.patterned(dims=(rows, (1, 1))) if reduction.dst.free_elements == 1 else reduction.dst
        common: dict[str, Any] = {**shared(first_op), "reduce_res": total, "reduce_op": reduction.op}
        new: Op
        if isinstance(first_op, ActivationOp) and reduction.op == "add":
            new = ActivationReduceOp(dst=first_op.dst, src=first_op.src, bias=first_op.bias, scale=first_op.scale,
                                     fn=first_op.fn,
                                     imm=first_op.imm, **common)
        elif isinstance(first_op, TensorScalarOp) and first_op.op1 == "bypass" and not first_op.reverse0:
            new = TensorScalarReduceOp(dst=first_op.dst, src=first_op.src, operand0=first_op.operand0, op0=first_op.op0,
                                       imm0=first_op.imm0, **common)
        else:
            return False
        return self.put(first, second, new, first)

    # -- the second step takes over ------------------------------------------------------------------------------------
    def replace(self, first: InstructionStep, second: InstructionStep, intermediate: Tile,
                pattern: "Callable[[Op, Op, Tile], tuple[Op, Tile | None] | None]") -> bool:
        """Put one step in place of the second, if the sources of the first are unchanged; return whether it did."""
        if intermediate.dtype is not FLOAT32 or first.op.compute is not FLOAT32 or second.op.compute is not FLOAT32:
            return False
        if (first.op.mask, first.op.limits) != (second.op.mask, second.op.limits):
            return False
        if self.written_between(first, second, {tile.handle for _, tile in first.op.sources()}):
            return False
        fused = pattern(*in_one(first.op, second.op), intermediate)
        if fused is None:
            return False
        new, negated = fused
        if negated is not None and not self.can_negate(negated, first):
            return False
        if not self.put(first, second, new, second):
            return False
        if negated is not None:
            reduction, = self.uses[negated.handle].writers
            reduction.op = changed(reduction.op, lambda tile: tile, negate=not reduction.op.negate)     # type: ignore[attr-defined]
        return True

    def can_negate(self, tile: Tile, reader: InstructionStep) -> bool:
        """Return whether a tile is a reduction that nobody but one step reads."""
        uses = self.uses[tile.handle]
        if not uses.free or len(uses.writers) != 1 or list(uses.readers) != [reader]:
            return False
        writer, = uses.writers
        return (type(writer.op) is TensorReduceOp and writer.op.compute is FLOAT32 and writer.op.dst.dtype is FLOAT32
                and self.position.get(writer, APART) < self.position[reader])

    # -- what is common ------------------------------------------------------------------------------------------------
    def put(self, first: InstructionStep, second: InstructionStep, new: Op, where: InstructionStep) -> bool:
        """Put an operation in place of two, if the target has it and it takes no longer."""
        if any(op.engine not in (Engine.UNKNOWN.value, new.runs_on.value) for op in (first.op, second.op)):
            return False                        # an engine that the kernel names
        other = second if where is first else first
        if any(tile.handle.fixed or tile.handle.addresses for tile in tiles_of(other)):
            return False                        # another tile may have that address in the meantime
        if not self.pays(first.op, second.op, new):
            return False
        for step in (first, second):
            for uses in {self.uses[tile.handle]: None for tile in tiles_of(step)}:
                uses.writers.pop(step, None)
                uses.readers.pop(step, None)
        self.steps[self.position.pop(other)] = None
        where.op, where.work = new, None
        note(self.uses, where)
        return True

    def pays(self, first: Op, second: Op, new: Op) -> bool:
        """Return whether the target has the fused operation and it takes no longer than the two. The result is
        memoized for forms of operations without masks and symbols."""
        ops = first, second, new
        if any([op.mask or op.limits or op.symbols for op in ops]):
            return self.judge(*ops)
        numbers: dict[DeviceBuffer, int] = {}               # operands in one buffer have one number
        buffers = [numbers.setdefault(tile.handle, len(numbers)) for op in ops for _, tile in op.operands()]
        key = *[op.outline() for op in ops], *buffers
        if key not in self.judged:
            self.judged[key] = self.judge(*ops)
        return self.judged[key]

    def judge(self, first: Op, second: Op, new: Op) -> bool:
        try:
            verify(new)
        except NkiMlirError:
            return False
        if {str(f.error) for f in findings(new, self.machine)} - {
                str(f.error) for op in (first, second) for f in findings(op, self.machine)}:
            return False
        return self.ns(new) <= self.ns(first) + self.ns(second)

    def ns(self, op: Op) -> float:
        return float(self.machine.cost(op.runs_on, op.work()).busy)

    def between(self, first: InstructionStep, second: InstructionStep) -> list[InstructionStep]:
        return [step for step in self.steps[self.position[first] + 1:self.position[second]] if step is not None]

    def written_between(self, first: InstructionStep, second: InstructionStep, buffers: set[object]) -> bool:
        return any(tile.handle in buffers for step in self.between(first, second) for _, tile in step.op.targets())

    def touched_between(self, first: InstructionStep, second: InstructionStep, buffers: set[object]) -> bool:
        return any(tile.handle in buffers for step in self.between(first, second) for tile in tiles_of(step))


def plain(op: Op) -> bool:
    """Return whether an operation may be fused: it has no effect but on its tiles, and may move."""
    return not op.acts_outside and NO_REORDER not in op.extra and not op.queued


def reads(op: Op, buffer: object) -> bool:
    return any(tile.handle is buffer for _, tile in op.sources())


def reads_whole(op: TensorReduceOp, tile: Tile) -> bool:
    """Return whether a reduction combines all elements of each partition of a tile, along one axis or along several."""
    if op.axes != tuple(range(1, len(op.src.shape))):
        return False
    if op.src.access == tile.access:
        return True
    starts = [(t.access.partition, t.access.free, t.access.dims[0], t.free_elements) for t in (op.src, tile)]
    return starts[0] == starts[1] and all(map(is_dense, (op.src, tile)))


def is_dense(tile: Tile) -> bool:
    """Return whether the elements of a partition lie one behind the other, in the order of the tile's axes."""
    return all(count == 1 or step == other for (step, count), other in zip(
        tile.access.dims[1:], dense(tile.shape[1:])))


def in_one(first: Op, second: Op) -> tuple[Op, Op]:
    """Return both operations with one list of symbols."""
    symbols = tuple(dict.fromkeys((*first.symbols, *second.symbols)))
    return numbered(first, symbols), numbered(second, symbols)


def in_one_bank(tile: Tile, machine: Machine) -> bool:
    """Return whether a tile stays in one bank wherever its buffer goes."""
    buffer, bank, access = tile.handle, machine.psum_bank_bytes, tile.access
    if tile.space != PSUM or buffer.fixed or buffer.addresses:
        return False
    _, _, start, after = tile.bounds
    return buffer.bytes_per_partition <= bank or (
        start // bank == (after - 1) // bank
        and all(c * access.dtype.itemsize % bank == 0 for _, c in access.free.symbols))


def numbered(op: Op, symbols: tuple[object, ...]) -> Op:
    """Return the operation with its symbols numbered as in a longer list."""
    if op.symbols == symbols:
        return op
    number = [symbols.index(symbol) for symbol in op.symbols]

    def put(form: Linear) -> Linear:
        return Linear(form.const, tuple(sorted((number[k], c) for k, c in form.symbols)), form.axes)
    return with_forms(op, put, symbols=symbols, ranges=tuple(value_range(s) for s in symbols))      # type: ignore[arg-type]


def open_copy(op: Op) -> TensorCopyOp | None:
    """Return a copy that any engine may do, of an activation that does nothing else."""
    if type(op) is not ActivationOp or op.engine != Engine.UNKNOWN.value or not op.src.dtype.is_float:
        return None
    if op.fn != "copy" or op.bias is not None or op.scale is not None or op.imm != 1.0:
        return None
    return TensorCopyOp(dst=op.dst, src=op.src, mask=op.mask, limits=op.limits, symbols=op.symbols, ranges=op.ranges,
                        extra=op.extra)


# -- patterns ----------------------------------------------------------------------------------------------------------
def shared(op: Op) -> dict[str, Any]:
    return {"mask": op.mask, "limits": op.limits, "symbols": op.symbols, "ranges": op.ranges, "extra": op.extra}


def scaled_activation(first: Op, second: Op, intermediate: Tile) -> tuple[Op, Tile | None] | None:
    """fn(x * scale), fn(x - tile), fn(x + tile): (the activation, a tile that has to be negated)."""
    assert isinstance(first, TensorScalarOp) and isinstance(second, ActivationOp | ActivationReduceOp)
    if second.src.handle is not intermediate.handle or second.scale is not None or second.imm != 1.0 or reads_again(
            second, intermediate) or first.op1 != "bypass":
        return None
    tile, fields = first.operand0, dict[str, object]()
    negated = None
    if first.op0 == "multiply":
        if tile is None and first.src.dtype is not FLOAT32:
            return None
        fields = {"imm": first.imm0} if tile is None else {"scale": tile}
    elif first.op0 in ("add", "subtract") and tile is not None and second.bias is None and not (
            first.op0 == "subtract" and first.reverse0):
        fields = {"bias": tile}
        negated = tile if first.op0 == "subtract" else None
    else:
        return None
    if tile is not None and tile.dtype is not FLOAT32:
        return None
    return changed(second, lambda t: first.src if t.handle is intermediate.handle else t, **fields), negated


def two_scalars(first: Op, second: Op, intermediate: Tile) -> tuple[Op, Tile | None] | None:
    assert isinstance(first, TensorScalarOp) and isinstance(second, TensorScalarOp)
    if (first.op1, second.op1) != ("bypass", "bypass") or reads_again(second, intermediate) or (
            first.src.dtype is not FLOAT32):
        return None
    if second.src.handle is not intermediate.handle or first.engine != second.engine:
        return None
    return TensorScalarOp(dst=second.dst, src=first.src, operand0=first.operand0, operand1=second.operand0,
                          op0=first.op0, imm0=first.imm0, reverse0=first.reverse0, op1=second.op0, imm1=second.imm0,
                          reverse1=second.reverse0, engine=second.engine, **shared(second)), None


def scalar_and_tile(first: Op, second: Op, intermediate: Tile) -> tuple[Op, Tile | None] | None:
    assert isinstance(first, TensorScalarOp) and isinstance(second, TensorTensorOp)
    if first.op1 != "bypass" or first.src.dtype is not FLOAT32 or second.runs_on is not Engine.VECTOR or (
            first.runs_on is not Engine.VECTOR) or second.lhs.handle is second.rhs.handle:
        return None
    turned = second.rhs.handle is intermediate.handle
    return ScalarTensorTensorOp(dst=second.dst, src=first.src, operand0=first.operand0,
                                rhs=second.lhs if turned else second.rhs, op0=first.op0, op1=second.op,
                                imm0=first.imm0, reverse0=first.reverse0, reverse1=turned,
                                **shared(second)), None


def reads_again(op: Op, intermediate: Tile) -> bool:
    """Return whether an operation reads a tile as more than one operand."""
    return sum(tile.handle is intermediate.handle for _, tile in op.sources()) > 1


PATTERNS: dict[tuple[type[Op], type[Op]], tuple[Callable[[Op, Op, Tile], tuple[Op, Tile | None] | None], ...]] = {
    (TensorScalarOp, ActivationOp): (scaled_activation,),
    (TensorScalarOp, ActivationReduceOp): (scaled_activation,),
    (TensorScalarOp, TensorScalarOp): (two_scalars,),
    (TensorScalarOp, TensorTensorOp): (scalar_and_tile,),
}
