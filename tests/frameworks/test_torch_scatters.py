# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's scatters that combine values, pools that choose elements, and modes, against PyTorch's own operators."""

import random

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from nki_mlir.frameworks.torch_losses import LOSSES  # noqa: E402
from nki_mlir.frameworks.torch_orders import ORDERS  # noqa: E402
from nki_mlir.frameworks.torch_pools import POOLS  # noqa: E402
from nki_mlir.frameworks.torch_scatters import SCATTERS  # noqa: E402

from .test_torch_operators import agrees  # noqa: E402

pytestmark = pytest.mark.torch

aten = torch.ops.aten
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")
GENERATOR = torch.Generator().manual_seed(7)
X, Y = torch.randn(6, 8, generator=GENERATOR), torch.randn(6, 8, generator=GENERATOR)
X[0, 3], X[2, 5] = torch.nan, -torch.inf
INDEX = torch.randint(0, 6, (4, 7), generator=GENERATOR)
VOLUME = torch.randn(2, 5, 7, 6, generator=GENERATOR)
VOLUME[0, 0, 3, 2], VOLUME[1, 2] = torch.nan, -torch.inf


def same(got, expected):
    for one, other in zip(*[r if isinstance(r, tuple) else (r,) for r in (got, expected)], strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.uint8, torch.int64])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatters_that_reduce(reduce, dtype):
    """The decomposition leaves complete lines with products and extrema to the lowering."""
    rng = random.Random(f"{reduce} {dtype}")
    for number in range(40):
        shape = [rng.randint(1, 4) for _ in range(rng.randint(0, 3))]
        dim = rng.randrange(-len(shape), len(shape)) if shape else 0
        parts = [rng.randint(1, n if d != dim % len(shape) else 5) for d, n in enumerate(shape)]
        a, src = ((torch.randn(sizes) * 3).round().abs().to(dtype) for sizes in (shape, [n + 1 for n in parts]))
        if dtype.is_floating_point and number % 3 == 0:
            src.reshape(-1)[0] = torch.nan
        index = torch.randint(0, shape[dim] if shape else 1, parts)
        got = SCATTERS[aten.scatter_reduce.two](a, dim, index, src, reduce, include_self=number % 2 == 0)
        expected = aten.scatter_reduce.two(a, dim, index, src, reduce, include_self=number % 2 == 0)
        if got is NotImplemented:
            assert number % 2 == 0 and reduce not in ("sum", "mean") and dtype.itemsize > 1
        else:
            same(got, expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_means_of_narrow_integers__are_of_wrapped_sums_and_counts(dtype):
    a = torch.arange(3).to(dtype)
    for count in (9, 127, 128, 255, 256, 300):
        src, index = torch.arange(0, 113 * count, 113).to(dtype), torch.zeros(count, dtype=torch.int64)
        for include_self in (False, True):
            same(SCATTERS[aten.scatter_reduce.two](a, 0, index, src, "mean", include_self=include_self),
                 aten.scatter_reduce.two(a, 0, index, src, "mean", include_self=include_self))


@pytest.mark.share(4)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_programs_that_scatter(reduce):
    def scatters(x, y, index):
        rows, columns = index[:, 0], index[0]
        by_rows = [] if reduce == "sum" else [x.index_reduce(0, rows, y[:4], reduce),
                                              x.index_reduce(1, columns, y[:, :7], reduce, include_self=False)]
        return (x.scatter_reduce(0, index, y, reduce), x.scatter_reduce(-1, index[:, :6], y, reduce, include_self=False),
                x[0, 0].scatter_reduce(0, index[0, 0] * 0, y[0, 0], reduce), *by_rows)
    agrees(scatters, X, Y, INDEX)
    agrees(scatters, (X.nan_to_num(0, 0, 0) * 3).to(torch.int32), (Y * 3).to(torch.int32), INDEX)
    if reduce == "mean":
        narrow = [(99 * a.nan_to_num(0, 0, 0)).to(torch.int64).to(torch.int8) for a in (X, Y)]
        agrees(lambda x, y, index: (x.scatter_reduce(0, index, y, reduce),), *narrow, INDEX)


def test_elements_that_are_put():
    agrees(lambda x, y, i: (x.put(i[:2], y[:2, :7], accumulate=True), x.put(torch.tensor([[3, -5]]), y[0, :2]),
                            x[0, 0].put(torch.tensor(0), y[0, 1])), X, Y, INDEX)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.uint8])
def test_modes(dtype):
    """The tensors have no NaN, for which PyTorch's mode depends on the order of the elements."""
    rng = random.Random(str(dtype))
    for _ in range(60):
        a = (torch.randn([rng.randint(1, 6) for _ in range(rng.randint(0, 3))]) * 2).round().abs().to(dtype)
        dim, keepdim = rng.randrange(-a.dim(), a.dim()) if a.dim() else 0, rng.random() < 0.5
        (got, positions), (expected, _) = (mode(a, dim, keepdim) for mode in (ORDERS[aten.mode.default], torch.mode))
        same(got, expected)
        if a.dim():
            taken = a.gather(dim, positions if keepdim else positions.unsqueeze(dim))
            same(taken if keepdim else taken.squeeze(dim), expected)


def test_programs_with_modes():
    agrees(lambda x: (torch.mode((x * 2).round(), 1)[0], torch.mode(x[0], 0, keepdim=True)[0]), X)


@pytest.mark.parametrize("rank", [2, 3])
def test_adaptive_maxima(rank):
    operator = aten.adaptive_max_pool2d.default if rank == 2 else aten.adaptive_max_pool3d.default
    rng = random.Random(rank)
    for number in range(40):
        a = (torch.randn(2, *(rng.randint(1, 7) for _ in range(rank))) * 2).round()
        a[torch.rand(a.shape) < (number % 4) * 0.3] = (-torch.inf, torch.nan)[number % 2]
        sizes = [rng.randint(1, n) for n in a.shape[1:]]
        same(POOLS[operator](a, sizes), operator(a, sizes))


def test_programs_with_positions_of_maxima():
    agrees(lambda z: (*F.adaptive_max_pool1d(z[0], 4, return_indices=True), F.adaptive_max_pool1d(z[0], 3),
                      *F.adaptive_max_pool2d(z, (3, 4), return_indices=True),
                      *F.adaptive_max_pool3d(z, (2, 3, 4), return_indices=True), F.adaptive_max_pool3d(z[None], 2)), VOLUME)
    agrees(lambda z: (*F.max_pool3d(z, 2, return_indices=True), *F.max_pool3d(z, 2, ceil_mode=True, return_indices=True),
                      *F.max_pool3d(z[None], (2, 3, 2), (1, 2, 1), (1, 1, 0), return_indices=True),
                      *F.max_pool3d(z, 2, 1, dilation=(1, 2, 3), return_indices=True)), VOLUME)
    agrees(lambda z: (*F.max_pool2d(z, 2, return_indices=True), *F.max_pool1d(z[0], 2, return_indices=True),
                      F.max_unpool2d(*F.max_pool2d(z[:, :, :6], 2, return_indices=True), 2)), VOLUME)


@pytest.mark.share(4)
@pytest.mark.parametrize("function", [
    lambda z: F.adaptive_max_pool1d(z[0], 3), lambda z: F.adaptive_max_pool2d(z, (3, 2)),
    lambda z: F.adaptive_max_pool3d(z, (3, 2, 2)), lambda z: z.put(torch.tensor([1, 2]), z[0, 0, 0, :2]),
    lambda z: z.scatter_reduce(1, torch.zeros(2, 5, 7, 6, dtype=torch.int64), z * 2, "amax"),
    lambda z: z.scatter_reduce(1, torch.zeros(2, 5, 7, 6, dtype=torch.int64), z * 2, "mean")],
    ids=["rows", "images", "volumes", "put", "amax", "mean"])
def test_gradients(function):
    z = VOLUME.nan_to_num(0.5, neginf=-1.5)
    traced = make_fx(torch.func.grad(lambda z: function(z).square().sum()))(z)
    agrees(lambda z: (traced(z),), z, tolerance=1e-5)


def test_margins_of_several_classes():
    target = torch.cat([Y.argsort(1)[:, :3], -torch.ones(6, 5, dtype=torch.int64)], 1)
    target[0], target[1], target[2, 4:] = torch.arange(8), -1, 3
    x = X.nan_to_num(0.5, neginf=-1.5)
    for reduction in range(3):
        for rows in (slice(None), 3):
            arguments = x[rows], target[rows], reduction
            same(LOSSES[aten.multilabel_margin_loss_forward.default](*arguments),
                 aten.multilabel_margin_loss_forward.default(*arguments))
    agrees(lambda x, t: (F.multilabel_margin_loss(x, t), F.multilabel_margin_loss(x[3], t[3], reduction="none"),
                         F.multilabel_margin_loss(x, t, reduction="none")), x, target)


def test_powers_of_a_vector():
    agrees(lambda x: (torch.vander(x[3]), torch.vander(x[3], 4, increasing=True)), X)
