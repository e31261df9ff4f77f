# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What masks may leave of an operation, and how tiles may step through partitions."""

import pytest

from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.dialects.op import changed
from nki_mlir.dialects.verification import names_twice, verify, verify_mask
from nki_mlir.dialects.verifier import BrokenRule, Check, OverlappingWrite, PartitionAccess

from .samples import SAMPLES, tile


@pytest.mark.parametrize("step, count, read, written", [
    (1, 4, True, True), (0, 4, True, False), (2, 4, False, False), (-1, 4, False, False), (2, 2, False, False),
    (0, 2, True, False), (2, 1, True, True), (0, 1, True, True), (1, 128, True, True)])
def test_steps_through_partitions(step: int, count: int, read: bool, written: bool) -> None:
    check, part = Check(SAMPLES["nisa.tensor_copy"].make()), tile("sbuf 128x6xf32").patterned(dims=((step, count), (1, 6)))
    for writes, allowed in ((False, read), (True, written)):
        if allowed:
            check.tile("src", part, writes)
        else:
            with pytest.raises(PartitionAccess, match=f"operand 'src' steps through partitions by {step} "):
                check.tile("src", part, writes)


@pytest.mark.parametrize("count", (2, 6))
def test_repeated_destination__is_refused(count: int) -> None:
    check, part = Check(SAMPLES["nisa.tensor_copy"].make()), tile("sbuf 4x6xf32").patterned(dims=((1, 4), (0, count)))
    check.tile("src", part, False)
    with pytest.raises(OverlappingWrite, match="names the same element more than once"):
        check.tile("dst", part, True)


def group_mask(const: int, step: int) -> Constraint:
    return Constraint(Linear(const, (), ((0, step),)))


@pytest.mark.parametrize("constraint, allowed", [
    (group_mask(31, -1), True), (group_mask(63, -1), True), (group_mask(30, -1), False), (group_mask(32, -1), False),
    (group_mask(127, -1), True), (group_mask(200, -1), True), (group_mask(-32, 1), True), (group_mask(-33, 1), False),
    (group_mask(-64, 1), True), (group_mask(62, -2), False), (Constraint(Linear(0, (), ((1, 1),))), True),
    (Constraint(Linear(-32, (), ((0, 1),)), equal=True), False),
    (Constraint(Linear(31, ((0, 32),), ((0, -1),))), True), (Constraint(Linear(31, ((0, 16),), ((0, -1),))), False)])
def test_mask_of_groups__selects_complete_groups(constraint: Constraint, allowed: bool) -> None:
    """A shuffle works on groups of 32 partitions, of which this one has four."""
    op = changed(SAMPLES["nisa.nc_stream_shuffle"].make(sizes={"P": 128, "F": 4}), None, mask=(constraint,))
    if allowed:
        verify_mask(op)
    else:
        with pytest.raises(BrokenRule, match="a mask on partitions must select complete groups of 32 partitions"):
            verify_mask(op)


def test_mask__separates_elements_of_loop_nests_alone() -> None:
    """The mask leaves one of two columns that are at one place; an operation on whole rows writes both."""
    twice = tile("sbuf 4x6xf32", "dst").patterned(dims=((1, 4), (0, 6)))
    for name, separates in (("nisa.tensor_copy", True), ("nisa.bn_stats", False)):
        op = SAMPLES[name].make(dst=twice)
        axis = op.iteration().axes["dst"][1]
        first = changed(op, None, mask=(Constraint(Linear(0, (), ((axis, -1),))),))
        assert names_twice(op, "dst", twice) and names_twice(first, "dst", twice) is not separates
    verify(SAMPLES["nisa.tensor_copy"].make())
