# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views as destinations: patterns, parts, other types, run-time addresses; totals that round as they grow."""

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT8, INT16, INT32, UINT8, UINT16, UINT32

from ..beta import kind
from ..current import CurrentWriter, rule
from ..writer import FLOATS, Facts, Tile
from .operands import PLAIN, number


@rule(3)
def written_views(w: CurrentWriter):
    """Write a part of a tile through a pattern; the other elements keep their values."""
    P, F, dtype = w.P, w.F, w.pick(*PLAIN)
    base = w.full(1, (P, F), dtype)
    forms = [(f"{base}.ap([[{F}, {P}], [1, {F}]])", F), (f"{base}[:, 0:{(F + 1) // 2}]", (F + 1) // 2)]
    if F % 2 == 0:
        forms += [(f"{base}.ap([[{F}, {P}], [2, {F // 2}]], offset=1)", F // 2), (f"{base}[:, ::2]", F // 2),
                  (f"{base}.reshape_dim(1, ({F // 2}, 2)).select(2, 1)", F // 2)]
    if F > 4:
        at = w.register(w.between(0, F - 3))
        forms += [(f"{base}.ap([[{F}, {P}], [1, 3]], scalar_offset={at}, indirect_dim=1)", 3),
                  (f"{base}.slice(1, 1, {F - 1}, 2)", (F - 1) // 2)]
    for _ in range(w.between(1, 2)):
        view, columns = w.pick(*forms)
        a = w.operand((P, columns), w.dtypes)
        w.note("view as destination")
        w.emit(w.pick(f"nisa.tensor_copy({view}, {a.text})", f"nisa.activation({view}, nl.copy, {a.text})",
                      f"nisa.tensor_scalar({view}, {a.text}, nl.maximum, {number(w)[0]})",
                      f"nisa.tensor_tensor({view}, {a.text}, {view}, nl.maximum)"))
    return w.keep(Tile(base, (P, F), dtype, Facts().cast(dtype)))


@rule()
def written_bytes(w: CurrentWriter):
    """Write a tile as another dtype than its reads have."""
    dtype, to = w.pick(INT32, UINT32, FLOAT32, UINT16, INT16), w.pick(UINT8, UINT16, BFLOAT16, UINT32, INT32, INT8)
    wide = w.F * dtype.itemsize // to.itemsize
    if w.F * dtype.itemsize % to.itemsize:
        return False
    base = w.full(3, (w.P, w.F), dtype)
    a = w.operand((w.P, wide), (to,))
    w.note("view of bytes as destination")
    w.emit(f"nisa.tensor_copy({base}.view({kind(to)}), {a.text})")
    return w.keep(Tile(base, (w.P, w.F), dtype, Facts().cast(dtype)))


@rule(2)
def written_rows(w: CurrentWriter):
    """Copy to HBM at run-time addresses, and back."""
    a, name = w.operand((w.P, w.F), PLAIN), w.name("hbm")
    w.emit(f"{name} = nl.ndarray(({w.P + 16}, {w.F}), {kind(a.dtype)}, buffer=nl.private_hbm)")
    w.emit(f"nisa.dma_copy({name}, nl.zeros(({w.P + 16}, {w.F}), {kind(a.dtype)}))" if w.P <= 112 else
           f"nisa.dma_copy({name}[{w.P}:{w.P + 16}], nl.zeros((16, {w.F}), {kind(a.dtype)}))")
    if w.P > 112:
        w.emit(f"nisa.dma_copy({name}[0:{w.P}], nl.zeros(({w.P}, {w.F}), {kind(a.dtype)}))")
    pattern = f"{name}.ap([[{w.F}, {w.P}], [1, {w.F}]]"
    if w.maybe():
        w.note("store with scalar_offset")
        w.emit(f"nisa.dma_copy({pattern}, scalar_offset={w.register(w.between(0, 16))}, indirect_dim=0), {a.text})")
    else:
        w.note("store with vector_offset")
        rows = w.into(f"nisa.iota(DST, [[0, 1]], offset={w.between(0, 9)}, channel_multiplier=1)", (w.P, 1), INT32,
                      Facts(140, 1))
        w.emit(f"nisa.dma_copy({pattern}, vector_offset={rows.text}), {a.text})")
    return w.into(f"nisa.dma_copy(DST, {name}[nl.ds({w.pick(0, 5, 16)}, {w.P})])", (w.P, w.F), a.dtype,
                  a.facts.join(Facts(0, 1)))


@rule(2)
def rounded_as_it_grows(w: CurrentWriter):
    """Add to a total of a narrow dtype, which is rounded after every step."""
    dtype = w.pick(*(d for d in FLOATS if d.bits < 32 and d.name != "tfloat32"), UINT8)
    a = w.operand((w.P, w.F), w.dtypes)
    total = w.full(1, a.shape, dtype)
    op, turns = w.pick("add", "subtract", "multiply"), w.between(1, 4)
    w.note("rounded total")
    w.emit(f"for {w.name('k')} in {w.pick(f'range({turns})', f'nl.sequential_range({turns})', f'nl.dynamic_range({w.register(turns)})')}:")
    w.emit("    " + w.pick(f"nisa.tensor_tensor({total}, {total}, {a.text}, nl.{op})",
                           f"nisa.tensor_scalar({total}, {total}, nl.{op}, 1.125, op1=nl.add, operand1=0.25)"))
    return w.keep(Tile(total, a.shape, dtype, Facts().cast(dtype)))
