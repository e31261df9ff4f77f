# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversions: the rules on single values, and the IR against NumPy for every pair of dtypes."""

import warnings
from functools import partial

import numpy as np
import pytest

from nki_mlir.scalar.conversion_expansion import expand_convert, rounded_to
from nki_mlir.scalar.dtypes import (
    ALL,
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT8_E8M0FNU,
    FLOAT16,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    TFLOAT32,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
    convert,
    storage_type,
)

from .conftest import VECTOR, Loops
from .samples import assert_same, of_dtype

NAN, INF = np.nan, np.inf


@pytest.fixture(scope="module")
def loops() -> Loops:
    loops = Loops()
    for frm in ALL:
        for to in ALL:
            for lanes in (1, VECTOR):
                loops.add(f"{frm}_{to}_{lanes}", [frm], to, partial(expand_convert, frm=frm, to=to), lanes)
    return loops.compile()


@pytest.mark.parametrize("frm", ALL, ids=str)
def test_expansion__equals_numpy(loops: Loops, frm: DType) -> None:
    values = of_dtype(frm)
    for to in ALL:
        wanted = convert(values, to, frm)
        for lanes in (1, VECTOR):
            assert_same(loops(f"{frm}_{to}_{lanes}", values), wanted, values)


def test_scales__are_the_casts_of_ml_dtypes() -> None:
    loops, kind = Loops(), FLOAT8_E8M0FNU
    every, values = np.arange(256, dtype=np.uint8).view(kind.numpy), of_dtype(FLOAT32, 200_000)
    edges = np.array([0x400000, 0x400001, 0x3FFFFF, 0x7FFFFF, 0x800000, 1], np.uint32).view(np.float32)
    for lanes in (1, VECTOR):
        loops.add(f"to_{lanes}", [FLOAT32], kind, partial(expand_convert, frm=FLOAT32, to=kind), lanes)
        loops.add(f"from_{lanes}", [kind], FLOAT32, partial(expand_convert, frm=kind, to=FLOAT32), lanes)
    loops = loops.compile()
    for numbers in (values, np.concatenate([edges, -edges, values[:4084]])):
        with np.errstate(all="ignore"):
            wanted = numbers.astype(kind.numpy)
        for lanes in (1, VECTOR):
            assert_same(loops(f"to_{lanes}", numbers), wanted, numbers)
    for lanes in (1, VECTOR):
        assert_same(loops(f"from_{lanes}", every), every.astype(np.float32), every)


@pytest.mark.parametrize("to", [FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2], ids=str)
def test_float32_to_narrow__is_the_cast_of_ml_dtypes(to: DType) -> None:
    values = of_dtype(FLOAT32, 200_000)
    with np.errstate(all="ignore"):
        assert_same(convert(values, to), values.astype(to.numpy), values)


@pytest.mark.parametrize("to", [FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT8_E8M0FNU], ids=str)
def test_rounded_to__is_there_and_back(to: DType) -> None:
    loops, values = Loops(), of_dtype(FLOAT32, 200_000)
    every = np.arange(2**to.bits, dtype=f"u{to.itemsize}").view(to.numpy).astype(np.float32)
    with np.errstate(all="ignore"):
        half_way = (every[:-1] + every[1:]) / 2
    for lanes in (1, VECTOR):
        loops.add(f"{lanes}", [FLOAT32], FLOAT32, partial(rounded_to, to=to), lanes)
    loops = loops.compile()
    for numbers in (values, every, half_way, np.nextafter(half_way, INF), np.nextafter(half_way, -INF)):
        for lanes in (1, VECTOR):
            wanted = convert(convert(numbers, to), FLOAT32)
            assert_same(loops(f"{lanes}", numbers), wanted, numbers)


@pytest.mark.parametrize("frm", [FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2], ids=str)
def test_narrow_to_float32_and_back__is_the_identity(frm: DType) -> None:
    every = np.arange(2**frm.bits, dtype=f"u{frm.itemsize}").view(frm.numpy)
    assert_same(convert(convert(every, FLOAT32), frm), every)


RULES = [
    (FLOAT32, INT8, [2.5, 3.5, -2.5, -0.5, 127.5, 128, -128.5, -300, INF, -INF, NAN],
     [2, 4, -2, 0, 127, 127, -128, -128, 127, -128, 0]),
    (FLOAT32, UINT8, [2.5, 300, -1, -0.4, NAN, 255.5], [2, 255, 0, 0, 0, 255]),
    (FLOAT32, INT32, [2147483520, 2147483648, -2147483648, -4e9, 4e9, NAN],
     [2147483520, 2147483647, -2147483648, -2147483648, 2147483647, 0]),
    (FLOAT32, UINT32, [4294967040, 4294967296, -1, NAN], [4294967040, 4294967295, 0, 0]),
    (FLOAT32, INT64, [9.3e18, -9.3e18, NAN], [2**63 - 1, -2**63, 0]),
    (FLOAT32, UINT64, [1.9e19, -1, 2**63], [2**64 - 1, 0, 2**63]),
    (FLOAT32, TFLOAT32, [1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-11 + 2**-20, 3.4028235e38, -0.0, NAN],
     [1, 1 + 2**-9, 1 + 2**-10, INF, -0.0, NAN]),
    (FLOAT32, FLOAT16, [65519, 65520, -65520, 2**-25, 2**-24, NAN], [65504, INF, -INF, 0, 2**-24, NAN]),
    (FLOAT32, FLOAT8_E4M3, [240, 247, 248, -1e9, INF, 2**-10, 3 * 2**-10], [240, 240, INF, -INF, INF, 0, 2**-8]),
    (FLOAT32, FLOAT8_E4M3FN, [448, 464, 465, -INF, NAN], [448, 448, NAN, NAN, NAN]),
    (FLOAT32, FLOAT8_E5M2, [57344, 61439, 61440, 2**-17], [57344, 57344, INF, 0]),
    (FLOAT32, BOOL, [0, -0.0, NAN, 1e-45, INF], [False, False, True, True, True]),
    (FLOAT8_E5M2, BOOL, [0, -0.0, NAN, 2**-16], [False, False, True, True]),
    (BOOL, BFLOAT16, [False, True], [0, 1]),
    (BOOL, INT16, [False, True], [0, 1]),
    (INT32, FLOAT32, [2**24 + 1, 2**24 + 3, -(2**31)], [2**24, 2**24 + 4, -(2**31)]),
    (INT32, BFLOAT16, [0x1010001], [0x1000000]),        # rounded to float32 first
    (INT32, FLOAT16, [65519, 65520, -70000], [65504, INF, -INF]),
    (INT32, INT8, [127, 128, -129], [127, 127, -128]),
    (INT32, UINT16, [-1, 65535, 65536], [0, 65535, 65535]),
    (INT8, UINT32, [-1, 5], [0, 5]),
    (UINT64, INT64, [2**63, 5], [2**63 - 1, 5]),
    (INT64, UINT64, [-1, 2**63 - 1], [0, 2**63 - 1]),
    (UINT32, BOOL, [0, 256], [False, True]),
    (FLOAT16, BFLOAT16, [65504, 2**-24], [65536, 2**-24]),
]


@pytest.mark.parametrize(("frm", "to", "values", "wanted"), RULES, ids=lambda v: v.name if isinstance(v, DType) else "")
def test_convert__follows_the_rules(frm: DType, to: DType, values: list, wanted: list) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = convert(np.array(values, frm.numpy), to, frm)
    assert got.dtype == to.numpy
    assert_same(got, np.array(wanted, to.numpy))


def test_convert__to_the_same_dtype_returns_the_array() -> None:
    array = np.ones((3, 4), np.float32)
    assert convert(array, FLOAT32) is array
    assert convert(array, FLOAT32, TFLOAT32) is array


@pytest.mark.parametrize("to", ALL, ids=str)
def test_convert__keeps_shape_of_views_and_scalars(to: DType) -> None:
    array = np.linspace(-3, 3, 48, dtype=np.float32).reshape(6, 8)
    view = array[::2, 1::3].T
    assert_same(convert(view, to).ravel(), convert(np.ascontiguousarray(view), to).ravel())
    assert convert(view, to).shape == (3, 3)
    assert convert(array[0, 0], to).shape == ()
    assert convert(array[:0], to).shape == (0, 8)


def test_tfloat32__is_known_by_its_array() -> None:
    array = convert(np.float32([1 + 2**-20]), TFLOAT32)
    assert array.dtype.metadata == {"nki": "tfloat32"}
    assert convert(array, FLOAT32)[0] == 1


def test_storage_type() -> None:
    names = {d: storage_type(d) for d in ALL}
    assert names == {
        FLOAT32: "f32", TFLOAT32: "f32", FLOAT16: "f16", BFLOAT16: "i16", FLOAT8_E4M3: "i8", FLOAT8_E4M3FN: "i8",
        FLOAT8_E5M2: "i8", INT8: "i8", INT16: "i16", INT32: "i32", INT64: "i64", UINT8: "i8", UINT16: "i16",
        UINT32: "i32", UINT64: "i64", BOOL: "i8",
    }
