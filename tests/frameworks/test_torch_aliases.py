# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that are given twice or overlap, and are updated: as NumPy arrays are, or refused."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nki_mlir.language.argument_memory import OverlappingArguments, RepeatedElements  # noqa: E402
from nki_mlir.language.arguments import MaskedArgument  # noqa: E402
from nki_mlir.language.beta import isa as nisa  # noqa: E402
from nki_mlir.language.beta import language as nl  # noqa: E402
from nki_mlir.language.beta import nki  # noqa: E402
from nki_mlir.language.beta.typing import mutable_tensor  # noqa: E402
from nki_mlir.targets.cpu.pipeline import PIPELINE  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def nothing_of_earlier_programs(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    torch.compiler.reset()


@nki.jit
def shifted(a, b: mutable_tensor):
    nl.store(b[0:4], nl.add(nl.load(a[0:4]), 1.0))
    nl.store(b[4:8], nl.load(a[0:4]))
    return b


@nki.jit
def both(a: mutable_tensor, b: mutable_tensor):
    nl.store(a[0:4], nl.add(nl.load(a[0:4]), 1.0))
    nl.store(b[4:8], nl.multiply(nl.load(b[0:4]), 2.0))
    return a, b


def shifted_values(x):
    x[0:4] += 1
    x[4:8] = x[0:4]


def both_values(x):
    x[0:4] += 1
    x[4:8] = x[0:4] * 2


def memory(dtype=torch.float32):
    return torch.arange(256).reshape(16, 16).to(dtype) % 64


LAYOUTS = {"contiguous": lambda m: m[:8].clone(), "columns": lambda m: m[:8, ::2], "transposed": lambda m: m[:8, :8].T}


@pytest.mark.parametrize("on", ["jit", "interpreter", "eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel, values", [(shifted, shifted_values), (both, both_values)], ids=["shifted", "both"])
def test_one_tensor_for_two_parameters(kernel, values, layout, dtype, on):
    for again in (lambda x: x, lambda x: x[:]):
        base = memory(dtype)
        x = LAYOUTS[layout](base)
        expected = x.clone()
        values(expected)
        kernel.on(on)(x, again(x))
        assert torch.equal(x, expected)


@nki.jit
def product(a, b, out: mutable_tensor):
    for i in nl.sequential_range(2):
        total = nl.zeros((128, 256), nl.float32, buffer=nl.psum)
        for s in nl.sequential_range(2):
            left = nl.load(a[nl.ds(s * 128, 128), nl.ds(i * 128, 128)])
            total += nisa.nc_matmul(left, nl.load(b[nl.ds(s * 128, 128), :]))
        nl.store(out[nl.ds(i * 128, 128), :], nl.copy(total, dtype=out.dtype))
    return out


def test_a_product_into_one_of_its_factors(monkeypatch):
    monkeypatch.setitem(PIPELINE, "form-products", "worth=1024")
    torch.manual_seed(0)
    x, y = torch.randint(-2, 3, (2, 256, 256)).float()
    expected = x.clone()
    for i in range(0, 256, 128):
        expected[i:i + 128] = expected[:, i:i + 128].T @ y
    product(x, y, x)
    assert torch.equal(x, expected)


def test_tensors_that_overlap_at_other_positions():
    base = memory()
    with pytest.raises(OverlappingArguments) as error:
        shifted(base[:8, :8], base[:8, :8].T)
    assert error.value.headline.startswith("the kernel writes its parameter b, whose array overlaps the array of a with a shift")
    assert error.value.at.file == __file__
    with pytest.raises(RepeatedElements, match=r"share memory \(shape \(8, 8\), strides \(0, 1\)\)"):
        shifted(base[:8, :8], base[:1, :8].expand(8, 8))
    assert torch.equal(base, memory())
    shifted(base[:8, ::2], base[:8, 1::2])
    assert torch.equal(base[:4, 1::2], memory()[:4, ::2] + 1)


def test_a_masked_array_beside_tensors():
    with pytest.raises(MaskedArgument, match="a masked array is passed to a kernel, which would not see its mask"):
        shifted(np.ma.masked_array(np.ones((8, 8), np.float32), np.eye(8)), torch.ones(8, 8))


# -- programs of values ------------------------------------------------------------------------------------------------
def test_a_program_refuses_one_tensor_for_two_parameters():
    x = memory()[:8].clone()
    with pytest.raises(Exception, match="kernel shifted updates its parameter b, whose memory overlaps the memory of a") as error:
        torch.compile(lambda t: shifted(t, t), fullgraph=True, backend="aot_eager")(x)
    text = str(error.value)
    assert "NKI-TORCH-OVERLAP" in text
    assert "in a program of torch.compile or torch.export each parameter has its own value" in text
    assert "pass a copy of one of them, or call the kernel outside of the program" in text
    with pytest.raises(Exception, match="kernel both updates its parameter a, whose memory overlaps the memory of b"):
        torch.compile(lambda t: both(t[:8], t[4:12]), fullgraph=True, backend="aot_eager")(memory())


def test_a_program_is_not_used_for_tensors_that_overlap():
    program = torch.compile(lambda a, b: shifted(a, b), fullgraph=True, backend="aot_eager")
    a, b = memory()[:8].clone(), memory()[8:].clone()
    program(a, b)
    assert torch.equal(b, torch.cat([a[:4] + 1, a[:4]]))
    with pytest.raises(Exception, match="updates its parameter b, whose memory overlaps the memory of a"):
        program(a, a)


def test_a_program_updates_parts_of_one_tensor_that_lie_apart():
    base, expected = memory(), memory()
    expected[8:12] = expected[:4] + 1
    expected[12:] = expected[:4]
    torch.compile(lambda t: shifted(t[:8], t[8:]), fullgraph=True, backend="aot_eager")(base)
    assert torch.equal(base, expected)
