# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs as StableHLO: the custom calls, and the linked program against eager execution."""

import pytest

torch = pytest.importorskip("torch")

from nki_mlir.diagnostics import Unsupported  # noqa: E402
from nki_mlir.frameworks.recovery import kernels_in  # noqa: E402
from nki_mlir.frameworks.stablehlo import run_linked  # noqa: E402
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


def test_error__inputs_that_are_updated():
    with pytest.raises(Unsupported, match="updates its inputs or buffers"):
        stablehlo_of(model(lambda a, b: kernels.add_rows(a, b[:8])), A.clone(), B)


def test_error__part_of_a_tensor_that_is_updated():
    def part(a, b):
        table = torch.cat([a, a])
        kernels.add_rows(table[:32], b[:8])
        return table
    with pytest.raises(Unsupported, match="updates a part of a tensor"):
        stablehlo_of(model(part), A.clone(), B)
