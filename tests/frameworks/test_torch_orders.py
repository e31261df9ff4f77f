# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of PyTorch's operators of orders, parts and distances, against PyTorch's own operators."""

import itertools
import random

import pytest

torch = pytest.importorskip("torch")

from nki_mlir.frameworks.torch_orders import ORDERS  # noqa: E402       # it needs PyTorch

aten = torch.ops.aten
INTEGERS = (torch.int32, torch.uint8, torch.bool, torch.int64)
FLOATS = (torch.float32, torch.bfloat16)


def drawn(rng, shape, dtype=torch.float32, special=True):
    """Numbers with ties and, for floats, NaN and infinities."""
    numbers = torch.tensor([rng.randint(0 if dtype in (torch.uint8, torch.bool) else -3, 3) for _ in
                            range(int(torch.Size(shape).numel()))]).reshape(shape).to(dtype)
    if dtype.is_floating_point and special:
        for value in (float("nan"), float("inf"), -float("inf")):
            chosen = torch.tensor([rng.random() < 0.1 for _ in range(numbers.numel())], dtype=torch.bool).reshape(shape)
            numbers = torch.where(chosen, torch.tensor(value, dtype=dtype), numbers)
    return numbers


def shape_of(rng, least=0):
    return tuple(rng.randint(1, 5) for _ in range(rng.randint(least, 3)))


def assert_equal(one, other):
    for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in (one, other)], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert torch.equal(torch.nan_to_num(a, nan=99.0), torch.nan_to_num(b, nan=99.0)), f"{a}\n{b}"
        assert torch.equal(a != a, b != b)


def both(operator, *arguments, **keywords):
    return ORDERS[operator](*arguments, **keywords), operator(*arguments, **keywords)


def elements_at(a, positions, dim, keepdim):
    """The elements at the positions that an order returned, which may be any of equal elements."""
    if not a.dim():
        return a
    taken = torch.gather(a, dim, positions if keepdim else positions.unsqueeze(dim))
    return taken if keepdim else taken.squeeze(dim)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS[:2]])
def test_orders(dtype):
    rng = random.Random(str(dtype))
    for _ in range(60):
        a, keepdim = drawn(rng, shape_of(rng), dtype), rng.random() < 0.5
        dim = rng.randint(-a.dim(), a.dim() - 1) if a.dim() else rng.choice([0, -1])
        if a.dim():
            assert_equal(*both(aten.sort.stable, a, stable=True, dim=dim, descending=keepdim))
        k = rng.randint(1, a.shape[dim] if a.dim() else 1)
        operators = [(aten.kthvalue.default, (a, k, dim, keepdim)), (aten.median.dim, (a, dim, keepdim)),
                     (aten.nanmedian.dim, (a, dim, keepdim))]
        for operator, arguments in operators:
            (got, positions), (values, _) = both(operator, *arguments)
            assert_equal(got, values)
            assert_equal(elements_at(a, positions, dim, keepdim), values)
            assert positions.dtype == torch.int64
        for operator in (aten.median.default, aten.nanmedian.default):
            assert_equal(*both(operator, a))
    for operator in (aten.kthvalue.default, aten.median.dim):
        arguments = [drawn(rng, (3, 5), dtype), *([2] if operator is aten.kthvalue.default else []), 1]
        assert_equal(ORDERS[operator](*arguments)[0], operator(*arguments)[0])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_running_extrema(dtype):
    rng = random.Random(str(dtype))
    for _ in range(50):
        a = drawn(rng, shape_of(rng) if rng.random() < 0.5 else (2, rng.randint(1, 17)), dtype)
        dim = rng.randint(-a.dim(), a.dim() - 1) if a.dim() else 0
        assert_equal(*both(aten.cummax.default, a, dim))
        assert_equal(*both(aten.cummin.default, a, dim))
    assert_equal(*both(aten.cummax.default, torch.zeros((0, 3), dtype=dtype), 1))


def test_searches():
    rng = random.Random(1)
    for _ in range(80):
        rows, count, wanted = rng.choice([(), (2,), (2, 3)]), rng.randint(1, 6), rng.randint(1, 4)
        dtype = rng.choice([torch.float32, torch.int32])
        sequence = drawn(rng, (*rows, count), dtype, special=False)
        options = rng.choice([{}, {"right": True}, {"side": "right"}, {"side": "left"}, {"out_int32": True}])
        if rng.random() < 0.3:
            options = {**options, "sorter": torch.argsort(sequence, -1)}
        else:
            sequence = sequence.sort(-1)[0]
        values = drawn(rng, (*rows, wanted), dtype)
        assert_equal(*both(aten.searchsorted.Tensor, sequence, values, **options))
        if not rows and "sorter" not in options:
            assert_equal(*both(aten.searchsorted.Scalar, sequence, rng.randint(-3, 3), **options))
            assert_equal(*both(aten.searchsorted.Tensor, sequence, drawn(rng, (2, 3), dtype), **options))


def test_diagonals():
    rng = random.Random(2)
    for _ in range(150):
        a = drawn(rng, shape_of(rng, 2))
        dim1, dim2 = rng.sample(range(a.dim()), 2)
        dim1, dim2 = (d - a.dim() if rng.random() < 0.3 else d for d in (dim1, dim2))
        offset = rng.randint(-6, 6)
        if -a.shape[dim1] <= offset <= a.shape[dim2]:
            assert_equal(*both(aten.diagonal.default, a, offset, dim1, dim2))
            source = drawn(rng, tuple(a.diagonal(offset, dim1, dim2).shape))
            assert_equal(*both(aten.diagonal_scatter.default, a, source, offset, dim1, dim2))
    square = drawn(rng, (3, 4))
    assert_equal(*both(aten.diagonal.default, square))
    assert_equal(*both(aten.diagonal_scatter.default, square, drawn(rng, (3,))))


def test_windows():
    rng = random.Random(3)
    for _ in range(100):
        a = drawn(rng, tuple(rng.randint(1, 7) for _ in range(rng.randint(1, 3))))
        dim = rng.randint(-a.dim(), a.dim() - 1)
        assert_equal(*both(aten.unfold.default, a, dim, rng.randint(1, a.shape[dim]), rng.randint(1, 3)))
    assert_equal(*both(aten.unfold.default, torch.tensor(2.5), 0, 1, 1))


def test_hypotenuses():
    ends = [0.0, -0.0, 1.0, -3.5, 4.0, 3e38, 1e-30, float("inf"), -float("inf"), float("nan")]
    a, b = (torch.tensor(v) for v in zip(*itertools.product(ends, ends)))
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        got, expected = both(aten.hypot.default, a.to(dtype), b.to(dtype))
        torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 2.5, 3.0, float("inf")])
def test_distances_and_their_gradients(p):
    rng = random.Random(str(p))
    for _ in range(15):
        rows, columns = rng.choice([(), (2,)]), rng.randint(1, 4)
        a, b = (drawn(rng, (*rows, rng.randint(1, 4), columns), special=False) for _ in range(2))
        got, expected = both(aten._cdist_forward.default, a, b, p, None)
        torch.testing.assert_close(got, expected)
        grad = drawn(rng, tuple(expected.shape), special=False)
        torch.testing.assert_close(*both(aten._cdist_backward.default, grad, a, b, p, expected))
