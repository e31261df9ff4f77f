# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports of the checker: one for two lines, tiles that must be written before, the completion that a witness delays."""

from types import SimpleNamespace

import pytest

from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.targets.neuron.checker import StreamReport, check_conflicts
from nki_mlir.targets.neuron.checker.memory import Operands
from nki_mlir.targets.neuron.checker.witness import Witness

from ...dialects.samples import SAMPLES


def uncertain(first, then):
    events = [SimpleNamespace(instruction=SimpleNamespace(location=line)) for line in (first, then)]
    return SimpleNamespace(certain=False, first=events[0], then=events[1])


def test_accesses_that_data_decide__are_reported_once_for_two_lines():
    conflicts = [uncertain(*lines) for lines in ("ab", "ba", "ab", "ac", "aa", "ac")]
    words = SimpleNamespace(unordered=lambda conflict: SimpleNamespace(
        headline=f"{conflict.first.instruction.location} and {conflict.then.instruction.location}"))
    report = StreamReport()
    check_conflicts(SimpleNamespace(conflicts=conflicts), SimpleNamespace(), words, report)
    start = "values in tensors decide whether two accesses meet: "
    assert report.not_analyzed == [f"{start}a and b", f"{start}a and c", f"{start}a and a"]
    assert report.violations == []


def tiles_that_must_be_written(name, **changes):
    op = SAMPLES[name].make(**changes)
    event = SimpleNamespace(core=0, instruction=SimpleNamespace(op=op), values=())
    operands = Operands([])
    operands.touch = lambda event, tile, read, written, must_be_written, by_data=False: [must_be_written]
    return {field.name for (field, _), needed in zip(op.operands(), operands.touches(event)) if needed}


@pytest.mark.parametrize("command, needed", [("reset_reduce", {"src"}), ("reset", {"src"}),
                                             ("reduce", {"src", "accumulator"})])
def test_registers_that_an_instruction_overwrites__may_be_unwritten(command, needed):
    name = "nisa.tensor_scalar_cumulative"
    assert tiles_that_must_be_written(name, reduce_cmd=command) - {"operand0"} == needed


@pytest.mark.parametrize("kept, needed", [((), {"src"}), ((2,), {"src", "dst"})])
def test_partitions_that_a_shuffle_keeps__must_be_written(kept, needed):
    shuffle = tuple(255 if k in kept else k for k in range(32))
    assert tiles_that_must_be_written("nisa.nc_stream_shuffle", shuffle=shuffle) == needed


@pytest.mark.parametrize("delayed", [0, 1, 2, None])
def test_witness_holds_one_engines_part_of_a_transfer_and_of_those_after_it(delayed):
    events = [SimpleNamespace(core=0) for _ in range(3)]
    kept_back = None if delayed is None else events[delayed]
    witness = Witness(SimpleNamespace(programs=[], lanes=[], lane_of={}, steps=[]), SimpleNamespace(first=kept_back, then=None))
    witness.steps, counted = [], []
    witness.count = lambda event, queue, number: counted.append(number)
    queue = SimpleNamespace(core=0, number=4, triggered=events, reported=[0] * isa.COMPLETIONS)
    witness.delayed = kept_back
    witness.report(queue)
    last = len(events) if delayed is None else delayed
    assert queue.reported == [3] * (isa.COMPLETIONS - 1) + [last]
    assert len(witness.steps) == len(counted) == 3 * (isa.COMPLETIONS - 1) + last
