# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documented errors: each from a kernel that makes it, with its name, its text, and the kernel's own statement."""

import numpy as np
import pytest

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects import verifier
from nki_mlir.frontend import errors
from nki_mlir.language import creation, indirect, instructions, operations, tensor
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt
from nki_mlir.scalar import tokens

from .conftest import EXECUTORS
from .running import numbers, run

X = numbers(128, 512)
CASES = []


def case(error, name, text="", **options):
    """A kernel of ``x`` [128, 512] that raises the error at its line with the comment ``# here``."""
    def register(function):
        CASES.append(pytest.param(function, error, name, text, options, id=function.__name__))
        return function
    return register


def line_of(function):
    import inspect
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, line in enumerate(lines) if "# here" in line)


def output(shape=(128, 512)):
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


# -- indexing ----------------------------------------------------------------------------------------------------------
@case(errors.OneDimensionalArange, "err_1d_arange_not_supported")
def one_dimensional_arange(x):
    tile = nl.load(x)
    return tile[nl.arange(64), 0]                           # here


@case(errors.AssignToIndex, "err_cannot_assign_to_index")
def index_assigned_to(x):
    _, f = nl.mgrid[0:1, 0:8]
    f[0, 5] = 1                                             # here


@case(errors.AssignToIndex, "err_cannot_assign_to_index")
def mask_assigned_to(x):
    inside = nl.arange(128)[:, None] < 5
    inside[0, 5] = True                                     # here


@case(errors.MixedIndexing, "err_unsupported_mixing_basic_advanced_tensor_indexing")
def slice_beside_index_tensor(x):
    p = nl.arange(128)[:, None]
    return nl.load(x[p, :])                                 # here


@case(verifier.OutOfBounds, "err_tensor_access_out_of_bound",
      "Out-of-bound access for tensor `x` on dimension 1: index range [0, 599] exceed dimension size of 512")
def out_of_bounds(x):
    p, f = nl.arange(128)[:, None], nl.arange(600)[None, :]
    return nl.load(x[p, f])                                 # here


@case(verifier.OutOfBounds, "err_tensor_access_out_of_bound",
      "639] exceed dimension size of 512")
def out_of_bounds_of_a_named_tile(x):
    tile = nl.load(x)
    for i in nl.sequential_range(2):
        nl.exp(tile[:, nl.ds(i * 128 + 256, 256)])          # here


@case(errors.TooManySubscripts, "NKI-SUBSCRIPT", "3 subscripts on a tensor of 2 dimensions", python=IndexError)
def too_many_subscripts(x):
    return nl.load(x[0, 1, 2])                              # here


@case(errors.BadSubscript, "NKI-SUBSCRIPT", "an array of shape (4,) of type ndarray", python=TypeError)
def subscript_of_another_kind(x):
    return nl.load(x[np.arange(4)])                         # here


@case(errors.EmptySubscript, "NKI-EMPTY")
def subscript_of_nothing(x):
    return nl.load(x[4:4, :])                               # here


@case(errors.NotAffine, "NKI-AFFINE")
def index_tensor_modulo_a_number(x):
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    return nl.load(x[p, f % 3])                             # here


@case(errors.NotAffine, "NKI-AFFINE")
def product_of_index_tensors(x):
    p, f = nl.arange(128)[:, None], nl.arange(4)[None, :]
    return nl.load(x[p * f, f])                             # here


@case(verifier.PartitionAccess, "NKI-PARTITION")
def stride_through_partitions(x):
    tile = nl.load(x)
    return nl.exp(tile[0:128:2, :])                         # here


@case(indirect.IndirectNotSupported, "err_indirect_indices_are_not_supported_with_nki_api")
def indirect_where_it_is_not_supported(x):
    rows = nl.zeros((128, 1), nl.int32)
    return nl.load_transpose2d(x[rows, nl.arange(512)[None, :]])        # here


@case(indirect.IndirectFreeDim, "err_indirect_indices_free_dim")
def indirect_columns(x):
    rows = nl.zeros((128, 1), nl.int32)
    return nl.load(x[nl.arange(128)[:, None], rows])        # here


@case(indirect.PlainDynamicCopy, "err_copy_dynamic_indirect_indices_not_natively_supported")
def dynamic_offset_in_a_plain_copy(x):
    offset, data, to = nl.zeros((1, 1), nl.int32), nl.load(x), nl.ndarray((128, 8), nl.float32)
    p, f = nl.arange(128)[:, None], nl.arange(8)[None, :]
    to[p, f] = data[p, offset + f]                          # here


# -- shapes and sizes --------------------------------------------------------------------------------------------------
@case(verifier.TooManyPartitions, "err_num_partition_exceed_arch_limit",
      "number of partitions 256 exceed architecture limitation of 128.")
def too_many_partitions(x):
    nl.zeros((256, 1024), dtype=nl.float32, buffer=nl.sbuf)  # here


@case(verifier.TooManyPartitions, "err_num_partition_exceed_arch_limit",
      "number of partitions 256 exceed architecture limitation of 128.")
def too_many_rows_loaded(x):
    nl.load(x.reshape((256, 256)))                          # here


@case(verifier.PartitionMismatch, "err_num_partition_mismatch",
      "number of partitions (dimension 0 size of a tile) mismatch in parameters (data1[128, 512], data2[1, 512]) "
      "of 'tensor_tensor'")
def partition_mismatch(x):
    tile = nl.load(x)
    nisa.tensor_tensor(tile, tile[0:1, :], np.add)          # here


@case(verifier.TooLarge, "err_size_of_dimension_exceed_arch_limit",
      "size of dimension 1 in 'x[128, 512]' of 'transpose' exceed architecture limitation of 128.")
def too_wide_to_transpose(x):
    tile = nl.load(x)
    nl.transpose(tile)                                      # here


@case(errors.TooManyDimensions, "err_exceed_max_supported_dimension")
def too_many_dimensions_to_transpose(x):
    tile = nl.load(x).reshape((128, 8, 64))
    nl.transpose(tile)                                      # here


@case(errors.RankTooSmall, "NKI-RANK", "Insufficient rank")
def rank_too_small(x):
    nl.ndarray((128,), nl.float32)                          # here


@case(errors.BlockTensorNotTile, "err_failed_to_infer_tile_from_local_tensor")
def block_tensor_as_a_tile(x):
    blocks = nl.zeros((4, nl.par_dim(8), 8), dtype=nl.float32)
    nl.add(blocks, 32)                                      # here


@case(operations.DestinationTooSmall, "err_store_dst_shape_smaller_than_other_shape")
def destination_smaller_than_the_value(x):
    tile, column = nl.load(x), nl.zeros((128, 1), nl.float32)
    column[...] = tile                                      # here


@case(verifier.OverlappingWrite, "err_store_dst_shape_smaller_than_other_shape")
def destination_names_an_element_twice(x):
    tile, value = nl.load(x), nl.zeros((128, 512), nl.float32)
    tile[nl.arange(128)[:, None], nl.arange(512)[None, :] * 0] = value     # here


@case(errors.AnnotationMismatch, "err_annotation_shape_mismatch", "the annotation says (128, 512)")
def annotation_mismatch(x):
    wide = 512
    d: nt.tensor[128, wide] = nl.zeros((128, 128), dtype=nl.float32)       # here
    return d


@case(errors.AnnotationMismatch, "err_annotation_shape_mismatch")
def assert_shape(x):
    nl.load(x).assert_shape((128, 511))                     # here


@case(verifier.TooLarge, "err_size_of_dimension_exceed_arch_limit",
      "size of dimension 1 in 'moving[64, 1024]' of 'nc_matmul' exceed architecture limitation of 512.")
def product_too_wide(x):
    tile = nl.load(x.reshape((64, 1024)))
    nisa.nc_matmul(tile[:, 0:128], tile)                    # here


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


@case(nl.UnknownBuffer, "NKI-BUFFER", "'dram' is no buffer", python=ValueError)
def unknown_buffer(x):
    nl.ndarray((128, 8), nl.float32, buffer="dram")         # here


@case(tensor.HostFunction, "NKI-HOST-FUNCTION", "NumPy's exp", python=TypeError)
def function_of_numpy_on_a_tile(x):
    np.exp(nl.load(x[:, 0:8]))                              # here


@case(tensor.HostFunction, "NKI-HOST-FUNCTION", "NumPy's sum is called on a tile", python=TypeError)
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
    with pytest.raises(errors.SharedHbmInside) as caught:
        run(on, kernel, X)
    assert caught.value.at.file == __file__


# -- scope and control flow --------------------------------------------------------------------------------------------
@case(errors.OutOfScope, "err_local_variable_used_out_of_scope", "tensor tile")
def tensor_of_a_loop_used_after_it(x):
    out = output()
    for i in nl.affine_range(4):
        tile = nl.load(x[:, nl.ds(i * 128, 128)])
    nl.store(out[:, 0:128], tile)                           # here
    return out


@case(errors.OutOfScope, "err_local_variable_used_out_of_scope")
def tensor_of_a_branch_used_after_it(x):
    out = output((4, 128, 512))
    for i in nl.affine_range(4):
        if i < 2:
            tile = nl.load(x)
        else:
            tile = nl.zeros((128, 512), nl.float32)
        nl.store(out[i], tile)                              # here
    return out


@case(errors.TensorTruth, "err_ambiguous_tensor_truth_value", python=ValueError)
def truth_of_a_tensor(x):
    tile = nl.load(x)
    if tile:                                                # here
        return


@case(errors.TensorTruth, "err_ambiguous_tensor_truth_value", python=ValueError)
def negation_of_a_tensor(x):
    tile = nl.load(x)
    return not (tile > 0)                                   # here


@case(errors.DynamicControlFlow, "err_dynamic_control_flow_not_supported")
def truth_of_a_value(x):
    c = nl.load(x[0, 0])
    if c:                                                   # here
        return


@case(errors.DynamicControlFlow, "err_dynamic_control_flow_not_supported")
def truth_of_a_comparison_of_values(x):
    c = nl.load(x[0, 0])
    while c < 3:                                            # here
        c += 1


@case(errors.DeviceValue, "NKI-DEVICE-VALUE", python=TypeError)
def value_as_a_python_number(x):
    c = nl.load(x[0, 0])
    return float(c)                                         # here


@case(errors.DeviceValue, "NKI-DEVICE-VALUE", python=TypeError)
def value_as_a_list_index(x):
    c = nl.load(x[0, 0])
    return [1, 2][c]                                        # here


@case(errors.ArangeInCondition, "err_control_flow_condition_depending_on_arange")
def condition_of_an_index_tensor(x):
    for j0 in nl.affine_range(4):
        if j0 * 512 + nl.arange(512)[None, :] > 2048:       # here
            return


@case(errors.ArangeInCondition, "err_control_flow_condition_depending_on_arange")
def truth_of_an_index_tensor(x):
    p, f = nl.mgrid[0:128, 0:512]
    return 1 if p else 2                                    # here


@case(errors.UnsupportedMask, "err_unsupported_expression_in_mask")
def mask_that_is_not_affine(x):
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    nl.load(x[p, f], mask=(f % 4) < 2)                      # here


@case(errors.UnexpectedOutputDependencies, "err_unexpected_output_dependencies",
      "Unexpected output dependencies, missing indices in the dst access: i")
def iterations_that_write_one_place(x):
    a = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.int8, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        a[0] = 0                                            # here


@case(errors.UnexpectedOutputDependencies, "err_unexpected_output_dependencies", "missing indices in the dst access: j, i")
def nested_iterations_that_write_one_place(x):
    out = output()
    for i in nl.affine_range(4):
        for j in nl.affine_range(4):
            nl.store(out, nl.load(x))                       # here


@case(errors.UnexpectedOutputDependencies, "err_unexpected_output_dependencies")
def sum_that_is_no_accumulation(x):
    a, b = nl.zeros((128, 512), nl.float32), nl.load(x)
    for i in nl.affine_range(4):
        a[...] = nl.add(a, b)                               # here


@case(errors.UnexpectedOutputDependencies, "err_unexpected_output_dependencies", "program_id(0)",
      grid=2)
def programs_that_write_one_place(x):
    out = output()
    nl.store(out, nl.load(x))                               # here
    return out


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


@pytest.mark.parametrize("function, error, name, text, options", CASES)
def test_documented_error(on, function, error, name, text, options):
    with pytest.raises(KernelError) as caught:
        run(on, nki.jit(function), X, grid=options.get("grid"))
    found = caught.value
    assert type(found) is error, found
    assert found.name == found.code == name
    assert text in found.headline
    assert isinstance(found, options.get("python", SyntaxError))
    assert (found.at.file, found.at.line) == (__file__, line_of(function))
    message = str(found)
    assert message.startswith(f"{__file__}:{found.at.line}:") and "# here" in message and "fix:" in message


@case(operations.HostArray, "NKI-HOST-ARRAY", "of shape (128, 512)", python=TypeError)
def operator_on_a_host_array(x):
    tile = nl.load(x)
    np.ones((128, 512), np.float32) * tile                  # here


@case(operations.HostArray, "NKI-HOST-ARRAY", python=TypeError)
def host_array_assigned(x):
    tile = nl.load(x)
    tile[...] = np.ones((128, 512), np.float32)             # here


@case(verifier.ShapeMismatch, "NKI-SHAPE", "takes tiles and numbers, got str")
def operand_that_is_no_number(x):
    tile = nl.load(x)
    nl.add(tile, "1")                                       # here


@case(tokens.UnknownOperator, "NKI-OPERATOR", "'bogus' is not an ALU operator", python=TypeError)
def operator_that_is_none(x):
    tile = nl.load(x)
    nisa.tensor_scalar(tile, "bogus", 1.0)                  # here


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


# -- kernels that only look like mistakes ------------------------------------------------------------------------------
@nki.jit
def independent_by_condition(x):
    """One iteration alone writes."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    last, mask = nl.zeros((128, 512), nl.float32), nl.zeros((128, 512), nl.float32)
    for i in nl.affine_range(4):
        if i == 2:
            last[...] = nl.load(x) * (i + 1)
        mask[...] = nl.load(x, mask=i < 1)
    nl.store(out, last + mask)
    return out


@nki.jit
def independent_by_a_quotient(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[:, nl.ds((i % 2) * 256 + (i // 2) * 128, 128)],
                 nl.load(x[:, nl.ds((i % 2) * 256 + (i // 2) * 128, 128)]) * 4)
    return out


@nki.jit
def temporary_of_the_loop(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        tile = nl.ndarray((128, 128), nl.float32)
        tile[...] = nl.load(x[:, nl.ds(i * 128, 128)])
        for _ in nl.sequential_range(2):
            tile[...] = nl.add(tile, tile)
        nl.store(out[:, nl.ds(i * 128, 128)], tile)
    return out


@nki.jit
def several_accumulations(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), nl.float32)
    for i in nl.affine_range(4):
        total[...] += nl.load(x)
        total *= 1.0
        total -= 0.0
    nl.store(out, total)
    return out


@pytest.mark.parametrize("kernel, factor", [(independent_by_condition, 4), (independent_by_a_quotient, 4),
                                            (temporary_of_the_loop, 4), (several_accumulations, 4)],
                         ids=lambda k: getattr(k, "__name__", ""))
def test_independent_iterations(on, kernel, factor):
    np.testing.assert_array_equal(run(on, kernel, X), X * factor)


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
