# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A loop over chunks of operations, one after the other or as a pipeline.

before:  for chunk k:  maximum(x[k], m);  exp(x[k], m, t, sum);  multiply(t, sum, y[k])
after:   maximum(x[0], m);  for chunk k:  exp and sum of k, beside them the store of k - 1 and the maximum of k + 1

An operation that only moves data waits for memory. It costs little if the same routine also computes something else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.addressed_nest import AddressedNest, can_stream, does_stream, with_memory
from nki_mlir.targets.cpu.assemble import occupied_bytes
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.schedule import ORDERLESS, parts_of, schedule, weight_of
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.overlap import ByteRegion


class Chunk(NamedTuple):
    """The first of the equal parts of a nest, and the distance in bytes of each operand from one part to the next."""

    nest: Nest
    steps: tuple[int, ...]


def first_part(nest: Nest, count: int, axis: int = 0) -> Chunk | None:
    """Return the first of so many equal parts of a nest along an axis; None if it has no such parts."""
    parts = parts_of(nest, count, count, axis)
    return parts and Chunk(parts[0], tuple([o.strides[axis] * parts[2] * o.dtype.itemsize for o in nest.operands]))


@dataclass(eq=False)
class ChunkLoop:
    """A loop over chunks. ``calls`` are the nests on all rows, ``parts`` the part of each for one chunk. All chunks use
    the same ``common`` buffers.

    If the last call uses streaming stores, the loop is a pipeline: one routine computes the heaviest call of a chunk,
    the last call of the previous chunk, and the fold of the next chunk that is first to read the kernel's array.
    """

    code: NativeFunction
    count: int
    calls: Sequence[cpu.Compute]
    parts: Sequence[Chunk]
    routines: Sequence[Nest | AddressedNest]
    common: set[cpu.ScratchBuffer]
    # bytes between a buffer's halves, if two chunks use it at once
    halves: dict[object, int] = field(default_factory=dict)

    def write_on_pool(self) -> None:
        """Append the loop on the pool. Each thread runs chunks in its memory, which has the common buffers."""
        self.code.block.nodes[:] = self.code.block.without(self.common)
        loop = self.code.add_loop(self.count, on_pool=True)
        for buffer in self.common:
            buffer.memory = loop.memory
        with self.code.inside(loop.body):
            self.write_chunk(cpu.slot_value(loop.slot))

    def write_chunk(self, chunk: Linear) -> None:
        """Append all calls for a chunk. Allocate each common buffer just before its first use: successive calls may
        then use the same memory, which stays in the cache."""
        allocated = set[cpu.ScratchBuffer]()
        for k, routine in enumerate(self.routines):
            for buffer in dict.fromkeys(region.root for region in self.calls[k].regions):
                if buffer in self.common and buffer not in allocated:
                    allocated.add(buffer)
                    self.code.add(cpu.Allocate(buffer))
            self.code.emit(routine, *self.arguments(k, chunk))

    def write(self) -> None:
        """Append the loop."""
        heavy = self.heavy_call()
        if heavy is None:
            self.code.block.nodes[:] = self.code.block.without(self.common)
            with self.code.repeated(self.count) as chunk:
                self.write_chunk(chunk)
            return
        early = self.early_call(heavy)
        begin = 0 if early is None else early + 1
        for k in range(begin):
            self.code.emit(self.routines[k], *self.arguments(k, Linear()))
        with self.code.repeated(self.count) as chunk:
            parity = following = Linear()
            if early is not None:
                parity = self.code.computed("nki_andi", chunk, Linear(1))
                following = self.code.computed("nki_minsi", chunk.plus(Linear(1)), Linear(self.count - 1))
            for k in range(begin, len(self.calls) - 1):
                if k == heavy:
                    self.emit_heaviest(heavy, early, chunk, parity, following)
                else:
                    self.code.emit(self.routines[k], *self.arguments(k, chunk, parity))
        self.code.emit(self.routines[-1], *self.arguments(-1, Linear(self.count - 1)))

    def emit_heaviest(self, heavy: int, early: int | None, chunk: Linear, parity: Linear, following: Linear) -> None:
        """Emit the heaviest call as one routine with the last call of the previous chunk, if there is such a chunk, and
        the early call of the next chunk. ``parity`` is the half of divided buffers that this chunk uses, ``following``
        the next chunk's number."""
        chunk_call, last_call = (heavy, self.arguments(heavy, chunk, parity)), (-1,
                self.arguments(-1, chunk.plus(Linear(-1))))
        early_calls = []
        if early is not None:
            other_parity = Linear(1).plus(parity, -1)
            for k in range(early):
                self.code.emit(self.routines[k], *self.arguments(k, following, other_parity))
            early_calls = [(early, self.arguments(early, following, other_parity))]
        is_later = self.code.computed("nki_cmpi_sgt", chunk, Linear())
        branch = cpu.NativeBranch(is_later, otherwise=cpu.NativeBlock())
        self.code.add(branch)
        for block, calls in ((branch.then, [chunk_call, last_call, *early_calls]),
                             (branch.otherwise, [chunk_call, *early_calls])):
            with self.code.inside(block):                                       # type: ignore[arg-type]
                self.emit_joined(calls)

    def emit_joined(self, calls: Sequence[tuple[int, list[cpu.Argument]]]) -> None:
        inputs = [(passed, len(self.parts[k].nest.inputs)) for k, passed in calls]
        self.code.emit(self.joined([k for k, _ in calls]), *[a for passed, n in inputs for a in passed[:n]],
                       *[a for passed, n in inputs for a in passed[n:]])

    def joined(self, numbers: Sequence[int]) -> Nest | AddressedNest:
        """Join some calls to one routine. If a later call reads an array that the first call prefetches, it is a chunk
        ahead, and so the prefetches of that array become its own."""
        first_routine, *later_routines = [with_memory(self.routines[k]) for k in numbers]
        nest, use = first_routine.nest, first_routine.use
        for k, routine in zip(numbers[1:], later_routines):
            roots = [region.root for region in self.calls[k].regions[:len(routine.nest.inputs)]]
            ahead = [(len(nest.inputs) + roots.index(self.calls[numbers[0]].regions[n].root), step) if
                     self.calls[numbers[0]].regions[n].root in roots else (n, step)
                     for n, step in first_routine.use.ahead]
            use = replace(use, ahead=tuple(ahead),
                          streams=(*use.streams, *(len(nest.outputs) + n for n in routine.use.streams)))
            nest = nest.joined_with(routine.nest)
        return AddressedNest(nest, use) if later_routines else self.routines[numbers[0]]

    def arguments(self, k: int, chunk: Linear, parity: Linear = Linear()) -> list[cpu.Argument]:
        """Return the arguments of a call for a chunk. Of a divided buffer it gets the first half, or the second half if
        ``parity`` is 1."""
        starts = [a.plus(parity, self.halves[region.root]) if region.root in self.halves else         # type: ignore[union-attr]
                  a.plus(chunk, 0 if region.root in self.common else step)                        # type: ignore[union-attr]
                  for a, step, region in zip(self.calls[k].arguments, self.parts[k].steps, self.calls[k].regions)]
        return [*starts, *self.calls[k].arguments[len(starts):]]

    # -- which calls ---------------------------------------------------------------------------------------------------
    def heavy_call(self) -> int | None:
        """Return the number of the heaviest call, if one routine can compute it together with the last call of the
        previous chunk; else None."""
        *earlier, final_call = map(with_memory, self.routines)
        k = max(range(len(earlier)), key=lambda k: weight_of(earlier[k].nest))
        heavy = earlier[k]
        can_join = does_stream(final_call) and not heavy.use.streams and (
            weight_of(heavy.nest) > weight_of(final_call.nest))
        return k if can_join and self.can_be_joined([k, -1]) and self.keeps_for_the_last(k) else None

    def can_be_joined(self, numbers: Sequence[int]) -> bool:
        """Return whether one routine can compute some calls so that the first one's values stay the same, with sums in
        the same order."""
        nests = [with_memory(self.routines[k]).nest for k in numbers]
        if any(n.forms or n.extents != nests[0].extents for n in nests):
            return False
        routine = with_memory(self.joined(numbers))
        first_plan, plan = (schedule(n)._replace(carried=(), folds=()) for n in (nests[0], routine.nest))
        return first_plan == plan and can_stream(routine.nest, routine.use.streams)

    def keeps_for_the_last(self, k: int) -> bool:
        """Return whether the elements of a chunk that the last call reads stay unchanged until call ``k`` computes the
        next chunk.

        Call ``k`` may write each element where the last call has just read it. """
        read = [(region.root, region_part) for region, *region_part in self.operands(-1) if region.root in self.common]
        return all(n == k and region_part == other_part for n in range(k + 1)
                   for region, *region_part in self.operands(n)[len(self.parts[n].nest.inputs):]
                   for root, other_part in read if root is region.root)

    def operands(self, k: int) -> list[tuple[ByteRegion, Operand, cpu.Argument]]:
        return [*zip(self.calls[k].regions, self.parts[k].nest.operands, self.calls[k].arguments)]

    def early_call(self, heavy: int) -> int | None:
        """Return the number of the first call that reads the array that the heavy call prefetches, if this call and
        those before it can run one chunk early; else None.

        Then double the buffers that they write, so that two chunks can use them at once.
        """
        ahead = [self.calls[heavy].regions[k].root for k, _ in with_memory(self.routines[heavy]).use.ahead]
        early = next((k for k in range(heavy) if ahead and self.calls[k].regions[0].root == ahead[0]), None)
        if early is None or not all(f.fn in ORDERLESS for f in schedule(self.parts[early].nest).folds) or not (
                self.parts[early].nest.reduced == self.parts[heavy].nest.reduced != frozenset()):
            return None
        earlier_roots = [region.root for k in range(early + 1) for region in self.calls[k].regions
                         if region.root != ahead[0]]
        last_roots = {region.root for region in self.calls[-1].regions}
        if not all(root in self.common and root not in last_roots for root in earlier_roots) or not (
                self.can_be_joined([heavy, early]) and self.can_be_joined([heavy, -1, early])):
            return None
        for buffer in dict.fromkeys(earlier_roots):
            assert isinstance(buffer, cpu.ScratchBuffer)
            self.halves[buffer] = occupied_bytes(buffer.size)
            buffer.size += occupied_bytes(buffer.size)
        return early
