# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time of every transfer between HBM and SBUF on each target is monotone.

More bytes, more partitions and shorter runs never take less time. Two kinds of runs are compared among themselves: of
complete packets, which conflict on the channels of HBM, and of less than a word.
"""

from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer, Transfers
from tests.targets.neuron.code_builder import Builder

ROW = 1 << 18                   # columns of a row in HBM: rows are one bank of trn2 apart
WIDE = ROW + 64                 # and these are not
TARGETS = st.sampled_from(["trn1", "trn2", "trn3"])
PARTITIONS = st.integers(1, 128)
COLUMNS = st.integers(2, 1 << 13)
ROWS = st.sampled_from([ROW, WIDE])


def transfer(target: str, partitions: int, columns: int, row: int, stores: bool, step: int = 1) -> TimedTransfer:
    """Return a transfer of float32, whose runs are the columns of a row that are ``step`` apart."""
    b = Builder(target)
    hbm = b.hbm("hbm", (128, row), "output" if stores else "input")
    chip = (b.on_chip("chip", (128, columns)), 0, partitions, 0, columns)
    symbols: dict[object, int] = {}
    outside = b.tile(symbols, hbm, 0, partitions, 0, columns, step)
    inside = b.tile(symbols, *chip)
    tiles = {"dst": outside, "src": inside} if stores else {"dst": inside, "src": outside}
    b.step(DmaCopyOp, symbols, **tiles)
    return Transfers(machine_named(target)).of(b.code.body.nodes[0].op)


def is_packets(target: str, columns: int) -> bool:
    return columns * 4 % int(machine_named(target).costs.dma.packet_bytes) == 0


def ns(moved: TimedTransfer) -> float:
    return max(moved.parts)


@given(TARGETS, PARTITIONS, PARTITIONS, COLUMNS, ROWS, st.booleans())
def test_more_partitions_never_take_less(target: str, one: int, other: int, columns: int, row: int, stores: bool
                                         ) -> None:
    few, more = (transfer(target, count, columns, row, stores) for count in sorted((one, other)))
    assert ns(few) <= ns(more) and few.hbm_bytes <= more.hbm_bytes
    assert all(part <= longer for part, longer in zip(few.parts, more.parts))


@given(TARGETS, PARTITIONS, COLUMNS, COLUMNS, ROWS, st.booleans())
def test_longer_runs_never_take_less(target: str, partitions: int, one: int, other: int, row: int, stores: bool
                                     ) -> None:
    short, long = sorted((one, other))
    if not stores and is_packets(target, short) and not is_packets(target, long):
        long += -long % 128                     # to complete packets as well
    assert ns(transfer(target, partitions, short, row, stores)) <= ns(transfer(target, partitions, long, row, stores))


@given(TARGETS, PARTITIONS, st.integers(2, 1 << 10), ROWS, st.booleans(), st.integers(2, 8))
def test_elements_that_are_apart_never_take_less(target: str, partitions: int, columns: int, row: int, stores: bool,
                                                 step: int) -> None:
    together = transfer(target, partitions, columns, row, stores)
    apart = transfer(target, partitions, columns, row, stores, step)
    assert ns(together) <= ns(apart) and together.hbm_bytes == apart.hbm_bytes


@given(TARGETS, PARTITIONS, COLUMNS, st.integers(1, 63), st.booleans())
def test_the_distance_of_rows_counts_only_in_one_bank(target: str, partitions: int, columns: int, further: int,
                                                      stores: bool) -> None:
    one, other = (transfer(target, partitions, columns, ROW + 64 * n, stores) for n in (1, further))
    assert one == other


@given(TARGETS, PARTITIONS, COLUMNS, ROWS)
def test_a_store_never_takes_longer_than_a_load(target: str, partitions: int, columns: int, row: int) -> None:
    assert ns(transfer(target, partitions, columns, row, True)) <= ns(transfer(target, partitions, columns, row, False))
