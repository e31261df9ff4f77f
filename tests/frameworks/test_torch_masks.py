# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs that select elements by a mask, on the CPU and as instruction streams, against eager execution."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from nki_mlir.diagnostics import Unsupported  # noqa: E402
from nki_mlir.frameworks.stablehlo import run_linked, simulate_linked  # noqa: E402
from nki_mlir.frameworks.torch_stablehlo import stablehlo_of  # noqa: E402

pytestmark = pytest.mark.torch

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(4, 5, generator=GENERATOR), torch.randn(4, 5, generator=GENERATOR)
X[0, 0] = torch.nan
W = torch.randn(5, 3, generator=GENERATOR)


class Program(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


def scale(x, y):
    x = x.clone()
    x[y > 0] *= 2
    return x


def update_rows(x, y):
    x = x.clone()
    x[y[:, 0] > 0] = x[y[:, 0] > 0] + y[0]
    x[y > 1] = 3
    return x


def one_row(x, y):
    x = x.clone()
    x[y[:, 0] > 0] = y[0]
    return x


def add_to_rows(x, y):
    return x.index_put((y[:, 0] > 0,), x[y[:, 0] > 0] * 2, accumulate=True)


def totals(x, y):
    return x[y > 0].sum(), (x[y > 0] - 1).square().mean(), x[y > 9].sum(), x[y > 9].mean()


def rows(x, y):
    return F.softmax(x[y[:, 0] > 0], -1).sum(0), (x[y[:, 0] > 0] @ W).mean(), x[y[:, 0] > 0].mean(0, keepdim=True)


def rows_of_rows(x, y):
    elements, several = x[y > 0], x[y[:, 0] > 0]
    return elements[elements > 0].sum(), several[several > 0].mean(), several[several[:, 1] > 0].sum(0)


def counts(x, y):
    return (x > 0)[y > 0].sum(), x.bfloat16()[y > 0].mean().float()


def numbers_of_rows(x, y):
    rows, elements = y[x[:, 1] > 0], x.bfloat16()[y > 0]
    return (rows.sum(0) / rows.shape[0], rows.square().sum() / (3 * rows.numel()),
            (elements.sum() / elements.shape[0]).float(), torch.arange(5, dtype=torch.int32) * rows.shape[0],
            y[y > 9].sum() / y[y > 9].shape[0], y.sum() * (2.0 / rows.shape[0]))


def sums_of_numbers(x, y):
    rows, elements = y[x[:, 1] > 0], x[y > 0]
    n, count = rows.shape[0], elements.shape[0]
    integers = (y.abs() * 200).to(torch.int32).to(torch.uint8)
    return (rows.square().sum() / (n - 1), y * (count // 2) + n, (y - count) * (n + 0.5), y[y > 9].sum() / max(
        y[y > 9].shape[0], 1), y / count ** 0.5, torch.full((), count) * y, (y.bfloat16() + n).float(),
        integers * (300 * count // 7), y * -n, y[x[:, 1] > 0].t() @ x[x[:, 1] > 0])


def extrema(x, y):
    mask = y[:, 0] > 0
    integers = (4 * y).to(torch.int32)
    return (y[x > 0].amax(), x[y > 0].amin(), y[mask].amin((0, 1), keepdim=True), x[y > 0].max(),
            integers[mask].amax(0), integers[y < 0].min(), (y > 0)[mask].amin(0), y.bfloat16()[mask].amin(0).float())


def deviations(x, y):
    rows = y[x[:, 1] > 0]
    return (rows.norm(dim=0), rows.norm(1, dim=1, keepdim=True).sum(), x[y > 0].norm(), y[x > 0].std(),
            rows.var(0, correction=0), y[y > 9].std(), y.bfloat16()[x > 0].std(unbiased=False).float())


def losses(x, y):
    m, classes = y[:, 0] > 0, torch.where(y[:, 0] > 0, y.argmax(1), -100)
    weight = torch.arange(1.0, 6.0)
    return (F.cross_entropy(x[m], classes[m], label_smoothing=0.1), F.mse_loss(x[m], y[m]),
            *(F.cross_entropy(y[m], classes[m], weight, ignore_index=2, label_smoothing=0.2, reduction=reduction).sum()
              for reduction in ("mean", "sum", "none")),
            F.cross_entropy(y[m], classes[m], weight, ignore_index=2), F.l1_loss(y[m], 2 * x[m], reduction="sum"),
            F.nll_loss(y[m], classes[m], reduction="none").exp().sum(), x[m].gather(1, classes[m][:, None]).mean(),
            F.cross_entropy(y[y[:, 0] > 9], classes[y[:, 0] > 9]), x.masked_select(y > 0).sum())


def normalized_rows(x, y):
    rows = F.layer_norm(x[y > 0][:, None] * torch.arange(3.0), (3,))
    return F.rms_norm(rows, (3,)).sum(0), torch.zeros_like(rows).sum()


def positions(x, y):
    """Experts of the rows that chose them, as mixtures of experts compute them."""
    share, expert = y.abs().topk(2)
    result = torch.zeros_like(x)
    for number in (1, 4):
        row, choice = torch.where(expert == number)
        result.index_add_(0, row, x[row] * share[row, choice, None])
    return result, torch.zeros(5).index_put((torch.nonzero(y > 0)[:, 1],), y[y > 0], accumulate=True)


@pytest.mark.share(6)
@pytest.mark.parametrize("function", [
    scale, update_rows, one_row, add_to_rows, totals, rows, rows_of_rows, counts, numbers_of_rows, sums_of_numbers,
    extrema, deviations, losses, normalized_rows, positions])
def test_selected_elements(function):
    expected = function(X, Y)
    text = stablehlo_of(torch.export.export(Program(function), (X, Y)))
    for results in (run_linked(text, [X.numpy(), Y.numpy()]), simulate_linked(text, [X.numpy(), Y.numpy()])):
        for got, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
            torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("function", [
    lambda x, y: x.masked_select(y > 0).sum(), lambda x, y: x[:, 1:].masked_select(y[:, :1] > 0).mean(),
    lambda x, y: y[0].masked_select(x[1:] > 0).square().sum(), lambda x, y: y[:, :1].masked_select(x[1] > 0).amax()],
    ids=["one_shape", "rows", "elements_of_a_row", "both"])
def test_masked_select__takes_shapes_that_broadcast(function):
    text = stablehlo_of(torch.export.export(Program(function), (X, Y)))
    expected = function(X, Y)
    for run in (run_linked, simulate_linked):
        torch.testing.assert_close(torch.from_numpy(run(text, [X.numpy(), Y.numpy()])[0]), expected, rtol=1e-5, atol=1e-5,
                                   equal_nan=True)


def test_masks_of_deep_programs__are_compared_once():
    """Each layer reads the previous one twice, so that 2 ** 40 paths lead to the mask."""
    def deep(x, y):
        for _ in range(40):
            y = y * 0.5 - y.square()
        x = x.clone()
        x[y < 0] = x[y < 0] * 2
        return x
    text = stablehlo_of(torch.export.export(Program(deep), (X, Y)))
    torch.testing.assert_close(torch.from_numpy(run_linked(text, [X.numpy(), Y.numpy()])[0]), deep(X, Y), equal_nan=True)


@pytest.mark.share(4)
@pytest.mark.parametrize("loss", [
    lambda rows, others: F.cross_entropy(rows, others.argmax(1)), F.mse_loss, lambda rows, others: rows.amax(0).sum(),
    lambda rows, others: rows.norm(), lambda rows, others: rows.norm(dim=0).sum()],
    ids=["cross_entropy", "mse_loss", "amax", "norm", "norm_of_columns"])
def test_gradients_of_a_loss_of_selected_rows(loss):
    """Rows that the mask leaves out get no gradient, even if they are NaN."""
    def gradient(x, y):
        mask = y[:, 0] > 0
        return torch.func.grad(lambda x: loss(x[mask], y[mask]))(x)
    y = Y.clone()
    y[0, 0] = -1.0
    text = stablehlo_of(torch.export.export(make_fx(gradient)(X, y), (X, y)))
    for run in (run_linked, simulate_linked):
        torch.testing.assert_close(torch.from_numpy(run(text, [X.numpy(), y.numpy()])[0]), gradient(X, y), rtol=1e-5,
                                   atol=1e-6)


MEANS = [
    lambda rows, others: rows.mean(), lambda rows, others: rows.mean(0).square().sum(),
    lambda rows, others: rows.mean(1).square().sum(), lambda rows, others: (rows @ torch.arange(15.0).reshape(5, 3)).square().mean(),
    lambda rows, others: rows.sum() / rows.shape[0], lambda rows, others: F.log_softmax(rows, 1).mean(),
    lambda rows, others: F.l1_loss(rows, others), lambda rows, others: rows.var(0).sum()]


@pytest.mark.share(4)
@pytest.mark.parametrize("loss", MEANS, ids=["mean", "columns", "rows", "product", "number", "logarithms", "l1", "variance"])
def test_gradients_of_means_of_selected_rows(loss):
    """The trace of the gradient has the number of the rows as a variable, so that it holds for other masks."""
    def gradient(x, y):
        mask = y[:, 0] > 0
        return torch.func.grad(lambda x: loss(x[mask], y[mask]))(x)
    traced = make_fx(gradient, tracing_mode="fake")(X, Y)
    text = stablehlo_of(torch.export.export(traced, (X, Y)))
    for first in ([-1.0, 1.0, 2.0, 3.0], [-1.0, 1.0, -1.0, 3.0]):
        y = torch.cat([torch.tensor(first)[:, None], Y[:, 1:]], 1)
        for run in (run_linked, simulate_linked):
            torch.testing.assert_close(torch.from_numpy(run(text, [X.numpy(), y.numpy()])[0]), gradient(X, y),
                                       rtol=1e-5, atol=1e-6)


def test_gradients_of_a_weight_that_multiplies_selected_rows():
    def gradient(x, y, w):
        return torch.func.grad(lambda w: (x[y[:, 0] > 0] @ w).square().mean())(w)
    text = stablehlo_of(torch.export.export(make_fx(gradient, tracing_mode="fake")(X, Y, W), (X, Y, W)))
    y = torch.cat([torch.tensor([-1.0, 1.0, 2.0, -3.0])[:, None], Y[:, 1:]], 1)
    for run in (run_linked, simulate_linked):
        torch.testing.assert_close(torch.from_numpy(run(text, [a.numpy() for a in (X, y, W)])[0]), gradient(X, y, W),
                                   rtol=1e-5, atol=1e-5)


class Refused(nn.Module):
    def forward(self, x, y):
        return self.compute(x, y)


def refused(compute):
    return type("Refused", (Refused,), {"compute": staticmethod(compute)})()


@pytest.mark.share(3)
@pytest.mark.parametrize("compute, name", [
    (lambda x, y: x[y > 0], "aten.index.Tensor"), (lambda x, y: torch.nonzero(y > 0), "aten.nonzero.default"),
    (lambda x, y: torch.add(x, x[y > 0].shape[0], alpha=2), "aten.add.Tensor"),
    (lambda x, y: x * (x[y > 0].shape[0] % 3), "mod"),
    (lambda x, y: torch.zeros(x[y > 0].shape[0]), "aten.zeros.default"),
    (lambda x, y: x[y[:, 0] > 0].t().relu() @ x[y[:, 0] > 0], "aten.relu.default"),
    (lambda x, y: x[y > 0].sort()[0].sum(), "aten.sort.default"),
    (lambda x, y: x[y > 0] @ torch.ones(20)[y.flatten() > 0], "aten.matmul.default"),
    (lambda x, y: x.clone().index_put((torch.where(y > 0)[0],), y[0]), "aten.index_put.default")])
def test_sizes_that_depend_on_values__are_refused_at_the_operator(compute, name):
    exported = torch.export.export(refused(compute), (X, Y))
    with pytest.raises(Unsupported, match=rf"error: PyTorch's {name} with sizes or numbers that depend on values, as "
                                          r"StableHLO is not supported \[NKI-UNSUPPORTED\]\n(.*\n)*"
                                          r"  fix: compute all elements, and choose with torch.where\(mask, ...\)"):
        stablehlo_of(exported)


def test_symbolic_sizes__are_refused_with_the_argument():
    exported = torch.export.export(Program(lambda x, y: x + y), (X, Y), dynamic_shapes={
        name: {0: torch.export.Dim("n")} for name in "xy"})
    with pytest.raises(Unsupported, match=r"the argument 'x' with a symbolic size, \[s\d+, 5\], as StableHLO is not "
                                          "supported"):
        stablehlo_of(exported)
