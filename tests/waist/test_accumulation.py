# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The nests of instructions that fold what they write into registers: which axes they reduce, and when registers begin."""

from types import SimpleNamespace

import pytest

from nki_mlir.waist.accumulation import Accumulation

from ..dialects.samples import SAMPLES


class RecordedRows:
    """Rows that record the nests and fills that a fold emits."""

    def __init__(self):
        self.nests, self.fills, self.folds = [], [], []
        self.writer = SimpleNamespace(generic=self.generic, fill=lambda row, value: self.fills.append(value),
                                      temporary=lambda tile, dtype: tile)

    def generic(self, space, inputs, outputs, compute, body):
        self.nests.append((space.rank, sorted(space.reduced), len(outputs)))

    def view(self, tile):
        return tile

    def row(self, tile):
        return tile

    def constant(self, value):
        self.fills.append(value)
        return value

    def assign(self, target, value, sources):
        self.folds.append(target.handle if hasattr(target, "handle") else target)


def written(command, scans):
    op = SAMPLES["nisa.tensor_scalar_cumulative"].make(reduce_cmd=command)
    rows = RecordedRows()
    Accumulation(op, [op.src], 5.0, scans, False).write(rows)
    return rows, len(op.dst.shape)


@pytest.mark.parametrize("command", ["reset", "reset_reduce", "reduce", "load_reduce", "idle"])
def test_scan__carries_the_registers_along_the_free_axes(command):
    rows, rank = written(command, scans=True)
    assert rows.nests == [(rank, list(range(1, rank)), 2)]
    assert rows.fills == [5.0] * (command in ("reset", "reset_reduce"))


@pytest.mark.parametrize("command", ["reset", "idle"])
def test_without_a_fold__no_axis_is_reduced(command):
    rows, rank = written(command, scans=False)
    assert rows.nests == [(rank, [], 1)]
    assert rows.fills == [5.0] * (command == "reset")
