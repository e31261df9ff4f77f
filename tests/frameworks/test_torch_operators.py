# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch operators that upstream passes reject or lower wrongly, in native code and as streams, against eager ones."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from nki_mlir.frameworks import torch_operator  # noqa: E402
from nki_mlir.frameworks.stablehlo import run_linked, simulate_linked  # noqa: E402
from nki_mlir.frameworks.torch_stablehlo import stablehlo_of  # noqa: E402

pytestmark = pytest.mark.torch

NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor([NAN, 1.0, INF, -1.0, -0.0, 0.0, -INF, 3.0, 2.0, 0.1, 0.7, -NAN])
GENERATOR = torch.Generator().manual_seed(5)
TIES = torch.randint(-3, 3, (5, 7), generator=GENERATOR).float()
X = torch.randn(4, 6, generator=GENERATOR)
IMAGE = torch.randn(1, 2, 4, 5, generator=GENERATOR)
INTEGERS = torch.tensor([[3, -1, 7, 3, 0, 255]])


class Program(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return tuple(self.function(*arguments))


def agrees(function, *arguments, tolerance=3e-6, streams=True):
    """Both executors return eager PyTorch's numbers; NaN and infinity are where PyTorch has them."""
    module = Program(function)
    expected, text = module(*arguments), stablehlo_of(module, *arguments)
    for run in (run_linked, simulate_linked) if streams else (run_linked,):
        for got, wanted in zip(run(text, [a.numpy() for a in arguments]), expected, strict=True):
            assert tuple(got.shape) == tuple(wanted.shape)
            torch.testing.assert_close(torch.from_numpy(got).to(wanted.dtype), wanted, rtol=tolerance, atol=tolerance,
                                       equal_nan=True)


def test_comparisons__of_a_value_with_itself_and_with_numbers():
    agrees(lambda x: (x == x, x != x, torch.where(x == x, x, 0.0), x > 0.1, x == 0.1, x != 0.7, x <= 0.1,
                      F.threshold(x, 0.1, 9.0)), EDGES)
    agrees(lambda x: (x > 0.1, x == 0.1, F.threshold(x, 0.1, 9.0)), EDGES.half())


def test_functions_near_zero():
    """With signs of zeros."""
    def function(x):
        return (torch.erf(x), torch.trunc(x), x.frac(), F.elu(x), F.selu(x), F.leaky_relu(x), torch.expm1(x), torch.log1p(x))
    zeros = torch.tensor([-0.0, 0.0, -1e-9, -0.5])
    agrees(lambda x: (*function(x), torch.digamma(x[:2])), zeros)
    text = stablehlo_of(Program(function), zeros)
    for run in (run_linked, simulate_linked):
        for got, expected in zip(run(text, [zeros.numpy()]), function(zeros), strict=True):
            assert np.array_equal(np.signbit(got), np.signbit(expected))


def test_updates_under_masks():
    def function(x):
        y = x.clone()
        y[y > 0.5] = 5.0
        y[y[:, 0] < 0] = -1.0
        y.t()[1].fill_(7.0)
        y.view(-1)[3:7].copy_(torch.arange(4.0))
        return y, x
    agrees(function, X)


def test_sums_of_truth_values():
    agrees(lambda a, b: (a + b, a + a, a * b, (a + b).sum()), EDGES > 0, EDGES < 1)


def test_sorts__have_nan_last():
    agrees(lambda x: (*x.sort(stable=True), x.topk(2)[0]), EDGES[[0, 2, 3, 4, 5, 6, 7, 11]])
    agrees(lambda x: (*x.sort(stable=True), *(-x).sort(stable=True, descending=True), x.topk(4)[0],
                      x.topk(4, largest=False)[0], x.sort()[0]), EDGES.half(), streams=False)


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_sorts__of_integers_keep_the_order_of_equal_ones(dtype):
    agrees(lambda x: x.sort(stable=True), INTEGERS.to(dtype))


def test_medians_and_running_extrema():
    agrees(lambda x: (x.median(), x.nanmedian(), x[1:7].median(), x.median(0)[0], x.nanmedian(0)[0], x.kthvalue(3)[0],
                      *x.cummax(0), *x.cummin(0)), EDGES, streams=False)
    agrees(lambda x: (x.median(0)[0], *x.cummax(0)), EDGES[[0, 2, 4, 5, 3, 11]])
    agrees(lambda x: (*x.cummax(0), *x.cummin(1), x.median(1)[0], x.kthvalue(2, 0)[0]), TIES, streams=False)
    agrees(lambda x: (*x.cummin(1), x.median(0, keepdim=True)[0]), TIES[:4].int())


def test_running_products():
    agrees(lambda x: (x.cumprod(0), (x.flip(0) * 1e30).cumprod(0)), EDGES)
    agrees(lambda x: (x.cumprod(0), x.cumprod(-1)), TIES)
    agrees(lambda x: (x.cumprod(1),), TIES.int(), streams=False)            # int64


def test_searches():
    limits = torch.tensor([-1.0, 0.0, 0.0, 2.0])
    agrees(lambda x: (torch.searchsorted(limits, x), torch.searchsorted(limits, x, right=True),
                      torch.searchsorted(limits, x, side="right", out_int32=True)), EDGES)
    agrees(lambda s, x: (torch.searchsorted(s, x),), X.sort(1)[0], TIES[:4] / 2)


def test_functions_of_one_and_two_numbers():
    unit = torch.linspace(-1, 1, 9)
    agrees(lambda x: (x.asin(), x.acos(), x.erfinv()), unit, tolerance=1e-5)
    agrees(lambda x: (x.atan(), x.erfc(), x.lgamma(), x.digamma()), torch.linspace(-4.3, 10, 16), tolerance=3e-5)
    y, x = (a.contiguous() for a in torch.broadcast_tensors(EDGES[:, None], EDGES * 1e20))
    agrees(lambda y, x: (y.atan2(x), y.hypot(x), y.copysign(x)), y, x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.uint8])
def test_powers_of_integers(dtype):
    base = torch.tensor([[1, 2, -3, 5, 0, -1]]).to(dtype)
    exponent = torch.tensor([[3], [1], [0], [7], [33]]).to(dtype)
    agrees(lambda a, b: (a ** 2, a ** 5, a ** 0, a ** b), base, exponent, streams=dtype is torch.int8)


@pytest.mark.parametrize("position", [(0,), (2,), (-2,), (9,), (1, 2, 0)])
def test_diagonals(position):
    x = torch.arange(60.0).reshape(4, 3, 5)
    agrees(lambda x: (x.diagonal(*position) * 2, torch.diagonal_scatter(x, x.diagonal(*position) * 2, *position)), x)


def test_diagonals_of_matrices():
    agrees(lambda x: (x.trace(), x.diag(), torch.diag_embed(x), torch.tril_indices(4, 6), torch.triu_indices(3, 3, 1)), X)


def test_distances():
    agrees(lambda x: [torch.cdist(x, x.flip(0) * 2, p=p) for p in (0.0, 1.0, 2.0, 3.0, INF)], X)


@pytest.mark.share(4)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_interpolation(mode):
    agrees(lambda x: (F.interpolate(x, size=(7, 3), mode=mode),), IMAGE, tolerance=1e-5, streams=mode != "bicubic")
    agrees(lambda x: (F.interpolate(x, scale_factor=2, mode=mode),), IMAGE, tolerance=1e-5, streams=False)


def test_tensors_without_elements():
    agrees(lambda x: (x[:, :0], torch.cat([x[:, 2:2], x], 1), x.new_zeros((2, 0)), torch.zeros(4, 0) + x[:, :0],
                      x[:, :0].sum(1), x[:0].sum(0)), X)


def test_constants_through_float64():
    agrees(lambda x: (x * (10000.0 ** (-torch.arange(6, dtype=torch.float64) / 6)).float(),
                      x[:, (torch.linspace(0, 5, 4) + 0.5).long()]), X)


def test_gradients_of_distances():
    def gradient(a, b):
        return tuple(torch.func.grad(lambda a: sum((torch.cdist(a, b, p=p) * w).sum() for p, w in (
            (1.0, 1.0), (2.0, 0.5), (3.0, 2.0), (INF, 1.5))))(a)[None])
    from torch.fx.experimental.proxy_tensor import make_fx
    traced = make_fx(gradient)(X, X[:3] * 0.5)
    agrees(lambda a, b: traced(a, b), X, X[:3] * 0.5, tolerance=1e-5, streams=False)
    assert np.isfinite(gradient(X, X[:3])[0].numpy()).all()


def test_max_pools_whose_last_windows_leave_the_tensor():
    agrees(lambda a: (F.max_pool2d(a, 3, 2, ceil_mode=True), F.max_pool2d(a, (2, 3), 2, (1, 0), ceil_mode=True),
                      F.max_pool2d(a, 2, 2, dilation=(1, 2), ceil_mode=True), F.max_pool1d(a[0], 4, 3, ceil_mode=True)),
           IMAGE)
    agrees(lambda a: (F.max_pool3d(a[None], (1, 3, 2), 2, ceil_mode=True),), IMAGE, streams=False)


POOLS = [(F.avg_pool2d, (3, 2), {}), (F.avg_pool2d, (3, 2, 1), {"count_include_pad": False}),
         (F.avg_pool2d, (3, 2, 1), {}), (F.avg_pool2d, (2, 2, 1), {"divisor_override": 3}),
         (F.avg_pool2d, ((4, 2), (3, 3)), {})]


@pytest.mark.parametrize("rows", [6, 7])
def test_average_pools_whose_last_windows_leave_the_tensor(rows):
    image = torch.arange(2.0 * rows * 5).reshape(1, 2, rows, 5).sin()
    agrees(lambda x: (*(pool(x, *sizes, ceil_mode=True, **options) for pool, sizes, options in POOLS),
                      F.avg_pool1d(x[0], 2, ceil_mode=True), F.avg_pool2d(x[0], 2, ceil_mode=True)), image)


def test_bags_of_embeddings():
    table, indices = X.reshape(8, 3), torch.tensor([1, 2, 2, 7, 3, 4, 2])
    offsets = torch.tensor([0, 3, 3, 6])                    # the second bag has no rows
    agrees(lambda w, i: (F.embedding_bag(i, w), F.embedding_bag(i, w, mode="sum", padding_idx=2)), table,
           indices[:6].reshape(3, 2))
    agrees(lambda w, i, o: (F.embedding_bag(i, w, o, mode="sum"), F.embedding_bag(i, w, o, padding_idx=-6),
                            F.embedding_bag(i, w, o, mode="sum", include_last_offset=True),
                            F.embedding_bag(i, w, o, mode="sum", per_sample_weights=w.view(-1)[:7])), table, indices,
           offsets)


def test_means_in_three_dimensions():
    x = torch.arange(60.0).reshape(1, 3, 4, 5)
    agrees(lambda x: (F.adaptive_avg_pool3d(x, (2, 3, 4)), F.avg_pool3d(x, (1, 3, 2), divisor_override=4)), x)
    agrees(lambda x: (F.avg_pool3d(x, 2, ceil_mode=True, padding=1),), x, streams=False)


def test_what_ends_a_kernel_has_no_frame_of_the_toolchain(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_TRACEBACK", raising=False)

    def interrupted(tensors, kernel):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt) as error:
        torch_operator.without_tangents("call", interrupted, [torch.ones(1)], "a kernel")
    assert [entry.name for entry in error.traceback] == [
        "test_what_ends_a_kernel_has_no_frame_of_the_toolchain", "interrupted"]
