# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A valid operation of each class, in any size, on arrays or in IR.

A tile is written ``sbuf PxFxf32``: its memory, its extents (numbers, or letters that ``sizes`` defines), its dtype.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects import catalog
from nki_mlir.dialects.access import HBM, Access, Linear, Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.mlir_ops import new_context, write_op
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.dialects.programs import PROGRAMS
from nki_mlir.scalar.dtypes import BOOL, BY_MLIR, DType, convert
from nki_mlir.targets.interpreter.execute import compile_op

catalog.load()

SIZES = {"P": 4, "F": 6, "G": 3, "K": 8}
ROW = Linear(0, (), ((0, 2), (1, 1)))           # 2 * p + f
FREE = Linear(0, (), ((1, 2),))                 # 2 * f


@dataclass(frozen=True)
class Sample:
    """How to make an operation of a class: tiles as text, attributes; ``sizes`` it is tried in."""

    name: str
    tiles: dict[str, str]
    attributes: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[dict[str, int], ...] = ({"P": 1, "F": 1}, {"P": 127, "F": 5}, {"P": 128, "F": 512})

    def make(self, handles: dict[str, Any] | None = None, sizes: dict[str, int] | None = None, **changes: Any) -> Op:
        """The operation. ``changes`` replaces tiles (text or ``Tile``, None leaves one out) and attributes."""
        cls = REGISTRY[self.name]
        tiles = self.tiles | {k: v for k, v in changes.items() if k in {f.name for f in cls.tiles}}
        other = {k: v for k, v in changes.items() if k not in tiles}
        operands = {name: tile(text, name, (handles or {}).get(name), sizes) if isinstance(text, str) else text
                    for name, text in tiles.items()}
        return cls(**operands, **(self.attributes | other))


def tile(text: str, label: str = "", handle: Any = None, sizes: dict[str, int] | None = None) -> Tile:
    """A whole buffer as a tile."""
    space, _, rest = text.partition(" ")
    *extents, element = rest.split("x")
    shape = tuple(int(e) if e.isdigit() else (SIZES | (sizes or {}))[e] for e in extents)
    dtype = BY_MLIR[element]
    return Tile(object() if handle is None else handle, space, shape, dtype, full_access(space, shape, dtype), label)


def full_access(space: str, shape: tuple[int, ...], dtype: DType) -> Access:
    """The pattern of all elements in order."""
    steps, step = [], 1
    for extent in reversed(shape):
        steps.append((step, extent))
        step *= extent
    dims = tuple(reversed(steps))
    if space == HBM:
        return Access(dtype, None, Linear(), dims)
    return Access(dtype, Linear(), Linear(), ((1, shape[0]), *dims[1:]))


A = "sbuf PxFxf32"
COLUMN = "sbuf Px1xf32"
SQUARE = ({"P": 1, "F": 1}, {"P": 127, "F": 5}, {"P": 128, "F": 128})
ROWS = ({"P": 1, "F": 8}, {"P": 127, "F": 9}, {"P": 128, "F": 512})


def column(text: str = COLUMN, label: str = "", sizes: dict[str, int] | None = None) -> Tile:
    """One value a partition, read by all ``F`` elements of the free axis."""
    full = tile(text, label, None, sizes)
    access = Access(full.dtype, Linear(), Linear(), ((1, full.shape[0]), (0, (SIZES | (sizes or {}))["F"])))
    return Tile(full.handle, full.space, full.base_shape, full.dtype, access, label)


_GIVEN = [
    Sample("nki.binary", {"dst": A, "lhs": A, "rhs": A}, {"op": "subtract"}),
    Sample("nki.binary_scalar", {"dst": A, "src": A}, {"op": "subtract", "scalar": 1.5, "reverse": True}),
    Sample("nki.unary", {"dst": A, "src": A}, {"fn": "exp"}),
    Sample("nki.select", {"dst": A, "condition": "sbuf PxFxui8", "on_true": A, "on_false": A}),
    Sample("nki.matmul", {"dst": "psum GxFxf32", "stationary": "sbuf PxGxf32", "moving": A}, {"accumulate": False},
           ({"P": 1, "F": 1, "G": 1}, {"P": 127, "F": 5, "G": 127}, {"P": 128, "F": 512, "G": 128})),
    Sample("nki.load", {"dst": A, "src": "hbm PxFxf32"}),
    Sample("nki.store", {"dst": "hbm PxFxf32", "src": A}),
    Sample("nki.copy", {"dst": A, "src": A}),
    Sample("nki.transpose", {"dst": "sbuf FxPxf32", "src": A}, sizes=SQUARE),
    Sample("nki.memset", {"dst": A}, {"value": 2.5}),
    Sample("nki.iota", {"dst": "sbuf PxFxi32"}, {"expression": ROW}),
    Sample("nki.device_print", {"src": A}, {"prefix": "tile"}),
    Sample("nki.reduce", {"dst": COLUMN, "src": A}, {"op": "add", "axes": (1,)}),
    Sample("nisa.tensor_tensor", {"dst": A, "lhs": A, "rhs": "psum PxFxf32"}, {"op": "multiply"}),
    Sample("nisa.tensor_scalar", {"dst": A, "src": A},
           {"op0": "subtract", "imm0": 0.5, "op1": "multiply", "imm1": 3.0}),
    Sample("nisa.scalar_tensor_tensor", {"dst": A, "src": A, "rhs": A},
           {"op0": "multiply", "imm0": 0.5, "op1": "subtract"}),
    Sample("nisa.activation", {"dst": A, "src": A}, {"fn": "exp", "imm": 0.5}),
    Sample("nisa.reciprocal", {"dst": A, "src": A}),
    Sample("nisa.tensor_copy_predicated", {"dst": A, "src": A, "predicate": "sbuf PxFxui8"}),
    Sample("nisa.affine_select", {"dst": A, "src": A}, {"predicate": Linear(-2, (), ((0, 1), (1, -1))), "value": -1.0}),
    Sample("nisa.nc_matmul", {"dst": "psum GxFxf32", "stationary": "sbuf PxGxf32", "moving": A}, {},
           ({"P": 1, "F": 1, "G": 1}, {"P": 127, "F": 5, "G": 127}, {"P": 128, "F": 512, "G": 128})),
    Sample("nisa.nc_matmul_double_row", {"dst": "psum GxFxf32", "stationary": "sbuf Px2xGxf8E4M3",
                                         "moving": "sbuf Px2xFxf8E4M3"}, {},
           ({"P": 1, "F": 1, "G": 1}, {"P": 127, "F": 5, "G": 127}, {"P": 128, "F": 512, "G": 128})),
    Sample("nisa.nc_transpose", {"dst": "psum FxPxf32", "src": A}, {"engine": "tensor"}, SQUARE),
    Sample("nisa.tensor_copy", {"dst": A, "src": "psum PxFxf32"}),
    Sample("nisa.memset", {"dst": A}, {"value": 2.5}),
    Sample("nisa.iota", {"dst": "sbuf PxFxi32"}, {"expression": ROW}),
    Sample("nisa.dma_copy", {"dst": A, "src": "hbm PxFxf32"}),
    Sample("nisa.tensor_reduce", {"dst": COLUMN, "src": A}, {"op": "add", "axes": (1,), "negate": True}),
    Sample("nisa.tensor_partition_reduce", {"dst": "sbuf 1xFxf32", "src": A}, {"op": "add"}),
    Sample("nisa.activation_reduce", {"dst": A, "reduce_res": COLUMN, "src": A}, {"fn": "exp", "imm": 0.5}),
    Sample("nisa.tensor_scalar_reduce", {"dst": A, "reduce_res": COLUMN, "src": A},
           {"op0": "multiply", "imm0": 0.5, "reduce_op": "maximum"}),
    Sample("nisa.tensor_tensor_scan", {"dst": A, "data0": A, "data1": A},
           {"op0": "multiply", "op1": "add", "imm": 0.5}),
    Sample("nisa.bn_stats", {"dst": "sbuf Px6xf32", "src": A}),
    Sample("nisa.bn_aggr", {"dst": "sbuf Px2xf32", "src": "sbuf PxGx3xf32"}, {},
           ({"P": 1, "G": 1}, {"P": 127, "G": 5}, {"P": 128, "G": 64})),
    Sample("nisa.max8", {"dst": "sbuf Px8xf32", "src": "sbuf PxKxf32"}, {},
           ({"P": 1, "K": 8}, {"P": 127, "K": 9}, {"P": 128, "K": 512})),
    Sample("nisa.nc_find_index8", {"dst": "sbuf Px8xui32", "data": "sbuf PxKxf32", "vals": "sbuf Px8xf32"}, {},
           ({"P": 1, "K": 8}, {"P": 127, "K": 9}, {"P": 128, "K": 512})),
    Sample("nisa.nc_match_replace8",
           {"dst": "sbuf PxKxf32", "dst_idx": "sbuf Px8xui32", "data": "sbuf PxKxf32", "vals": "sbuf Px8xf32"},
           {"imm": -9.0}, ({"P": 1, "K": 8}, {"P": 127, "K": 9}, {"P": 128, "K": 512})),
    Sample("nisa.activation_accumulate", {"dst": A, "accumulator": COLUMN, "reduce_res": COLUMN, "src": A},
           {"fn": "exp", "reduce_op": "add", "reduce_cmd": "reduce"}),
    Sample("nisa.select_reduce", {"dst": A, "accumulator": COLUMN, "predicate": "sbuf PxFxui8", "on_true": A},
           {"imm": -1.0, "reduce_cmd": "reset_reduce"}),
    Sample("nisa.range_select", {"dst": A, "accumulator": COLUMN, "src": A, "bound0": COLUMN, "bound1": COLUMN},
           {"comp0": "greater_equal", "comp1": "less", "fill": -5.0, "reduce_cmd": "reset_reduce"}),
    Sample("nisa.sequence_bounds", {"dst": "sbuf 1x2xFxf32", "segment_ids": "sbuf 1xFxi32"}),
    Sample("nisa.nc_stream_shuffle", {"dst": A, "src": A}, {"shuffle": (1, 0, 255, *range(3, 32))},
           ({"P": 2, "F": 1}, {"P": 127, "F": 5}, {"P": 128, "F": 512})),
    Sample("nisa.local_gather", {"dst": "sbuf 16x16xf32", "src": "sbuf 16xFxf32", "index": "sbuf 16x1xui16"}, {},
           ({"F": 1}, {"F": 5}, {"F": 512})),
    Sample("nisa.gather_flattened", {"dst": "sbuf PxGxf32", "src": A, "index": "sbuf PxGxui32"}, {},
           ({"P": 1, "F": 1, "G": 1}, {"P": 127, "F": 5, "G": 3}, {"P": 128, "F": 512, "G": 7})),
    Sample("nisa.dma_transpose", {"dst": "sbuf GxPxFxf32", "src": "hbm PxGxFxf32"}, {"permutation": (1, 0, 2)}),
    Sample("nisa.dma_gather", {"dst": A, "src": "hbm KxFxf32", "index": "sbuf Px1xi32"}),
    Sample("nisa.dma_scatter", {"dst": "hbm KxFxf32", "src": A, "index": "sbuf Px1xi32"}, {"rmw": "add"}),
    Sample("nisa.dma_dynamic_read", {"dst": "sbuf 3x4xf32", "src": "hbm 3x8x9xf32", "offset": "sbuf 1x2xi32"},
           {"position": Linear(0, (), ((0, 72), (1, 2))), "first": Linear(), "second": Linear(0, (), ((1, 2),)),
            "scales": (9, 1), "extents": (8, 9)}, ({},)),
    Sample("nisa.dma_dynamic_write", {"dst": "hbm 3x8x9xf32", "src": "sbuf 3x4xf32", "offset": "sbuf 3x1xi32"},
           {"position": Linear(1, (), ((0, 72), (1, 9))), "first": Linear(0, (), ((1, 1),)), "scales": (9,),
            "extents": (8,), "rmw": "add"}, ({},)),
    Sample("nisa.tensor_copy_dynamic_src", {"dst": "sbuf PxGxf32", "src": "sbuf PxKxf32", "offset": "sbuf 1x1xi32"},
           {"position": FREE, "first": FREE, "extents": (8,)}, ({"P": 1}, {"P": 127}, {"P": 128})),
    Sample("nisa.tensor_copy_dynamic_dst", {"dst": "sbuf PxKxf32", "src": "sbuf PxGxf32", "offset": "sbuf 1x1xi32"},
           {"position": FREE, "first": FREE, "extents": (8,)}, ({"P": 1}, {"P": 127}, {"P": 128})),
    Sample("nisa.random_seed", {"state": "sbuf 1x2xui32", "seed": "sbuf 1x1xui32"}),
    Sample("nisa.rand", {"dst": A, "state": "sbuf 1x2xui32"}),
    Sample("nisa.dropout", {"dst": A, "state": "sbuf 1x2xui32", "src": A}, {"imm": 0.5}),
    Sample("nisa.rng", {"dst": "sbuf PxFxui32", "state": "sbuf 1x2xui32"}),
    Sample("nisa.activate2", {"dst": A, "accumulator": COLUMN, "src": A},
           {"fn": "exp", "op0": "multiply", "imm0": 0.5, "op1": "add", "imm1": 0.25}),
    Sample("nisa.exponential", {"dst": A, "accumulator": COLUMN, "reduce_res": COLUMN, "src": A},
           {"imm": 0.5, "reduce_cmd": "reset_reduce"}),
    Sample("nisa.tensor_scalar_accumulate", {"dst": A, "accumulator": COLUMN, "reduce_res": COLUMN, "src": A},
           {"op0": "multiply", "imm0": 0.5, "reduce_op": "add", "reduce_cmd": "reduce", "negate": True}),
    Sample("nisa.tensor_scalar_cumulative", {"dst": A, "accumulator": COLUMN, "reduce_res": COLUMN, "src": A},
           {"op0": "multiply", "imm0": 0.5, "op1": "add"}),
    Sample("nisa.dma_compute", {"dst": A, "lhs": "hbm PxFxf32", "rhs": A}),
    Sample("nisa.dynamic_read", {"dst": "sbuf PxGxf32", "src": "sbuf PxKxf32", "index": "sbuf 1x1xi32"},
           {"start": 1, "steps": (0, 1), "scale": 1, "extent": 4}, ({"P": 1}, {"P": 127}, {"P": 128})),
    Sample("nisa.dynamic_write", {"dst": "hbm 1x512xf32", "src": "sbuf PxGxf32", "index": "sbuf Px1xi32"},
           {"start": 2, "steps": (3, 1), "scale": 16, "extent": 4, "rmw": "add"}, ({"P": 1}, {"P": 127}, {"P": 128})),
    Sample("nisa.gather_columns", {"dst": "sbuf 32x12xf32", "src": "sbuf 32xFxf32", "index": "sbuf 32x1xui16"}, {},
           ({"F": 4}, {"F": 5}, {"F": 512})),
    Sample("nisa.scatter_columns", {"dst": "sbuf 32xFxf32", "src": "sbuf 32x4xf32", "index": "sbuf 32x1xui16"}, {},
           ({"F": 4}, {"F": 5}, {"F": 512})),
    Sample("nisa.topk", {"values": "sbuf 32xGxbf16", "indices": "sbuf 32xGxui32", "src": "sbuf 32xFxbf16"}, {"n": 20},
           ({"F": 2}, {"F": 512, "G": 20})),
    Sample("nisa.nonzero_with_count", {"dst": "sbuf Px7xi32", "src": "sbuf Px6xi32"}, {"base": 16},
           ({"P": 1}, {"P": 127}, {"P": 128})),
    Sample("nisa.quantize_mx", {"dst": "sbuf 32x2xui32", "dst_scale": "sbuf 32x2xui8", "src": "sbuf 32x8xbf16"},
           {"element": "float8_e4m3fn"}, ({},)),
    Sample("nisa.nc_matmul_mx",
           {"dst": "psum 4x6xf32", "stationary": "sbuf 64x4xui32", "moving": "sbuf 64x6xui32",
            "stationary_scale": "sbuf 64x4xui8", "moving_scale": "sbuf 64x6xui8"},
           {"stationary_element": "float8_e4m3fn", "moving_element": "float8_e5m2"}, ({},)),
    Sample("nisa.nc_matmul_transpose", {"dst": "psum GxPxf32", "stationary": "sbuf PxGxf32", "moving": "sbuf PxPxf32"},
           {}, ({"P": 1, "G": 1}, {"P": 127, "G": 5}, {"P": 128, "G": 128})),
    Sample("nisa.gpsimd_call",
           {"dst": "hbm FxPxf32", "source0": "hbm PxFxf32"} | {f"source{k}": "hbm 1xf32" for k in range(1, 6)},
           {"library": "tests", "function": "turned", "numbers": "[2.0]", "busy": 3000, "transfers_in": 2,
            "bytes_in": 1 << 33, "transfers_out": 1, "bytes_out": 96}),
    Sample("nisa.core_barrier", {"data": "hbm PxFxf32"}, {"cores": (0,)}),
    Sample("nisa.require_written", {"flag": "sbuf 1x1xi32"}, {"output": "out", "reason": "its loop did not run"},
           ({"P": 1},)),
    Sample("nisa.sendrecv", {"dst": A, "src": A}, {"send_to": 0, "receive_from": 0, "pipe": 3}),
    Sample("nisa.all_reduce", {"dst": A, "src": A}, {"op": "add", "groups": "[[0]]"}),
    Sample("nisa.all_gather", {"dst": A, "src": A}, {"dim": 1, "groups": "[[0]]"}),
    Sample("nisa.reduce_scatter", {"dst": A, "src": A}, {"op": "maximum", "groups": "[[0]]"}),
    Sample("nisa.all_to_all", {"dst": "hbm PxFxf32", "src": "hbm PxFxf32"}, {"groups": "[[0], [2, 1]]"},
           ({"P": 2, "F": 1}, {"P": 128, "F": 512})),
    Sample("nisa.ring_permute", {"dst": A, "src": A, "other": A}, {"groups": "[[0]]"}),
    Sample("nisa.permute", {"dst": "hbm PxFxf32", "src": "hbm PxFxf32"}, {"pairs": (0, 0)}),
    Sample("nisa.varying_exchange", {"dst": "hbm Kxf32", "src": "hbm Kxf32", "metadata": "hbm 3x1xui32"},
           {"to_all": False, "groups": "[[0]]"}, ({"K": 8}, {"K": 512})),
    Sample("nisa.rank_id", {"dst": "sbuf 1x1xi32"}, {"steps": 1, "groups": "[[0]]"}, ({"P": 1},)),
]


def turned(arrays: Sequence[np.ndarray], numbers: Sequence[float]) -> np.ndarray:
    """The program of the sample, which refuses shapes as a custom operator does: with an error of the toolchain."""
    result, *added = [array.astype(np.float32) for array in arrays]
    result = result.T * numbers[0]
    for array in added:
        if array.size != 1 and array.shape != result.shape:
            raise NkiMlirError(f"turned adds arrays of shape {list(result.shape)}, got {list(array.shape)}")
        result = result + array
    return result


PROGRAMS["tests", "turned"] = turned
SAMPLES = {s.name: s for s in _GIVEN}


# -- on arrays ---------------------------------------------------------------------------------------------------------
def values(t: Tile, seed: int = 0) -> np.ndarray:
    """An array for a tile's buffer: moderate numbers, no zero among floats."""
    rng = np.random.default_rng((seed, *t.base_shape))
    if t.base_dtype is BOOL:
        return rng.integers(0, 2, t.base_shape).astype(np.bool_)
    if t.base_dtype.is_integer:
        return rng.integers(0, 4, t.base_shape).astype(t.base_dtype.numpy)
    plain = rng.uniform(0.25, 2.0, t.base_shape) * rng.choice([-1.0, 1.0], t.base_shape)
    return convert(plain.astype(np.float32), t.base_dtype)


def arrays_of(op: Op) -> dict[str, np.ndarray]:
    """An array for each tile, different ones."""
    return {f.name: values(t, seed) for seed, (f, t) in enumerate(op.operands())}


def run(op: Op, arrays: dict[str, np.ndarray], symbols: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    """Execute on copies of the arrays; all buffers afterwards."""
    after = {name: array.copy() for name, array in arrays.items()}
    compile_op(op)([after[f.name] for f, _ in op.operands()], symbols)
    return after


# -- in IR -------------------------------------------------------------------------------------------------------------
@cache
def context() -> Any:
    return new_context()


def module_text(op: Op) -> str:
    """A module whose one function has the operation's buffers as arguments and performs it."""
    with context(), ir.Location.unknown():
        make = Attributes()
        module = ir.Module.create()
        kinds = [make.memref(t.base_shape, t.base_dtype, t.space) for _, t in op.operands()]
        signature = ir.TypeAttr.get(ir.FunctionType.get(kinds, []))
        function = ir.Operation.create("func.func", regions=1, ip=ir.InsertionPoint(module.body), attributes={
            "sym_name": ir.StringAttr.get("kernel"), "function_type": signature})
        block = function.regions[0].blocks.append(*kinds)
        with ir.InsertionPoint(block):
            for (_, t), value in zip(op.operands(), block.arguments):
                object.__setattr__(t, "handle", value)
            write_op(op, make)
            ir.Operation.create("func.return")
        return str(module)


def tile_operations(module: Any) -> Iterator[Any]:
    """The tile operations of a module's functions, outermost ones only."""
    for function in module.body.operations:
        for block in function.operation.regions[0].blocks:
            yield from (o.operation for o in block.operations if o.operation.name in REGISTRY)
