# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs as StableHLO: the custom calls, and the linked program against eager execution."""

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nki_mlir.diagnostics import Unsupported  # noqa: E402
from nki_mlir.frameworks.recovery import kernels_in  # noqa: E402
from nki_mlir.frameworks.stablehlo import run_linked, simulate_linked  # noqa: E402
from nki_mlir.frameworks.torch_neuronx import nki_jit  # noqa: E402
from nki_mlir.frameworks.torch_stablehlo import stablehlo_of  # noqa: E402

from . import kernels  # noqa: E402

pytestmark = pytest.mark.torch

A = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
B = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))


def model(function):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 16 * 16).reshape(16, 16))

        def forward(self, *arguments):
            return function(*arguments) @ self.weight
    return Model().eval()


def agree(function, *arguments):
    """The linked program's result is the eager one."""
    program = model(function)
    with torch.no_grad():
        expected = program(*[a.clone() for a in arguments])
    text = stablehlo_of(program, *arguments)
    assert "torch.aten" not in text and "torch_c." not in text
    assert text.count("stablehlo.custom_call @AwsNeuronCustomNativeKernel") >= 1
    (got,) = run_linked(text, [a.numpy() for a in arguments])
    torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-5, atol=1e-5)
    return text


def several(a, b):
    total, difference = kernels.sum_and_difference(a, b)
    return torch.tanh(kernels.add[2](a, b)) * total + difference


def whole_update(a, b):
    table = a * 1.0
    kernels.add_rows(table, b[:8])
    return table + a


def by_reference(a, b):
    out = torch.empty(32, 16)
    nki_jit(kernels.add_into)(a, b, out)
    return out * a


@pytest.mark.parametrize("function", [several, whole_update, by_reference,
                                      lambda a, b: torch.softmax(kernels.scaled(a, 2.0), -1) * b])
def test_program__equals_eager(function):
    agree(function, A, B)


def test_program__one_tensor_for_two_parameters():
    agree(lambda a, b: kernels.sum_and_difference(a, b)[1] + a, A, A)


@pytest.mark.parametrize("function", [several, kernels.add[2]])
def test_program__that_is_a_function_or_a_kernel(function):
    (got,) = run_linked(stablehlo_of(function, A, B), [A.numpy(), B.numpy()])
    torch.testing.assert_close(torch.from_numpy(got), function(A, B), rtol=1e-6, atol=1e-6)


def test_program__carries_its_kernels():
    text = agree(several, A, B)
    total, difference = next(k for k in kernels_in(text) if k.name == "sum_and_difference")(A.numpy(), B.numpy())
    torch.testing.assert_close(torch.from_numpy(difference), A - B, rtol=0, atol=0)


def test_program__that_was_exported_elsewhere(child, tmp_path):
    torch.export.save(torch.export.export(model(several), (A, B.clone())), str(tmp_path / "model.pt2"))
    torch.save((A, B, model(several)(A, B).detach()), str(tmp_path / "data.pt"))
    assert child("""
import torch
import nki_mlir.frameworks.torch
from nki_mlir.frameworks.stablehlo import run_linked
from nki_mlir.frameworks.torch_stablehlo import stablehlo_of
a, b, expected = torch.load("data.pt")
(got,) = run_linked(stablehlo_of(torch.export.load("model.pt2")), [a.numpy(), b.numpy()])
print(torch.allclose(torch.from_numpy(got), expected, atol=1e-5))
""").endswith("True\n")


def test_operator__of_new_values_passes_the_checks_of_torch():
    from nki_mlir.frameworks.torch import TorchKernel
    config = TorchKernel(func=kernels.add_rows).dump_config(A, B[:8])[0]
    torch.library.opcheck(torch.ops.nki.updated.default, ([A], [B[:8]], config))


def part_update(a, b):
    table = torch.cat([a, a])
    kernels.add_rows(table[32:], b[:8])
    return table


def columns_update(a, b):
    """Rows of a transposed view: not contiguous in memory."""
    table = a * 2.0
    kernels.add_rows(table.t()[:, :16], b[:8, :16])
    return table


@pytest.mark.parametrize("function", [part_update, columns_update])
def test_program__updates_a_part_of_a_tensor(function):
    agree(function, A, B)


class Counting(torch.nn.Module):
    """Updates two buffers, one by a kernel, and an input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("unused", torch.ones(3))
        self.register_buffer("table", torch.zeros(32, 16))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("offset", torch.full((16,), 0.5))

    def forward(self, a, b):
        kernels.add_rows(self.table, a[:8])
        kernels.add_rows(b[16:], a[8:16])
        self.count += 1
        return self.table * 2 + self.offset, b.sum(0)


def test_program__updates_inputs_and_buffers():
    text = stablehlo_of(Counting(), A, B)
    assert "%arg1: tensor<32x16xf32> {tf.aliasing_output = 2 : i32}" in text
    assert "%arg2: tensor<32x16xf32> {tf.aliasing_output = 3 : i32}" in text
    model, b = Counting(), B.clone()
    state = [B.numpy(), np.zeros((32, 16), np.float32), np.zeros((), np.int64)]
    for _ in range(3):
        expected = [*model(A, b), b, model.table, model.count]
        results = run_linked(text, [A.numpy(), *state])
        assert len(results) == 5
        for got, wanted in zip(results, expected):
            torch.testing.assert_close(torch.from_numpy(got), wanted)
        state = results[2:]


def test_program__returns_an_input_that_it_updates():
    text = stablehlo_of(Returning(), A, B)
    returned, new = run_linked(text, [A.numpy(), B.numpy()])
    expected = torch.cat([A[:8] + B[:8], A[8:]])
    for got in (returned, new):
        torch.testing.assert_close(torch.from_numpy(got), expected)


class Returning(torch.nn.Module):
    def forward(self, a, b):
        return kernels.add_rows(a, b[:8])


def test_program__that_was_exported_updates_its_inputs():
    a, table = A.clone(), B.clone()
    exported = torch.export.export(Counting(), (a, table))
    first = exported.module()(a, table)
    torch.testing.assert_close(table, torch.cat([B[:16], B[16:24] + A[8:16], B[24:]]))
    torch.testing.assert_close(first[1], table.sum(0))
    assert run_linked(stablehlo_of(exported), [A.numpy(), B.numpy(), np.zeros((32, 16), np.float32),
                                               np.zeros((), np.int64)])[4] == 1


def test_program__normalization_in_training():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(16)

        def forward(self, x):
            return kernels.scaled(self.norm(x), 2.0)
    net = Net().train()
    text = stablehlo_of(net, A)
    out, mean, variance, count = run_linked(text, [A.numpy(), *(b.numpy() for b in net.buffers())])
    with torch.no_grad():
        expected = net(A)
    torch.testing.assert_close(torch.from_numpy(out), expected, rtol=1e-5, atol=1e-5)
    for got, wanted in zip((mean, variance, count), net.buffers()):
        torch.testing.assert_close(torch.from_numpy(got), wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2])
def test_program__weights_of_low_precision(dtype):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.linspace(-2, 2, 512).reshape(32, 16).to(dtype))

        def forward(self, x):
            return kernels.scaled(self.weight, 2.0).float() * x
    (got,) = run_linked(stablehlo_of(Net(), A), [A.numpy()])
    torch.testing.assert_close(torch.from_numpy(got), Net()(A))


SIGNED = torch.tensor([[-7, -4, -3, -1, 0, 1, 3, 5], [7, 6, 4, 2, -2, -8, -5, 9]])
DIVISORS = torch.tensor([[-3, 3, 2, -2, 4, -4, 5, -5], [-3, 4, 5, -7, 9, 2, 2, -2]])


def same_values(function, *arguments):
    """The linked program's results are the eager ones, bit for bit."""
    class Model(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)
    expected = Model()(*arguments)
    for got, wanted in zip(run_linked(stablehlo_of(Model(), *arguments), [a.numpy() for a in arguments]), expected):
        torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64, torch.float16])
def test_program__remainders_have_the_sign_of_the_divisor(dtype):
    same_values(lambda a, b: (a % 4, a % -3, a % b, 5 % b, torch.fmod(a, 3), torch.fmod(a, b)),
                SIGNED.to(dtype), DIVISORS.to(dtype))


def test_program__negative_integers_beside_constants_of_floats():
    def function(a):
        c, d = torch.full((3,), -2.0), torch.full((), 3.0)
        return c < 0, c == -2, c * -1 + a, d - -1, -1 * d, d > -2, torch.sign(c)
    same_values(function, torch.zeros(3))


def test_program__bytes_are_not_integers_with_a_sign():
    low, high = (torch.arange(24).reshape(3, 8) + k for k in (1, 150))
    same_values(lambda a, b: (torch.amax(a, 1), torch.amin(b, 1), *torch.max(a, 1), *torch.min(b, 0), torch.max(a),
                              torch.argmax(a, 1), b >> 1, b >> a % 8, b << 1, torch.any(b, 1), torch.all(b, 1),
                              torch.abs(b)), low.to(torch.uint8), high.to(torch.uint8))


def test_program__rolls():
    same_values(lambda a: (torch.roll(a, 1, 0), torch.roll(a[:1], 1, 0), torch.roll(a, -9),
                           torch.roll(a, (7, -1), (0, 1)), torch.roll(a, 2, 0)), SIGNED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_program__remainders_are_exact(dtype):
    """Quotients that no float represents, infinite divisors, and operands of different shapes."""
    a = torch.tensor([[3e4, -1e4, 7.0, -7.0, 0.0, float("inf"), float("nan"), 6e4]]).to(dtype)
    b = torch.tensor([[0.7], [-0.3], [float("inf")], [-float("inf")], [1e-3]]).to(dtype)

    class Model(torch.nn.Module):
        def forward(self, a, b):
            return torch.fmod(a, b).float(), (a % b).float()
    arrays = [x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if dtype is torch.bfloat16 else x.numpy()
              for x in (a, b)]
    for got, wanted in zip(run_linked(stablehlo_of(Model(), a, b), arrays), Model()(a, b)):
        torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=0, atol=0, equal_nan=True)


def test_program__quotients_rounded_down():
    a = torch.tensor([[1.0, -1.0, 0.3, 7.5, -7.5, 0.0, float("inf"), 3e8]])
    b = torch.tensor([[0.1], [-0.1], [3.0], [0.0], [float("inf")]])
    integers = torch.tensor([[7, -7, 8, -8, 0, 1, 5, 3]], dtype=torch.int32)
    same_values(lambda a, b, n: (a // b, torch.div(a, b, rounding_mode="floor"), a // 0.1, n // -2,
                                 torch.div(n, 3, rounding_mode="floor"), torch.div(a, b, rounding_mode="trunc"), a[:, :5].half() // 0.1,
                                 a[:, :5].bfloat16().float() // b), a, b, integers)


def test_program__negative_indices_count_from_the_end():
    index = torch.tensor([0, -1, -3, 2])
    same_values(lambda a, i: (a[i], a[:, i], a[i, -i.abs() - 1], a[i - 1, i], a[-1]), A, index)
    same_values(lambda a, i, v: (a.index_put((i,), v), a.index_put((i, i), v[0, 0]),
                                 a.index_put((i,), v, accumulate=True)), A, index, B[:4])


@pytest.mark.parametrize("function, operator", [
    (lambda a: torch.histc(torch.logcumsumexp(a, 1), 5, -2, 2), "aten.histc"), (lambda a: torch.i0(a), "aten.i0")])
def test_program__that_upstream_does_not_lower(function, operator):
    class Model(torch.nn.Module):
        def forward(self, a):
            return function(a)
    with pytest.raises(Unsupported, match=rf"test_torch_stablehlo.py:\d+:1: error: PyTorch's {operator}, as StableHLO"):
        stablehlo_of(Model(), A)


@pytest.mark.parametrize("function", [
    lambda x: x + torch.randn_like(x), lambda x: torch.bernoulli(x * 0), lambda x: x[torch.randperm(x.shape[0])],
    lambda x: torch.nn.functional.dropout(x, training=True)], ids=["randn_like", "bernoulli", "randperm", "dropout"])
def test_program__that_draws_random_numbers(function):
    """It would draw the same ones in each call."""
    class Model(torch.nn.Module):
        def forward(self, a):
            return function(a)
    with pytest.raises(Unsupported, match=r"test_torch_stablehlo.py:\d+:1: error: a StableHLO program that draws random "
                                          r"numbers \(aten\.\w+\.\w+\) is not supported"):
        stablehlo_of(Model(), A)


def test_program__with_random_numbers_that_nothing_reads():
    dropout = torch.nn.Dropout(0.5).eval()
    same_values(lambda a: (torch.randn_like(a), dropout(a) + 1)[1:], A)


@pytest.mark.share(3)
@pytest.mark.parametrize("function", [
    lambda x: torch.softmax(x, 0), lambda x: torch.log_softmax(x, 0), lambda x: x.logsumexp(0), lambda x: x.max(0)[0],
    lambda x: x.argmin(0), lambda x: x.cumsum(0), lambda x: x.prod(0), lambda x: (x > 0).any(0), lambda x: x.flip(0),
    lambda x: x.gather(0, torch.tensor(0)), lambda x: x.sort()[0], lambda x: x.topk(1)[1],
    lambda x: x.std(0, correction=0)], ids=["softmax", "log_softmax", "logsumexp", "max", "argmin", "cumsum", "prod",
                                            "any", "flip", "gather", "sort", "topk", "std"])
def test_program__along_the_axis_that_one_number_lacks(function):
    same_values(lambda x: (function(x),), torch.tensor(1.5))


def test_program__variances_of_one_number():
    same_values(lambda a: (a.var(), a.var(correction=0), *torch.var_mean(a), a.std(correction=0)), torch.tensor(3.0))


@pytest.mark.parametrize("function", [
    lambda a: torch.nn.functional.layer_norm(a, (16,)), lambda a: torch.nn.functional.group_norm(a, 4),
    lambda a: a.var(1), lambda a: a.std(correction=0), lambda a: torch.var_mean(a, 0, keepdim=True)[1],
    lambda a: torch.clamp(a, -0.5, 0.25), torch.nn.functional.leaky_relu, torch.nn.functional.hardswish],
    ids=lambda function: str(function.__code__.co_firstlineno))
def test_program__with_numbers_of_float64_as_streams(function):
    class Model(torch.nn.Module):
        def forward(self, a):
            return function(a)
    (got,) = simulate_linked(stablehlo_of(Model(), A), [A.numpy()])
    torch.testing.assert_close(torch.from_numpy(got), Model()(A), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [torch.linalg.cholesky, torch.linalg.inv])
def test_program__with_a_check_of_a_factorization_is_refused_at_its_line(function):
    class Model(torch.nn.Module):
        def forward(self, a):
            return function(a @ a.T)
    with pytest.raises(Unsupported, match=rf"{__file__}:\d+:\d+: error: PyTorch's linalg_\w+_ex and the check of its"):
        stablehlo_of(Model(), A)


@pytest.mark.parametrize("function, what", [
    (lambda a: torch._higher_order_ops.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), a)),
     "PyTorch's while_loop of functions"),
    (lambda a: torch.polar(a, a), "a complex parameter, result or number"),
    (lambda a: torch.view_as_real(torch.view_as_complex(a.reshape(-1, 2)) * 1j), "a complex parameter, result or number")],
    ids=["while", "result", "number"])
def test_program__with_functions_or_complex_numbers_is_refused_at_its_line(function, what):
    class Model(torch.nn.Module):
        def forward(self, a):
            return function(a)
    with pytest.raises(Unsupported, match=rf"{__file__}:\d+:\d+: error: {what}.*, as StableHLO"):
        stablehlo_of(Model(), A)


def test_program__chooses_between_functions():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.linspace(-1, 1, 16))

        def forward(self, a):
            def other(x):
                return torch.cond(x[:1, 0] < -9, lambda y: (y.clone(), y.argmax(1)),
                                  lambda y: (y * self.scale - torch.tensor(3.0), y.argmin(1)), (x,))
            return torch.cond(a[0, 0] > 0, lambda x: (kernels.scaled[()](x, 2.0), x.argmax(1)), other, (a,))
    program = torch.export.export(Model(), (A,))
    text = stablehlo_of(program)
    assert program.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)     # as the caller has it
    for argument in (A.abs() + 0.5, -A.abs() - 0.5):
        with torch.no_grad():
            expected = program.module()(argument)
        for run in (run_linked, simulate_linked):
            for got, wanted in zip(run(text, [argument.numpy()]), expected, strict=True):
                torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=1e-5, atol=1e-6)


def test_program__refuses_a_choice_of_a_kernel_that_prints():
    class Model(torch.nn.Module):
        def forward(self, a):
            return torch.cond(a.sum() > 0, lambda x: kernels.printing(x), lambda x: x + 1, (a,))
    with pytest.raises(Unsupported, match=rf"{__file__}:\d+:\d+: error: PyTorch's cond with a kernel that prints or "):
        stablehlo_of(Model(), A)
