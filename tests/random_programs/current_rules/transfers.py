# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers, views, run-time addresses."""

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT8, INT16, INT32, UINT8, UINT16, UINT32

from ..beta import kind
from ..current import CurrentWriter, rule
from ..writer import Facts
from .operands import ANY_BITS, PLAIN


@rule(2)
def views(w: CurrentWriter):
    a = w.operand((w.P, w.F), PLAIN)
    P, F = a.shape
    base = w.into(f"nisa.tensor_copy(DST, {a.text})", a.shape, a.dtype, a.facts).text      # its own storage
    forms = [(f"{base}.ap([[{F}, {P}], [1, {F}]])", (P, F)), (f"{base}.expand_dim(1).broadcast(1, 3)", (P, 3, F)),
             (f"{base}.ap([[{F}, {P}], [0, 3], [1, {F}]])", (P, 3, F))]
    if F % 2 == 0:
        forms += [(f"{base}.ap([[{F}, {P}], [2, {F // 2}]], offset=1)", (P, F // 2)), (f"{base}[:, ::2]", (P, F // 2)),
                  (f"{base}.reshape_dim(1, (2, {F // 2})).permute((0, 2, 1))", (P, F // 2, 2)),
                  (f"{base}.ap([[{F}, {P}], [1, 2], [2, {F // 2}]])", (P, 2, F // 2)),
                  (f"{base}.reshape_dim(1, ({F // 2}, 2)).select(2, 1)", (P, F // 2))]
    if F > 4:
        forms += [(f"{base}.ap([[{F}, {P}], [1, 3]], scalar_offset={w.register(w.between(0, F - 3))}, indirect_dim=1)",
                   (P, 3)), (f"{base}.slice(1, 1, {F - 1}, 2)", (P, (F - 1) // 2))]
    text, shape = w.pick(*forms)
    w.note("view", "ap")
    w.into(f"nisa.tensor_copy(DST, {text})", shape, a.dtype, a.facts)


@rule()
def reinterpreted(w: CurrentWriter):
    """View the bytes of a tile as another dtype."""
    a = w.operand((w.P, w.F), (INT32, UINT32, FLOAT32, UINT16, INT16, UINT8))
    base = w.into(f"nisa.tensor_copy(DST, {a.text})", a.shape, a.dtype, a.facts).text
    to = w.pick(UINT8, UINT16, BFLOAT16, UINT32, INT32, INT8)
    if w.F * a.dtype.itemsize % to.itemsize:
        return False
    w.note("view of bytes")
    wide = w.F * a.dtype.itemsize // to.itemsize
    name = f"{base}.view({kind(to)})" if w.maybe() else \
        f"{base}.ap([[{wide}, {w.P}], [1, {wide}]], offset=0, dtype={kind(to)})"
    return w.into(f"nisa.tensor_copy(DST, {name})", (w.P, wide), to, Facts().cast(to) if to.is_float else ANY_BITS.cast(to))


@rule(2)
def dynamic_rows(w: CurrentWriter):
    """Copy from HBM at run-time addresses."""
    dtype = w.pick(FLOAT32, BFLOAT16, INT32, UINT8)
    table, facts = w.array(dtype, "small")
    P = w.pick(w.P, 8)
    if w.maybe():
        w.note("dma_copy with scalar_offset")
        at = w.register(w.between(0, 60))
        return w.into(f"nisa.dma_copy(DST, {table}.ap([[192, {P}], [1, {w.F}]], scalar_offset={at}, indirect_dim=0))",
                      (P, w.F), dtype, facts)
    w.note("dma_copy with vector_offset")
    rows = w.into(f"nisa.iota(DST, [[0, 1]], offset={w.between(0, 9)}, channel_multiplier=1)", (P, 1), INT32, Facts(140, 1))
    view = w.pick(f"{table}.ap([[192, {P}], [1, {w.F}]], vector_offset={rows.text})",
                  f"{table}[:, 0:{w.F}].vector_select(0, {rows.text})")
    return w.into(f"nisa.dma_copy(DST, {view})", (P, w.F), dtype, facts)


@rule()
def through_hbm(w: CurrentWriter):
    a = w.operand((w.P, w.F), PLAIN)
    name = w.name("hbm")
    w.note("private_hbm", "nisa.dma_compute" if a.dtype is FLOAT32 else "nisa.dma_copy")
    w.emit(f"{name} = nl.ndarray({a.shape}, {kind(a.dtype)}, buffer=nl.private_hbm)")
    w.emit(f"nisa.dma_copy({name}, {a.text})")
    if a.dtype is FLOAT32 and w.maybe():
        w.emit(f"nisa.dma_compute({name}, [{name}, {a.text}], nl.add)")
        loaded = w.into(f"nisa.dma_copy(DST, {name})", a.shape, a.dtype, Facts(2 * a.facts.bound, a.facts.unit))
        return w.emit(f"nisa.tensor_scalar({loaded.text}, {loaded.text}, nl.add, 0.0)")  # the sign of 0 is not fixed
    if w.maybe():
        return w.into(f"nisa.dma_copy(DST, {name}.reshape(({w.F}, {w.P})))", (w.F, w.P), a.dtype, a.facts)
    return w.into(f"nisa.dma_copy(DST, {name})", a.shape, a.dtype, a.facts)


@rule()
def registers(w: CurrentWriter):
    r, other = w.register(w.between(0, 5)), w.name("r")
    w.note("register_move", "register_store")
    w.emit(f"{other} = nisa.register_alloc({w.between(-4, 4)})")
    if w.maybe():
        w.emit(f"nisa.register_move({other}, {r})")
    w.into(f"nisa.register_store(DST, {other})", (1, 1), INT32, Facts(5, 1))


@rule()
def indirect_columns(w: CurrentWriter):
    if w.P % 16:
        return False
    a = w.operand((w.P, w.F), (FLOAT32, INT32, BFLOAT16))
    base = w.into(f"nisa.tensor_copy(DST, {a.text})", a.shape, a.dtype, a.facts)
    index = w.fresh((w.P, 1), UINT32, "one")
    if w.F < 2:
        return False
    w.note("view.indirect")
    return w.into(f"nisa.tensor_copy(DST, {base.text}.indirect({index.text}))", (w.P, 16), a.dtype, a.facts)


@rule()
def stored(w: CurrentWriter):
    w.note("store")
    w.store(w.operand(None, w.dtypes))
