# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ALU operators: the IR against NumPy, the rules on single values, reductions."""

import math
import warnings

import numpy as np
import pytest

from nki_mlir.scalar.alu import ALU, ALU_BY_ASM, AluOperator
from nki_mlir.scalar.dtypes import FLOAT32, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, DType

from .conftest import VECTOR, Loops
from .samples import assert_same, of_dtype, ulp_error

COMPUTE = (FLOAT32, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64)
CASES = [(op, d) for op in ALU.values() for d in COMPUTE if (op.floats if d.is_float else op.integers)]
NAN, INF = np.nan, np.inf


def operands(op: AluOperator, dtype: DType) -> list[np.ndarray]:
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
                      lambda e, *values, op=op, dtype=dtype: op.expand(e, dtype, *values), lanes)
    return loops.compile()


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=str)
def test_expansion__equals_numpy(loops: Loops, op: AluOperator, dtype: DType) -> None:
    arrays = operands(op, dtype)
    wanted = op.numpy(*arrays)
    assert wanted.dtype == dtype.numpy
    for lanes in (1, VECTOR):
        got = loops(f"{op}_{dtype}_{lanes}", *arrays)
        if op.ulp:
            assert ulp_error(got, wanted.astype(np.float64)) <= op.ulp
        else:
            assert_same(got, wanted, *arrays)


RULES = [
    ("subtract", INT8, [[-128, 5], [1, 7]], [127, -2]),
    ("multiply", UINT8, [[16, 200], [16, 2]], [0, 144]),
    ("multiply", INT32, [[123456789], [987654321]], [-67153019]),
    ("divide", FLOAT32, [[1, -1, 0, 7], [0, 0, 0, 2]], [INF, -INF, NAN, 3.5]),
    ("maximum", FLOAT32, [[NAN, 1, -0.0, 0.0, -0.0], [1, NAN, 0.0, -0.0, -0.0]], [NAN, NAN, 0.0, 0.0, 0.0]),
    ("minimum", FLOAT32, [[NAN, 1, -0.0, 0.0, -INF], [1, NAN, 0.0, -0.0, 2]], [NAN, NAN, 0.0, 0.0, -INF]),
    ("maximum", UINT8, [[200], [100]], [200]),
    ("power", FLOAT32, [[-8, -8, -2, 0, 0, 0, INF, 2, NAN, 1, -INF], [3, 1 / 3, -3, 0, -1, 2, -1, 10, 0, NAN, 3]],
     [-512, NAN, -0.125, 1, INF, 0, 0, 1024, 1, 1, -INF]),
    ("mod", FLOAT32, [[5, -5, 5, -5, 1, -1], [3, 3, -3, -3, INF, 0]], [2, 1, -1, -2, 1, NAN]),
    ("fmod", FLOAT32, [[5, -5, 5, -5, 1e30], [3, 3, -3, -3, 7]], [2, -2, 2, -2, math.fmod(np.float32(1e30), 7)]),
    ("mod", INT8, [[-5, 5, -128, 7], [3, -3, -1, 0]], [1, -1, 0, 0]),
    ("fmod", INT8, [[-5, 5, -128, 7], [3, -3, -1, 0]], [-2, 2, 0, 0]),
    ("abs_max", FLOAT32, [[-5, 1, -1, NAN, 1], [3, -1, 1, 9, NAN]], [-5, -1, 1, NAN, NAN]),
    ("abs_min", FLOAT32, [[-5, 1, -1], [3, -1, 1]], [3, -1, 1]),
    ("abs_max", INT8, [[-128, 127], [127, -3]], [-128, 127]),
    ("equal", FLOAT32, [[NAN, 0.0, 1], [NAN, -0.0, 2]], [0, 1, 0]),
    ("not_equal", FLOAT32, [[NAN, 0.0, 1], [NAN, -0.0, 2]], [1, 0, 1]),
    ("greater", UINT8, [[200], [100]], [1]),
    ("less_equal", INT8, [[-100, 3], [100, 2]], [1, 0]),
    ("logical_and", FLOAT32, [[NAN, 0.5, 1], [1, -0.0, -3]], [1, 0, 1]),
    ("logical_xor", INT32, [[2, 0, 5], [1, 0, 0]], [0, 0, 1]),
    ("logical_not", FLOAT32, [[-0.0, NAN, 0.1]], [1, 0, 0]),
    ("invert", UINT8, [[0, 255, 10]], [255, 0, 245]),
    ("left_shift", INT8, [[1, 1, 1, 65], [7, 8, -1, 1]], [-128, 0, 0, -126]),
    ("right_shift", INT8, [[-1, -1, -128], [1, 8, 7]], [127, 0, 1]),
    ("arith_shift_right", INT8, [[-128, -128, 64, -1], [3, 100, 100, -1]], [-16, -1, 0, -1]),
    ("arith_shift_right", UINT8, [[128], [1]], [192]),
    ("rsqrt", FLOAT32, [[4, 0, -1, INF]], [0.5, INF, NAN, 0]),
    ("reciprocal", FLOAT32, [[4, -0.0, INF, 1e-45]], [0.25, -INF, 0, INF]),
    ("abs", INT8, [[-128, -5]], [-128, 5]),
    ("negative", UINT8, [[1, 0]], [255, 0]),
    ("square", INT8, [[12, -3]], [-112, 9]),
    ("relu", FLOAT32, [[-1, -0.0, NAN, 2]], [0, 0.0, NAN, 2]),
    ("average", FLOAT32, [[1, 2], [2, 5]], [1.5, 3.5]),
    ("bypass", INT16, [[4, -5]], [4, -5]),
    ("select", FLOAT32, [[0, -0.0, NAN, 2], [1, 2, 3, 4], [5, 6, 7, 8]], [5, 6, 3, 4]),
]


@pytest.mark.parametrize(("name", "dtype", "arrays", "wanted"), RULES, ids=lambda v: v if isinstance(v, str) else "")
def test_numpy__follows_the_rules(name: str, dtype: DType, arrays: list, wanted: list) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = ALU[name].numpy(*(np.array(a, dtype.numpy) for a in arrays))
    assert_same(got, np.array(wanted, dtype.numpy))


@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, 1, 0, -1, 3])
def test_powers__with_one_exponent_for_all(exponent: float) -> None:
    bases = np.float32([-INF, -0.0, 0.0, INF, -1, 4, NAN])
    for one in (np.float32(exponent), np.full(1, exponent, np.float32), np.broadcast_to(np.float32(exponent), 7)):
        with np.errstate(all="ignore"):
            assert_same(ALU["power"].numpy(bases, one), np.power(bases, np.full(7, exponent, np.float32)))


@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op, d in CASES if op.identity(d) is not None], ids=str)
def test_identity__changes_nothing(op: AluOperator, dtype: DType) -> None:
    values = of_dtype(dtype, 100)
    wanted = (values != 0).astype(dtype.numpy) if op.group == "logical" else values
    start = np.full_like(values, op.identity(dtype))
    assert np.array_equal(op.numpy(start, values), wanted, equal_nan=dtype.is_float)


@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op, d in CASES if op.reduce], ids=str)
def test_reduce__is_the_left_fold(op: AluOperator, dtype: DType) -> None:
    array = np.random.default_rng(5).integers(0, 9, (3, 4, 2, 5)).astype(dtype.numpy)
    if dtype.numpy.kind != "u":
        array -= dtype.numpy.type(4)
    flat = array.transpose(0, 2, 1, 3).reshape(3, 2, 20)
    wanted = flat[..., 0] != 0 if op.group == "logical" else flat[..., 0]
    wanted = wanted.astype(dtype.numpy)
    for i in range(1, flat.shape[-1]):
        wanted = op.numpy(wanted, flat[..., i])
    if op.name == "average":
        wanted = flat.mean(axis=-1, dtype=np.float32)
    assert_same(op.reduce(array, (1, -1)), wanted)


def test_commutative__is_true_of_the_values() -> None:
    for op, dtype in CASES:
        if op.commutative:
            a, b = operands(op, dtype)
            assert_same(op.numpy(a, b), op.numpy(b, a), a, b)


@pytest.mark.parametrize("op", [op for op in ALU.values() if op.arity == 2 and not op.commutative], ids=str)
def test_not_commutative__is_an_operator_with_other_values_in_the_other_order(op: AluOperator) -> None:
    differ = []
    for dtype in (d for o, d in CASES if o is op):
        a, b = operands(op, dtype)
        with np.errstate(all="ignore"):
            one, other = op.numpy(a, b), op.numpy(b, a)
        differ.append(bool(np.any((one != other) & ~((one != one) & (other != other)))))
    assert any(differ)                      # of unsigned integers, abs_max is the maximum


def test_names() -> None:
    assert [op.name for op in ALU.values()] == list(ALU)
    assert len(ALU_BY_ASM) == len(ALU)
    assert ALU_BY_ASM["is_gt"] is ALU["greater"]
    assert ALU_BY_ASM["logical_shift_right"] is ALU["right_shift"]
