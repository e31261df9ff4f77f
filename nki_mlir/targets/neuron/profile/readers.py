# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which operands read what an instruction wrote, up to where it is written anew."""

from collections import defaultdict
from math import prod
from typing import NamedTuple

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Op
from nki_mlir.targets.neuron.profile.advice import Where
from nki_mlir.targets.neuron.profile.occupancy import Footprint, buckets_of, footprint_of
from nki_mlir.targets.neuron.timing.machine import TimedMachine


class Use(NamedTuple):
    """An operand that reads a value, of the instruction at ``where``."""

    where: Where
    field: str
    region: Footprint


class Value(NamedTuple):
    """A value on chip that may still be read."""

    where: Where
    region: Footprint


class _Operand(NamedTuple):
    field: str
    region: Footprint
    reads: bool
    writes: bool
    fills: bool                 # every byte of the region is written


def readers_of(run: TimedMachine) -> dict[Where, set[Use]]:
    """By instruction, in the order in which a run went."""
    record = run.record
    found: dict[Where, set[Use]] = defaultdict(set)
    known: dict[Where, list[_Operand]] = {}
    memories: dict[int, dict[tuple[str, int], set[Value]]] = defaultdict(lambda: defaultdict(set))
    for event in sorted(range(len(record)), key=record.start.__getitem__):
        where = record.agent[event], record.position[event]
        agent = run.agents[where[0]]
        operands = known.get(where)
        if operands is None:
            op = agent.stream.instructions[where[1]].op
            operands = known[where] = _operands(op) if isinstance(op, Op) else []
        live = memories[id(agent.core)]
        for operand in operands:
            for bucket in buckets_of(operand.region) if operand.reads else ():
                for value in live[bucket]:
                    if value.region.meets(operand.region):
                        found[value.where].add(Use(where, operand.field, operand.region))
        for operand in operands:
            if operand.writes:
                made = Value(where, operand.region)
                for bucket in buckets_of(operand.region):
                    if operand.fills:
                        live[bucket] = {value for value in live[bucket] if not operand.region.holds(value.region)}
                    live[bucket].add(made)
    return found


def _operands(op: Op) -> list[_Operand]:
    return [_Operand(f.name, footprint_of(t), f.reads, f.writes, not op.mask and not op.limits and _dense(t))
            for f, t in op.operands() if t.on_chip]


def _dense(tile: Tile) -> bool:
    low, high = tile.access.reach()
    return prod(count for _, count in tile.access.free_dims) == high + 1 - low
