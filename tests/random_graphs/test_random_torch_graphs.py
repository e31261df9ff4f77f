# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random PyTorch functions with kernels: eager and compiled execution, exported programs, and linked programs agree.

`make fuzz` tries 300 of them, other ones each time; NKI_MLIR_FUZZ_SEED repeats a run. The ordinary run tries the same 4.
"""

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nki_mlir.diagnostics import Unsupported  # noqa: E402
from nki_mlir.frameworks.stablehlo import LinkedProgram, simulate_linked  # noqa: E402
from nki_mlir.frameworks.torch_stablehlo import stablehlo_of  # noqa: E402

from . import kernels  # noqa: E402
from .torch_rules import RULES  # noqa: E402
from .trials import FUZZ, try_graphs  # noqa: E402

GRAPHS, PARTS = (300, 30) if FUZZ else (2, 2)

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def model_of(graph):
    names = {"torch": torch, "kernels": kernels}
    exec(graph.text, names)

    class Model(torch.nn.Module):
        def forward(self, *arguments):
            return names["function"](*arguments)
    return Model()


def tensors(arrays):
    """The arrays as new tensors, for programs that may update them."""
    return [torch.from_numpy(a.view(np.int16).copy()).view(torch.bfloat16) if a.dtype == ml_dtypes.bfloat16
            else torch.from_numpy(a.copy()) for a in arrays]


def same(got, expected, graph, program):
    assert len(got) == len(expected)
    for k, (one, other, tolerance) in enumerate(zip(got, expected, graph.tolerances)):
        assert str(one.dtype).removeprefix("torch.") == str(other.dtype).removeprefix("torch."), (program, k)
        one = one if isinstance(one, torch.Tensor) else torch.from_numpy(one.astype(np.float64))
        torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance,
                                   msg=lambda text: f"{program}, result {k}: {text}")


def check(graph):
    model, arrays = model_of(graph), graph.arrays()
    expected = model(*tensors(arrays))
    torch._dynamo.reset()
    same(torch.compile(model, fullgraph=True, backend="aot_eager")(*tensors(arrays)), expected, graph, "torch.compile")
    exported = torch.export.export(model, tuple(tensors(arrays)))
    same(exported.module()(*tensors(arrays)), expected, graph, "torch.export")
    text = stablehlo_of(exported)
    same(LinkedProgram(text)(*arrays), expected, graph, "linked")
    try:
        streams = simulate_linked(text, arrays)
    except Unsupported:
        return
    same(streams, expected, graph, "instruction streams")


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_graphs_agree(part):
    try_graphs(GRAPHS // PARTS, part, check, RULES, "torch")
