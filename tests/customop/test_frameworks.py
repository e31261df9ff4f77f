# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators in PyTorch and JAX programs."""

import numpy as np
import pytest

from nki_mlir import customop
from nki_mlir.customop.faults import CheckFailed, Leaked
from nki_mlir.customop.library import WrongArgumentDtype
from nki_mlir.customop.torch_binding import NotDifferentiable
from nki_mlir.language.framework_tensors import FreedTensor
from tests.customop.conftest import SOURCES


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def custom_op():
    from nki_mlir.compat import install
    install()
    from torch_neuronx.xla_impl import custom_op
    return custom_op


@pytest.fixture
def spread(torch, custom_op, build):
    """The operator on 8 cores, defined in PyTorch."""
    custom_op.load_library(build("spread", multicore=True).path)
    return torch.ops.spreading.spread


def expected(x):
    part = -(-x.size // 8)
    return x + (1000 * (np.arange(x.size) // part)).astype(np.float32).reshape(x.shape)


# -- PyTorch -----------------------------------------------------------------------------------------------------------
@pytest.mark.torch
def test_load__defines_and_returns(torch, custom_op, tmp_path):
    library = custom_op.load(name="api", compute_srcs=[str(SOURCES / "api.cpp")], multicore=False, verbose=False,
                             shape_srcs=[str(SOURCES / "api_shape.cpp")], build_directory=str(tmp_path))
    assert (tmp_path / "libapi.so").is_file()
    result = torch.ops.api.numbers(torch.zeros(2, 3), 4, 5.5, 6)
    assert result.tolist() == [2, 1004, 5.5, 6]
    assert str(torch.ops.api.numbers.default._schema) == "api::numbers(Tensor arg0, Scalar arg1, float arg2, int arg3) -> Tensor"
    assert library.numbers(torch.zeros(2, 3), 4, 5.5, 6).tolist() == result.tolist()
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16, torch.float32):
        cast = torch.ops.api.cast(torch.arange(9).to(dtype), 15)
        assert cast.dtype == torch.bfloat16 and cast.tolist() == list(range(9))


@pytest.mark.torch
def test_eager__on_strided_and_empty_tensors(torch, spread):
    x = torch.arange(120, dtype=torch.float32).reshape(10, 12)
    assert np.array_equal(spread(x.t(), 0), expected(x.t().contiguous().numpy()))
    assert spread(torch.empty(0, 3), 0).shape == (0, 3)


@pytest.mark.torch
@pytest.mark.parametrize("size", [0, 1599])
def test_eager__on_a_tensor_that_lost_its_memory(torch, spread, size):
    x = torch.ones(20, 20)
    x.untyped_storage().resize_(size)
    text = f"a tensor whose storage has {size} bytes is passed to operator spread; its elements take 1600"
    with pytest.raises(FreedTensor, match=text):
        spread(x, 0)
    with pytest.raises(FreedTensor, match=text):
        torch.compile(lambda x: spread(x, 0), backend="aot_eager", fullgraph=True)(x)


@pytest.mark.torch
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(torch, spread, backend):
    x = torch.arange(400, dtype=torch.float32).reshape(20, 20)
    compiled = torch.compile(lambda x: spread(x + 1, 0) * 2, backend=backend, fullgraph=True)
    assert np.array_equal(compiled(x), expected(x.numpy() + 1) * 2)


@pytest.mark.torch
def test_compile__by_inductor(torch, spread):
    """The program has no elementwise operations, because the host's compiler takes 15 s for them."""
    x = torch.arange(400, dtype=torch.float32).reshape(20, 20)
    compiled = torch.compile(lambda x: spread(spread(x, 0).t(), 0), backend="inductor", fullgraph=True)
    assert np.array_equal(compiled(x), expected(np.ascontiguousarray(expected(x.numpy()).T)))


@pytest.mark.torch
def test_export__and_back_from_a_file(torch, spread, tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x):
            return spread(x, 0) - 1
    x = torch.arange(64, dtype=torch.float32)
    program = torch.export.export(Model(), (x,))
    assert torch.ops.spreading.spread.default in [n.target for n in program.graph.nodes]
    torch.export.save(program, tmp_path / "model.pt2")
    assert np.array_equal(torch.export.load(tmp_path / "model.pt2").module()(x), expected(x.numpy()) - 1)


@pytest.mark.torch
def test_fake_and_meta__have_the_shape_functions_result(torch, spread):
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        fake = spread(torch.empty(3, 5, dtype=torch.bfloat16), 0)
    assert (fake.shape, fake.dtype) == ((3, 5), torch.bfloat16)
    meta = spread(torch.empty(3, 5, device="meta"), 0)
    assert (meta.shape, meta.device.type) == ((3, 5), "meta")


@pytest.mark.torch
def test_opcheck(torch, spread):
    torch.library.opcheck(spread, (torch.rand(10, 10), 0))
    torch.library.opcheck(spread, (torch.rand(10, 10, requires_grad=True), 0),
                          test_utils=("test_schema", "test_faketensor"))


@pytest.mark.torch
def test_mistakes__are_errors_before_anything_runs(torch, custom_op, build, spread):
    with pytest.raises(RuntimeError, match="missing value for argument 'arg1'"):
        spread(torch.rand(3))
    with pytest.raises(WrongArgumentDtype, match=r"argument 0 of spreading\.spread.* has dtype float64"):
        spread(torch.rand(3, dtype=torch.float64), 0)
    with pytest.raises(Exception, match=r"argument 0 of spreading\.spread.* has dtype int64"):
        torch.compile(lambda x: spread(x, 0), backend="eager")(torch.arange(3))
    custom_op.load_library(build("faults").path)
    with pytest.raises(CheckFailed, match="three rows, please"):
        torch.ops.faulty.bad_shape(torch.zeros(2, 2), 3)
    with pytest.raises(CheckFailed, match="three rows, please"):
        torch.ops.faulty.bad_shape(torch.zeros(2, 2, device="meta"), 3)


@pytest.mark.torch
def test_findings__come_through(torch, custom_op, build):
    custom_op.load_library(build("faults").path)
    with pytest.raises(customop.Fault, match=r"faults.cpp:\d+:3: error: a transfer of 8 elements"):
        torch.ops.faulty.misuse(torch.zeros(32, 16), 0)
    with pytest.warns(Leaked, match="this allocation of 100 bytes of tightly coupled memory is never freed"):
        torch.ops.faulty.misuse(torch.zeros(32, 16), 14)


@pytest.mark.torch
@pytest.mark.parametrize("compiled", [False, True])
def test_gradient__is_refused_when_it_is_asked_for(torch, spread, compiled):
    x = torch.ones(16, requires_grad=True)
    function = torch.compile(lambda x: spread(x, 0), backend="aot_eager") if compiled else lambda x: spread(x, 0)
    y = function(x)
    assert y.requires_grad
    with pytest.raises(NotDifferentiable, match=r"operator spreading.spread\(Tensor, int\) is differentiated"):
        y.sum().backward()


@pytest.mark.torch
def test_gradient__through_a_function_of_two_operators(torch, spread):
    class Shifted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return spread(x, 0)

        @staticmethod
        def backward(ctx, gradient):
            return spread(gradient, 0)
    x = torch.zeros(16, requires_grad=True)
    Shifted.apply(x).sum().backward()
    assert np.array_equal(x.grad, expected(np.ones(16, np.float32)))


@pytest.mark.torch
def test_library_built_anew__takes_the_place_of_the_old(torch, custom_op, tmp_path):
    shape = """#include "torchneuron/register.h"
torch::Tensor same(torch::Tensor x) { return torch::zeros(x.sizes(), torch::kFloat); }
NEURON_LIBRARY(renewed, m) { m.def("times", &same, "times"); }
"""
    (tmp_path / "shape.cpp").write_text(shape)
    for factor in (2, 3):
        (tmp_path / "times.cpp").write_text(
            f"#include <torch/torch.h>\ntorch::Tensor times(const torch::Tensor& x) {{ return torch::mul(x, {factor}.0); }}\n")
        custom_op.load("times", [tmp_path / "times.cpp"], [tmp_path / "shape.cpp"], tmp_path)
        assert torch.ops.renewed.times(torch.ones(2)).tolist() == [factor, factor]


# -- JAX ---------------------------------------------------------------------------------------------------------------
@pytest.fixture
def jax():
    return pytest.importorskip("jax")


@pytest.mark.jax
def test_jax__eagerly_and_in_programs(jax, build):
    spread = build("spread", multicore=True).spread
    x = np.arange(400, dtype=np.float32).reshape(20, 20)
    eager = spread(jax.numpy.asarray(x), 0)
    assert isinstance(eager, jax.Array) and np.array_equal(eager, expected(x))
    assert np.array_equal(jax.jit(lambda x: spread(x + 1, 0) * 2)(x), expected(x + 1) * 2)
    large = np.zeros((1024, 1024), np.float32)
    assert np.array_equal(jax.jit(lambda x: spread(x, 0) + spread(x, 0))(large), 2 * expected(large))


@pytest.mark.jax
def test_jax__vmap_and_custom_vjp(jax, build):
    spread = build("spread", multicore=True).spread
    x = np.arange(96, dtype=np.float32).reshape(3, 32)
    assert np.array_equal(jax.vmap(lambda row: spread(row, 0))(x), np.stack([expected(row) for row in x]))

    @jax.custom_vjp
    def shifted(x):
        return spread(x, 0)
    shifted.defvjp(lambda x: (shifted(x), None), lambda _, gradient: (spread(gradient, 0),))
    gradient = jax.grad(lambda x: shifted(x).sum())(np.zeros(16, np.float32))
    assert np.array_equal(gradient, expected(np.ones(16, np.float32)))


@pytest.mark.jax
def test_jax__mistakes_and_settings(jax, build):
    spread = build("spread", multicore=True).spread
    with pytest.raises(WrongArgumentDtype, match="dtype int64"):
        spread.shape(jax.ShapeDtypeStruct((3,), np.int64), 0)
    assert spread.shape(jax.ShapeDtypeStruct((3,), jax.numpy.bfloat16), 0) == ((3,), jax.numpy.bfloat16)
    with customop.engine(threads=False):
        order = jax.jit(lambda x: spread(x, 1))(np.zeros(800, np.float32))
    assert (np.asarray(order).reshape(8, 100)[:, 0] // 1000).tolist() == list(range(8))


@pytest.mark.jax
def test_jax__bfloat16(jax, build):
    x = jax.numpy.arange(9, dtype=jax.numpy.bfloat16)
    cast = jax.jit(lambda x: build("api").cast(x, 5))(x)
    assert cast.dtype == np.float16 and cast.tolist() == list(range(9))
