# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documented errors of indexing, shapes and sizes, each from a kernel that makes it."""

import numpy as np
import pytest

from nki_mlir.capture import errors
from nki_mlir.dialects import verifier
from nki_mlir.language import indirect, operations
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import typing as nt

from .documented import Cases, raises_documented

CASES = Cases()
case = CASES.add


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


@case(errors.TooManySubscripts, "NKI-SUBSCRIPT", "a tensor of 2 dimensions is indexed by 3 subscripts", python=IndexError)
def too_many_subscripts(x):
    return nl.load(x[0, 1, 2])                              # here


@case(errors.BadSubscript, "NKI-SUBSCRIPT", "an array of shape (4,) of type ndarray", python=TypeError)
def subscript_of_another_kind(x):
    return nl.load(x[np.arange(4)])                         # here


@case(errors.EmptySubscript, "NKI-EMPTY")
def subscript_of_nothing(x):
    return nl.sum(nl.load(x)[:, 4:4], axis=1)               # here


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


@pytest.mark.parametrize("function, error, name, text, options", CASES)
def test_documented_error(on, function, error, name, text, options):
    raises_documented(on, function, error, name, text, options)
