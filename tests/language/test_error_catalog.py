# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documented error catalog, name by name: the condition it documents, its class, its sentence, its place."""

import inspect
import warnings

import numpy as np
import pytest

from nki_mlir.capture.errors import BlockDimensionsWarning
from nki_mlir.diagnostics import KernelError
from nki_mlir.language.beta import compiler as ncc
from nki_mlir.language.beta import errors, nki
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import typing as nt

from .running import numbers, run

X = numbers(128, 512)
CASES = {}
VALUE_ERRORS = {"err_ambiguous_tensor_truth_value", "err_while_loop_requires_unconditional_entry"}


def triggers(name, sentence=""):
    """A kernel of ``x`` [128, 512] that raises the error at its line with the comment ``# here``."""
    def register(function):
        CASES[name] = function, sentence
        return function
    return register


def output(shape=(128, 512)):
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


def in_sbuf(shape, address=0):
    return nl.ndarray(shape, nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=address))


@triggers("err_1d_arange_not_supported")
def one_dimensional_arange(x):
    tile = nl.load(x)
    return tile[nl.arange(64), 0]                                           # here


@triggers("err_activation_bias_invalid_type")
def integer_bias(x):
    tile = nl.load(x)
    bias = nisa.memset((128, 1), 1, np.int8)
    nisa.activation(np.exp, tile, bias=bias)                                # here


@triggers("err_activation_scale_invalid_type")
def half_precision_scale(x):
    tile = nl.load(x)
    scale = nisa.memset((128, 1), 1.0, np.float16)
    nisa.activation(np.exp, tile, scale=scale)                              # here


@triggers("err_activation_scale_scalar_or_vector")
def scale_of_a_row(x):
    tile = nl.load(x)
    scale = nisa.memset((1, 128), 1.0, np.float32)
    nisa.activation(np.exp, tile, scale=scale)                              # here


@triggers("err_ambiguous_tensor_truth_value")
def truth_of_a_tensor(x):
    tile = nl.load(x)
    return 1 if not (tile > 0) else 2                                       # here


@triggers("err_annotation_shape_mismatch")
def wrong_annotation(x):
    tile: nt.tensor[128, 512] = nl.zeros((128, 128), dtype=nl.float32)      # here
    return tile


@triggers("err_bias_tensor_must_be_specified_in_allocation")
def allocated_without_bias(x):
    tile, result = in_sbuf((128, 512)), in_sbuf((128, 512), 2048)
    tile[...] = nl.load(x)
    result[...] = nisa.activation(np.exp, tile)                             # here


@triggers("err_cannot_assign_to_index")
def index_assigned_to(x):
    _, f = nl.mgrid[0:1, 0:8]
    f[0, 5] = 1                                                             # here


@triggers("err_cannot_update_immutable_parameter")
def immutable_parameter(x):
    out = output()
    nl.store(x, nl.load(x))                                                 # here
    nl.store(out, nl.load(x))
    return out


@triggers("err_control_flow_condition_depending_on_arange")
def condition_of_an_index_tensor(x):
    for j in nl.affine_range(4):
        if j * 512 + nl.arange(512)[None, :] > 2048:                        # here
            return


@triggers("err_copy_dynamic_indirect_indices_not_natively_supported")
def plain_copy_by_a_tile(x):
    start, data, to = nl.zeros((1, 1), nl.int32), nl.load(x), nl.ndarray((128, 8), nl.float32)
    p, f = nl.arange(128)[:, None], nl.arange(8)[None, :]
    to[p, f] = data[p, start + f]                                           # here


@triggers("err_dynamic_control_flow_not_supported")
def condition_of_a_tile(x):
    c = nl.load(x[0, 0])
    if c:                                                                   # here
        return


@triggers("err_exceed_max_supported_dimension")
def transpose_of_three_dimensions(x):
    tile = nl.load(x).reshape((128, 8, 64))
    nl.transpose(tile)                                                      # here


@triggers("err_failed_to_infer_tile_from_local_tensor")
def block_tensor_as_a_tile(x):
    blocks = nl.zeros((4, nl.par_dim(8), 8), dtype=nl.float32)
    nl.add(blocks, 32)                                                      # here


@triggers("err_hbm_tensor_with_init_value_not_supported")
def hbm_with_a_value(x):
    nl.full((128, 512), 0.0, nl.float32, buffer=nl.shared_hbm)              # here


@triggers("err_indirect_indices_are_not_supported_with_nki_api")
def indirect_transpose(x):
    rows = nl.zeros((128, 1), nl.int32)
    nl.load_transpose2d(x[rows, nl.arange(512)[None, :]])                   # here


@triggers("err_indirect_indices_free_dim")
def indirect_columns(x):
    columns = nl.zeros((128, 1), nl.int32)
    nl.load(x[nl.arange(128)[:, None], columns])                            # here


@triggers("err_local_variable_used_out_of_scope")
def tensor_of_a_loop_after_it(x):
    out = output()
    for i in nl.affine_range(4):
        tile = nl.load(x[:, nl.ds(i * 128, 128)])
    nl.store(out[:, 0:128], tile)                                           # here
    return out


@triggers("err_mutable_parameter_not_returned")
def mutable_not_returned(x: nt.mutable_tensor):
    out = output()
    nl.store(x, nl.load(x))                                                 # here
    nl.store(out, nl.load(x))
    return out


@nki.jit
def inner(tile):
    return tile * 2


@triggers("err_nested_kernel_with_spmd_grid")
def nested_grid(x):
    tile = nl.load(x)
    inner[4, 4](tile)                                                       # here


@triggers("err_num_partition_exceed_arch_limit", "number of partitions 256 exceed architecture limitation of 128.")
def too_many_partitions(x):
    nl.zeros((256, 1024), dtype=nl.float32, buffer=nl.sbuf)                 # here


@triggers("err_num_partition_mismatch",
          "number of partitions (dimension 0 size of a tile) mismatch in parameters (data1[128, 512], data2[1, 512]) "
          "of 'tensor_tensor'")
def partitions_differ(x):
    tile = nl.load(x)
    nisa.tensor_tensor(tile, tile[0:1, :], np.add)                          # here


@triggers("err_shared_hbm_must_in_kernel_level")
def shared_hbm_in_a_loop(x):
    for i in nl.affine_range(2):
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)         # here
        nl.store(out, nl.load(x))


@triggers("err_size_of_dimension_exceed_arch_limit",
          "size of dimension 1 in 'x[128, 512]' of 'transpose' exceed architecture limitation of 128.")
def too_wide_to_transpose(x):
    tile = nl.load(x)
    nl.transpose(tile)                                                      # here


@triggers("err_store_dst_shape_smaller_than_other_shape")
def destination_too_small(x):
    tile, column = nl.load(x), nl.zeros((128, 1), nl.float32)
    column[...] = tile                                                      # here


@triggers("err_tensor_access_out_of_bound",
          "Out-of-bound access for tensor `x` on dimension 1: index range [0, 599] exceed dimension size of 512")
def out_of_bounds(x):
    p, f = nl.arange(128)[:, None], nl.arange(600)[None, :]
    nl.load(x[p, f])                                                        # here


@triggers("err_tensor_creation_on_scratchpad_with_init_value_not_supported")
def allocated_with_a_value(x):
    nl.zeros((128, 512), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))        # here


@triggers("err_tensor_output_not_written_to")
def output_not_written(x):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)          # here
    for i in nl.affine_range(128 // 129):
        nl.store(out, nl.load(x))
    return out


@triggers("err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel")
def allocated_transpose(x):
    tile = in_sbuf((128, 512))
    tile[...] = nl.load(x)
    nisa.nc_transpose(tile[:, 0:128], engine=nisa.tensor_engine)            # here


@triggers("err_unexpected_output_dependencies",
          "Unexpected output dependencies, missing indices in the dst access: i")
def iterations_that_write_one_place(x):
    a = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.int8, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        a[0] = 0                                                            # here


@triggers("err_unsupported_expression_in_mask")
def mask_that_is_not_affine(x):
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    nl.load(x[p, f], mask=(f % 4) < 2)                                      # here


@triggers("err_unsupported_memory",
          "Expected operand 'src' of 'load' to be in address space 'hbm', but got a tile in 'sbuf' instead.")
def load_of_a_tile(x):
    tile = nl.load(x)
    nl.load(tile)                                                           # here


@triggers("err_unsupported_mixing_basic_advanced_tensor_indexing")
def slice_beside_an_index_tensor(x):
    p = nl.arange(128)[:, None]
    nl.load(x[p, :])                                                        # here


@triggers("err_while_loop_requires_unconditional_entry")
def while_with_a_condition_at_first(x):
    left = nl.load(x[0, 0])
    condition = nt.scalar(left)
    while condition:                                                        # here
        left[...] = nl.subtract(left, 1)
        condition = nt.scalar(left)


@pytest.mark.parametrize("name", CASES)
def test_documented_error(on, name):
    function, sentence = CASES[name]
    with pytest.raises(KernelError) as caught:
        run(on, nki.jit(function), X)
    error = caught.value
    lines, first = inspect.getsourcelines(function)
    assert error.name == name and isinstance(error, getattr(errors, name))
    assert isinstance(error, SyntaxError) and isinstance(error, ValueError) == (name in VALUE_ERRORS)
    assert sentence in error.headline and str(error).count("fix:") == 1
    assert (error.at.file, error.at.line) == (__file__, first + next(k for k, l in enumerate(lines) if "# here" in l))


# Raised without a kernel, a warning, and one that a later release took back: docs/limits.md.
OTHERS = {"err_nki_api_outside_of_nki_kernel", "err_leading_dimension_of_tensor_must_be_partition",
          "err_read_modify_write_on_kernel_parameter"}


def test_catalog_is_complete():
    raised = CASES.keys() | OTHERS - {"err_leading_dimension_of_tensor_must_be_partition",
                                      "err_read_modify_write_on_kernel_parameter"}
    assert set(dir(errors)) == raised and len(CASES.keys() | OTHERS) == 37


def test_api_outside_of_a_kernel():
    with pytest.raises(errors.err_nki_api_outside_of_nki_kernel,
                       match="a function that creates a tensor was called outside of a kernel") as caught:
        nl.zeros((128, 512), nl.float32)
    assert caught.value.at.file == __file__


def test_block_dimensions_are_a_warning(on):
    def kernel(x):
        out, blocks = output(), nl.ndarray((4, nl.par_dim(128), 128), nl.float32)      # here
        for i in nl.affine_range(4):
            blocks[i] = nl.load(x[:, nl.ds(i * 128, 128)])
            nl.store(out[:, nl.ds(i * 128, 128)], blocks[i])
        return out
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(run(on, nki.jit(kernel), X), X)
    warned = [w for w in caught if w.category is BlockDimensionsWarning]
    assert "err_leading_dimension_of_tensor_must_be_partition" in str(warned[0].message)
    lines, first = inspect.getsourcelines(kernel)
    assert (warned[0].filename, warned[0].lineno) == (__file__, first + 1)


def test_a_parameter_may_be_read_and_written(on):
    @nki.jit
    def kernel(x: nt.mutable_tensor):
        nl.store(x, nl.load(x) + 1)
        return x
    np.testing.assert_array_equal(run(on, kernel, X), X + 1)


# -- kernels that allocate directly ------------------------------------------------------------------------------------
@pytest.mark.parametrize("hidden, name, says", [
    (lambda t: nl.exp(t), "err_bias_tensor_must_be_specified_in_allocation", "'exp' has no bias"),
    (lambda t: nl.tanh(t), "err_bias_tensor_must_be_specified_in_allocation", "'tanh' has no bias"),
    (lambda t: nl.matmul(t[:, 0:128], t), "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
     "'matmul' transposes on the Tensor engine"),
    (lambda t: nl.transpose(t[:, 0:128]), "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
     "'transpose' transposes on the Tensor engine")])
def test_tiles_that_have_no_address(on, hidden, name, says):
    def kernel(x):
        out, tile = output(), in_sbuf((128, 512))
        tile[...] = nl.load(x)
        hidden(tile)
        nl.store(out, tile)
        return out
    with pytest.raises(getattr(errors, name), match=says) as caught:
        run(on, nki.jit(kernel), X)
    assert caught.value.at.file == __file__
    np.testing.assert_array_equal(run(on, ncc.force_auto_alloc(nki.jit(kernel)), X), X)


def test_what_kernels_that_allocate_directly_may_do(on):
    @nki.jit
    def kernel(x):
        out = output((128, 128))
        tile, zeros, turned = in_sbuf((128, 512)), in_sbuf((128, 1), 2048), in_sbuf((128, 128), 2052)
        products = nl.ndarray((128, 512), nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
        tile[...] = nl.load(x)
        zeros[...] = 0.0
        tile[...] = nisa.activation(np.square, tile, bias=zeros)
        products[...] = nl.matmul(tile[:, 0:128], tile, transpose_x=True)
        turned[...] = nl.copy(products[:, 0:128])
        nl.store(out, turned)
        return out
    x = (X % 3).astype(np.float32)
    squares = (x ** 2)[:, :128]
    np.testing.assert_array_equal(run(on, kernel, x), squares.T @ squares)


# -- loops of the device -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("executor", ["eager", "interpreter", "jit", "isa"])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_while_after_an_unconditional_entry(executor, count):
    @nki.jit
    def kernel(x, start):
        out, tile = output((2, 128, 512)), nl.load(x)
        for i in nl.affine_range(2):
            total, left = nl.zeros(x.shape, nl.float32), nl.load(start)
            condition = nt.scalar(True)
            while condition:
                for j in nl.affine_range(4):
                    total[:, nl.ds(j * 128, 128)] += tile[:, nl.ds(j * 128, 128)]
                left[...] = nl.subtract(left, 1)
                condition = nt.scalar(nl.greater(left, 0))
            nl.store(out[i], total)
        return out
    expected = np.stack([X * max(1, count)] * 2)
    np.testing.assert_array_equal(run(executor, kernel, X, np.array([[count]], np.int32)), expected)


def test_while_that_carries_python_state():
    @nki.jit
    def kernel(x):
        out, total, left = output(), nl.load(x), nl.load(x[0:1, 0:1])
        condition, k = nt.scalar(True), 0
        while condition:
            k = k + 1
            left[...] = nl.subtract(left, k)
            condition = nt.scalar(left)
        nl.store(out, total)
        return out
    with pytest.raises(KernelError, match="the next one reads: k") as caught:
        run("interpreter", kernel, X)
    assert caught.value.name == "NKI-WHILE-STATE" and caught.value.at.file == __file__


def test_while_of_python_values(on):
    @nki.jit
    def kernel(x):
        out, pending, more = output(), [1, 2, 3], True
        tile = nl.load(x)
        while pending:
            tile = nl.multiply(tile, pending.pop())
        while more:
            more = False
        else:
            nl.store(out, tile)
        return out
    np.testing.assert_array_equal(run(on, kernel, X), X * 6)
