# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The simulator by itself: deadlock, semaphore range, poison, registers, arguments."""

from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import SBUF, Access, Linear, Tile
from nki_mlir.dialects.isa.instruction import RegisterDivision
from nki_mlir.dialects.op import changed
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.scalar.dtypes import INT32, UINT8
from nki_mlir.targets.interpreter.execute import compile_op
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.deadlock import Deadlock
from nki_mlir.targets.neuron.execution import PADDING, element, on_padded_rows
from nki_mlir.targets.neuron.format.assembly import parse_program
from nki_mlir.targets.neuron.simulated_core import SemaphoreRange, WrongArray, WrongArrays
from nki_mlir.targets.neuron.simulator import StepLimit, simulate

from ...dialects.samples import SAMPLES

HEADER = """\
.nki_isa 1
.kernel k
.target trn2
.output y fp32[4,8] 0
.semaphore 0 Vector
.semaphore 1 Scalar
.semaphore 2 qSyncIO0
.queue 0 qSyncIO0 sp 2
"""
STORE = ("DMA queue=0 dst=fp32@y[1,8][8,4] src=fp32@0x0[1][8] channels=4 S[2] (qSyncIO0)+=16@complete\n")


def run(text, seed=None, **options):
    output = np.zeros((4, 8), np.float32)
    simulate(parse_program(HEADER + text), [], [output], seed, **options)
    return output


def test_store__waits_for_the_memset_that_signals():
    text = (".stream dve\ndve 0000: MEMSET value=3.0 dst=fp32@0x0[1][8] channels=4 S[0] (Vector)++@complete\n"
            ".stream sp\nsp 0000: S[0] (Vector)>=1 " + STORE)
    for seed in (None, *range(5)):
        assert (run(text, seed) == 3).all()


def test_missing_wait__shows_memory_that_was_never_written():
    text = (".stream dve\ndve 0000: MEMSET value=3.0 dst=fp32@0x0[1][8] channels=4\n"
            ".stream sp\nsp 0000: " + STORE)
    assert any(np.isnan(run(text, seed)).all() for seed in range(20))


def test_error__deadlock_names_who_waits_for_what():
    text = (".stream act\nact 0000: S[0] (Vector)>=2 EVENT_SEMAPHORE S[1] (Scalar)++@complete\n"
            ".stream dve\ndve 0000: EVENT_SEMAPHORE S[0] (Vector)++@complete\n"
            "dve 0001: S[1] (Scalar)>=1 EVENT_SEMAPHORE S[0] (Vector)++@complete\n")
    with pytest.raises(Deadlock) as caught:
        run(text)
    assert caught.value.headline == (
        "no engine can continue: act waits at 0000 EVENT_SEMAPHORE for S[0] (Vector)>=2, which is 1, which dve would "
        "count up after that; dve waits at 0001 EVENT_SEMAPHORE for S[1] (Scalar)>=1, which is 0, which act would "
        "count up after that")


def test_error__semaphore_below_zero():
    with pytest.raises(SemaphoreRange, match=r"semaphore 0 \(Vector\) would become -1"):
        run(".stream dve\ndve 0000: EVENT_SEMAPHORE S[0] (Vector)--@complete\n")


def test_error__semaphore_over_sixteen_bits():
    with pytest.raises(SemaphoreRange, match=r"semaphore 0 \(Vector\) would become 65536"):
        run(".stream dve\ndve 0000: EVENT_SEMAPHORE S[0] (Vector)+=65535@complete\n"
            "dve 0001: EVENT_SEMAPHORE S[0] (Vector)++@complete\n")


def test_range_clear__sets_semaphores_to_zero():
    run(".stream dve\ndve 0000: EVENT_SEMAPHORE S[0] (Vector)+=65535@complete\n"
        "dve 0001: EVENT_SEMAPHORE_RANGE_CLEAR first=0 last=1\n"
        "dve 0002: EVENT_SEMAPHORE S[0] (Vector)+=65535@complete\n")


def test_error__endless_loop():
    text = ".stream dve\ndve 0000: COMPARE_BRANCH op=eq lhs=0 rhs=0 target=0000\n"
    with pytest.raises(StepLimit, match="the program has not ended after 1000 instructions"):
        run(text, step_limit=1000)


def test_registers__wrap_at_32_bits_and_drive_addresses():
    lines = ["MOVE dst=r0 value=2147483647", "ALU op=add dst=r1 lhs=r0 rhs=1", "ALU op=floordiv dst=r2 lhs=-7 rhs=2",
             "ALU op=mod dst=r3 lhs=-7 rhs=4", "ALU op=lt dst=r4 lhs=r1 rhs=0", "ALU op=subtract dst=r5 lhs=r3 rhs=r2",
             "MEMSET value=0.0 dst=fp32@0x0[1][8] channels=4",
             "MEMSET value=1.0 dst=fp32@0x0+4*r4[1][2] channels=4",      # r4 = 1
             "MEMSET value=5.0 dst=fp32@0x0+4*r5[1][2] channels=4",      # r5 = 1 - (-4) = 5
             "EVENT_SEMAPHORE S[0] (Vector)++@complete"]
    text = ".stream dve\n" + "".join(f"dve {k:04d}: {line}\n" for k, line in enumerate(lines))
    outputs = run(text + ".stream sp\nsp 0000: S[0] (Vector)>=1 " + STORE)
    assert outputs[0].tolist() == [0, 1, 1, 0, 0, 5, 5, 0]


def test_error__address_that_a_register_drives_out_of_memory():
    text = (".stream dve\ndve 0000: MOVE dst=r0 value=300000\n"
            "dve 0001: MEMSET value=1.0 dst=fp32@0x0+4*r0[1][2] channels=4  // k.py:12\n")
    with pytest.raises(OutOfBounds, match=r"`dst` on dimension 1 \(free\): index range \[300000, 300001\]") as caught:
        run(text)
    assert caught.value.at == Location("k.py", 12, 0)


@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_error__registers_divided_by_0(op):
    text = (".stream dve\ndve 0000: MOVE dst=r0 value=7\ndve 0001: MOVE dst=r1 value=0\n"
            f"dve 0002: ALU op={op} dst=r2 lhs=r0 rhs=r1  // k.py:12\n")
    with pytest.raises(RegisterDivision, match=rf"{op} of 7 by 0 in a register \[NKI-REGISTER-DIVISION\]") as caught:
        run(text)
    assert caught.value.at == Location("k.py", 12, 0)
    violation, = check_streams([parse_program(HEADER + text)]).violations
    assert isinstance(violation, RegisterDivision) and violation.at == Location("k.py", 12, 0)


TWO_STORES = (".stream dve\ndve 0000: MEMSET value=1.0 dst=fp32@0x0[1][8] channels=4 S[0] (Vector)++@complete\n"
              "dve 0001: S[2] (qSyncIO0)>={} MEMSET value=2.0 dst=fp32@0x0[1][4] channels=4 S[0] (Vector)++@complete\n"
              ".stream sp\nsp 0000: S[0] (Vector)>=1 DMA queue=0 dst=fp32@y[1,8][4,4] src=fp32@0x0[1][4] channels=4 "
              "S[2] (qSyncIO0)+=16@complete\n"
              "sp 0001: {}DMA queue=0 dst=fp32@y+0x10[1,8][4,4] src=fp32@0x10[1][4] channels=4 "
              "S[2] (qSyncIO0)+=16@complete\n")


def test_transfers_of_a_queue__sixteen_need_not_be_one_of_them():
    """Each DMA engine reports for itself: some may have reported both before the last has done its part of the first."""
    assert not all((run(TWO_STORES.format(16, ""), seed) == 1).all() for seed in range(60))
    for seed in range(60):
        assert (run(TWO_STORES.format(32, ""), seed) == 1).all()


def test_transfers_of_a_queue__with_one_under_way_sixteen_are_one():
    for seed in range(60):
        assert (run(TWO_STORES.format(16, "S[2] (qSyncIO0)>=16 "), seed) == 1).all()


def test_seed__repeats_a_run():
    text = (".stream dve\ndve 0000: MEMSET value=3.0 dst=fp32@0x0[1][8] channels=4\n.stream sp\nsp 0000: " + STORE)
    first = [np.isnan(run(text, seed)).all() for seed in range(20)]
    assert first == [np.isnan(run(text, seed)).all() for seed in range(20)]


def test_error__wrong_arrays():
    program = parse_program(HEADER)
    with pytest.raises(WrongArrays) as caught:
        simulate(program, [], [])
    assert str(caught.value) == (
        "error: the program has 1 output (y), but is given 0 arrays as outputs [NKI-ARRAYS]\n"
        "  fix: give one array for each variable, in the order of their numbers")
    columns = np.zeros((8, 4), np.float32).T
    for array, text in ((np.zeros((4, 8), np.int32), "int32[4, 8]"), (columns, "float32[4, 8] with strides (4, 16)")):
        with pytest.raises(WrongArray) as caught:
            simulate(program, [], [array])
        assert str(caught.value) == (f"error: y takes a contiguous array float32[4, 8], got {text} [NKI-ARRAYS]\n"
                                     "  fix: give np.ascontiguousarray(x, np.float32) with the shape [4, 8]")


def test_error__one_memory_for_two_variables():
    program = parse_program(HEADER + ".input x fp32[4,8] 0\n.stream dve\ndve 0000: MEMSET value=3.0 dst=fp32@0x0[1][8] "
                            "channels=4 S[0] (Vector)++@complete\n.stream sp\nsp 0000: S[0] (Vector)>=1 " + STORE)
    both = np.zeros((4, 8), np.float32)
    with pytest.raises(WrongArrays, match="the arrays of x and y share memory, and the kernel writes to it"):
        simulate(program, [both], [both])
    simulate(program, [both], [y := np.ones((4, 8), np.float32)])
    assert (y == 3).all() and not both.any()


def test_error__one_memory_for_a_variable_and_a_part_of_a_later_one():
    text = HEADER.replace(".output y", ".input a fp32[4,8] 0\n.input b fp32[4,8] 1\n.input c fp32[4,8] 2\n.output y")
    memory = np.zeros((16, 8), np.float32)
    a, b, c, y = memory[:4], memory[:4], memory[2:6], memory[5:9]
    simulate(parse_program(text), [a, b, c], [y])                      # nothing is written
    program = parse_program(text + ".stream dve\ndve 0000: MEMSET value=3.0 dst=fp32@0x0[1][8] channels=4 S[0] (Vector)++"
                            "@complete\n.stream sp\nsp 0000: S[0] (Vector)>=1 " + STORE)
    with pytest.raises(WrongArrays, match="the arrays of c and y share memory, and the kernel writes to it"):
        simulate(program, [a, b, c], [y])
    simulate(program, [a, b, c], [memory[6:10]])
    assert (memory[6:10] == 3).all() and not memory[:6].any()


@pytest.mark.parametrize("dtype", [INT32, UINT8], ids=str)
def test_element__is_read_where_padded_rows_have_it(dtype):
    """A register is loaded from any partition and any element of one."""
    array = np.arange(6 * (64 + PADDING), dtype=np.uint8).reshape(6, 64 + PADDING)
    for partition, free in ((0, 0), (0, 3), (1, 0), (5, 7)):
        access = Access(dtype, Linear(partition), Linear(free), ((1, 1), (1, 1)))
        tile = Tile(None, SBUF, (6, 64), UINT8, access, "n")
        start = free * dtype.itemsize
        expected = array[partition, start:start + dtype.itemsize].copy().view(dtype.numpy)[0]
        assert element(tile, array) == expected


def test_padded_rows__are_longer_on_chip_only():
    """The memories on chip have longer rows; the patterns of accesses, and arrays in HBM, stay as they are."""
    op = SAMPLES["nisa.dma_copy"].make(dst="sbuf 4x6xf32", src="hbm 4x6xf32")
    rows = on_padded_rows(op)
    assert (rows.dst.base_shape, rows.src.base_shape) == ((4, 6 + PADDING), (4, 6))
    assert (rows.dst.access, rows.src.access) == (op.dst.access, op.src.access)
    assert (rows.dst.label, rows.src.label) == ("dst", "src")
    unnamed = changed(op, lambda tile: replace(tile, label=""), dst=replace(op.dst, label="t"))
    assert (on_padded_rows(unnamed).dst.label, on_padded_rows(unnamed).src.label) == ("t", "src")
    source = np.arange(24, dtype=np.float32).reshape(4, 6)
    memory = np.full((4, 6 + PADDING), -1, np.float32)
    compile_op(rows)([memory, source], ())
    np.testing.assert_array_equal(memory[:, :6], source)
    assert (memory[:, 6:] == -1).all()
