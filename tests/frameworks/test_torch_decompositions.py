# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of PyTorch's operators against these operators themselves, on special values, dtypes and shapes."""

import itertools
import random

import pytest

torch = pytest.importorskip("torch")

from nki_mlir.frameworks import torch_decompositions  # noqa: E402       # it needs PyTorch
from nki_mlir.frameworks.torch_decompositions import ALONG_AXES, BYTES, OWN, TRUTHS, decompositions  # noqa: E402

aten, nan, inf = torch.ops.aten, float("nan"), float("inf")
FLOATS = (torch.float32, torch.bfloat16, torch.float64)
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.0, -7.0, 0.1, 1e-3, 1e5, inf, -inf, nan]
PAIRS = [torch.tensor(v) for v in zip(*itertools.product(NUMBERS, NUMBERS))]
INTEGRAL = [torch.tensor(v) for v in zip(*itertools.product(range(-9, 10), [n for n in range(-5, 6) if n]))]


def drawn(rng, shape, dtype=torch.float32):
    low = 0 if dtype in (torch.uint8, torch.bool) else -4
    count = int(torch.Size(shape).numel())
    return torch.tensor([rng.randint(low, 255 if dtype == torch.uint8 else 4) for _ in range(count)]).reshape(shape).to(dtype)


def shape_of(rng, least=1):
    return tuple(rng.randint(1, 5) for _ in range(rng.randint(least, 3)))


def equals(operator, *arguments, close=False, **keywords):
    """The decomposition gives what the operator gives, or leaves it to upstream; return whether it gives something."""
    got, expected = OWN[operator](*arguments, **keywords), operator(*arguments, **keywords)
    if got is NotImplemented:
        return False
    for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in (got, expected)], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (operator, arguments)
        if close:
            torch.testing.assert_close(a, b, equal_nan=True)
        else:
            assert torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(nan=1), b.nan_to_num(nan=1)), (
                f"{operator}\n{arguments}\n{a}\n{b}")
            if a.is_floating_point():
                assert torch.equal(torch.signbit(a) & ~a.isnan(), torch.signbit(b) & ~b.isnan()), (operator, arguments)
    return True


# -- functions near zero -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [*FLOATS, torch.float16])
def test_functions_near_zero(dtype):
    """With the sign of a zero, and the digits of small numbers."""
    a = torch.tensor([*NUMBERS, -0.5, 0.5, -1e-3, -1e-6, -1e-30]).to(dtype)
    for operator in (aten.trunc.default, aten.frac.default, aten.leaky_relu.default):
        assert equals(operator, a)
    assert equals(aten.leaky_relu.default, a, -0.3)
    for constants in ((), (1.7,), (1.6732632, 1.0507009), (1.0, 1.0, 0.25)):
        assert equals(aten.elu.default, a, *constants, close=True)
        signs = torch.signbit(OWN[aten.elu.default](a, *constants))
        assert torch.equal(signs[:2], torch.tensor([False, True]))
    small = torch.full((), -1e-9)
    assert OWN[aten.elu.default](small) == small
    assert equals(aten.trunc.default, torch.tensor([-3, 4]))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int8])
def test_numbers_that_are_close(dtype):
    values = torch.tensor([*range(-6, 7)] if not dtype.is_floating_point else [*NUMBERS, 1.00001, 1.0001, 1e5 + 1, 1e-9, 1e-7])
    a, b = (v.to(dtype).flatten() for v in torch.meshgrid(values, values, indexing="ij"))
    for tolerances in ((), (0.5,), (0.0, 1.5), (0.0, 0.0), (0.2, 0.3)):
        for equal_nan in (False, True):
            assert equals(aten.isclose.default, a, b, *tolerances, equal_nan=equal_nan), tolerances


# -- quotients and remainders ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS)
def test_remainders_of_floats(dtype):
    a, b = (v.to(dtype) for v in PAIRS)
    assert equals(aten.remainder.Tensor, a, b) and not equals(aten.fmod.Tensor, a, b)
    assert equals(aten.fmod.Tensor, a[:, None], b) and equals(aten.fmod.Tensor, a, b.half())
    for number in NUMBERS:
        assert equals(aten.remainder.Scalar, a, number) and equals(aten.fmod.Scalar, a, number)
        assert equals(aten.remainder.Scalar_Tensor, number, b)
    assert equals(aten.remainder.Tensor, a[:, None], b[::7])


@pytest.mark.parametrize("dtype", FLOATS)
def test_quotients_rounded_down(dtype):
    a, b = (v.to(dtype) for v in PAIRS)
    assert equals(aten.floor_divide.default, a, b) and equals(aten.div.Tensor_mode, a, b, rounding_mode="floor")
    assert equals(aten.floor_divide.default, a[:, None], b[::7])
    for number in (0.1, -0.1, 3.0, 0.0, -2.5, 7, inf):
        assert equals(aten.div.Scalar_mode, a, number, rounding_mode="floor")
    assert not equals(aten.div.Tensor_mode, a, b, rounding_mode="trunc") and not equals(aten.div.Tensor_mode, a, b,
                                                                                       rounding_mode=None)
    if dtype != torch.bfloat16:             # in which PyTorch rounds each step: 16.375 // 0.1001 is 164 there
        close = torch.arange(1, 200).to(dtype)
        assert equals(aten.floor_divide.default, close[:, None] * 0.1, close * 0.1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8])
def test_integer_quotients_and_remainders(dtype):
    a, b = (v.to(dtype) for v in INTEGRAL)
    for operator in (aten.remainder.Tensor, aten.floor_divide.default):
        assert equals(operator, a, b) and equals(operator, a[:, None], b[::9])
        assert equals(operator, a, b.to(torch.float32)) and equals(operator, a, b.to(torch.int64))
    for number in (3, -4, 2.5):
        assert equals(aten.remainder.Scalar, a, number) and equals(aten.fmod.Scalar, a, number)
        assert equals(aten.div.Scalar_mode, a, number, rounding_mode="floor")
    assert equals(aten.remainder.Scalar_Tensor, 7, b)
    large = torch.tensor([2 ** 31 - 1, -2 ** 31 + 1, 123456789]).to(torch.int32)
    assert equals(aten.floor_divide.default, large[:, None], torch.tensor([1, -2, 3, 65536, -99999], dtype=torch.int32))


def test_bytes__have_remainders():
    a = torch.arange(0, 255, 5, dtype=torch.uint8)
    assert equals(aten.remainder.Tensor, a, a + 1) and equals(aten.floor_divide.default, a[:-1], a[1:])


# -- elements ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64, torch.uint8])
def test_signs_thresholds_and_limits(dtype):
    a = PAIRS[0].nan_to_num(0, 9, -9).clamp(-9, 9).to(dtype)
    if dtype.is_floating_point:
        a = PAIRS[0].to(dtype)
        numbers = a[~a.isnan() & ~((a == 0) & torch.signbit(a))]
        assert equals(aten.sign.default, numbers)
        assert equals(aten.threshold.default, a, 0.5, 20.0) and equals(aten.threshold.default, a, -1.0, nan)
    else:
        assert equals(aten.sign.default, a)
        assert equals(aten.threshold.default, a, 1, 3)
    assert equals(aten.abs.default, a) == (dtype == torch.uint8)
    is_bounded = dtype in (torch.int32, torch.int64)
    for low, high in ((2, None), (None, 3), (-2, None)):
        if dtype != torch.uint8 or (low or 0) >= 0:
            assert equals(aten.clamp.default, a, low, high) == is_bounded
    for low, high in ((1, 3), (None, 2.5)):
        assert not equals(aten.clamp.default, a, low, high)


def test_sums_of_truths():
    a, b = (torch.tensor(v) for v in zip(*itertools.product([True, False], repeat=2)))
    assert equals(aten.add.Tensor, a, b) and not equals(aten.add.Tensor, a, b.to(torch.int32))
    assert not equals(aten.add.Tensor, a.to(torch.int32), b.to(torch.int32)) and not equals(aten.add.Tensor, a, 1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64])
def test_shifts(dtype):
    a = torch.arange(0, 100, 7).to(dtype)
    for operator in (aten.__lshift__, aten.__rshift__):
        assert equals(operator.Scalar, a, 2) and equals(operator.Tensor, a[:, None], torch.arange(4).to(dtype))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64, torch.int16, torch.bool])
def test_bits_of_tensors_and_numbers(dtype):
    a = torch.arange(-2, 98, 7).to(dtype)
    for operator, number in itertools.product((aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor), (6, True, 0)):
        assert equals(operator.Scalar, a, number) and equals(operator.Scalar_Tensor, number, a)


def test_numbers_under_masks():
    rng = random.Random(1)
    for _ in range(30):
        a = drawn(rng, shape_of(rng))
        mask = drawn(rng, a.shape[:rng.randint(1, a.dim())], torch.bool)
        assert equals(aten.index_put.default, a, [mask], torch.tensor(7.0))
        assert equals(aten.index_put.default, a, [mask], torch.tensor([7.0]))
        assert not equals(aten.index_put.default, a, [torch.tensor([0])], torch.tensor(7.0))
        assert equals(aten.index_put.default, a, [mask], torch.tensor(7.0), True)
        if a.dim() > 1:
            assert not equals(aten.index_put.default, a, [torch.tensor([0]), torch.tensor([0])], torch.tensor(7.0))


def test_rolls():
    rng = random.Random(2)
    for _ in range(60):
        a = drawn(rng, shape_of(rng))
        dims = rng.sample(range(-a.dim(), a.dim()), rng.randint(1, a.dim()))
        assert equals(aten.roll.default, a, [rng.randint(-7, 7) for _ in dims], dims)
        assert equals(aten.roll.default, a, [rng.randint(-30, 30)])
    assert equals(aten.roll.default, torch.zeros(0, 3), [2], [0])


# -- folds -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS)
def test_variances(dtype):
    rng = random.Random(str(dtype))
    for _ in range(15):
        a = drawn(rng, tuple(rng.randint(2, 5) for _ in range(rng.randint(1, 3))), dtype)
        dims = rng.choice([None, [], rng.sample(range(-a.dim(), 0), rng.randint(1, a.dim()))])
        options = {"correction": rng.choice([None, 0, 1, 1.5, 30]), "keepdim": rng.random() < 0.5}
        for operator in (aten.var.correction, aten.std.correction, aten.var_mean.correction):
            assert equals(operator, a, dims, close=True, **options)
        assert equals(aten.var.correction, a, close=True)


@pytest.mark.parametrize("operator", BYTES)
def test_folds_of_bytes(operator):
    rng = random.Random(str(operator))
    for _ in range(10):
        a = drawn(rng, shape_of(rng), torch.uint8)
        if operator is aten.bitwise_right_shift.Tensor:
            arguments = [a, torch.full((), 3, dtype=torch.uint8)]
        else:
            arguments = [a, *([-1] if operator in (aten.max.dim, aten.min.dim, aten.argmax.default, aten.argmin.default)
                              else [])]
        assert equals(operator, *arguments) and not equals(operator, *(
            x.to(torch.int32) if isinstance(x, torch.Tensor) else x for x in arguments))


@pytest.mark.parametrize("operator", [aten.amax.default, aten.amin.default, aten.max.dim, aten.min.dim])
def test_extrema_of_truths(operator):
    a = torch.tensor([[True, False, True, False], [True, True, False, False]])
    for axis in (0, 1):
        got, expected = OWN[operator](a, axis), operator(a, axis)
        got, expected = (got[0], expected[0]) if isinstance(got, tuple) else (got, expected)
        assert got.dtype == torch.bool and torch.equal(got, expected)


@pytest.mark.parametrize("operator", TRUTHS)
def test_truths_of_bytes(operator):
    for values in ([4, 2], [0, 0], [0, 6], [255, 1]):
        a = torch.tensor([values, [1, 2]], dtype=torch.uint8)
        dims = [] if operator in (aten.any.default, aten.all.default) else [[1]] if "dims" in str(operator) else [1]
        assert equals(operator, a, *dims) and not equals(operator, a.to(torch.int32), *dims)


@pytest.mark.parametrize("rank", [2, 3])
def test_pools_whose_last_windows_leave_the_tensor(rank):
    operator = aten.max_pool2d_with_indices.default if rank == 2 else aten.max_pool3d_with_indices.default
    rng = random.Random(rank)
    for number in range(80):
        sizes = [rng.randint(1, 3) for _ in range(rank)]
        pads = [rng.randint(0, n // 2) for n in sizes]
        steps, apart = ([rng.randint(1, high) for _ in range(rank)] for high in (3, 2))
        least = [a * (n - 1) + 1 for a, n in zip(apart, sizes)]
        a = drawn(rng, (rng.randint(1, 2), 2, *(rng.randint(n, n + 5) for n in least)))
        a[torch.rand(a.shape, generator=torch.Generator().manual_seed(number)) < 0.3] = -inf
        if number % 3 == 0:
            a[:] = -inf
        assert equals(operator, a, sizes, steps, pads, apart, True)
        assert not equals(operator, a, sizes, steps, pads, apart, False)
    a = drawn(rng, (1, *[7] * rank))
    assert equals(operator, a, [3], [2], [1], [1], True) and equals(operator, a, [2], [], [0], [1], True)


# -- tensors without axes ----------------------------------------------------------------------------------------------
CALLS = {"gather": [0, torch.tensor(0)], "index_select": [0, torch.tensor([0])], "flip": [[0]], "topk": [1, 0],
         "_softmax": [0, False], "_log_softmax": [0, False], "softmax": [0], "log_softmax": [0], "logsumexp": [[0]],
         "sort": [0], "argmax": [0], "argmin": [0], "prod": [0], "any": [0], "all": [0], "cumsum": [0], "max": [0],
         "min": [0], "var": [[0]], "std": [[0]], "var_mean": [[0]]}


@pytest.mark.parametrize("operator", ALONG_AXES)
def test_operators_along_an_axis_of_tensors_without_axes(operator):
    computed = decompositions({})[operator]
    arguments = CALLS[str(operator).split(".")[1]]
    keywords = {"correction": 0} if "correction" in str(operator) else {}
    a = torch.tensor(2.5)
    got, expected = computed(a, *arguments, **keywords), operator(a, *arguments, **keywords)
    for one, other in zip(*[r if isinstance(r, tuple) else (r,) for r in (got, expected)], strict=True):
        torch.testing.assert_close(one, other.reshape(()))
        assert one.dtype == other.dtype
    rows = torch.tensor([[1.0, 3.0], [2.0, 0.5]])
    if operator not in OWN:
        assert computed(rows, *arguments) is NotImplemented
        table = decompositions({operator: lambda *arguments: "upstream"})
        assert table[operator](rows, *arguments) == "upstream"


def test_nearest_interpolations__get_their_decomposition():
    graph = torch.fx.Graph()
    a = graph.placeholder("a")
    calls = [(a, [4, 6], 2.0, 2.0), (a, [4, 6]), (a, [4, 6], None, None), (a, [4, 6], 2.0, None)]
    nodes = [graph.call_function(aten.upsample_nearest2d.default, call) for call in calls]
    torch_decompositions.nearest_by_vectors(graph)
    assert [node.target for node in nodes] == [aten.upsample_nearest2d.vec] * 4
    assert [node.args for node in nodes] == [(a, None, [2.0, 2.0]), *[(a, [4, 6], None)] * 3]
