# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that say so compute each partition from the same partition of their operands, for all kinds of them."""

import numpy as np
import pytest

from nki_mlir.dialects.op import Op
from nki_mlir.targets.neuron.codegen.interleave_rows import computes_partitions_apart

from .samples import SAMPLES, arrays_of, run

OPERATIONS = {name: sample.make() for name, sample in SAMPLES.items() if name.startswith("nisa.")}
ON_CHIP = {name: op for name, op in OPERATIONS.items()
           if op.operands() and not op.queued and all(tile.on_chip for _, tile in op.operands())}
APART = [name for name, op in ON_CHIP.items() if computes_partitions_apart(op)]


@pytest.mark.parametrize("name", APART)
def test_a_changed_partition__changes_no_other_one(name: str) -> None:
    """Each tile gets other values in one partition, one tile after the other."""
    op = ON_CHIP[name]
    arrays = arrays_of(op)
    before, partitions = run(op, arrays), {array.shape[0] for array in arrays.values()}
    assert len(partitions) == 1
    for label, partition in ((label, partition) for label in arrays for partition in range(*partitions)):
        after = run(op, arrays | {label: with_others(arrays[label], partition)})
        for target, values in after.items():
            if target != label:
                np.testing.assert_array_equal(np.delete(values, partition, 0), np.delete(before[target], partition, 0))


def with_others(array: np.ndarray, partition: int) -> np.ndarray:
    """Return an array with other values in a partition."""
    changed = array.copy()
    changed[partition] = ~changed[partition] if array.dtype == np.bool_ else changed[partition, ..., ::-1] + 1
    return changed


def test_instructions_that_combine_partitions__say_so() -> None:
    """All that are loop nests and change the other partitions are not apart; most elementwise ones are."""
    assert {"nisa.tensor_tensor", "nisa.tensor_scalar", "nisa.tensor_reduce", "nisa.activation", "nisa.max8",
            "nisa.tensor_copy", "nisa.memset", "nisa.tensor_tensor_scan"} <= {*APART}
    assert not {"nisa.nc_transpose", "nisa.nc_matmul", "nisa.tensor_partition_reduce", "nisa.nc_stream_shuffle",
                "nisa.topk"} & {*APART}


@pytest.mark.parametrize("op", [op for op in OPERATIONS.values() if op.is_loop_nest], ids=lambda op: op.full_name())
def test_dims_of_a_tile__are_different_axes(op: Op) -> None:
    for axes in op.iteration().axes.values():
        assert len({*axes}) == len(axes)
