# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the headers' functions and accessors compute, against NumPy and PyTorch."""

import itertools
import warnings

import ml_dtypes
import numpy as np
import pytest

from nki_mlir import customop
from nki_mlir.customop.abi import DTYPES
from nki_mlir.customop.faults import BitwiseType, LongDim, TooManyTensorDims

UNARY = ["abs", "ceil", "floor", "sin", "cos", "tan", "log", "log2", "log10", "exp", "bitwise_not"]
BINARY = ["add", "sub", "mul", "div", "pow", "bitwise_and", "bitwise_or"]
CODES = {dtype: code for code, dtype in DTYPES.items()}
FLOATS = [d for d in CODES if d.kind in "fV"]
INTEGERS = [d for d in CODES if d.kind in "iu"]


@pytest.fixture(scope="module", params=[True, False], ids=["checked", "fast"])
def api(build, request):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield build("api", checked=request.param)


def sample(dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype in FLOATS:
        return rng.uniform(0.25, 4, (5, 7)).astype(dtype)
    low = 1 if dtype == np.uint8 else -7
    values = rng.integers(low, 8, (5, 7))
    return np.where(values == 0, 1, values).astype(dtype)


def check(result, expected):
    """Equal to PyTorch's tensor in dtype and, but for the last bits of floats, in value."""
    import torch
    assert CODES[result.dtype] == {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.float16: 5,
                                   torch.float32: 6, torch.bfloat16: 15}[expected.dtype]
    if result.dtype in INTEGERS:
        assert np.array_equal(result, expected.numpy())
    else:
        eps = {2: 2e-3, 4: 4e-7}[result.dtype.itemsize] * (8 if result.dtype == ml_dtypes.bfloat16 else 1)
        np.testing.assert_allclose(result.astype(np.float64), expected.double().numpy(), rtol=eps, atol=eps)


def tensor(array):
    import torch
    return (torch.from_numpy(array.astype(np.float32)).bfloat16() if array.dtype == ml_dtypes.bfloat16
            else torch.from_numpy(array))


def code_of(expected):
    import torch
    return {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.float16: 5, torch.float32: 6,
            torch.bfloat16: 15}[expected.dtype]


@pytest.mark.torch
@pytest.mark.parametrize("out", [0, 1], ids=["new", "out"])
@pytest.mark.parametrize("name", UNARY)
def test_unary(api, name, out):
    torch = pytest.importorskip("torch")
    for dtype in CODES:
        x = sample(dtype)
        if name == "bitwise_not" and dtype in FLOATS:
            with pytest.raises(BitwiseType, match=f"a bitwise function reads a tensor of {dtype}"):
                api.unary(x, UNARY.index(name), CODES[dtype], out)
            continue
        expected = getattr(torch, name)(tensor(x))
        check(api.unary(x, UNARY.index(name), code_of(expected), out), expected)


@pytest.mark.torch
@pytest.mark.parametrize("out", [0, 1], ids=["new", "out"])
@pytest.mark.parametrize("name", BINARY)
def test_binary__promotes_as_pytorch_does(api, name, out):
    torch = pytest.importorskip("torch")
    for a, b in itertools.product(CODES, CODES):
        x, y = sample(a), sample(b, 1)
        if "bitwise" in name and not (a in INTEGERS and b in INTEGERS):
            continue
        if name == "pow" and a in INTEGERS and b in INTEGERS:
            y = np.abs(y)
        expected = getattr(torch, name)(tensor(x), tensor(y))
        check(api.binary(x, y, BINARY.index(name), code_of(expected), out), expected)


@pytest.mark.torch
@pytest.mark.parametrize("out", [0, 1], ids=["new", "out"])
def test_alpha(api, out):
    torch = pytest.importorskip("torch")
    for dtype in CODES:
        x, y = sample(dtype), sample(dtype, 1)
        for which, f, alpha in ((7, torch.add, 3), (8, torch.sub, 2)):
            expected = f(tensor(x), tensor(y), alpha=alpha)
            check(api.binary(x, y, which, code_of(expected), out), expected)


def test_numbers_of_numpy__are_arrays_of_no_axes(api):
    got = api.with_scalar(np.float32(3), 2, 0, CODES[np.dtype(np.float32)], 0)
    assert got.shape == () and got == 5


@pytest.mark.torch
def test_a_bound_that_is_nan__gives_nan(api):
    torch = pytest.importorskip("torch")
    x = np.array([-3, 0.5, np.inf], np.float32)
    expected = torch.clamp(tensor(x), -2, float("nan"))
    check(api.with_scalar(x, float("nan"), 10, code_of(expected), 0), expected)
    assert torch.isnan(expected).all()


@pytest.mark.torch
@pytest.mark.parametrize("out", [0, 1], ids=["new", "out"])
def test_scalars__are_doubles(api, out):
    torch = pytest.importorskip("torch")
    forms = [lambda x, s: x + s, lambda x, s: x - s, lambda x, s: x * s, lambda x, s: x / s, torch.pow,
             lambda x, s: torch.pow(s, x), None, None, None, None, lambda x, s: torch.clamp(x, -2, s),
             lambda x, s: torch.add(x, s, alpha=2)]
    for dtype in CODES:
        x = sample(dtype)
        for which, form in enumerate(forms):
            if form is not None:
                expected = form(tensor(x), 2.0)
                check(api.with_scalar(x, 2, which, code_of(expected), out), expected)
        if dtype in INTEGERS:
            for which, form in ((6, torch.bitwise_and), (7, torch.bitwise_and), (8, torch.bitwise_or),
                                (9, torch.bitwise_or)):
                expected = form(tensor(x), 5)
                check(api.with_scalar(x, 5, which, code_of(expected), out), expected)


def test_integers__wrap_around(api):
    x = np.array([[2**31 - 1, -(2**31)]], np.int32)
    assert api.binary(x, x, BINARY.index("mul"), 3, 0).tolist() == [[1, 0]]
    assert api.binary(x, x, BINARY.index("add"), 3, 0).tolist() == [[-2, 0]]
    y = np.array([[200, 100]], np.uint8)
    assert api.binary(y, y, BINARY.index("add"), 0, 0).tolist() == [[144, 200]]


@pytest.mark.parametrize("code", DTYPES)
def test_factories(api, code):
    values = [np.zeros((3, 4)), np.ones((3, 4)), np.full((3, 4), 7), np.eye(3, 4), np.full((3, 4), 5), np.full((3, 4), 3)]
    for which, expected in enumerate(values):
        result = api.factory(which, code)
        assert result.dtype == DTYPES[code] and np.array_equal(result.astype(np.float64), expected)


def test_element_accessors__of_every_dtype(api):
    x = np.arange(100, dtype=np.float64)
    for a, b in itertools.product(DTYPES, DTYPES):
        assert np.array_equal(api.cast(x.astype(DTYPES[a]), b).astype(np.float64), x)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_sixteen_bit_floats__convert_as_numpy_does(api, dtype):
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    wide = api.cast(every, 6)
    assert np.array_equal(wide, every.astype(np.float32), equal_nan=True)
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << 32, 1 << 20, np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        ties = (wide[:-1] + wide[1:]) / 2
    for x in (values, ties):
        with np.errstate(over="ignore", invalid="ignore"):
            expected = x.astype(dtype)
        converted = api.cast(x, CODES[dtype])
        numbers = ~np.isnan(x)
        assert np.array_equal(converted.view(np.uint16)[numbers], expected.view(np.uint16)[numbers])
        assert np.isnan(converted[~numbers].astype(np.float32)).all()


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 5000])
def test_streams(api, size):
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    assert np.array_equal(api.streamed(x), (((x + x) + x) + x) + x)


def test_pool__is_first_fit_in_16_kilobytes(api):
    x = np.full(12, 9, np.float32)
    assert api.pool(x).tolist() == [1, 0, 1, 1, 1, 0, 0, 1, 0, 0, 9, 0]


def test_arguments__of_every_kind(api):
    result = api.numbers(np.zeros((2, 3, 4), np.float32), 7, 2.5, 12_345)
    assert result.tolist() == [3, 1007, 2.5, 345]
    assert api.numbers(np.zeros((), np.int8), np.float32(1), True, np.int64(-3)).tolist() == [0, 1001, 1, -3]


def test_arrays__of_any_layout_and_size(api):
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    flat = np.ascontiguousarray(x.transpose(2, 0, 1)).ravel()
    assert np.array_equal(api.streamed(x.transpose(2, 0, 1)).ravel(), 5 * flat)
    assert api.streamed(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_arrays__of_too_many_or_too_long_dimensions(api):
    with pytest.raises(TooManyTensorDims, match="a tensor has 9 dimensions"):
        api.streamed(np.zeros((1,) * 9, np.float32))
    with pytest.raises(LongDim, match="a dimension of a tensor of 5 dimensions is 65,536"):
        api.cast(np.zeros((1, 1, 1, 1, 65536), np.int8), 1)
    assert api.streamed(np.ones((1,) * 8, np.float32)).shape == (1,) * 8


# -- several cores -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("size", [0, 1, 7, 100, 4096, 5001])
def test_cores__each_write_their_part(build, size, checked):
    x = np.random.default_rng(0).uniform(size=size).astype(np.float32)
    part = -(-size // 8) or 1
    expected = x + np.float32(1000) * (np.arange(size) // part).astype(np.float32)
    for threads in (True, False):
        with customop.engine(threads=threads):
            assert np.array_equal(build("spread", multicore=True, checked=checked).spread(x, 0), expected)


def test_cores__one_after_another_run_in_order(build):
    with customop.engine(threads=False):
        result = build("spread", multicore=True).spread(np.zeros(800, np.float32), 1)
    assert (result.reshape(8, 100)[:, 0] // 1000).tolist() == list(range(8))


def test_sequential_engine__by_the_environment(build, monkeypatch):
    from nki_mlir.customop.settings import current_engine
    monkeypatch.setenv("NKI_MLIR_GPSIMD", "sequential")
    assert current_engine().workers == 1
    with customop.engine(threads=True):
        assert current_engine().threads


def test_single_core_library__runs_the_same_kernel_once(build):
    x = np.ones(300, np.float32)
    assert np.array_equal(build("spread").spread(x, 0), x)


def test_one_kernel__from_many_python_threads(build):
    from concurrent.futures import ThreadPoolExecutor
    library = build("spread", multicore=True)
    arrays = [np.full(1000, k, np.float32) for k in range(16)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda a: library.spread(a, 0), arrays))
    for k, result in enumerate(results):
        assert np.array_equal(result % 1000, arrays[k])
