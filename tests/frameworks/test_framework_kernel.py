# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FrameworkKernel: configs for frameworks that are not known here."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.framework_kernel import CACHE, FrameworkKernel, read_config
from nki_mlir.frameworks.registry import callee_from
from nki_mlir.graph.custom_call import BadConfig
from nki_mlir.language.arguments import BadArgument

from . import kernels


class Array:
    """A tensor of a framework that has its own dtypes."""

    def __init__(self, shape, kind="f32"):
        self.shape, self.kind = shape, kind


class ArrayKernel(FrameworkKernel):
    DTYPES = {"f32": np.float32, "bf16": "bfloat16", "i32": np.dtype(np.int32), "c64": "complex64"}

    def is_framework_tensor(self, t):
        return isinstance(t, Array)

    def map_framework_tensor(self, t):
        return t.shape, t.kind

    def translate_to_neuron_dtype(self, _dtype):
        return self.DTYPES[_dtype]


X = Array((32, 16))


def add_into(a, b, out):
    kernels.add_into(a, b, out)


def test_dump__written_parameters_are_results():
    kernel = ArrayKernel(func_name=add_into.__name__, func=add_into, grid=())
    config, inputs, outputs = kernel.dump_config(X, X, out=X)
    assert (inputs, outputs) == (["a", "b"], ["out"])
    record = read_config(config)
    assert record.name == "add_into" and [o.shape for o in record.operands] == [(32, 16)] * 2
    assert [(r.shape, str(r.dtype)) for r in record.results] == [((32, 16), "float32")]


def test_dump__written_parameters_are_no_results_if_the_kernel_returns_them():
    for kernel_return in (None, False):
        kernel = ArrayKernel(func=add_into, func_name="add_into", kernel_return=kernel_return)
        assert kernel.dump_config(X, X, X).output_names == ["out"]
    with pytest.raises(NkiMlirError, match="the input tensor out is written, but it is immutable"):
        ArrayKernel(func=add_into, func_name="add_into", kernel_return=True).dump_config(X, X, X)


def test_dump__says_everything_a_call_needs():
    dumped = ArrayKernel(func=kernels.sum_and_difference, func_name="both").dump_config(X, X)
    assert dumped.return_types == [(np.dtype(np.float32), (32, 16))] * 2 and dumped.result_is_sequence
    assert dumped.input_names == ["a", "b"] and dumped.output_names == ["total", "difference"]
    assert dumped.operand_output_aliases == {} and not dumped.has_collectives and dumped.constant_values == ()
    assert dumped.dumped_config == dumped[0] and read_config(dumped[0].encode()).name == "both"


def test_dump__mutable_parameter_is_an_aliased_operand():
    rows = Array((8, 16))
    for kernel in (kernels.add_rows, kernels.put_rows):
        dumped = ArrayKernel(func=kernel).dump_config(X, rows)
        assert dumped.input_names == ["table", "rows"] and dumped.operand_output_aliases == {0: 0}


def test_dump__is_specialized_to_shapes_grid_constants_and_dtype():
    kernel = ArrayKernel.trace(kernels.scaled)
    configs = {kernel.dump_config(Array(shape, kind), factor)[0] for shape in ((4, 4), (8, 4))
               for kind in ("f32", "bf16", "i32") for factor in (2, 3)}
    assert len(configs) == 12
    kernel = ArrayKernel(func=kernels.add, grid=1)
    assert read_config(kernel[2].dump_config(X, X)[0]).grid == (2,)
    assert read_config(kernel.dump_config(X, X)[0]).grid == (1,) and kernel.grid == (1,)


def test_dump__target():
    config = ArrayKernel(func=kernels.scaled, platform_target="trn1").dump_config(X, 2.0)[0]
    assert read_config(config).fields()["platform_target"] == "trn1"


@pytest.mark.parametrize("enabled", [True, False])
def test_cache__is_on_the_function_if_enabled(enabled):
    calls = []

    def kernel_function(x):
        out = kernels.nl.ndarray(x.shape, dtype=x.dtype, buffer=kernels.nl.shared_hbm)
        calls.append(x.shape)
        p, f = kernels.ids(x.shape)
        kernels.nl.store(out[p, f], kernels.nl.load(x[p, f]))
        return out
    kernel = ArrayKernel(func=kernel_function, enable_cache=enabled)
    first = kernel.dump_config(X)
    count = len(calls)
    assert kernel.dump_config(X) == first
    assert (len(calls) == count) == enabled
    assert hasattr(kernel_function, CACHE) == enabled


def test_bind__applies_defaults():
    kernel = ArrayKernel(func=kernels.scaled)
    with kernel.bind_arguments(X, factor=2.0) as bound:
        assert bound.arguments == {"x": X, "factor": 2.0, "offset": 0.0}
        assert kernel.dump_config_with_boundargs(bound) == kernel.dump_config(X, 2.0)


def test_base_class__takes_numpy_arrays():
    x = np.arange(64, dtype=ml_dtypes.bfloat16).reshape(8, 8)
    config = FrameworkKernel(func=kernels.scaled).dump_config(x, 2.0)[0]
    out = np.zeros_like(x)
    callee_from(config, "interpreter").entry([x.ctypes.data, out.ctypes.data])
    np.testing.assert_array_equal(out, x * 2)


@pytest.mark.jax
def test_jax__arrays_shapes_and_tracers():
    jax = pytest.importorskip("jax")
    from nki_mlir.frameworks.jax import JaxKernel
    kernel = JaxKernel(func=kernels.scaled)
    config = kernel.dump_config(jax.numpy.ones((8, 8), jax.numpy.bfloat16), 2.0)[0]
    assert kernel.dump_config(jax.ShapeDtypeStruct((8, 8), jax.numpy.bfloat16), 2.0)[0] == config
    observed = []
    jax.eval_shape(lambda x: observed.append(kernel.dump_config(x, 2.0)[0]),
                   jax.ShapeDtypeStruct((8, 8), jax.numpy.bfloat16))
    assert observed == [config]


@pytest.mark.torch
def test_torch__tensors_of_any_device():
    torch = pytest.importorskip("torch")
    from nki_mlir.frameworks.torch import TorchKernel
    kernel = TorchKernel(func=kernels.scaled)
    config = kernel.dump_config(torch.ones(8, 8, dtype=torch.bfloat16), 2.0)[0]
    assert kernel.dump_config(torch.empty(8, 8, dtype=torch.bfloat16, device="meta"), 2.0)[0] == config
    assert str(read_config(config).operands[0].dtype) == "bfloat16"
    with pytest.raises(BadArgument, match="complex64"):
        kernel.dump_config(torch.ones(8, 8, dtype=torch.complex64), 2.0)


def test_error__dtype_that_kernels_do_not_have():
    with pytest.raises(BadArgument, match="a tensor of dtype c64 is passed to a kernel"):
        ArrayKernel(func=kernels.scaled).dump_config(Array((4, 4), "c64"), 2.0)


def test_error__config_of_another_tool():
    with pytest.raises(BadConfig, match="it has no 'nki_mlir'"):
        read_config(b"e30=")
