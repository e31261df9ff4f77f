# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is known of tensors."""

import pytest

from nki_mlir.migration.facts import HBM, PSUM, SBUF, TensorFact


@pytest.mark.parametrize(("dtype", "floating", "is_float"), [
    ("nl.float32", False, True), ("nl.bfloat16", False, True), ("nl.tfloat32", False, True), ("nl.float8_e4m3", False, True),
    ("nl.int32", False, False), ("nl.int32", True, False), ("nl.uint8", False, False), ("nl.bool_", True, False),
    ("", False, False), ("", True, True), ("x.dtype", False, False), ("x.dtype", True, True)])
def test_dtypes_of_floats(dtype: str, floating: bool, is_float: bool) -> None:
    assert TensorFact(SBUF, dtype=dtype, floating=floating).is_float is is_float


def test_tiles__are_in_the_memories_of_the_core() -> None:
    assert [TensorFact(memory).on_chip for memory in (SBUF, PSUM, HBM)] == [True, True, False]
    assert [TensorFact(SBUF, shape).rank for shape in (None, (), ("4", "8"))] == [None, 0, 2]
