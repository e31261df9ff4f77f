# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""merge-instructions: let one instruction process several tiles that instructions of one form process one by one.

before:  p0 = transpose of x0; t0 = copy p0; ...      after:  p[0] = transpose of x0; ... p[3] = transpose of x3
         p3 = transpose of x3; t3 = copy p3                   t = copy p

An engine takes a fixed time for each instruction, and the time of its elements. The pass merges instructions that
compute each element, or each row's maximum, by itself, and differ only in their tiles. Each operand is the same
tile for all of them, or steps through a buffer at equal distances, or is in separate buffers of the block, which
become one buffer, in PSUM at most a bank. Buffers that stand for an engine's registers stay separate. Operands are
computed before the merged instruction: at most ``HOISTED`` instructions move before it for each further one. It
processes at most ``elements`` elements in each partition, and takes less time than those that it replaces. Each value
is computed as before.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM, PSUM, Access, Linear, Tile
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.nisa.elementwise import TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nki.reduction import ReducingFree
from nki_mlir.dialects.op import REGISTERS, Op, changed
from nki_mlir.dialects.target_findings import may_replace
from nki_mlir.dialects.verification import verify
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import RunDependences
from nki_mlir.targets.neuron.codegen.fuse_instructions import BufferUses, Uses, plain, record_uses, uses_of
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Block, Code, DeviceBuffer, InstructionStep, blocks
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of

ELEMENTS = 512                  # most elements in each partition: beyond, the fixed time hardly counts
NEAR = 64                       # most steps between the first and the last of the merged instructions
HOISTED = 8                     # most instructions that move before the first one for each further one
RANK = 4                        # most dimensions of a merged operand
ENGINES = Engine.VECTOR, Engine.SCALAR         # engines that take a fixed time for each instruction, and read PSUM
EXACT = "maximum", "minimum"     # reductions that do not depend on the order
GONE = -1


class MergeInstructions(RecordsPass, name="merge-instructions", reads=Level.NISA):
    elements: int = 512         # most elements in each partition that a merged instruction processes

    def rewritten(self, code: Code) -> None:
        merge_instructions(code, self.elements)


def merge_instructions(code: Code, elements: int = ELEMENTS, dependences: RunDependences | None = None) -> int:
    """Merge instructions in place, and return the number of removed ones."""
    return merge_runs(code, MergedForms(code.machine, elements), dependences or RunDependences())


def merge_runs(code: Code, forms: "MergedForms", dependences: RunDependences) -> int:
    """Merge the operations that ``forms`` accepts, in place, and return the number of removed ones."""
    runs = [(block, run) for block in blocks(code.body) for run in list(runs_of(block.nodes))
            if forms.some_fit(run)]
    if not runs:
        return 0
    before = [dependences.of([step.op for step in run]).lists for _, run in runs]
    pairs: dict[InstructionStep, tuple[Op, Op]] = {}
    for _, run in runs:
        for step in run:
            if (pair := pair_of(step.op)) is not None:          # the replacement depends on the same steps
                pairs[step] = step.op, pair
                step.op, step.work = pair, None
    uses = uses_of(code)
    merged_count = sum(_MergedRun(block, run, uses, forms, of_run).merged for (block, run), of_run in zip(runs, before))
    for step, (op, as_pair) in pairs.items():
        if step.op is as_pair:                  # no other instruction was merged with it
            step.op, step.work = op, None
    return merged_count


def pair_of(op: Op) -> TensorTensorOp | None:
    """Return an operation of two columns as one of two tiles, of which each may step from column to column; None for
    any other operation."""
    if type(op) is not TensorScalarOp or op.operand0 is None or op.op1 != "bypass" or op.src.free_elements != 1:
        return None
    lhs, rhs = (op.operand0, op.src) if op.reverse0 else (op.src, op.operand0)
    pair = TensorTensorOp(dst=op.dst, lhs=lhs, rhs=rhs, op=op.op0, symbols=op.symbols, ranges=op.ranges, mask=op.mask,
                          limits=op.limits, extra=op.extra, engine=op.engine)
    try:
        verify(pair)
    except NkiMlirError:
        return None
    return pair if pair.compute is op.compute and pair.runs_on is op.runs_on else None


class MergedForms:
    """Decides whether operations of a form may be merged, and how, each once. ``elements``: the most in each partition
    that an instruction processes."""

    def __init__(self, machine: Machine, elements: int) -> None:
        self.machine, self.elements = machine, elements
        self.verdicts: dict[object, bool] = {}
        self.paying: dict[object, bool] = {}

    def of(self, op: Op) -> object | None:
        """Return the form of an operation that may be merged with others of its form; else None."""
        if op.mask or op.limits or op.symbols or op.extra:
            return None
        form = op.form()
        verdict = self.verdicts.get(form)
        if verdict is None:
            verdict = self.verdicts[form] = op.runs_on in ENGINES and may_merge(op, self.elements)
        return form if verdict else None

    def some_fit(self, run: Sequence[InstructionStep]) -> bool:
        """Return whether operations of a run can be merged: some operation fits the previous one of the same form, and
        no step of the run must stay where it is."""
        if any([is_pinned(step.op) for step in run]):
            return False
        latest: dict[object, Op] = {}
        for step in run:
            if (form := self.of(step.op)) is not None:
                if form in latest and self.fit([latest[form], step.op]):
                    return True
                latest[form] = step.op
        return False

    def fit(self, ops: Sequence[Op]) -> bool:
        """Return whether one instruction may process the tiles of all."""
        return max(tile.free_elements for _, tile in ops[0].operands()) * len(ops) <= self.elements

    def is_profitable(self, old: Op, new: Op, count: int) -> bool:
        """Return whether the target has a merged instruction, and it takes less time than ``count`` of the old form."""
        key = old.form(), new.form()
        if key not in self.paying:
            is_faster = new.busy_ns(self.machine) < old.busy_ns(self.machine) * count
            self.paying[key] = is_faster and may_replace(new, [old], self.machine)
        return self.paying[key]


def may_merge(op: Op, elements: int) -> bool:
    """Return whether an instruction computes its elements, or the maxima of rows or sums of one element, by themselves,
    and takes at most half of the elements."""
    if not plain(op) or not op.is_loop_nest or op.has_linear_attributes or op.partition_group > 1:
        return False
    sources, targets = op.sources(), op.targets()
    if not sources or len(targets) != 1 or any(tile.space == HBM or len(tile.shape) < 2 for _, tile in op.operands()):
        return False
    if max(tile.free_elements for _, tile in op.operands()) * 2 > elements or op.index_forms():
        return False
    iteration = op.iteration()
    if any(iteration.extents[axis] > 1 for axis in iteration.reduced) and not (
            isinstance(op, ReducingFree) and op.op in EXACT):
        return False                            # sums of other extents may be added in another order
    all_axes = tuple(range(len(iteration.extents)))
    independent_axes = op.axes_apart(iteration) | iteration.reduced
    return independent_axes.issuperset(all_axes) and all(
        iteration.axes[field.name] == all_axes for field, _ in op.operands())


# for each buffer, the buffer of which it has become a part, and the part's number
Joined = dict[DeviceBuffer, tuple[DeviceBuffer, int]]


class MergedOperand(NamedTuple):
    """An operand of merged instructions: the first one's tile and the distance of the next in elements, 0 if all have
    the same tile. ``buffers``: those that become one, if the tiles are in separate buffers."""

    tile: Tile
    step: int
    buffers: tuple[DeviceBuffer, ...]


class _MergedRun:
    """One run of steps, by number. ``before``: the steps that each depends on. ``order``:
    the steps in their new order, ``GONE`` where one has joined a group; ``position``: where each is; ``members``: by
    the first step of a group, its steps; ``leader``: the first step of the group of each step, or itself."""

    def __init__(self, block: Block, run: Sequence[InstructionStep], uses: Uses,
                 forms: MergedForms, before: Sequence[list[int]]) -> None:
        self.block, self.steps, self.uses, self.forms = block, list(run), uses, forms
        self.local = {buffer for buffer in block.buffers
                      if buffer in uses and uses[buffer].free and not has_registers(buffer, uses[buffer])}
        self.before = list(before)
        self.order = list(range(len(run)))
        self.position = list(range(len(run)))
        self.leader = list(range(len(run)))
        self.members: dict[int, list[int]] = {}
        self.merged = 0
        self.wide: list[DeviceBuffer] = []      # buffers that took the place of others
        self.removed: set[DeviceBuffer] = set()
        open_groups: dict[object, int] = {}
        for k, step in enumerate(run):
            # the current operation: groups that were merged may have joined its buffers
            form = forms.of(step.op)
            if form is None:
                continue
            first = open_groups.get(form)
            if first is None or not self.join(first, k):
                if first is not None:
                    self.close(first)
                open_groups[form] = k
                self.members[k] = [k]
        for first in open_groups.values():
            self.close(first)
        if self.merged:
            self.rewrite()

    # -- which instructions --------------------------------------------------------------------------------------------
    def join(self, first: int, k: int) -> bool:
        """Merge a step into a group if its operands can be computed before the group. Return whether it did."""
        members = self.members[first]
        if self.position[k] - self.position[first] > NEAR:
            return False
        hoisted = self.needed_before(first, k)
        if hoisted is None or self.operands([*members, k]) is None:
            return False
        begin, end = self.position[first], self.position[k]
        moved = set(hoisted)
        self.order[begin:end + 1] = [*hoisted, *[n for n in self.order[begin:end] if n not in moved], GONE]
        for at in range(begin, end):
            if self.order[at] != GONE:
                self.position[self.order[at]] = at
        self.leader[k] = first
        members.append(k)
        return True

    def needed_before(self, first: int, k: int) -> list[int] | None:
        """Return the steps after the first one that a step depends on, in order; None if the first is among them, or
        if they are many."""
        begin, needed, waiting = self.position[first], set[int](), [k]
        while waiting:
            step = waiting.pop()
            for member in self.members.get(step, (step,)):
                for other in self.before[member]:
                    other = self.leader[other]
                    if other == first:
                        return None
                    if self.position[other] > begin and other not in needed:
                        needed.add(other)
                        waiting.append(other)
                        if len(needed) > HOISTED:
                            return None
        return sorted(needed, key=self.position.__getitem__)

    def operands(self, members: Sequence[int]) -> dict[str, MergedOperand] | None:
        """Return the operands of an instruction that replaces several; None if there is no such instruction."""
        ops = [self.steps[k].op for k in members]
        first, operands = ops[0], dict[str, MergedOperand]()
        if not self.forms.fit(ops):
            return None
        for field, tile in first.operands():
            tiles = [getattr(op, field.name) for op in ops]
            operand = self.operand(tiles)
            if operand is None or len(tile.shape) >= RANK or (not operand.step and field.writes) or (
                    operand.step and field.name in first.row_operands):
                return None
            operands[field.name] = operand
        together = {operand.buffers for operand in operands.values()}
        # otherwise a buffer would be joined in two different orders
        return operands if len(set(chain(*together))) == sum(map(len, together)) else None

    def operand(self, tiles: Sequence[Tile]) -> MergedOperand | None:
        first, second = tiles[:2]
        handles = tuple([tile.handle for tile in tiles])
        buffers = len(set(handles))
        if buffers == 1:
            step = second.access.free.const - first.access.free.const
            steps = [b.access.free.const - a.access.free.const for a, b in pairwise(tiles)]
            same = all(tile.access.partition == first.access.partition for tile in tiles)
            return MergedOperand(first, step, ()) if same and set(steps) == {step} and step >= 0 else None
        if buffers < len(handles):
            return None
        access, shape, dtype = first.access, first.handle.shape, first.handle.dtype
        for tile, buffer in zip(tiles, handles):
            if buffer not in self.local or buffer.shape != shape or buffer.dtype is not dtype or (
                    tile.access is not access and tile.access != access):
                return None
        if first.space == PSUM and first.handle.bytes_per_partition * len(handles) > self.forms.machine.psum_bank_bytes:
            return None
        return MergedOperand(first, first.row, handles)

    # -- one instruction in place of several ---------------------------------------------------------------------------
    def close(self, first: int) -> None:
        """Replace a group by one instruction, if the target has it and it takes less time."""
        members = self.members[first]
        operands = self.operands(members) if len(members) > 1 else None
        if operands is None:
            return
        op = merged(self.steps[first].op, operands, len(members))
        if not self.forms.is_profitable(self.steps[first].op, op, len(members)):
            return
        step = self.steps[first]
        for k in members:
            for _, tile in self.steps[k].op.operands():
                uses = self.uses[tile.handle]
                uses.writers.pop(self.steps[k], None)
                uses.readers.pop(self.steps[k], None)
        joined: Joined = {}
        for operand in operands.values():
            if operand.buffers and operand.buffers[0] not in joined:
                self.join_buffers(operand.buffers, joined)
        step.op, step.work = changed(op, lambda tile: in_joined(tile, joined)), None
        record_uses(self.uses, step)
        self.members[first] = [first]
        self.before[first] = sorted({self.leader[other] for k in members for other in self.before[k]} - {first})
        self.merged += len(members) - 1

    def join_buffers(self, buffers: Sequence[DeviceBuffer], joined: Joined) -> None:
        """Replace buffers by parts of a new one, for all instructions that use them."""
        old = buffers[0]
        wide = replace(old, shape=(old.shape[0], len(buffers), *old.shape[1:]))
        uses = self.uses[wide] = BufferUses()
        joined.update({buffer: (wide, number) for number, buffer in enumerate(buffers)})
        for buffer in buffers:
            before = self.uses.pop(buffer)
            for step in {**before.writers, **before.readers}:
                step.op, step.work = changed(step.op, lambda tile: in_joined(tile, joined)), None
            uses.writers.update(before.writers)
            uses.readers.update(before.readers)
        self.local.difference_update(buffers)
        self.removed.update(buffers)
        self.local.add(wide)
        self.wide.append(wide)

    def rewrite(self) -> None:
        """Put the steps into the block in their new order. The steps of a group that were not merged stay adjacent."""
        steps = [self.steps[member] for k in self.order if k != GONE for member in self.members.get(k, (k,))]
        nodes, first = self.block.nodes, self.steps[0]
        begin = next(at for at, node in enumerate(nodes) if node is first)
        nodes[begin:begin + len(self.steps)] = steps
        self.block.buffers = [buffer for buffer in (*self.block.buffers, *self.wide) if buffer not in self.removed]


def has_registers(buffer: DeviceBuffer, uses: BufferUses) -> bool:
    """Return whether a buffer stands for registers of an engine: printed code loads these one after the other."""
    return any(tile.handle is buffer for step in uses.writers for name in REGISTERS
               if (tile := getattr(step.op, name, None)) is not None)


def merged(op: Op, operands: dict[str, MergedOperand], count: int) -> Op:
    """Return an instruction over the tiles of ``count``: the tiles are a dimension after the partitions, which is
    joined with the next one if that is possible for all operands."""
    dims = {name: (operand.tile.access.dims[0], (operand.step, count), *operand.tile.access.dims[1:])
            for name, operand in operands.items()}
    fields: dict[str, object] = {}
    if isinstance(op, ReducingFree):
        fields["axes"] = tuple([axis + 1 for axis in op.axes])
    elif all(inner == 1 or outer_step == step * inner for _, (outer_step, _), (step, inner), *_ in dims.values()):
        dims = {name: (rows, (outer_step if inner == 1 else step, count * inner), *inner_dims)
                for name, (rows, (outer_step, _), (step, inner), *inner_dims) in dims.items()}
    tiles = {name: operand.tile.patterned(dims=dims[name]) for name, operand in operands.items()}
    return changed(op, None, **tiles, **fields)


def in_joined(tile: Tile, joined: Joined) -> Tile:
    """Return the tile in the buffer that has replaced the tile's buffer."""
    if (entry := joined.get(tile.handle)) is None:
        return tile
    wide, number = entry
    access = tile.access
    if number:
        access = Access(access.dtype, access.partition, access.free.plus(Linear(number * tile.row)), access.dims)
    return Tile(wide, tile.space, wide.shape, wide.dtype, access, tile.label)
