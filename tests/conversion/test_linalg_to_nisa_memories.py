# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""linalg-to-nisa: memories, partitions, patterns and sizes of operands are those that engines can address."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import read_op, shared_context
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.passes.pass_manager import pass_named, run_passes

from .nisa_level import BF16, check, floats, instructions, make


def test_two_psum_sources_and_gpsimd():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        p, q = nl.matmul(x, y, transpose_x=True), nl.matmul(y, x, transpose_x=True)
        s = nl.add(p, q)
        t = nl.power(nl.abs(p), 0.5)
        nl.store(out, nl.add(s, t))
        return out
    module, _ = check(kernel, floats(64, 64), floats(64, 64))
    for op in map(read_op, instructions(module)):
        if op.name == "tensor_tensor":
            assert [t.space for _, t in op.sources()].count("psum") <= 1
        if op.engine == "gpsimd":
            assert all(t.space == "sbuf" for _, t in op.operands())


def test_copies_out_of_psum__leave_the_engine_open():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((4, 64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        nl.store(out[0], nl.copy(nl.matmul(x, y, transpose_x=True)))
        nl.store(out[1], nl.copy(nl.matmul(y, x, transpose_x=True)))
        nl.store(out[2], nl.copy(nl.matmul(x, x, transpose_x=True)))
        nl.store(out[3], nl.copy(nl.matmul(y, y, transpose_x=True), dtype=nl.bfloat16))
        return out
    module, _ = check(kernel, floats(64, 64) / 4, floats(64, 64) / 4)
    engines = [read_op(op).engine for op in instructions(module) if op.name == "nisa.tensor_copy"]
    assert engines == ["unknown"] * 4       # schedule-instructions decides, by costs


@pytest.mark.parametrize("start, stop", [(0, 32), (32, 64), (64, 128), (5, 9), (33, 128), (96, 128), (31, 65)])
def test_partitions_that_engines_cannot_start_at(start, stop):
    """Reads and writes of any rows; what an engine cannot address goes through a transfer."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        n = stop - start
        tile = nl.load(x)
        part = nl.exp(tile[start:stop, :])
        tile[start:stop, 0:20] = nl.add(part[0:n, 0:20], tile[start:stop, 20:40])
        nl.store(out, tile)
        return out
    check(kernel, floats(128, 40) / 4)


def test_rows_of_a_psum_tile():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((20, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        product = nl.matmul(x, y, transpose_x=True)
        product[3:7, :] = nl.add(product[10:14, :], 1.0)
        nl.store(out, nl.exp(product[5:25, :] * 0.01))
        return out
    check(kernel, floats(64, 64), floats(64, 64))


def test_partition_start_that_moves_with_a_loop():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        result = nl.ndarray((128, 40), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            result[i * 32:(i + 1) * 32, :] = nl.exp(tile[i * 32:(i + 1) * 32, :])
        for i in nl.affine_range(8):
            tile[i * 16:(i + 1) * 16, :] = nl.add(result[i * 16:(i + 1) * 16, :], 1.0)
        nl.store(out, tile)
        return out
    module, _ = check(kernel, floats(128, 40) / 4)
    assert str(module).count("scf.for") == 2


def test_more_free_dims_than_a_pattern_has():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((8, 2, 3, 2, 3, 2), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        p, a, b, c, d, e = nl.mgrid[0:8, 0:2, 0:3, 0:2, 0:3, 0:2]
        nl.store(out, nl.exp(tile[p, e, d, c, b, a]))
        return out
    x = floats(8, 2, 3, 2, 3, 2) / 4
    module, result = check(kernel, x)
    np.testing.assert_allclose(result, np.exp(x.transpose(0, 5, 4, 3, 2, 1)), rtol=1e-5)
    assert all(sum(n > 1 for _, n in t.access.free_dims) <= 4 for op in map(read_op, instructions(module))
               for _, t in op.operands() if t.on_chip)


def test_more_elements_than_an_instruction_takes():
    check(make(lambda t: nl.add(t, 1.0, dtype=nl.bfloat16)), floats(2, 70_000, dtype=BF16))


def test_bounds_that_only_run_time_knows_stay_with_the_transfer():
    """The view's offset is 480 (i - 2 (i / 2)), which intervals put between -480 and 1440."""
    view = 'memref<16x30xf32, strided<[30, 1], offset: ?>, "hbm">'
    with shared_context():
        module = ir.Module.parse(f"""
        func.func @k(%x: memref<32x30xf32, "hbm">) {{
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %c4 = arith.constant 4 : index
          scf.for %i = %c0 to %c4 step %c1 {{
            %h = affine.apply affine_map<()[s0] -> (s0 floordiv 2)>()[%i]
            %at = affine.apply affine_map<()[s0, s1] -> (s0 * 480 + s1 * -960)>()[%i, %h]
            %v = memref.reinterpret_cast %x to offset: [%at], sizes: [16, 30], strides: [30, 1]
              : memref<32x30xf32, "hbm"> to {view}
            %t = memref.alloc() : memref<16x30xf32, "sbuf">
            linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>,
                affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>],
                iterator_types = ["parallel", "parallel"],
                nki.limits = affine_set<(d0, d1)[s0, s1] : (31 - d0 - s0 * 16 + s1 * 32 >= 0)>}}
              ins(%v, %i, %h : {view}, index, index) outs(%t : memref<16x30xf32, "sbuf">) {{
            ^bb0(%p: f32, %a: index, %b: index, %r: f32):
              linalg.yield %p : f32
            }}
          }}
          return
        }}""")
    run_passes(module, [pass_named("linalg-to-nisa")])
    assert module.operation.verify()
    op, = map(read_op, instructions(module))
    assert [(c.form.const, c.form.axes) for c in op.limits] == [(31, ((0, -1),))]
    assert op.src.access.free.symbols == ((0, 480), (1, -960))
