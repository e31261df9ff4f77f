# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The sides of branches that the checker follows, and the footprints of operands at addresses that registers decide."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.dialects.access import Access, Linear, Tile
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.verification import OutOfBounds
from nki_mlir.scalar.dtypes import UINT8
from nki_mlir.targets.neuron.checker import UNEQUAL_DECISIONS, check_streams
from nki_mlir.targets.neuron.checker.memory import Operands
from nki_mlir.targets.neuron.checker.register_numbers import DataDependent
from nki_mlir.targets.neuron.checker.rules import TargetRules
from nki_mlir.targets.neuron.checker.trace import Choices
from nki_mlir.targets.neuron.deadlock import Deadlock
from nki_mlir.targets.neuron.format.assembly import parse_program
from nki_mlir.targets.neuron.simulator import simulate


# -- branches ----------------------------------------------------------------------------------------------------------
def sides(choices, branches, core=0):
    """The sides that a run takes at these branches, each at a new point of the run."""
    return [choices.is_taken((core, branch, number), core, branch) for number, branch in enumerate(branches)]


def test_a_branch_is_not_taken_twice_and_then_taken():
    choices = Choices()
    assert sides(choices, "aabaab") == [False, False, False, True, True, False]
    assert choices.is_taken((0, "b", 2), 0, "b") is False and len(choices.sites) == 6       # the same point decides once
    assert sides(choices, "b", core=1) == [False] and sides(choices, "bbb", core=1) == [False, False, True]


def scripts(branches, script=(), most=99):
    choices = Choices(script)
    sides(choices, branches)
    return choices.alternatives(most), choices.cut


def test_other_runs_differ_in_one_later_decision():
    assert scripts("a") == ([[True]], False)
    assert scripts("aaa") == ([[True], [False, True]], True)
    assert scripts("ab") == ([[True], [False, True]], False)
    assert scripts("ab", most=1) == ([[False, True]], False)
    assert scripts("aab", [True]) == ([[True, True], [True, False, True]], False)
    assert scripts("aab", [False, False, True]) == ([], False)


@pytest.mark.parametrize("branches", ["a", "aa", "aab", "abab", "aabba"])
def test_runs_of_all_scripts_are_those_with_at_most_two_sides_not_taken(branches):
    """A branch that was not taken twice is taken, so each run of a loop ends."""
    pending, runs = [()], set()
    while pending:
        choices = Choices(pending.pop())
        runs.add(tuple(sides(choices, branches)))
        pending += map(tuple, choices.alternatives(99))
    expected = {run for run in itertools.product((False, True), repeat=len(branches))
                if all(sum(not side for side, other in zip(run, branches) if other == site) <= 2 for site in branches)}
    assert runs == expected


def test_cores_differ_where_one_takes_another_side():
    choices = Choices([True, True, False, True])
    sides(choices, "ab", core=0)
    sides(choices, "a", core=1)
    assert choices.differ(1) is False and choices.differ(2) is True
    alike = Choices([True, False, True, False])
    assert sides(alike, "ab", core=0) == sides(alike, "ab", core=1) and alike.differ(2) is False


# -- operands ----------------------------------------------------------------------------------------------------------
PARTITIONS, COLUMNS = 4, 10
PROGRAM = parse_program(".nki_isa 1\n.kernel f\n.target trn2\n.sbuf 4096 of 212984\n.psum 16384 of 16384\n"
                        ".input x int32[1,1] 0\n.output y int32[1,1] 0\n.internal z int32[1,1] 0\n")


def tile(step, rows=2, partition=((0, 1),), free=((1, 1),)):
    """Rows and three elements of a tile, at a partition and an element that registers move."""
    access = Access(UINT8, Linear(0 if rows == PARTITIONS else 1, partition), Linear(2, free), ((1, rows), (step, 3)))
    return Tile(None, "sbuf", (PARTITIONS, COLUMNS), UINT8, access)


OPERANDS = Operands([PROGRAM])                  # one for all, which keeps equal footprints


def footprint(moved, *values):
    return OPERANDS.footprint(0, moved, SimpleNamespace(values=values))


def fits(step, partition, column):
    elements = [2 + column + step * k for k in range(3)]
    return 0 <= 1 + partition and 2 + partition < PARTITIONS and min(elements) >= 0 and max(elements) < COLUMNS


@pytest.mark.parametrize("step", [1, -1, 2])
def test_operand_at_known_numbers_is_in_its_buffer_or_an_error(step):
    for partition, column in itertools.product(range(-3, 4), range(-4, COLUMNS)):
        by_one = footprint, (tile(step), partition, column)
        forms = [by_one] + [(footprint, (tile(step, partition=()), 9, column))] * (partition == 0) + [
            (footprint, (tile(step, free=()), partition, 9))] * (column == 0)
        for function, arguments in forms:
            if fits(step, partition, column):
                reached = function(*arguments)
                elements = [2 + column + step * k for k in range(3)]
                assert (reached.first, reached.last, reached.low, reached.high) == (
                    1 + partition, 2 + partition, min(elements), max(elements) + 1)
            else:
                with pytest.raises(OutOfBounds, match="sbuf"):
                    function(*arguments)


@pytest.mark.parametrize("step", [1, -1, 4, -4, 5, -5])
def test_operand_at_unknown_numbers_is_an_error_if_it_fits_nowhere(step):
    numbers = DataDependent("n", -9, 9), DataDependent("m", -20, 20)
    forms = [(tile(step), numbers), (tile(step), (0, numbers[1])), (tile(step, PARTITIONS), numbers),
             (tile(step, PARTITIONS, ()), numbers), (tile(step, partition=()), numbers)]
    for moved, values in forms:
        if any(fits(step, 0, column) for column in range(-20, 21)):
            assert footprint(moved, *values).high <= COLUMNS
        else:
            with pytest.raises(OutOfBounds, match="sbuf"):
                footprint(moved, *values)
    fixed = footprint(tile(1, free=()), *numbers)               # the other number moves nothing
    assert (fixed.low, fixed.high) == (2, 5)


def test_numbers_that_move_nothing_are_not_looked_at():
    unknown = DataDependent("n", -9, 9)
    assert footprint(tile(1, partition=(), free=()), unknown, unknown).symbolic is None
    with pytest.raises(OutOfBounds, match="sbuf"):
        footprint(tile(1, PARTITIONS + 1, ()), unknown, unknown)


def test_operands_have_one_footprint_where_they_touch_the_same_bytes():
    on_chip = [tile(1), tile(1, partition=(), free=()), tile(1, PARTITIONS, (), ())]
    listed = [footprint(moved, *values) for moved in on_chip for values in ((0, 0), (1, 0), (0, 1))]
    touched = [(f.first, f.last, f.low, f.high) for f in listed]
    assert len(set(touched)) == 4
    assert all((f is g) == (a == b) for f, a in zip(listed, touched) for g, b in zip(listed, touched))
    variable = PROGRAM.variables[0]
    hbm = [Tile(variable, "hbm", (9,), UINT8, Access(UINT8, None, Linear(1, symbols), ((1, 3),)))
           for symbols in ((), ((0, 1),))]
    first, second = (footprint(moved, 4, 0) for moved in hbm)
    assert (first.memory, first.low, second.low, footprint(hbm[1], 0, 0)) == (("input", 0), 1, 5, first)


def test_memory_is_shared_if_several_programs_have_it():
    assert Operands([PROGRAM]).shared == set()
    both = Operands([PROGRAM, PROGRAM])
    assert both.shared == {("input", 0), ("output", 0)}
    assert len(set(both.variables.values())) == 4                  # each core has a z


# -- rules -------------------------------------------------------------------------------------------------------------
def test_rules_are_for_instructions_whose_registers_are_known():
    """A copy begins at the sum of two registers, and engines begin 44 partitions at 0 or 64."""
    access = Access(UINT8, Linear(0, ((0, 1), (1, 1))), Linear(), ((1, 44), (1, 3)))
    moved, fixed = (Tile(None, "sbuf", (128, 3), UINT8, a, "t") for a in (access, replace(access, partition=Linear())))
    copy = TensorCopyOp(dst=fixed, src=moved)
    copy.symbols, copy.ranges, copy.engine = (0, 1), ((0, 64),) * 2, "vector"
    unknown = DataDependent("n", 0, 64)

    def breaks(*values):
        error = TargetRules(PROGRAM).broken(SimpleNamespace(instruction=SimpleNamespace(op=copy), values=values))
        return error is not None
    assert [breaks(0, 0), breaks(32, 32), breaks(0, 16), breaks(64, 0)] == [False, False, True, False]
    assert [breaks(unknown, 16), breaks(16, unknown), breaks(unknown, unknown)] == [False] * 3


# -- numbers that several engines load ---------------------------------------------------------------------------------
def loads_of_two_engines(*between: str) -> str:
    """dve and pool load a number, with these instructions of dve between the loads. If their numbers are not zero, pool
    signals dve, which waits for it."""
    vector = ["S[2] (q0)>=16 TENSOR_LOAD dst=r0 src=int32@0x0[1][1]*1", *between,
              "EVENT_SEMAPHORE S[0] (Vector)++@complete",
              f"COMPARE_BRANCH op=eq lhs=r0 rhs=0 target={4 + len(between):04d}",
              "S[1] (GpSimd)>=1 EVENT_SEMAPHORE"]
    pool = ["S[0] (Vector)>=1 TENSOR_LOAD dst=r0 src=int32@0x0[1][1]*1",
            "COMPARE_BRANCH op=eq lhs=r0 rhs=0 target=0003",
            "EVENT_SEMAPHORE S[1] (GpSimd)++@complete"]
    sync = ["DMA queue=0 dst=int32@0x0[1][3] src=int32@n[1,0][3,1] channels=1 S[2] (q0)+=16@complete"]
    streams = {"dve": vector, "pool": pool, "sp": sync}
    return """\
.nki_isa 1
.kernel f
.target trn2
.sbuf 64 of 212984
.psum 0 of 16384
.input n int32[1,3] 0
.semaphore 0 Vector
.semaphore 1 GpSimd
.semaphore 2 q0
.queue 0 q0 sp 2
""" + "".join(f".stream {engine}\n" + "".join(f"{engine} {k:04d}: {text}\n" for k, text in enumerate(lines))
              for engine, lines in streams.items())


def test_engines_that_load_one_number__take_equal_sides():
    assert check_streams([parse_program(loads_of_two_engines())]).verdict == "proved"
    other = "COPY dst=int32@0x8[1][1] src=int32@0x4[1][1] channels=1"
    assert check_streams([parse_program(loads_of_two_engines(other))]).verdict == "proved"


@pytest.mark.parametrize("write", [
    ["COPY dst=int32@0x0[1][1] src=int32@0x4[1][1] channels=1"],
    ["COPY dst=uint8@0x0[1][1] src=uint8@0x4[1][1] channels=1"],
    ["MOVE dst=r1 value=0", "COPY dst=int32@0x0+4*r1[1][1] src=int32@0x8[1][1] channels=1"]], ids=len)
def test_number_that_changes_between_two_loads__may_let_engines_take_other_sides(write):
    """pool does not signal if its number is zero and that of dve was not."""
    program = parse_program(loads_of_two_engines(*write))
    report = check_streams([program])
    assert [type(error) for error in report.violations] == [Deadlock]
    with pytest.raises(Deadlock, match=f"dve waits at {3 + len(write):04d}"):
        simulate(program, [np.array([[1, 0, 0]], np.int32)], [])
    simulate(program, [np.array([[1, 1, 1]], np.int32)], [])


def test_branches_of_two_cores_on_data__are_not_proved():
    """Each core may load another number, though it loads it from the same address."""
    program = parse_program(loads_of_two_engines())
    report = check_streams([program, program])
    assert (report.violations, report.not_analyzed) == (
        [], [UNEQUAL_DECISIONS])
