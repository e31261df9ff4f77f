# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documented errors of memories, instructions and operands; calls outside of kernels; the place of an error."""

import numpy as np
import pytest

from nki_mlir.capture import errors
from nki_mlir.dialects import verifier
from nki_mlir.language import creation, framework_tensors, instructions, operations
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.tensor_object import HostFunction
from nki_mlir.scalar import tokens

from .conftest import EXECUTORS
from .documented import Cases, X, output, raises_documented
from .running import run

CASES = Cases()
case = CASES.add


# -- memories ----------------------------------------------------------------------------------------------------------
@case(verifier.WrongMemory, "err_unsupported_memory",
      "Expected operand 'src' of 'load' to be in address space 'hbm', but got a tile in 'sbuf' instead.")
def load_of_a_tile(x):
    tile = nl.load(x)
    nl.load(tile)                                           # here


@case(verifier.WrongMemory, "err_unsupported_memory",
      "Expected operand 'x' of 'exp' to be in address space 'psum|sbuf', but got a tile in 'hbm' instead.")
def function_of_an_hbm_tensor(x):
    nl.exp(x)                                               # here


@case(verifier.WrongMemory, "err_unsupported_memory")
def operator_on_an_hbm_tensor(x):
    x + 1                                                   # here


@case(verifier.WrongMemory, "err_unsupported_memory")
def product_of_a_tile_in_psum(x):
    a = nl.load(x[:, 0:128])
    product = nisa.nc_matmul(a, a)
    nisa.nc_matmul(product, a)                              # here


@case(verifier.WrongMemory, "err_unsupported_memory")
def store_of_an_hbm_tensor(x):
    out = output()
    nl.store(out, x)                                        # here


@case(nl.UnknownBuffer, "NKI-BUFFER", "'dram' is not a buffer", python=ValueError)
def unknown_buffer(x):
    nl.ndarray((128, 8), nl.float32, buffer="dram")         # here


@case(HostFunction, "NKI-HOST-FUNCTION", "NumPy's exp", python=TypeError)
def function_of_numpy_on_a_tile(x):
    np.exp(nl.load(x[:, 0:8]))                              # here


@case(HostFunction, "NKI-HOST-FUNCTION", "NumPy's sum is called on a tile", python=TypeError)
def reduction_of_numpy_on_a_tile(x):
    np.sum(nl.load(x[:, 0:8]), axis=1)                      # here


@case(operations.PartitionAxis, "NKI-AXIS", "axis 0 is the partition axis", python=IndexError)
def reduction_along_partitions(x):
    nl.sum(nl.load(x), axis=[0])                            # here


@case(verifier.TooLarge, "err_size_of_dimension_exceed_arch_limit",
      "size of dimension 1 in 'stationary[128, 256]' of 'nc_matmul'")
def product_of_too_wide_a_tile(x):
    nisa.nc_matmul(nl.load(x[:, 0:256]), nl.load(x))        # here


@case(creation.UnknownDtype, "NKI-DTYPE-UNKNOWN", "float64", python=TypeError)
def unknown_dtype(x):
    nl.ndarray((128, 8), np.float64)                        # here


@case(nl.HbmInitialValue, "err_hbm_tensor_with_init_value_not_supported")
def hbm_with_initial_value(x):
    nl.full((128, 512), 0.0, nl.float32, buffer=nl.shared_hbm)      # here


@case(errors.SharedHbmInside, "err_shared_hbm_must_in_kernel_level")
def shared_hbm_in_a_loop(x):
    for i in nl.affine_range(2):
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)         # here
        nl.store(out, nl.load(x))


@nki.trace
def inner(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


def test_shared_hbm_in_an_inlined_kernel(on):
    @nki.jit
    def kernel(x):
        return inner(x)
    with pytest.raises(errors.SharedHbmInside, match="a shared_hbm tensor is allocated inside a loop, a branch") as caught:
        run(on, kernel, X)
    assert caught.value.at.file == __file__


# -- instructions ------------------------------------------------------------------------------------------------------
@case(instructions.BiasType, "err_activation_bias_invalid_type")
def bias_of_integers(x):
    tile, bias = nl.load(x), nisa.memset((128, 1), 1, np.int8)
    nisa.activation(np.exp, tile, bias=bias)                # here


@case(instructions.ScaleType, "err_activation_scale_invalid_type")
def scale_of_another_dtype(x):
    tile, scale = nl.load(x), nisa.memset((128, 1), 1.0, np.float16)
    nisa.activation(np.exp, tile, scale=scale)              # here


@case(instructions.ScaleShape, "err_activation_scale_scalar_or_vector")
def scale_of_a_row(x):
    tile, scale = nl.load(x), nisa.memset((1, 128), 1.0, np.float32)
    nisa.activation(np.exp, tile, scale=scale)              # here


@case(instructions.ScaleShape, "err_activation_scale_scalar_or_vector")
def scale_of_a_tile(x):
    tile, scale = nl.load(x), nisa.memset((128, 128), 1.0, np.float32)
    nisa.activation(np.exp, tile, scale=scale)              # here


@case(framework_tensors.HostArray, "NKI-HOST-ARRAY", "of shape (128, 512)", python=TypeError)
def operator_on_a_host_array(x):
    tile = nl.load(x)
    np.ones((128, 512), np.float32) * tile                  # here


@case(framework_tensors.HostArray, "NKI-HOST-ARRAY", python=TypeError)
def host_array_assigned(x):
    tile = nl.load(x)
    tile[...] = np.ones((128, 512), np.float32)             # here


@case(verifier.BrokenRule, "NKI-RULE", "takes tiles and numbers, got str")
def operand_that_is_no_number(x):
    tile = nl.load(x)
    nl.add(tile, "1")                                       # here


@case(tokens.UnknownToken, "NKI-OPERATOR", "'bogus' is not an ALU operator", python=TypeError)
def operator_that_is_none(x):
    tile = nl.load(x)
    nisa.tensor_scalar(tile, "bogus", 1.0)                  # here


@pytest.mark.parametrize("function, error, name, text, options", CASES)
def test_documented_error(on, function, error, name, text, options):
    raises_documented(on, function, error, name, text, options)


# -- outside of kernels ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call", [
    lambda: nl.load(X), lambda: nl.store(X, X), lambda: nl.add(X, X), lambda: nl.exp(X), lambda: nl.add(1, 2),
    lambda: nl.zeros((128, 8), nl.float32), lambda: nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm),
    lambda: nl.program_id(0), lambda: nl.num_programs(), lambda: nisa.memset((4, 4), 0, nl.float32),
    lambda: nl.sum(X, axis=1), lambda: nisa.iota(nl.arange(4)[None, :], nl.int32), lambda: nl.matmul(X, X),
    lambda: nl.shared_constant(X), lambda: nisa.nc_matmul(X, X), lambda: nisa.tensor_tensor(X, X, np.add),
    lambda: nl.softmax(X, axis=1), lambda: nl.where(X, X, X), lambda: nl.copy(X), lambda: nl.transpose(X),
    lambda: nisa.activation(np.exp, X), lambda: nisa.tensor_reduce(np.add, X, 1), lambda: nl.rms_norm(X, X, 1, 1),
    lambda: nl.mean(X, axis=1), lambda: nl.device_print("x", X), lambda: nl.load_transpose2d(X),
    lambda: nisa.dma_copy(dst=X, src=X), lambda: nisa.nc_transpose(X), lambda: nisa.tensor_copy(X)])
def test_language_outside_of_a_kernel(call):
    with pytest.raises(errors.OutsideKernel) as caught:
        call()
    assert caught.value.name == "err_nki_api_outside_of_nki_kernel" and caught.value.at.file == __file__


def test_what_may_be_called_outside_of_a_kernel():
    assert nl.static_cast(X, nl.bfloat16).dtype == nl.bfloat16 and nl.static_cast(1.5, np.int32) == 2
    assert nl.finfo(nl.float16).max == 65504 and nl.tile_size.pmax == 128
    assert np.ones(3, dtype=nl.float8_e5m2).dtype == nl.float8_e5m2


def test_errors_show_no_frame_of_the_toolchain():
    """The place of an error is the innermost statement of the user's code."""
    def helper(tile):
        return nl.exp(tile)

    @nki.jit
    def kernel(x):
        return helper(x)
    for on in EXECUTORS:
        with pytest.raises(verifier.WrongMemory) as caught:
            run(on, kernel, X)
        assert "return nl.exp(tile)" in str(caught.value)
