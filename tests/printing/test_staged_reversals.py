# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies between tensors that step backwards: the loads and stores of rows copy the same elements, by hand."""

from itertools import product

import pytest

from nki_mlir.bindings import Module, ir, operations_of
from nki_mlir.dialects.mlir_ops import is_tile_op, new_context, read_op
from nki_mlir.machine import machine_named
from nki_mlir.printing.staged_reversals import stage_reversals

MOST = machine_named("trn2").sbuf_bytes_per_partition // 4 // 4         # float32 of a row: a quarter of a partition
BACKWARDS = (112, [[-16, 8], [1, 16]])
FORWARDS = (0, [[16, 8], [1, 16]])


def access(start, dims, space="hbm"):
    starts = f"({start})" if space == "hbm" else f"(0, {start})"
    return f"#nki.access<f32, affine_map<() -> {starts}>, {dims}>"


def operations_after(dst, src, size=128, run=stage_reversals, spaces=("hbm", "hbm"), mask="() : (0 == 0)", same=False):
    """The operations on tiles in a kernel that copies ``src`` to ``dst``, each a start and (step, count) of dims."""
    kinds = [f'memref<{size}xf32, "hbm">' if space == "hbm" else f'memref<8x{size}xf32, "sbuf">' for space in spaces]
    arguments = f'%r: memref<{size}xf32, "hbm"> {{nki.name = "r"}}, %x: memref<{size}xf32, "hbm"> {{nki.name = "x"}}'
    allocated = "\n".join(f"%t{k} = memref.alloc() : {kind}" for k, kind in enumerate(kinds))
    names = ["%t0" if spaces[0] != "hbm" else "%r", "%r" if same else "%t1" if spaces[1] != "hbm" else "%x"]
    with new_context(), ir.Location.unknown():
        module = Module.parse(f'''
func.func @f({arguments}) attributes {{nki.grid = [], nki.results = []}} {{
  {allocated}
  "nisa.dma_copy"({", ".join(names)}) {{access = [{access(*dst, spaces[0])}, {access(*src, spaces[1])}], engine = "sync",
    mask = affine_set<{mask}>}} : ({", ".join(kinds)}) -> ()
  return
}}''')
        run(module)
        assert module.operation.verify()
        return [read_op(op) for op in operations_of(module, lambda name: True) if is_tile_op(op)]


def elements(tile):
    start, dims = tile.access.free.const, tile.access.dims
    return [start + sum(step * at for (step, _), at in zip(dims, point))
            for point in product(*(range(count) for _, count in dims))]


def pairs(operations):
    """The elements that are copied, destination and source."""
    copied = []
    for load, store in zip(operations[::2], operations[1::2]):
        assert (type(load).__name__, type(store).__name__) == ("LoadOp", "StoreOp")
        assert load.dst.handle == store.src.handle and elements(load.dst) == elements(store.src)
        copied += zip(elements(store.dst), elements(load.src))
    return copied


@pytest.mark.parametrize("dst, src, size, rows", [
    (FORWARDS, BACKWARDS, 128, [8]), (BACKWARDS, FORWARDS, 128, [8]), (BACKWARDS, BACKWARDS, 128, [8]),
    ((0, [[1, 100]]), (99, [[-1, 100]]), 128, [100]),
    ((0, [[2, 300], [1, 2]]), (598, [[-2, 300], [1, 2]]), 600, [128, 128, 44]),
    ((0, [[2, 128], [1, 2]]), (254, [[-2, 128], [1, 2]]), 256, [128]),
    ((0, [[2, 129], [1, 2]]), (256, [[-2, 129], [1, 2]]), 258, [128, 1]),
    ((0, [[16, 8], [1, 16]]), (15, [[16, 8], [-1, 16]]), 128, [8]),
    ((0, [[32, 4], [8, 4], [1, 8]]), (96, [[-32, 4], [8, 4], [1, 8]]), 128, [4]),
    ((0, [[16, 1], [16, 8], [1, 16]]), (112, [[16, 1], [-16, 8], [1, 16]]), 128, [8]),
    ((0, [[MOST, 2], [1, MOST]]), (MOST, [[-MOST, 2], [1, MOST]]), 2 * MOST, [2])], ids=range(11))
def test_rows_go_through_tiles(dst, src, size, rows):
    copy, = operations_after(dst, src, size, run=lambda module: None)
    operations = operations_after(dst, src, size)
    assert [load.dst.access.dims[0][1] for load in operations[::2]] == rows
    assert pairs(operations) == list(zip(elements(copy.dst), elements(copy.src)))
    assert all(tile.dtype.name == "float32" for op in operations for _, tile in op.operands())


@pytest.mark.parametrize("dst, src, options", [
    (FORWARDS, FORWARDS, {}), ((0, [[16, 1], [1, 16]]), (0, [[-16, 1], [1, 16]]), {}),
    (FORWARDS, BACKWARDS, {"same": True}), (FORWARDS, BACKWARDS, {"mask": "(d0, d1) : (d0 - 2 >= 0)"}),
    ((0, [[1, 8], [1, 16]]), BACKWARDS, {"spaces": ("sbuf", "hbm")}),
    (BACKWARDS, (0, [[1, 8], [1, 16]]), {"spaces": ("hbm", "sbuf")}),
    ((0, [[MOST + 1, 2], [1, MOST + 1]]), (MOST + 1, [[-MOST - 1, 2], [1, MOST + 1]]), {"size": 2 * MOST + 2})], ids=range(7))
def test_copies_that_stay(dst, src, options):
    copy, = operations_after(dst, src, **options)
    assert type(copy).__name__ == "DmaCopyOp" and copy.dst.access.dims == tuple(map(tuple, dst[1]))
