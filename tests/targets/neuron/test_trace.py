# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers that data decide, against all their values; the rules of instructions at addresses and in registers."""

import itertools
import random
from types import SimpleNamespace

import pytest

from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import PARTITION_STRIDE
from nki_mlir.scalar.dtypes import BOOL, INT8, INT32, UINT16, UINT32
from nki_mlir.targets.neuron import control
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.checker.register_numbers import (
    REGISTER_HIGH,
    REGISTER_LOW,
    DataDependent,
    bounds,
    computed,
    key_of,
    limits_of,
)
from nki_mlir.targets.neuron.checker.rules import missing_tables
from nki_mlir.targets.neuron.format.assembly import parse_program

OPERATORS = (*isa.COMPARISONS, *isa.ARITHMETIC)


@pytest.mark.parametrize("name", OPERATORS)
def test_bounds_of_a_result__contain_all_values_and_no_more(name):
    """They are the least and the greatest value for operators on intervals of these sizes, except mod and floordiv by
    what data decide, bits and shifts."""
    rng = random.Random(4)
    for _ in range(60):
        low, other_low = rng.randrange(-6, 7), rng.randrange(-6, 7)
        spans = (low, low + rng.randrange(4)), (other_low, other_low + rng.randrange(4))
        lhs, rhs = (DataDependent(key, *span) for key, span in zip("ab", spans))
        if rng.random() < 0.4:
            rhs = spans[1][0]
        values = set()
        for a, b in itertools.product(range(spans[0][0], spans[0][1] + 1), range(bounds(rhs)[0], bounds(rhs)[1] + 1)):
            try:
                values.add(int(control.computed(name, a, b)))
            except Exception:
                values.clear()
                break
        if not values:
            continue
        result = computed(name, lhs, rhs)
        least, greatest = bounds(result)
        assert least <= min(values) and max(values) <= greatest
        if name in isa.COMPARISONS or name in ("add", "subtract", "mult", "min", "max"):
            equal = name in ("eq", "ne") and isinstance(rhs, int) and len(values) == 1
            assert (least, greatest) == (min(values), max(values)) or equal
        elif name == "floordiv" and isinstance(rhs, int) and rhs > 0:
            assert (least, greatest) == (min(values), max(values))
        elif name == "mod" and isinstance(rhs, int) and rhs > 0:
            assert (least, greatest) == (0, rhs - 1)
        if not isinstance(result, int):
            assert result.key == (name, "a", key_of(rhs))


def test_results_beyond_a_register__may_be_any_number():
    n = DataDependent("n", 0, REGISTER_HIGH)
    assert bounds(computed("add", n, 1)) == (REGISTER_LOW, REGISTER_HIGH)
    assert bounds(computed("subtract", 0, n)) == (-REGISTER_HIGH, 0)
    assert bounds(computed("subtract", -2, n)) == (REGISTER_LOW, REGISTER_HIGH)
    assert computed("add", 2, 3) == 5


def test_limits_of_loads__are_those_of_dtype_and_register():
    assert [limits_of(dtype) for dtype in (BOOL, INT8, UINT16, INT32, UINT32)] == [
        (0, 1), (-128, 127), (0, 65535), (REGISTER_LOW, REGISTER_HIGH), (0, REGISTER_HIGH)]


# -- rules of instructions ---------------------------------------------------------------------------------------------
HEADER = ".nki_isa 1\n.kernel f\n.target trn2\n.sbuf 4096 of 212984\n.psum 16384 of 16384\n.input x int32[1,1] 0\n"


def errors(*lines, engine="dve"):
    stream = "".join(f"{engine} {k:04d}: {line}\n" for k, line in enumerate(lines))
    program = parse_program(f"{HEADER}.stream {engine}\n{stream}")
    return [str(error) for error in check_streams([program]).violations]


def memset(address, columns, partitions=32):
    return f"MEMSET value=0 dst=fp32@{address:#x}[1][{columns}] channels={partitions}"


PSUM = 0x2000000


@pytest.mark.parametrize("start, rows, broken", [(0, 32, False), (32, 32, False), (16, 32, True), (64, 64, False)])
def test_start_partition__is_judged_at_each_address(start, rows, broken):
    """The rule is judged once for instructions that it cannot tell apart, so each of two is judged."""
    messages = errors(memset(0, 4), memset(start * PARTITION_STRIDE + 64, 4, rows))
    assert bool(messages) == broken and all("NKI-START-PARTITION" in error and "dve 0001" in error for error in messages)


@pytest.mark.parametrize("byte, columns, broken", [(0, 512, False), (2048, 512, False), (1024, 512, True), (1024, 256, False)])
def test_bank_of_psum__is_judged_at_each_address(byte, columns, broken):
    lines = [f"MATMUL dst=fp32@{PSUM + at:#x}[1][{columns}] stationary=fp32@0x0[1][32] moving=fp32@0x80[1][{columns}] "
             "channels=32" for at in (0, byte)]
    messages = [error for error in errors(*lines, engine="pe") if "NKI-STREAM-RULE" in error]
    assert bool(messages) == broken, messages
    assert all("pe 0001" in error for error in messages)


def test_rules_of_registers__are_judged_for_their_values():
    line = "MEMSET value=0 dst=fp32@0x0+1*r0p[1][4] channels=32"
    sound = errors("MOVE dst=r0 value=32", line)
    assert sound == []
    assert "NKI-START-PARTITION" in errors("MOVE dst=r0 value=16", line)[0]


def test_missing_tables__are_reported_once_for_each_change():
    text = HEADER + """.stream act
act 0000: ACTIVATE fn=exp dst=fp32@0x0[1][4] src=fp32@0x0[1][4] channels=32
act 0001: ACTIVATE fn=exp dst=fp32@0x0[1][4] src=fp32@0x0[1][4] channels=32
act 0002: ACTIVATE fn=copy dst=fp32@0x0[1][4] src=fp32@0x0[1][4] channels=32
act 0003: ACTIVATE fn=gelu dst=fp32@0x0[1][4] src=fp32@0x0[1][4] channels=32
act 0004: ACT_TABLE_LOAD table=exp
act 0005: ACTIVATE fn=exp dst=fp32@0x0[1][4] src=fp32@0x0[1][4] channels=32
"""
    program = parse_program(text)
    (engine, stream), = ((e, s) for e, s in program.streams.items() if s)
    events = [SimpleNamespace(instruction=instruction, engine=engine, pc=pc) for pc, instruction in enumerate(stream)]
    first, second = missing_tables(events)
    assert (first[0].pc, first[1], first[2]) == (0, "exp", "")
    assert (second[0].pc, second[2]) == (3, "exp") and second[1] != "exp"
