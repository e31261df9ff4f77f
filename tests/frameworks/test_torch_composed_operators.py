# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of attention, bags, margins and adaptive pools against PyTorch, on random tensors of all forms."""

import random

import pytest

torch = pytest.importorskip("torch")

from nki_mlir.frameworks.torch_attention import ATTENTION  # noqa: E402       # it needs PyTorch
from nki_mlir.frameworks.torch_bags import BAGS  # noqa: E402
from nki_mlir.frameworks.torch_losses import LOSSES  # noqa: E402
from nki_mlir.frameworks.torch_pools import POOLS  # noqa: E402

aten = torch.ops.aten
FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
MARGIN, BAG = aten.multilabel_margin_loss_forward.default, aten.embedding_bag.padding_idx


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(2054)


def mask_of(kind: str, rows: int, keys: int, generator: torch.Generator) -> dict[str, object]:
    if kind == "none":
        return {}
    hidden = torch.rand(rows, keys, generator=generator) < 0.4
    hidden[0] = True                                            # a row that sees no key
    return {"attn_mask": torch.zeros(rows, keys).masked_fill(hidden, -torch.inf)}


@pytest.mark.parametrize("heads, shared", [(1, 1), (4, 4), (6, 2), (4, 1)])
@pytest.mark.parametrize("is_causal, mask", [(False, "none"), (True, "none"), (False, "rows")])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_attention_and_its_gradient(generator, heads, shared, is_causal, mask, scale):
    """``shared`` heads of keys and values; each serves as many heads of the query."""
    q, grad = (torch.randn(2, heads, 5, 8, generator=generator) for _ in range(2))
    k, v = (torch.randn(2, shared, 7, 8, generator=generator) for _ in range(2))
    keywords = mask_of(mask, 5, 7, generator) | {"scale": scale}
    repeated = [a.repeat_interleave(heads // shared, 1) for a in (k, v)]
    out, logsumexp = FORWARD(q, *repeated, 0.0, is_causal, **keywords)
    for keys, values in ((k, v), repeated):
        if keys.shape[1] == heads:
            results = ATTENTION[FORWARD](q, keys, values, 0.0, is_causal, **keywords)
            torch.testing.assert_close(results[0], out)
            seen = ~logsumexp.isinf()                           # of a row without keys PyTorch returns another number
            torch.testing.assert_close(results[1][seen], logsumexp[seen])
        expected = BACKWARD(grad, q, *repeated, out, logsumexp, 0.0, is_causal, **keywords)
        got = ATTENTION[BACKWARD](grad, q, keys, values, out, logsumexp, 0.0, is_causal, **keywords)
        for number, (a, b) in enumerate(zip(got, expected, strict=True)):
            if number and keys.shape[1] != heads:
                b = b.reshape(2, shared, heads // shared, *b.shape[2:]).sum(2)
            torch.testing.assert_close(a, b.nan_to_num())


@pytest.mark.parametrize("mode, is_weighted", [(0, False), (0, True), (1, False)])      # PyTorch weighs sums alone
@pytest.mark.parametrize("has_last", [False, True])
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_bags_of_embeddings(generator, mode, is_weighted, has_last, padding):
    rng = random.Random(f"{mode} {has_last} {padding} {is_weighted}")
    for _ in range(10):
        count = rng.randint(1, 12)
        weight = torch.randn(6, 3, generator=generator)
        indices = torch.randint(0, 6, (count,), generator=generator)
        offsets = torch.tensor([0, *sorted(rng.randint(0, count) for _ in range(rng.randint(1, 4)))])
        if has_last and (mode or padding is not None):          # documented; sums leave out indices after the last offset
            offsets[-1] = count
        samples = torch.randn(count, generator=generator) if is_weighted else None
        arguments = weight, indices, offsets, False, mode, False, samples, has_last, padding
        torch.testing.assert_close(BAGS[BAG](*arguments)[0], BAG(*arguments)[0])


def test_bags_with_maxima__are_left_to_upstream():
    assert BAGS[BAG](torch.ones(2, 2), torch.tensor([0]), torch.tensor([0]), mode=2) is NotImplemented


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("shape", [(4, 6), (1, 1), (5,), (3, 2), ()])
def test_margins_of_several_classes(generator, shape, reduction):
    rng = random.Random(f"{shape} {reduction}")
    size = shape[-1] if shape else 1
    for _ in range(10):
        x = torch.randn(shape, generator=generator)
        rows = []
        for _ in range(x.numel() // size):
            listed = rng.sample(range(size), rng.randint(0, size))
            rows.append([*listed, *[-1] * min(1, size - len(listed)),
                         *[rng.randrange(-1, size) for _ in range(size - len(listed) - 1)]])
        target = torch.tensor(rows).reshape(shape)
        for got, expected in zip(LOSSES[MARGIN](x, target, reduction), MARGIN(x, target, reduction), strict=True):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("operator", [op for op in POOLS if "adaptive" in str(op) and "backward" not in str(op)], ids=str)
def test_adaptive_pools_of_all_sizes(generator, operator):
    rank = int(str(operator).partition("pool")[2][0])
    for size in range(1, 10):
        for count in range(1, 10):
            x = torch.randn(2, 3, *[size, 4, 3][:rank], generator=generator)
            arguments = x, [count, 3, 2][:rank]
            got, expected = (r if isinstance(r, tuple) else (r,) for r in (POOLS[operator](*arguments), operator(*arguments)))
            for a, b in zip(got, expected, strict=True):
                torch.testing.assert_close(a, b)
