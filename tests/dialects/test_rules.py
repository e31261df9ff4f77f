# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules that have a separate text: a test violates each once and compares the complete message.

They have an entry in ``OWN``, and a test sees to it that none is missing.
"""

from typing import Any

import pytest

from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.verifier import BrokenRule, Check

from .findings import full, headline
from .samples import SAMPLES

BIT_TILES = "sbuf PxFxi32"
COLLECTIVES = {name: SAMPLES[f"nisa.{name}"].tiles["dst"].split()[0] for name in (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ring_permute", "permute", "varying_exchange")}
OWN: list[tuple[str, dict[str, Any], str]] = [
    ("nisa.gpsimd_call", {"numbers": "[1, two]"},
     "'gpsimd_call': numbers must be a list of numbers as JSON, got [1, two]"),
    ("nisa.gpsimd_call", {"shapes": "[[2], [1], [1], [1], [1], [1]]"},
     "'gpsimd_call': shapes must be JSON with a shape for each source, of the same number of elements, "
     "got [[2], [1], [1], [1], [1], [1]]"),
    ("nisa.gpsimd_call", {"bytes_in": -1}, "'gpsimd_call': cycles, transfers and bytes must be 0 or more"),
    ("nisa.gpsimd_call", {"mask": (Constraint(Linear(0, (), ((0, 1),))),)},
     "'gpsimd_call': it takes no mask: a custom operator reads and writes complete tensors"),
    *((f"nisa.{name}", {"mask": (Constraint(Linear(0, (), ((0, 1),))),)}, f"'{name}': it takes no mask")
      for name in (*COLLECTIVES, "core_barrier", "sendrecv", "rank_id", "require_written")),
    *((f"nisa.{name}", {"dst": "hbm PxFxf32" if space == "sbuf" else "sbuf PxFxf32"},
       f"'{name}': operands must be all in HBM or all in SBUF") for name, space in COLLECTIVES.items()),
    *((f"nisa.{name}", {"groups": groups}, f"'{name}': groups must be lists of different ranks as JSON, got {groups}")
      for name in (*COLLECTIVES, "rank_id") if name != "permute" for groups in ("[[0, 1], [1]]", "0, 1", "[[-1]]")),
    *((f"nisa.{name}", {"dst": f"{space} Px1xf32"}, f"'{name}': dst[4, 1] does not fit src[4, 6] between 1 members")
      for name, space in COLLECTIVES.items() if name not in ("permute", "varying_exchange")),
    *((f"nisa.{name}", {"groups": "[[0, 1, 2]]"} | change, f"'{name}': src[4, 6] has no 3 equal parts along axis 0")
      for name, change in (("all_to_all", {}), ("reduce_scatter", {"dst": "sbuf Px2xf32"}))),
    ("nisa.core_barrier", {"cores": (1, 1)}, "'core_barrier': cores must be different numbers of 0 or more, got (1, 1)"),
    ("nisa.core_barrier", {"cores": ()}, "'core_barrier': cores must be different numbers of 0 or more, got ()"),
    ("nisa.require_written", {"flag": "hbm 1x1xi32"},
     "Expected operand 'flag' of 'require_written' to be in address space 'sbuf', but got a tile in 'hbm' instead."),
    ("nisa.require_written", {"flag": "sbuf 1x2xi32"}, "'require_written': the flag must have one element, got [1, 2]"),
    ("nisa.sendrecv", {"send_to": -1}, "'sendrecv': cores must be numbers of 0 or more, got -1"),
    ("nisa.all_reduce", {"op": "multiply"},
     "attribute 'op' of 'all_reduce' is 'multiply', which must be one of add, minimum, maximum"),
    ("nisa.all_reduce", {"over": "cores"},
     "attribute 'over' of 'all_reduce' is 'cores', which must be one of programs, ranks"),
    ("nisa.all_gather", {"groups": "[[0, 1]]"}, "'all_gather': dst[4, 6] does not fit src[4, 6] between 2 members"),
    ("nisa.all_gather", {"dim": 2}, "'all_gather': dim must be an axis of src[4, 6], got 2"),
    ("nisa.permute", {"pairs": (0, 1, 2, 1)},
     "'permute': pairs must be two ranks each, with different targets, got (0, 1, 2, 1)"),
    ("nisa.varying_exchange", {"displaced": True}, "'varying_exchange': metadata[3, 1] is not 4 x 1"),
    ("nisa.rank_id", {"dst": "sbuf 1x2xi32"}, "'rank_id': dst must have one element, got [1, 2]"),
    ("nki.binary_scalar", {"op": "select"}, "attribute 'op' of 'binary_scalar' is 'select', which must be one of "),
    ("nki.matmul", {"moving": "sbuf 5xFxf32"}, "'matmul': contracts axis 0 of both operands, got [4, 3] and [5, 6]"),
    ("nki.matmul", {"stationary": "sbuf Px129xf32"},
     "size of dimension 1 in 'stationary[4, 129]' of 'matmul' exceed architecture limitation of 128."),
    ("nki.matmul", {"moving": "sbuf Px513xf32"},
     "size of dimension 1 in 'moving[4, 513]' of 'matmul' exceed architecture limitation of 512."),
    ("nki.matmul", {"moving": "sbuf PxFxi32"}, "operand 'moving' of 'matmul' has dtype int32, which must be a float type"),
    ("nki.matmul", {"stationary": "sbuf PxGxui8"}, "operand 'stationary' of 'matmul' has dtype uint8, which must be a float type"),
    *((name, {"dst": "psum Gx512xi64", "moving": "sbuf Px512xf32"},
       "a matmul result of 4096 bytes per partition does not fit one PSUM bank of 2048 bytes")
      for name in ("nki.matmul", "nisa.nc_matmul")),
    ("nki.transpose", {"src": "sbuf PxFx2xf32"}, "'transpose': transposes 2-D tiles, got [4, 6, 2]"),
    ("nki.transpose", {"src": "sbuf Px129xf32"},
     "size of dimension 1 in 'src[4, 129]' of 'transpose' exceed architecture limitation of 128."),
    ("nki.reduce", {"axes": (0,)}, "'reduce': reduces free axes, not [0] of [4, 6]"),
    ("nki.reduce", {"axes": (2,)}, "'reduce': reduces free axes, not [2] of [4, 6]"),
    ("nki.reduce", {"axes": (-1,)}, "'reduce': reduces free axes, not [-1] of [4, 6]"),
    ("nisa.tensor_tensor", {"lhs": "psum PxFxf32"}, "'tensor_tensor': at most one of lhs and rhs may be in PSUM"),
    ("nisa.tensor_tensor", {"engine": "gpsimd"},
     "Expected operand 'rhs' of 'tensor_tensor' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    ("nisa.tensor_scalar", {"op0": "bitwise_and"},
     "'tensor_scalar': op0 and op1 must both be bit operations or both arithmetic"),
    ("nisa.tensor_scalar", {"engine": "gpsimd", "src": "psum PxFxf32"},
     "Expected operand 'src' of 'tensor_scalar' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    ("nisa.scalar_tensor_tensor", {"src": "psum PxFxf32", "rhs": "psum PxFxf32"},
     "'scalar_tensor_tensor': at most one of src and rhs may be in PSUM"),
    ("nisa.scalar_tensor_tensor", {"op1": "left_shift"},
     "'scalar_tensor_tensor': op0 and op1 must both be bit operations or both arithmetic"),
    ("nisa.tensor_copy_predicated", {"src": "psum PxFxf32", "predicate": "psum PxFxf32"},
     "'tensor_copy_predicated': at most one of src and predicate may be in PSUM"),
    ("nisa.tensor_copy", {"engine": "gpsimd"},
     "Expected operand 'src' of 'tensor_copy' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    ("nisa.memset", {"engine": "gpsimd", "dst": "psum PxFxf32"},
     "Expected operand 'dst' of 'memset' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    ("nisa.nc_matmul", {"dst": "psum Gx513xf32", "moving": "sbuf Px513xf32"},
     "size of dimension 1 in 'moving[4, 513]' of 'nc_matmul' exceed architecture limitation of 512."),
    ("nisa.nc_matmul", {"moving": "sbuf 5xFxf32"},
     "'nc_matmul': contracts axis 0 of both operands, got [4, 3] and [5, 6]"),
    ("nisa.nc_matmul", {"stationary": "sbuf Px129xf32"},
     "size of dimension 1 in 'stationary[4, 129]' of 'nc_matmul' exceed architecture limitation of 128."),
    ("nisa.nc_matmul", {"moving": "sbuf PxFxi32"}, "operand 'moving' of 'nc_matmul' has dtype int32, which must be a float type"),
    ("nisa.nc_matmul_double_row", {"stationary": "sbuf Px3xGxf8E4M3"},
     "'nc_matmul_double_row': multiplies [K, 2, M] by [K, 2, N] of 8-bit floats, got stationary [4, 3, 3] float8_e4m3"),
    ("nisa.nc_matmul_double_row", {"moving": "sbuf Px2xFxbf16"},
     "'nc_matmul_double_row': multiplies [K, 2, M] by [K, 2, N] of 8-bit floats, got moving [4, 2, 6] bfloat16"),
    ("nisa.nc_matmul_double_row", {"moving": "sbuf Px2xf8E4M3"},
     "'nc_matmul_double_row': multiplies [K, 2, M] by [K, 2, N] of 8-bit floats, got moving [4, 2] float8_e4m3"),
    ("nisa.nc_matmul_double_row", {"moving": "sbuf 5x2xFxf8E4M3"},
     "'nc_matmul_double_row': contracts axis 0 of both operands, got [4, 2, 3] and [5, 2, 6]"),
    ("nisa.nc_matmul_double_row", {"stationary": "sbuf Px2x129xf8E4M3"},
     "size of dimension 2 in 'stationary[4, 2, 129]' of 'nc_matmul_double_row' exceed architecture limitation of 128."),
    ("nisa.nc_matmul_double_row", {"dst": "psum Gx513xf32", "moving": "sbuf Px2x513xf8E5M2"},
     "size of dimension 2 in 'moving[4, 2, 513]' of 'nc_matmul_double_row' exceed architecture limitation of 512."),
    ("nisa.nc_matmul_double_row", {"mask": (Constraint(Linear(0, (), ((0, 1),))),)},
     "'nc_matmul_double_row': it takes no mask: multiply the rows one after the other under a mask"),
    ("nisa.nc_matmul_double_row", {"limits": (Linear(1, (), ((0, -1),)),)},
     "'nc_matmul_double_row': the compiler must be able to prove that its operands stay inside their tensors"),
    ("nisa.nc_transpose", {"src": "sbuf PxFx2xf32"}, "'nc_transpose': transposes 2-D tiles, got [4, 6, 2]"),
    ("nisa.nc_transpose", {"src": "sbuf Px129xf32"},
     "size of dimension 1 in 'src[4, 129]' of 'nc_transpose' exceed architecture limitation of 128."),
    ("nisa.nc_transpose", {"engine": "vector", "src": "sbuf 33x4xf32"},
     "size of dimension 0 in 'src[33, 4]' of 'nc_transpose' exceed architecture limitation of 32."),
    ("nisa.nc_transpose", {"engine": "tensor", "dst": "sbuf FxPxf32"},
     "Expected operand 'dst' of 'nc_transpose' to be in address space 'psum', but got a tile in 'sbuf' instead."),
    ("nisa.tensor_reduce", {"axes": (0, 1)}, "'tensor_reduce': reduces free axes, not [0, 1] of [4, 6]"),
    ("nisa.tensor_reduce", {"dst": "sbuf Px1xi32", "src": BIT_TILES, "op": "bitwise_or"},
     "'tensor_reduce': negate is for arithmetic reductions, got bitwise_or"),
    ("nisa.tensor_scalar_reduce", {"op0": "bitwise_or", "dst": BIT_TILES, "src": BIT_TILES},
     "'tensor_scalar_reduce': op0 must be arithmetic"),
    ("nisa.tensor_tensor_scan", {"op0": "bitwise_or", "data0": BIT_TILES, "data1": BIT_TILES},
     "'tensor_tensor_scan': op0 and op1 must be arithmetic"),
    ("nisa.tensor_tensor_scan", {"data0": "psum PxFxf32", "data1": "psum PxFxf32"},
     "'tensor_tensor_scan': at most one of data0 and data1 may be in PSUM"),
    ("nisa.bn_stats", {"src": "sbuf Px513xf32"},
     "size of dimension 1 in 'src[4, 513]' of 'bn_stats' exceed architecture limitation of 512."),
    ("nisa.bn_aggr", {"src": "sbuf Px4xf32"}, "'bn_aggr': takes triples, got 4 values a partition"),
    ("nisa.max8", {"src": "sbuf Px7xf32"}, "'max8': takes 8 to 16384 values a partition in src, got 7"),
    ("nisa.nc_find_index8", {"data": "sbuf Px16385xf32"},
     "'nc_find_index8': takes 8 to 16384 values a partition in data, got 16385"),
    ("nisa.nc_match_replace8", {"data": "sbuf Px7xf32"},
     "'nc_match_replace8': takes 8 to 16384 values a partition in data, got 7"),
    ("nisa.select_reduce", {"on_true": "psum PxFxf32", "predicate": "psum PxFxui8"},
     "'select_reduce': at most one of on_true and predicate may be in PSUM"),
    ("nisa.select_reduce", {"reduce_res": "sbuf Px1xi32"}, "'select_reduce': reduce_res must have a float type, got int32"),
    ("nisa.sequence_bounds", {"segment_ids": "sbuf 2xFxi32"}, "'sequence_bounds': segment_ids must have 1 partition, got 2"),
    ("nisa.nc_stream_shuffle", {"shuffle": (0,) * 31}, "'nc_stream_shuffle': takes 32 entries of 0..31 or 255, got 31 such entries of 31"),
    ("nisa.nc_stream_shuffle", {"shuffle": (32,) * 32}, "'nc_stream_shuffle': takes 32 entries of 0..31 or 255, got 0 such entries of 32"),
    ("nisa.nc_stream_shuffle", {"shuffle": (4,) * 32}, "'nc_stream_shuffle': the mask must name partitions of src, 0 to 3, or 255, got 4"),
    ("nisa.nc_stream_shuffle", {"src": "sbuf PxFxbf16"},
     "'nc_stream_shuffle': dst and src must have the same dtype and free shape, got float32 [4, 6] and bfloat16 [4, 6]"),
    ("nisa.local_gather", {"index": "sbuf 32x1xui16"},
     "'local_gather': src and index must have the same number of partitions, a multiple of 16, got 16 and 32"),
    ("nisa.local_gather", {"elements": 3}, "'local_gather': gathers 1, 2, 4, 8, 16 or 32 elements for each index, got 3"),
    ("nisa.local_gather", {"valid": 17},
     "'local_gather': takes at most the indices that 16 partitions of index have, got 17 for 16"),
    ("nisa.local_gather", {"dst": "sbuf 16x16xbf16"}, "'local_gather': dst and src must have the same dtype, got bfloat16 and float32"),
    ("nisa.dma_transpose", {"permutation": (0, 0, 1)},
     "'dma_transpose': permutes the axes of src, got [0, 0, 1] for 3 axes"),
    ("nisa.dma_gather", {"index": "sbuf Px2xi32"}, "'dma_gather': the index tile must be [N, 1], got [4, 2]"),
    ("nisa.dma_gather", {"dst": "sbuf 3xFxf32"}, "'dma_gather': moves rows of [8, 6] by 4 indices, got [3, 6]"),
    ("nisa.dma_scatter", {"index": "sbuf Px2xi32"}, "'dma_scatter': the index tile must be [N, 1], got [4, 2]"),
    ("nisa.dma_scatter", {"src": "sbuf Px7xf32"}, "'dma_scatter': moves rows of [8, 6] by 4 indices, got [4, 7]"),
    ("nisa.tensor_copy_dynamic_src", {"src": "sbuf 3xKxf32"},
     "'tensor_copy_dynamic_src': dst and src must have the same number of partitions, got 4 and 3"),
    ("nisa.tensor_copy_dynamic_dst", {"src": "sbuf 3xGxf32"},
     "'tensor_copy_dynamic_dst': dst and src must have the same number of partitions, got 4 and 3"),
    *((f"nisa.tensor_copy_dynamic_{n}", {"offset": "sbuf Px1xi32"},
       f"'tensor_copy_dynamic_{n}': takes one offset for all partitions, got 4 partitions of offsets") for n in ("src", "dst")),
    *((f"nisa.{n}", {"extents": (8, 8, 8)},
       f"'{n}': one or two dimensions can have run-time indices, each with a scale and an extent, got {count}")
      for n, count in (("tensor_copy_dynamic_src", 1), ("tensor_copy_dynamic_dst", 1), ("dma_dynamic_read", 2),
                       ("dma_dynamic_write", 1))),
    *((f"nisa.{n}", {"offset": "sbuf 2x3xi32"}, f"'{n}': the offset tile must be [1, {count}], or have a row for each row of the piece")
      for n, count in (("tensor_copy_dynamic_src", 1), ("tensor_copy_dynamic_dst", 1), ("dma_dynamic_read", 2),
                       ("dma_dynamic_write", 1))),
    ("nisa.random_seed", {"seed": "sbuf 2x1xui32"}, "'random_seed': the seed must be a single value, got [2, 1]"),
    ("nisa.activate2", {"op0": "add", "op1": "add"},
     "'activate2': takes multiply with add or subtract, or one operation and bypass, got add and add"),
    *((name, {"op0": "bitwise_or"}, f"'{name[5:]}': op0 must be arithmetic")
      for name in ("nisa.tensor_scalar_accumulate", "nisa.tensor_scalar_cumulative")),
    ("nisa.dynamic_read", {"steps": (1,)}, "'dynamic_read': must have 2 steps, one for each dimension, got 1"),
    ("nisa.dynamic_read", {"index": "sbuf 3x1xi32"}, "'dynamic_read': takes one index, or one for each row, got [3, 1]"),
    ("nisa.dynamic_read", {"src": "sbuf 3xKxf32"},
     "'dynamic_read': the table must have 1 or 4 rows, got 3"),
    ("nisa.dynamic_write", {"steps": (1,)}, "'dynamic_write': must have 2 steps, one for each dimension, got 1"),
    ("nisa.dynamic_write", {"index": "sbuf 3x1xi32"}, "'dynamic_write': takes one index, or one for each row, got [3, 1]"),
    ("nisa.dynamic_write", {"dst": "hbm 2x256xf32"},
     "'dynamic_write': the table must have 1 or 4 rows, got 2"),
    ("nisa.gather_columns", {"group": 8}, "attribute 'group' of 'gather_columns' is 8, which must be one of 16, 32"),
    ("nisa.topk", {"values": "sbuf 24xGxbf16", "indices": "sbuf 24xGxui32", "src": "sbuf 24xFxbf16"},
     "'topk': takes a multiple of 16 partitions, got 24"),
    ("nisa.topk", {"n": 7}, "'topk': takes lists of 8 to 96, got 7"),
    ("nisa.topk", {"n": 97}, "'topk': takes lists of 8 to 96, got 97"),
    ("nisa.topk", {"indices": "sbuf 32x2xui32"}, "'topk': gives 1 to 20 results in both tiles, got 3 and 2"),
    ("nisa.nonzero_with_count", {"dst": "sbuf Px6xi32"},
     "'nonzero_with_count': dst must have one element more than src, got 6 and 6"),
    ("nisa.nonzero_with_count", {"base": -(1 << 40)},
     "'nonzero_with_count': base must be an integer of 32 bits, got -1099511627776"),
    ("nisa.nonzero_with_count", {"padding": 1 << 31},
     "'nonzero_with_count': padding must be an integer of 32 bits, got 2147483648"),
    ("nisa.gather_flattened", {"src": "sbuf 5xFxf32"},
     "'gather_flattened': src and index must have the same number of partitions, got src 5, index 4"),
    ("nisa.nc_match_replace8", {"dst_idx": "sbuf Px9xui32"}, "'nc_match_replace8': dst_idx must have 8 elements in each partition, got 9"),
    ("nisa.local_gather", {"dst": "sbuf Gx8xf32"},
     "'local_gather': dst must have the partitions of src, and elements for each of 16 rows of indices, got [3, 8] for 16 elements of 16 "
     "partitions"),
    *((f"nisa.{name}", {"index": "sbuf 32x1xi32", "dst": "sbuf 32x33xf32", "src": "sbuf 32x33xf32"},
       f"'{name}': takes an offset for each element of a row from the partitions that share offsets, got 16 for 33")
      for name in ("gather_columns", "scatter_columns")),

    ("nisa.quantize_mx", {"src": "sbuf 32x6xbf16"},
     "'quantize_mx': takes 32, 64, 96 or 128 partitions of a multiple of 4 values, got 32 x 6"),
    ("nisa.quantize_mx", {"dst_scale": "sbuf 3x2xui8"},
     "'quantize_mx': the tile of scales must have a row for each group and a column for each quad, got [3, 2] for 4 rows of 2"),
    ("nisa.quantize_mx", {"element": "float4_e2m1fn"},
     "'quantize_mx': packs float8_e4m3fn or float8_e5m2, got float4_e2m1fn"),
    ("nisa.nc_matmul_mx", {"stationary_scale": "sbuf 32x4xui8"},
     "'nc_matmul_mx': the tile of scales must have a partition for each scale, got [32, 4] for 36 partitions of 4"),
    ("nisa.nc_matmul_mx", {"stationary": "sbuf 32x4xui32"},
     "'nc_matmul_mx': contracts 32, 64, 96 or 128 partitions of both operands, got 32 and 64"),
    ("nisa.nc_matmul_mx", {"stationary": "sbuf 64x3xui32"},
     "'nc_matmul_mx': takes an even number of up to 128 stationary columns, got 3"),
    ("nisa.nc_matmul_transpose", {"moving": "sbuf 5x4xf32"},
     "'nc_matmul_transpose': contracts axis 0 of both operands, got [4, 3] and [5, 4]"),
    ("nisa.nc_matmul_transpose", {"stationary": "sbuf Px129xf32"},
     "size of dimension 1 in 'stationary[4, 129]' of 'nc_matmul_transpose' exceed architecture limitation of 128."),
]


@pytest.mark.parametrize(("name", "changes", "text"), OWN, ids=[f"{name}-{k}" for k, (name, _, _) in enumerate(OWN)])
def test_rule_with_its_own_text(name: str, changes: dict[str, Any], text: str) -> None:
    message = headline(SAMPLES[name].make(**changes))
    assert message == text or (text.endswith("one of ") and message.startswith(text))


class Wording(Check):
    """Writes down the texts of rules of one class alone."""

    def __init__(self, op: Op) -> None:
        super().__init__(op)
        self.texts: list[str] = []

    def rule(self, holds: bool, what: str, fix: str = "") -> None:
        self.texts.append(what)
        assert fix, f"says no fix: {what}"
        super().rule(holds, what, fix)

    def at_most(self, label: str, dim: int, extent: int, limit: int) -> None:
        self.texts.append(f"'{label}")
        super().at_most(label, dim, extent, limit)


def test_rules__say_what_to_do():
    op = full("nki.transpose")
    with pytest.raises(BrokenRule) as broken:
        Check(op).rule(False, "low is at most high, got 2 and 1", "exchange them")
    assert str(broken.value) == "error: 'transpose': low is at most high, got 2 and 1 [NKI-RULE]\n  fix: exchange them"
    with pytest.raises(BrokenRule) as silent:
        Check(op).rule(False, "low is at most high, got 2 and 1")
    assert str(silent.value).endswith("\n  fix: give it values that this rule allows")


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_own_texts__are_all_violated(name: str) -> None:
    check = Wording(full(name))
    full(name).verify(check)
    texts = " ".join(text for op, _, text in OWN if op == name)
    for text in check.texts:
        words = text.split(", got")[0].split(", not")[0].split(" by ")[0].split("[")[0]
        shared = "both be bit" in words or "the same number of partitions" in words or "for each partition of" in words or "'" in words
        assert words in texts or shared, f"no entry in OWN violates: {text}"
