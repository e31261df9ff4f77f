# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs with 64-bit positions, labels and indices, as instruction streams against eager execution."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from nki_mlir.frameworks.stablehlo import run_linked, simulate_linked  # noqa: E402
from nki_mlir.frameworks.torch_stablehlo import stablehlo_of  # noqa: E402

pytestmark = pytest.mark.torch

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(8, 16, generator=GENERATOR)
TIES = torch.randint(-2, 3, (6, 8), generator=GENERATOR).float()
LABELS = torch.randint(0, 16, (8,), generator=GENERATOR)
Q = torch.randn(1, 2, 8, 4, generator=GENERATOR)
ROWS = torch.tensor([0, 2, 2, -1, 7])


class Program(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


def agrees(module, *arguments, tolerance=1e-5):
    expected = module(*arguments)
    results = simulate_linked(stablehlo_of(torch.export.export(module, arguments)), [a.numpy() for a in arguments])
    for got, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        torch.testing.assert_close(torch.from_numpy(got), wanted.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.share(4)
@pytest.mark.parametrize("function, arguments", [
    (lambda x: (x.argmax(0), x.argmax(1), x.argmin(1)), [TIES]), (lambda x: tuple(torch.max(x, 1)), [TIES]),
    (lambda w, i: F.embedding(i, w), [X, LABELS.reshape(2, 4) % 8]), (lambda x, i: x[i], [X, ROWS]),
    (lambda x, i: x[:, i], [X, ROWS]), (lambda x, i: torch.index_select(x, 1, i), [X, LABELS]),
    (lambda x, i: torch.gather(x, 1, i), [X, LABELS.reshape(8, 1).repeat(1, 3)]),
    (lambda x, i: torch.scatter_add(x, 1, i, x[:, :2]), [X, LABELS.reshape(8, 1).repeat(1, 2)]),
    (lambda x: (x.tril(-1), x.triu(2)), [X]), (lambda i: F.one_hot(i, 16), [LABELS]),
    (lambda x, t: F.cross_entropy(x, t, ignore_index=3), [X, LABELS]),
    (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), [X, LABELS]),
    (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [Q]),
    (lambda m: torch.cumsum(m.long(), 1) - 1, [TIES > 0]), (lambda x: torch.count_nonzero(x, 1), [TIES]),
    (lambda x, n: (x + torch.arange(16), n + 1), [X, torch.tensor(41)]),
    (lambda x: (x * 100).clamp(-50, 50).long(), [X]), (lambda i: (i // 3, i % 3, -i), [LABELS]),
    (lambda i: (i.amax(0), i.amin(), i.clamp(min=-3), i.clamp_max(7)), [LABELS.reshape(2, 4)]),
    (lambda x: (x[0].masked_scatter(x[1] > 0, x[2]), x.masked_scatter(x > 0, x * 2)), [X]),
    (lambda x: torch.bucketize(x, torch.tensor([-1., 0., 1.])), [X])], ids=lambda value: (
        str(value.__code__.co_firstlineno) if callable(value) else ""))
def test_positions_and_indices(function, arguments):
    agrees(Program(function), *arguments)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.second(x))))


class LanguageModel(nn.Module):
    def __init__(self, words=50, width=32, heads=2, length=16):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.block, self.norm, self.head = Block(width, heads), nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        logits = self.head(self.norm(self.block(x)))
        return logits, F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits.argmax(-1)


def language_model():
    torch.manual_seed(0)
    tokens, labels = torch.randint(0, 50, (2, 2, 16), generator=GENERATOR)
    labels[0, 3] = -100                                 # ignored by the loss
    return LanguageModel().eval(), tokens, labels


def test_language_model():
    agrees(*language_model())


def test_gradients_of_a_language_model():
    from torch.func import functional_call, grad
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.nn.attention import SDPBackend, sdpa_kernel
    model, tokens, labels = language_model()
    names = [name for name, _ in model.named_parameters()]
    parameters = tuple(p.detach().clone() for p in model.parameters())

    def gradients(tokens, labels, *parameters):
        return grad(lambda p: functional_call(model, dict(zip(names, p)), (tokens, labels))[1])(parameters)
    with sdpa_kernel(SDPBackend.MATH):
        traced = make_fx(gradients)(tokens, labels, *parameters)
    agrees(traced, tokens, labels, *parameters)


IMAGES = torch.randint(-3, 4, (2, 3, 8, 8), generator=GENERATOR).float()
IMAGES[0, 0, 2, 2] = IMAGES[0, 0, 2, 4] = torch.nan
IMAGES[1, 1] = -torch.inf


@pytest.mark.share(3)
@pytest.mark.parametrize("function", [
    lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    lambda x: F.max_pool2d(x, 2, 1, 0, 2, return_indices=True),
    lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
    lambda x: F.max_pool1d(x.flatten(2), 3, 2, return_indices=True),
    lambda x: F.adaptive_max_pool2d(x, (4, 2), return_indices=True),
    lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, 2, return_indices=True), 2)], ids=range(6))
def test_positions_of_max_pools(function):
    """The last NaN of a window is chosen, else the first of the greatest elements, of -inf alone, too."""
    expected = function(IMAGES)
    text = stablehlo_of(torch.export.export(Program(function), (IMAGES,)))
    for results in (run_linked(text, [IMAGES.numpy()]), simulate_linked(text, [IMAGES.numpy()])):
        for got, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_array_equal(got, wanted.numpy())


def test_numbers_that_may_not_fit__are_refused():
    from nki_mlir.diagnostics import Unsupported
    for function, argument, name in ((lambda x: x.cumsum(1), TIES.int(), "reduce_window"),
                                     (lambda x: x.long(), TIES, "convert"), (lambda x: x * x, LABELS, "multiply")):
        text = stablehlo_of(torch.export.export(Program(function), (argument,)))
        with pytest.raises(Unsupported, match=rf"test_torch_streams\.py:\d+:1: error: 'stablehlo.{name}' on 64-bit integers with values"):
            simulate_linked(text, [np.asarray(argument)])
