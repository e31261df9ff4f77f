# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products, transposes, microscaling."""

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT32, UINT8, UINT32

from ..beta import kind
from ..current import CurrentWriter, rule
from ..writer import Facts, Tile
from .operands import ANY_BITS, PLAIN, small


@rule(3)
def product(w: CurrentWriter):
    K, M, N = w.P, w.between(1, 24), w.pick(w.F, 1, 33)
    dtype = w.pick(FLOAT32, BFLOAT16, FLOAT16)
    a, b = small(w, (K, M), (dtype,), K * 8), small(w, (K, N), (dtype,), K * 8)
    if a is None or b is None:
        return False
    facts = Facts(2 * K * a.facts.bound * b.facts.bound, a.facts.unit * b.facts.unit)
    if facts.bound / facts.unit >= 2.0 ** 23:
        return False
    w.note("nisa.nc_matmul", f"matmul.{dtype.name}")
    total = w.name("acc")
    w.emit(f"{total} = nl.zeros(({M}, {N}), nl.float32, buffer=nl.psum)")
    w.emit(f"nisa.nc_matmul({total}, {a.text}, {b.text}{w.pick('', ', accumulate=False', ', accumulate=True')})")
    if w.maybe():
        w.emit(f"nisa.nc_matmul({total}, {a.text}, {b.text}, accumulate=True)")
    return w.into(f"nisa.tensor_scalar(DST, {total}, nl.add, 0.0)", (M, N), FLOAT32, facts)


@rule()
def product_of_double_rows(w: CurrentWriter):
    K, M, N = w.P, w.between(1, 24), w.pick(w.F, 1, 33)
    dtype = w.pick(FLOAT8_E4M3, FLOAT8_E5M2)
    rows = [small(w, (K, 2 * columns), (dtype,), K * 8) for columns in (M, N)]
    if None in rows:
        return False
    a, b = rows
    facts = Facts(4 * K * a.facts.bound * b.facts.bound, a.facts.unit * b.facts.unit)
    if facts.bound / facts.unit >= 2.0 ** 23:
        return False
    w.note("nisa.nc_matmul", "matmul.double_row")
    total, pairs = w.name("acc"), [w.name(), w.name()]
    for pair, tile, columns in zip(pairs, rows, (M, N)):
        w.emit(f"{pair} = nl.ndarray(({K}, 2, {columns}), {kind(dtype)})")
        w.emit(f"nisa.tensor_copy({pair}, {tile.text})")
    w.emit(f"{total} = nl.ndarray(({M}, {N}), nl.float32, buffer=nl.psum)")
    for accumulate in (False, True)[:w.between(1, 2)]:
        w.emit(f"nisa.nc_matmul({total}, {pairs[0]}, {pairs[1]}, accumulate={accumulate}, "
               "perf_mode=nisa.matmul_perf_mode.double_row)")
    return w.into(f"nisa.tensor_scalar(DST, {total}, nl.add, 0.0)", (M, N), FLOAT32, facts)


@rule()
def transposes(w: CurrentWriter):
    a = w.operand((w.P, w.F), tuple(d for d in PLAIN if d.bits > 8))
    if w.maybe():
        w.note("nisa.dma_transpose")
        return w.into(f"nisa.dma_transpose(DST, {a.text})", a.shape[::-1], a.dtype, a.facts)
    w.note("nisa.nc_transpose")
    if max(a.shape) > 32:
        if not a.dtype.is_float:
            return False
        total = w.name("transposed")
        w.emit(f"{total} = nl.ndarray({a.shape[::-1]}, {kind(a.dtype)}, buffer=nl.psum)")
        w.emit(f"nisa.nc_transpose({total}, {a.text})")
        return w.into(f"nisa.tensor_copy(DST, {total})", a.shape[::-1], a.dtype, a.facts)
    return w.into(f"nisa.nc_transpose(DST, {a.text})", a.shape[::-1], a.dtype, a.facts)


@rule()
def microscaling(w: CurrentWriter):
    if w.P not in (32, 64, 128) or w.loops:
        return False
    element = w.pick("float8_e4m3fn", "float8_e5m2")
    w.note("nisa.quantize_mx", "nisa.nc_matmul_mx")
    parts = []
    for columns in (4, 6):
        source, _ = w.array(BFLOAT16, "fraction")
        x, data, scale = w.name(), w.name(), w.name()
        w.emit(f"{x} = nl.load({source}[0:{w.P}, {w.between(0, 9)}:{9 + 4 * columns + 99}][:, 0:{4 * columns}])")
        w.emit(f"{data}, {scale} = nl.ndarray(({w.P}, {columns}), nl.uint32), nl.full(({w.P}, {columns}), 0, nl.uint8)")
        w.emit(f"nisa.quantize_mx({data}.view(nl.{element}_x4), {x}, {scale})")
        w.keep(Tile(data, (w.P, columns), UINT32, ANY_BITS))
        w.keep(Tile(scale, (w.P, columns), UINT8, Facts(255, 1)))
        parts += [data, scale]
    total, result = w.name("acc"), w.name()
    w.emit(f"{total} = nl.ndarray((4, 6), nl.float32, buffer=nl.psum)")
    w.emit(f"nisa.nc_matmul_mx({total}, {parts[0]}.view(nl.{element}_x4), {parts[2]}.view(nl.{element}_x4), {parts[1]}, "
           f"{parts[3]}{w.pick('', ', accumulate=False', f', tile_position=(0, 0), tile_size=({w.P}, 128)')})")
    w.emit(f"{result} = nl.ndarray((4, 6), nl.float32)")
    w.emit(f"nisa.tensor_copy({result}, {total})")
    w.store(Tile(result, (4, 6), FLOAT32, Facts()), 1e-4, 1e-3)
    return None
