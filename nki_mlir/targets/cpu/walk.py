# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise nests that one walk over their elements computes: later nests read earlier values from registers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nki_mlir.targets.cpu.addressed_nest import AddressedNest, with_memory
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.forwarding import writes_once
from nki_mlir.targets.cpu.native_nodes import Compute, NestCall, Node, RoutineCall, ScratchBuffer, compute
from nki_mlir.targets.cpu.schedule import dims_of, schedule
from nki_mlir.transforms.fuse_tiles import SHORT
from nki_mlir.waist.fusion import MOST_INPUTS, MOST_OPERATIONS
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import ByteRegion, are_apart

FIXED = frozenset({"position", "gather"})     # steps that depend on more than the elements at one point


class Source(NamedTuple):
    """The value of an earlier nest that a later nest reads from memory: a result that the earlier nest stores if
    ``is_result``, else one of its inputs."""

    value: int
    is_result: bool


class JointWalk(NamedTuple):
    """Nests over the same elements, in order. ``nest`` computes all of them on ``regions``; ``streams`` tells for each
    output whether streaming stores write it."""

    calls: tuple[NestCall, ...]
    nest: Nest
    regions: tuple[ByteRegion, ...]
    streams: tuple[bool, ...]

    @property
    def outputs(self) -> list[ByteRegion]:
        return list(self.regions[len(self.nest.inputs):])

    @property
    def written_tiles(self) -> list[ScratchBuffer]:
        return [region.root for region in self.outputs if isinstance(region.root, ScratchBuffer)]

    @property
    def is_product(self) -> bool:
        """Whether the walk is one matrix product."""
        return len(self.calls) == 1 and contraction_of(self.calls[0].nest) is not None

    def is_zero(self, source: Source | None) -> bool:
        """Return whether the value that a later walk reads is the constant 0."""
        step = self.nest.step(source.value) if source is not None else None
        return step is not None and step.kind == "constant" and float(step.number) == 0

    def is_independent_of(self, call: NestCall) -> bool:
        """Return whether the walk and a computation may run in either order."""
        if {region.root for region in self.regions}.isdisjoint([region.root for region in call.regions]):
            return True
        accesses = list(accesses_of(call.nest, call.regions))
        return all(are_apart(a, b) for a in accesses_of(self.nest, self.regions) for b in accesses
                   if a.writes or b.writes)

    def followed_by(self, other: "JointWalk", roundings: int, light: int) -> "JointWalk | None":
        """Return this walk joined with one after it; None if values would change, or nothing is gained.

        If the other walk reads no result of this one, it must have at most ``light`` steps. If it has a long function,
        it must not read a result of a body that rounds ``roundings`` times. A product joins only a walk that stores the
        zeros to which it adds: register tiles add to other numbers with a single rounding.
        """
        if self.is_product or not self.shares_addresses(other):
            return None
        nest, other_nest = self.nest, over_extents(other.nest, self.nest.extents)
        if other_nest is None:
            divided = over_extents(self.nest, other.nest.extents)
            if divided is None:
                return None
            nest, other_nest = divided, other.nest
        first, other = self._replace(nest=nest), other._replace(nest=other_nest)
        sources = first.sources_for(other)
        if sources is None or not first.is_worth_joining(other, sources, roundings, light) or (
                other.is_product and not first.is_zero(sources[-1])):
            return None
        joint = first.joined(other, sources)
        plan = schedule(joint.nest)
        steps = {operand.strides[plan.vector] for operand in joint.nest.operands} if plan.vector is not None else {-1}
        return joint if steps <= {0, 1} and plan.order == schedule(nest).order else None

    def shares_addresses(self, other: "JointWalk") -> bool:
        """Return whether an operand of both walks begins at the same byte. Otherwise neither reads what the other one
        accesses at the same element."""
        return any(a.root == b.root and a.address == b.address for a in self.regions for b in other.regions)

    def sources_for(self, other: "JointWalk") -> list[Source | None] | None:
        """Return for each input of the other walk the value of this walk that it reads, or None if it reads other
        memory.

        Return None if, at different elements, the other walk touches bytes that this one writes, or writes bytes that
        this one touches.
        """
        sources: list[Source | None] = []
        accesses, count = list(accesses_of(self.nest, self.regions)), len(self.nest.inputs)
        for operand, access in zip(other.nest.operands, accesses_of(other.nest, other.regions)):
            source = None
            for k, earlier in enumerate(accesses):
                is_same = is_same_access(earlier, self.nest.operands[k], access, operand)
                if is_same and access.writes:
                    continue
                if is_same:
                    is_result = k >= count
                    value = self.nest.results[k - count] if is_result else k
                    if is_result and self.nest.dtype_of(value) is not operand.dtype:
                        return None
                    source = Source(value, is_result) if is_result or source is None else source
                elif (earlier.writes or access.writes) and not are_apart(earlier, access):
                    return None
            if not access.writes:
                sources.append(source)
        return sources

    def is_worth_joining(self, other: "JointWalk", sources: Sequence[Source | None], roundings: int, light: int
                         ) -> bool:
        """Return whether one walk saves loads, and its body is not too long."""
        steps = (*self.nest.steps, *other.nest.steps)
        if sum(step.kind != "convert" for step in steps) > MOST_OPERATIONS or (
                max(len(self.nest.inputs) + sources.count(None), len(self.outputs) + len(other.outputs)) > MOST_INPUTS):
            return False
        is_long = any(map(is_long_function, other.nest.steps))
        if any(source is not None and source.is_result for source in sources):
            return not (roundings and is_long and count_roundings(self.nest) >= roundings)
        shared = [source for source in sources if source is not None and any(self.nest.inputs[source.value].strides)]
        return bool(shared) and not is_long and not any(map(is_long_function, self.nest.steps)) and sum(
            step.kind != "convert" for step in other.nest.steps) <= light

    def joined(self, other: "JointWalk", sources: Sequence[Source | None]) -> "JointWalk":
        """Return both walks as one, whose body reads the sources instead of memory. It does not store elements that the
        other walk overwrites."""
        nest, further = self.nest, [k for k, source in enumerate(sources) if source is None]
        count, results, last = len(nest.inputs), len(other.nest.outputs), other.nest
        first_step = count + len(further) + len(nest.outputs) + results

        def moved(value: int) -> int:
            """Return the number of a value of this walk in the joint nest."""
            return value + len(further) * (value >= nest.first_output) + results * (value >= nest.first_step)
        number = {k: count + n for n, k in enumerate(further)}
        number |= {k: moved(source.value) for k, source in enumerate(sources) if source is not None}
        number |= {last.first_step + k: first_step + len(nest.steps) + k for k in range(len(last.steps))}
        steps = [replace(step, operands=tuple(map(moved, step.operands))) for step in nest.steps]
        steps += [replace(step, operands=tuple([number[v] for v in step.operands])) for step in last.steps]
        joint = replace(nest, inputs=(*nest.inputs, *[last.inputs[k] for k in further]),
                        outputs=(*nest.outputs, *last.outputs), steps=tuple(steps),
                        results=(*map(moved, nest.results), *[number[v] for v in last.results]))
        inputs = *self.regions[:count], *[other.regions[k] for k in further]
        remaining = [k for k in range(len(joint.outputs))
                     if k >= len(nest.outputs) or not self.is_overwritten(k, other)]
        outputs, streams = [*self.outputs, *other.outputs], (*self.streams, *other.streams)
        return self._replace(calls=(*self.calls, *other.calls), nest=with_outputs(joint, remaining),
                             regions=(*inputs, *[outputs[k] for k in remaining]),
                             streams=tuple([streams[k] for k in remaining]))

    def is_overwritten(self, output: int, other: "JointWalk") -> bool:
        """Return whether the other walk overwrites an output of this walk at the same element."""
        operand, region = self.nest.outputs[output], self.outputs[output]
        return any(is_same_access(region, operand, other_region, other_operand)
                   for other_region, other_operand in zip(other.outputs, other.nest.outputs))

    def joint(self, users: Mapping[ScratchBuffer, Sequence[RoutineCall]]) -> Compute | None:
        """Return the computation of the walk, without stores to tiles that nothing else reads; None if streaming stores
        could write only some of its outputs."""
        count = len(self.nest.inputs)
        read = {region.root for region in self.regions[:count]}
        remaining = [k for k, region in enumerate(self.outputs)
                     if region.root in read or not isinstance(region.root, ScratchBuffer)
                     or not all(user in self.calls for user in users[region.root])]
        streams = {self.streams[k] for k in remaining}
        nest = with_outputs(self.nest, remaining).simplified if len(streams) == 1 else None
        if nest is None:
            return None
        regions = [*self.regions[:count], *[self.outputs[k] for k in remaining]]
        return compute(nest, regions, (), streams.pop())


def walk_of(call: Node) -> JointWalk | None:
    """Return a computation as a walk; None if its elements depend on each other."""
    if not isinstance(call, Compute):
        return None
    routine = call.function
    if not isinstance(routine, Nest | AddressedNest):
        return None
    use, nest, regions = with_memory(routine).use, *with_old_values_read(call.nest, call.regions)
    if nest.reduced or nest.mask or nest.limits or nest.symbols or with_memory(routine).forms or use.ahead or (
            use.fields) or any(step.kind in FIXED for step in nest.steps):
        return None
    if not all(writes_once(replace(nest, outputs=(output,))) for output in nest.outputs):
        return None
    streams = tuple([k in use.streams for k in range(len(nest.outputs))])
    return JointWalk((call,), nest, regions, streams)


def with_old_values_read(nest: Nest, regions: Sequence[ByteRegion]) -> tuple[Nest, tuple[ByteRegion, ...]]:
    """Return a nest and its regions with the old values of outputs as further inputs, at the elements that it writes.
    """
    old_values = [k for k in range(len(nest.outputs)) if nest.uses(nest.first_output + k)]
    if not old_values:
        return nest, tuple(regions)
    count, further = len(nest.inputs), len(old_values)
    number = {nest.first_output + output: count + k for k, output in enumerate(old_values)}

    def moved(value: int) -> int:
        return number[value] if value in number else value + further * (value >= nest.first_output)
    steps = tuple([replace(step, operands=tuple(map(moved, step.operands))) for step in nest.steps])
    inputs = (*nest.inputs, *[nest.outputs[k] for k in old_values])
    return replace(nest, inputs=inputs, steps=steps, results=tuple(map(moved, nest.results))), (
        *regions[:count], *[regions[count + k] for k in old_values], *regions[count:])


def is_same_access(region: ByteRegion, operand: Operand, other_region: ByteRegion, other_operand: Operand) -> bool:
    """Return whether two nests access the same element at each point."""
    return region.root == other_region.root and region.address == other_region.address and operand == other_operand


def with_outputs(nest: Nest, remaining: Sequence[int]) -> Nest:
    """Return a nest with only the ``remaining`` outputs, and without steps that only other outputs need."""
    results = [nest.results[k] for k in remaining]
    needed = {*results}
    for value in range(nest.first_step + len(nest.steps) - 1, nest.first_step - 1, -1):
        needed.update(nest.steps[value - nest.first_step].operands if value in needed else ())
    values = [value for value in range(nest.first_step, nest.first_step + len(nest.steps)) if value in needed]
    first_step = nest.first_output + len(remaining)
    number = {v: v for v in range(nest.first_output)} | {v: first_step + k for k, v in enumerate(values)}
    steps: list[Step] = [replace(nest.steps[v - nest.first_step], operands=tuple(
        [number[operand] for operand in nest.steps[v - nest.first_step].operands])) for v in values]
    return replace(nest, outputs=tuple([nest.outputs[k] for k in remaining]), steps=tuple(steps),
                   results=tuple([number[v] for v in results]))


def over_extents(nest: Nest, extents: tuple[int, ...]) -> Nest | None:
    """Return the nest with axes divided so that it has these extents; None if it has no such axes."""
    for axis, extent in enumerate(extents):
        if axis == len(nest.extents):
            return None
        if nest.extents[axis] != extent:
            if nest.extents[axis] % extent or nest.extents[axis] < extent:
                return None
            nest = nest.divided(axis, nest.extents[axis] // extent)
    return nest if nest.extents == extents else None


def accesses_of(nest: Nest, regions: Sequence[ByteRegion]) -> Iterator[ByteRegion]:
    """Yield the bytes that a nest accesses by each operand."""
    for k, (region, operand) in enumerate(zip(regions, nest.operands)):
        yield region.accessed(dims_of(nest, k), operand.dtype.itemsize, k >= len(nest.inputs))


def is_long_function(step: Step) -> bool:
    """Return whether a step takes a dozen instructions or more."""
    return step.kind == "lookup" or (step.kind in ("activation", "math") and step.name not in SHORT)


def count_roundings(nest: Nest) -> int:
    """Count the steps that round to floats narrower than float32."""
    return sum(step.kind == "convert" and step.dtype.is_float and step.dtype.itemsize < 4 for step in nest.steps)
