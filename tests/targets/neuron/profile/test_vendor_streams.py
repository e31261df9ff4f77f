# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Profiles in the vendor's form: positions in streams, semaphores over time, iterations of device loops."""

import linecache
import re
from collections import Counter, defaultdict
from itertools import groupby

import numpy as np
import pytest

from nki_mlir.dialects.isa.instruction import CompareBranch, Move, RangeClear, Register, RegisterAlu
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen import fastest
from nki_mlir.targets.neuron.codegen.emission import Emission
from nki_mlir.targets.neuron.format.assembly import instruction_text
from nki_mlir.targets.neuron.profile import document, profile_of
from nki_mlir.targets.neuron.profile.iterations import StreamLoop, loops_of_stream
from nki_mlir.targets.neuron.profile.vendor_tables import vendor_tables
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from tests.targets.neuron.profile.kernels import streams

ENGINES = {"Tensor": "pe", "Vector": "dve", "Scalar": "act", "GpSimd": "pool", "Sync": "sp"}
ROWS, COLUMNS = 3, 4


@nki.jit
def tiles(x):
    """Load, compute and store ROWS x COLUMNS tiles."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(ROWS):
        for j in nl.affine_range(COLUMNS):
            rows, columns = nl.ds(i * 128, 128), nl.ds(j * 512, 512)
            nl.store(out[rows, columns], nl.exp(nl.load(x[rows, columns])))
    return out


@pytest.fixture(scope="module")
def product():
    return streams("examples/matmul.py:matmul_tiled", "256x256xbf16", "256x1024xbf16")


@pytest.fixture(scope="module")
def tables(product):
    return vendor_tables(profile_of(product))


@pytest.fixture(scope="module")
def loops():
    x = np.zeros((ROWS * 128, COLUMNS * 512), np.float32)
    spec = tiles.specialize(tiles.bind((x,), {}, is_array, describe_array))
    return neuron.streams(spec.captured, spec.grid, Emission(unroll_limit=3, overlap=False))


def test_a_position_is_that_of_assembly(product, tables):
    """Straight code runs each instruction once, in order."""
    stream_of = {engine.asm: stream for engine, stream in product[0].streams.items()}
    for name, rows in groupby(sorted(tables["Instruction"], key=lambda row: (row["engine"], row["id"])),
                              key=lambda row: row["engine"]):
        stream = stream_of[ENGINES[name]]
        rows = list(rows)
        assert [row["pc"] for row in rows] == list(range(len(stream)))
        for row, instruction in zip(rows, stream):
            assert row["opcode"] == instruction.op.mnemonic
            waits = re.findall(r"S\[\d+\] \(\w+\)>=\d+", instruction_text(instruction, product[0]))
            assert re.findall(r"S\[\d+\] \(\w+\)>=\d+", row["operands"]) == waits
            updates = re.findall(r"S\[\d+\] \(\w+\)\S*@complete", instruction_text(instruction, product[0]))
            assert re.findall(r"S\[\d+\] \(\w+\)\S*@complete", row["operands"]) == updates


def test_semaphores_of_transfers_are_those_of_their_queues(product, tables):
    queues = {queue.name: f"S[{queue.semaphore}] ({queue.name})" for queue in product[0].queues}
    rows = tables["DmaPacketAggregated"]
    assert [row["semaphore_id"] for row in rows] == [queues[row["queue_name"]] for row in rows]


def test_updates_add_up_to_what_the_streams_signal(product, tables):
    """Without loops and clears, a semaphore ends with the sum of the updates of it."""
    rows, program = tables["SemaphoreUpdate"], product[0]
    assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)
    total = Counter()
    for stream in program.streams.values():
        for instruction in stream:
            if instruction.update is not None:
                number, amount = instruction.update
                total[f"S[{number}] ({program.semaphores[number].name})"] += amount
    last = {row["id"]: row["value"] for row in rows}
    assert last == dict(total) and {row["update_trigger_timing"] for row in rows} == {"complete"}
    by_queue = {row["update_source"] for row in rows if "(q" in row["id"]}
    assert by_queue == {queue.name for queue in program.queues if f"S[{queue.semaphore}] ({queue.name})" in last}


def test_no_instruction_starts_before_its_semaphores_have_their_values(product, tables):
    history = defaultdict(list)
    for row in tables["SemaphoreUpdate"]:
        history[row["id"]].append((row["timestamp"], row["value"]))
    waits = 0
    for row in tables["Instruction"]:
        for semaphore, value in re.findall(r"(S\[\d+\] \(\w+\))>=(\d+)", row["operands"]):
            reached = next(time for time, had in history[semaphore] if had >= int(value))
            assert reached <= row["start_ts"] + 1           # times are rounded
            waits += 1
    assert waits > 10


def test_device_loops_have_the_values_of_their_variables(loops):
    tables = vendor_tables(profile_of(loops))
    iterations = {row["iteration_variable_id"]: row for row in tables["KernelIterationVariables"]}
    instructions = {row["kernel_instruction_name"]: row for row in tables["KernelInstructions"]}
    assert {row["kernel_instruction_name"] for row in tables["Instruction"]} == set(instructions)
    assert {(row["variable_name"], source_line(row)) for row in iterations.values()} == {
        ("i", "for i in nl.affine_range(ROWS):"), ("j", "for j in nl.affine_range(COLUMNS):")}

    def values(name):
        numbers, k = [], instructions[name]["iteration_variables_id"]
        while k is not None:
            numbers.append(iterations[k]["variable_value"])
            k = iterations[k]["parent_iteration_variable_id"]
        return tuple(numbers[::-1])
    computed = [row for row in tables["Instruction"] if row["opcode"] == "ACTIVATE"]
    assert [values(row["kernel_instruction_name"]) for row in computed] == [
        (i, j) for i in range(ROWS) for j in range(COLUMNS)]
    assert {instructions[row["kernel_instruction_name"]]["iteration_variable_depth"] for row in computed} == {1}
    assert len({row["pc"] for row in computed}) == 1
    first = min(tables["Instruction"], key=lambda row: row["start_ts"])
    assert instructions[first["kernel_instruction_name"]]["iteration_variables_id"] is None


def source_line(row):
    return linecache.getline(row["file_path"], row["line_number"]).strip()


@pytest.mark.parametrize("options", [Emission(), Emission(unroll_limit=6), Emission(unroll_limit=3, overlap=False), Emission(level=3, unroll_limit=6)], ids=str)
def test_each_instruction_has_the_values_of_its_loops(options):
    """Of unrolled loops, of loops of the device with several iterations in a body, and of both, in any order."""
    x = np.zeros((ROWS * 128, COLUMNS * 512), np.float32)
    spec = tiles.specialize(tiles.bind((x,), {}, is_array, describe_array))
    tables = vendor_tables(profile_of(neuron.streams(spec.captured, spec.grid, options)))
    iterations = {row["iteration_variable_id"]: row for row in tables["KernelIterationVariables"]}
    instructions = {row["kernel_instruction_name"]: row for row in tables["KernelInstructions"]}
    computed = []
    for row in tables["Instruction"]:
        if row["opcode"] == "ACTIVATE":
            inner = iterations[instructions[row["kernel_instruction_name"]]["iteration_variables_id"]]
            outer = iterations[inner["parent_iteration_variable_id"]]
            assert (outer["variable_name"], inner["variable_name"]) == ("i", "j")
            assert outer["parent_iteration_variable_id"] is None
            assert source_line(outer) == "for i in nl.affine_range(ROWS):"
            assert source_line(inner) == "for j in nl.affine_range(COLUMNS):"
            computed.append((outer["variable_value"], inner["variable_value"]))
    assert sorted(computed) == [(i, j) for i in range(ROWS) for j in range(COLUMNS)]


@nki.jit
def rows_of_many(x):
    """Two results a tile, for many tiles."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range(x.shape[0] // 128):
        nl.store(out[nl.ds(k * 128, 128), :], nl.tanh(nl.exp(nl.load(x[nl.ds(k * 128, 128), :]))))
    return out


def test_steps_of_pipelined_loops_have_their_own_iterations(monkeypatch):
    """A round of the loop has steps of several iterations, and a body has several rounds."""
    pipelined = fastest.Candidate(8, 8, pipelined=100)
    monkeypatch.setattr(fastest, "candidates", lambda *_: [fastest.Candidate(8, 8)])
    monkeypatch.setattr(fastest, "pipelined_candidates", lambda *_: [pipelined])
    monkeypatch.setattr(fastest.TimedCandidates, "least_time_again", lambda *_: 0.0)
    monkeypatch.setattr(fastest.TimedCandidates, "time", lambda search, candidate, prepared: candidate.pipelined and (
        search.time_rounds(candidate, prepared)))
    x = np.zeros((40 * 128, 512), np.float32)
    spec = rows_of_many.specialize(rows_of_many.bind((x,), {}, is_array, describe_array))
    program, = neuron.streams(spec.captured, spec.grid)
    tables = vendor_tables(profile_of([program]))
    iterations = {row["iteration_variable_id"]: row for row in tables["KernelIterationVariables"]}
    instructions = {row["kernel_instruction_name"]: row for row in tables["KernelInstructions"]}
    computed = Counter()
    for row in tables["Instruction"]:
        if row["opcode"] == "ACTIVATE":
            number = instructions[row["kernel_instruction_name"]]["iteration_variables_id"]
            computed[row["scalar_activation_fn"], iterations[number]["variable_name"], iterations[number]["variable_value"]] += 1
    assert computed == {(fn, "k", k): 1 for fn in ("EXP", "TANH") for k in range(40)}
    assert sum(len(stream) for stream in program.streams.values()) < 200         # it is a loop


def test_lines_have_the_functions_that_they_are_in(tables):
    frames = {row["stack_frame_id"]: row for row in tables["KernelStackFrames"]}
    rows = [row for row in tables["KernelInstructions"] if row["line_number"] is not None]
    assert rows and {row["stack_frame_depth"] for row in rows} == {0}
    for row in rows:
        frame = frames[row["stack_frame_id"]]
        assert (frame["file_path"], frame["line_number"]) == (row["file_path"], row["line_number"])
        assert frame["fully_qualified_function_name"] == "matmul.matmul_tiled" and frame["parent_stack_frame_id"] is None


def test_semaphores_that_are_cleared_begin_again(loops):
    rows = vendor_tables(profile_of(loops))["SemaphoreUpdate"]
    cleared = [row for row in rows if row["update_operation_type"] == "evt_clr"]
    assert cleared and {row["value"] for row in cleared} == {0}
    program, = loops
    clears = [i.op for stream in program.streams.values() for i in stream if isinstance(i.op, RangeClear)]
    assert {row["id"] for row in cleared} == {
        f"S[{number}] ({program.semaphores[number].name})" for op in clears for number in range(op.first, op.last + 1)}
    assert {row["value"] for row in rows if row["update_operation_type"] == "sem_inc"} >= {1}
    assert min(row["value"] for row in rows) == 0


def test_a_thinned_profile_has_no_positions_where_executions_are_joined(product):
    run = TimedMachine(product)
    run.run()
    thinned = vendor_tables(document.document_of(run, slice_limit=12))
    counts = [row["pc"] for row in thinned["Instruction"]]
    assert None in counts
    assert not any(thinned[name] for name in ("SemaphoreUpdate", "Flow", "PendingDma", "DmaPacket"))
    assert all(row["kernel_instruction_name"] is None for row in thinned["Instruction"] if row["pc"] is None)


def test_a_loop_without_a_counter_has_no_variable():
    class Entry:
        def __init__(self, op):
            self.op, self.location = op, None
    r0, r1 = Register(0), Register(1)
    counted = [Move(r0, 0), RegisterAlu("add", r1, r0, 1), RegisterAlu("add", r0, r0, 1), CompareBranch("lt", r0, 4, 1)]
    loaded = [Move(r0, 0), RegisterAlu("add", r0, r1, 1), CompareBranch("lt", r0, 4, 1), CompareBranch("lt", r0, 4, 4)]
    assert loops_of_stream(list(map(Entry, counted))) == [StreamLoop(1, 3, 0)]
    assert loops_of_stream(list(map(Entry, loaded))) == [StreamLoop(1, 2, None)]
