# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of PyTorch's programs that have no lowering upstream, on native code and as streams, against PyTorch."""

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from nki_mlir.frameworks.stablehlo import run_linked, simulate_linked  # noqa: E402
from nki_mlir.frameworks.torch_stablehlo import stablehlo_of  # noqa: E402

pytestmark = pytest.mark.torch


def tensor(*shape: int) -> "torch.Tensor":
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) * 100 + shape[-1]))


def same_gradients(function: Callable[..., "torch.Tensor"], *arguments: "torch.Tensor", streams: bool = True) -> None:
    """Compare the gradients of the sum of squares, which weights all results differently."""
    def gradients(*values: "torch.Tensor") -> "tuple[torch.Tensor, ...]":
        return torch.func.grad(lambda *v: function(*v).square().sum(), tuple(range(len(values))))(*values)
    expected = [g.numpy() for g in gradients(*arguments)]
    text = stablehlo_of(torch.export.export(make_fx(gradients)(*arguments), arguments))
    arrays = [a.numpy() for a in arguments]
    for run in (run_linked, simulate_linked) if streams else (run_linked,):
        for result, gradient in zip(run(text, arrays), expected, strict=True):
            np.testing.assert_allclose(result, gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.share(4)
@pytest.mark.parametrize("x, weight, options", [
    ((2, 4, 9), (6, 4, 3), {"padding": 1}), ((2, 4, 10), (6, 2, 3), {"stride": 2, "padding": 2, "groups": 2}),
    ((1, 3, 11), (3, 1, 2), {"dilation": 3, "stride": 3, "groups": 3}), ((2, 2, 7), (4, 2, 1), {"padding": 2}),
    ((1, 4, 6, 7), (4, 1, 3, 2), {"stride": (2, 1), "padding": (1, 0), "groups": 4}),
    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 1), {"padding": (1, 1, 0), "stride": (1, 2, 1)})],
    ids=["padded", "strided groups", "dilated depthwise", "wide padding", "2d depthwise", "3d"])
def test_gradients_of_convolutions(x, weight, options):
    convolution = [F.conv1d, F.conv2d, F.conv3d][len(x) - 3]
    same_gradients(lambda a, w, b: convolution(a, w, b, **options), tensor(*x), tensor(*weight), tensor(weight[0]),
                   streams=len(x) < 5)


@pytest.mark.share(3)
@pytest.mark.parametrize("x, weight, options", [
    ((1, 3, 4), (3, 2, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    ((2, 4, 3, 4), (4, 3, 2, 3), {"stride": (2, 1), "padding": (0, 1), "groups": 2})], ids=["1d", "2d groups"])
def test_gradients_of_transposed_convolutions(x, weight, options):
    convolution = [F.conv_transpose1d, F.conv_transpose2d][len(x) - 3]
    same_gradients(lambda a, w: convolution(a, w, **options), tensor(*x), tensor(*weight))


@pytest.mark.share(8)
@pytest.mark.parametrize("function", [
    lambda a: F.avg_pool2d(a, 2), lambda a: F.avg_pool2d(a, (3, 2), (2, 1), (1, 0)),
    lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False),
    lambda a: F.avg_pool1d(a[0], 3, 2, 1), lambda a: F.adaptive_avg_pool2d(a, (3, 4)),
    lambda a: F.max_pool2d(a, 2), lambda a: F.max_pool2d(a, (3, 2), (2, 3), (1, 1)),
    lambda a: F.max_pool2d(a[0], 3, 2, ceil_mode=True), lambda a: F.max_pool2d(a.relu(), 2, 1),
    lambda a: F.interpolate(a, scale_factor=2), lambda a: F.interpolate(a, (9, 5)),
    lambda a: F.interpolate(a, (9, 5), mode="bilinear"),
    lambda a: F.interpolate(a, scale_factor=1.5, mode="bilinear"),
    lambda a: F.interpolate(a, (3, 11), mode="bilinear", align_corners=True),
    lambda a: a.unfold(2, 3, 2), lambda a: a.unfold(-1, 4, 3).unfold(2, 5, 1)],
    ids=["average", "average strides", "average of elements", "average 1d", "adaptive", "maximum",
         "maximum strides", "maximum ceil", "maximum of equal", "nearest", "nearest sizes", "bilinear",
         "bilinear factor", "bilinear corners", "unfold", "unfold twice"])
def test_gradients_of_windows(function):
    same_gradients(function, tensor(1, 2, 7, 8))


@pytest.mark.share(3)
@pytest.mark.parametrize("function", [
    lambda a: F.max_pool3d(a, (2, 1, 2), padding=(1, 0, 0)), lambda a: F.adaptive_avg_pool3d(a, (2, 3, 1)),
    lambda a: F.avg_pool3d(a, 2, (2, 1, 2), 1, count_include_pad=False)], ids=["maximum", "adaptive", "average"])
def test_gradients_of_pools_in_three_dimensions(function):
    same_gradients(function, tensor(1, 1, 3, 4, 4))


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_max_pools__go_to_the_last_nan(dtype):
    x = tensor(1, 1, 6, 6)
    x[0, 0, 2, 2:4], x[0, 0, 4:, :2] = torch.nan, -torch.inf

    def gradients(x: "torch.Tensor") -> "list[torch.Tensor]":
        return [torch.func.grad(lambda x, form=form: (pooled := F.max_pool2d(x.to(dtype), *form).float()).mul(torch.arange(
            float(pooled.numel())).view_as(pooled)).nan_to_num(0.0).add(pooled).sum())(x) for form in ((2, 1), (3, 2, 1))]
    text = stablehlo_of(torch.export.export(make_fx(gradients)(x), (x,)))
    for run in (run_linked, simulate_linked):
        for got, expected in zip(run(text, [x.numpy()]), gradients(x), strict=True):
            np.testing.assert_array_equal(got, expected.numpy())


HIDDEN = torch.zeros(5, 6).index_fill(0, torch.tensor([1, 4]), -float("inf"))          # rows that see no key


def test_attention__log_of_the_sum():
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    q, k = tensor(1, 4, 5, 8), tensor(1, 4, 6, 8)
    for options in ({}, {"is_causal": True}, {"attn_mask": HIDDEN}):
        program = Called(lambda q, k, options=options: attention(q, k, k, **options))
        text = stablehlo_of(program, q, k)
        for run in (run_linked, simulate_linked):
            for got, expected in zip(run(text, [q.numpy(), k.numpy()]), program(q, k), strict=True):
                np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-5)


class Called(torch.nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: "torch.Tensor") -> object:
        return self.function(*arguments)


@pytest.mark.share(4)
@pytest.mark.parametrize("options", [
    {}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": torch.arange(30.0).reshape(5, 6) / 10},
    {"attn_mask": HIDDEN},
    {"attn_mask": torch.arange(30).reshape(5, 6) % 4 > 0}], ids=["plain", "causal", "scale", "added mask", "hidden rows", "mask"])
def test_gradients_of_attention(options):
    same_gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), tensor(1, 2, 5, 4),
                   tensor(1, 2, 6, 4), tensor(1, 2, 6, 4) + 1)


def test_gradients_of_cross_entropy():
    """Its targets are integers that are clamped on one side."""
    targets = torch.tensor([0, 4, -100, 2])
    same_gradients(lambda a: F.cross_entropy(a, targets.clamp(0), label_smoothing=0.1), tensor(4, 5))
    same_gradients(lambda a: F.nll_loss(a, targets.clamp(max=4), reduction="none"), tensor(4, 5))


@pytest.mark.parametrize("compute", [
    lambda g, x: torch.ops.aten.silu_backward(g, x), lambda g, x: torch.ops.aten.mish_backward(g, x),
    lambda g, x: torch.ops.aten.hardshrink_backward(g, x, 0.5),
    lambda g, x: torch.ops.aten.softshrink_backward(g, x, 0.5)], ids=["silu", "mish", "hardshrink", "softshrink"])
def test_gradients_of_activations(compute):
    """These are operators of backward programs, as torch.compile has them."""
    grad, x = tensor(4, 5), 3 * tensor(4, 5)
    x[0] = torch.tensor([0.5, -0.5, -0.0, 30.0, -30.0])
    program = Called(lambda g, x: (compute(g, x),))
    text = stablehlo_of(program, grad, x)
    for run in (run_linked, simulate_linked):
        for got, expected in zip(run(text, [grad.numpy(), x.numpy()]), program(grad, x), strict=True):
            np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-5)
