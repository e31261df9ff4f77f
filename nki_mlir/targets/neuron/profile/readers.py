# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which operands read what an instruction wrote, up to where it is written anew."""

from collections import defaultdict
from typing import NamedTuple

from nki_mlir.targets.neuron.profile.advice import Where
from nki_mlir.targets.neuron.profile.occupancy import Footprint, accesses, buckets_of
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


def readers_of(run: TimedMachine) -> dict[Where, set[Use]]:
    """By instruction, in the order in which a run went."""
    found: dict[Where, set[Use]] = defaultdict(set)
    memories: dict[int, dict[tuple[str, int], set[Value]]] = defaultdict(lambda: defaultdict(set))
    for _, where, operands in accesses(run):
        live = memories[id(run.agents[where[0]].core)]
        for operand in operands:
            for bucket in buckets_of(operand.region) if operand.reads else ():
                for value in live[bucket]:
                    if value.region.meets(operand.region):
                        found[value.where].add(Use(where, operand.field, operand.region))
        for operand in operands:
            if operand.writes:
                made, fills = Value(where, operand.region), operand.fills
                for bucket in buckets_of(operand.region):
                    if fills:
                        live[bucket] = {value for value in live[bucket] if not operand.region.holds(value.region)}
                    live[bucket].add(made)
    return found
