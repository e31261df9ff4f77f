# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ALU operators: the IR against NumPy, the rules on single values, reductions."""

import math
import warnings

import numpy as np
import pytest

from nki_mlir.scalar.alu import ALU, ALU_BY_ASM, AluOp
from nki_mlir.scalar.dtypes import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
)

from .conftest import VECTOR, Loops
from .samples import assert_same, of_dtype, ulp_error

COMPUTE = (FLOAT32, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64)
CASES = [(op, d) for op in ALU.values() for d in COMPUTE if (op.floats if d.is_float else op.integers)]
NAN, INF = np.nan, np.inf


def operands(op: AluOp, dtype: DType) -> list[np.ndarray]:
    """Arrays that hold pairs of edge values, equal values, small numbers and random bits."""
    rng = np.random.default_rng(3)
    values = of_dtype(dtype, 200)
    small = rng.integers(0, 12, (op.arity, 4000)).astype(dtype.numpy)
    if dtype.numpy.kind != "u":
        small -= dtype.numpy.type(4)
    pairs = values[rng.integers(0, values.size, (op.arity, 20000))]
    equal = np.broadcast_to(values, (op.arity, values.size))
    random = of_dtype(dtype, 4000)[-4000:]
    return list(np.concatenate([pairs, equal, small, [rng.permutation(random) for _ in range(op.arity)]], axis=1))


@pytest.fixture(scope="module")
def loops() -> Loops:
    loops = Loops()
    for op, dtype in CASES:
        for lanes in (1, VECTOR):
            loops.add(f"{op}_{dtype}_{lanes}", [dtype] * op.arity, dtype,
                      lambda e, *values: op.expand(e, dtype, *values), lanes)
    return loops.compile()


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=str)
def test_expansion__equals_numpy(loops: Loops, op: AluOp, dtype: DType) -> None:
    arrays = operands(op, dtype)
    wanted = op.numpy(*arrays)
    assert wanted.dtype == dtype.numpy
    for lanes in (1, VECTOR):
        got = loops(f"{op}_{dtype}_{lanes}", *arrays)
        if op.ulp:
            assert ulp_error(got, wanted.astype(np.float64)) <= op.ulp
        else:
            assert_same(got, wanted, *arrays)
