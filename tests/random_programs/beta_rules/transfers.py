# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run-time addresses, transfers, views, constants."""

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT32, UINT8

from ..beta import BetaWriter, kind, rule
from ..writer import Facts, Tile


@rule(2)
def rows_by_index(w: BetaWriter):
    """Gather of rows, and scatter to an output."""
    index, _ = w.array(INT32, "one")
    dtype = w.pick(FLOAT32, BFLOAT16, INT32, UINT8)
    table, facts = w.array(dtype, "small")
    P = w.pick(w.P, 8)
    rows = w.let(f"nl.add(nl.load({index}[0:{P}, 3:4]) * {w.between(1, 50)}, {w.between(0, 40)}, dtype=nl.int32)",
                 (P, 1), INT32, Facts(90, 1))
    w.note("gather of rows")
    columns, mask = f"nl.arange({w.F})[None, :]", w.mask((P, w.F), boxes=True)
    if P + w.F <= 192 and w.maybe(3):               # columns differ from row to row
        columns, mask = f"nl.arange({P})[:, None] * {w.pick(0, 1)} + {columns}", ""
    gathered = w.let(f"nl.load({table}[{rows.text}, {columns}]{mask})", (P, w.F), dtype, facts.join(Facts(0, 1)))
    if w.maybe() and not w.loops and P <= 64:
        w.note("scatter of rows", "nl.atomic_rmw")
        out = w.output((96, w.F), FLOAT32)
        w.emit(f"nl.store({out}[0:96, ...], nl.zeros((96, {w.F}), nl.float32))")
        if w.maybe():
            unique = w.let(f"nisa.iota(nl.arange({P})[:, None] + {w.between(0, 9)}, nl.int32)", (P, 1), INT32, Facts(80, 1))
            w.emit(f"nl.store({out}[{unique.text}, nl.arange({w.F})[None, :]], {gathered.text})")
        else:
            w.emit(f"nl.atomic_rmw({out}[{rows.text}, nl.arange({w.F})[None, :]], nl.copy({gathered.text}, "
                   f"dtype=nl.float32), op=np.add)")


@rule(2)
def dynamic_offset(w: BetaWriter):
    if w.F < 4:
        return False
    a = w.operand((w.P, w.F), tuple(d for d in w.dtypes if d.name != "tfloat32"))
    index, _ = w.array(INT32, "one")
    at = w.let(f"nl.load({index}[{w.between(0, 30)}:{31}, 0:1])[0:1, 0:1]", (1, 1), INT32, Facts(1, 1))
    w.note("nisa.tensor_copy_dynamic_src")
    n = w.F // 2
    p, f = f"nl.arange({w.P})[:, None]", f"nl.arange({n})[None, :]"
    dtype, kwarg = (FLOAT32, ", dtype=nl.float32, engine=nisa.vector_engine") if w.maybe() else (a.dtype, "")
    mask = w.mask((w.P, n), boxes=True)
    piece = w.let(f"nisa.tensor_copy_dynamic_src({a.text}[{p}, {at.text}[0, 0] + {f}]{kwarg}{mask})", (w.P, n), dtype,
                  a.facts.join(Facts(0, 1)).cast(dtype))
    if w.maybe():
        w.note("nisa.tensor_copy_dynamic_dst")
        name = w.name()
        w.emit(f"{name} = nl.full(({w.P}, {w.F}), 1, {kind(dtype)})")
        w.emit(f"nisa.tensor_copy_dynamic_dst(dst={name}[{p}, {at.text}[0, 0] + {f}], src={piece.text}{kwarg}"
               f"{w.mask((w.P, n), boxes=True)})")
        w.keep(Tile(name, (w.P, w.F), dtype, piece.facts.join(Facts(1, 1))))
    return None


@rule()
def through_hbm(w: BetaWriter):
    """Store an operand to a private tensor, with nl.store or nisa.dma_copy, and load it."""
    a = w.operand((w.P, w.F), tuple(d for d in w.dtypes if d.name != "tfloat32"))
    name = w.name("hbm")
    w.note("private_hbm", "nisa.dma_copy")
    w.emit(f"{name} = nl.ndarray({a.shape}, {kind(a.dtype)}, buffer=nl.private_hbm)")
    w.emit(f"nl.store({name}, nl.zeros({a.shape}, {kind(a.dtype)}))")
    w.emit(w.pick(f"nl.store({name}, {a.text}{w.mask(a.shape)})",
                  f"nisa.dma_copy(dst={name}, src={a.text}{w.mask(a.shape)})"))
    w.let(f"nl.load({name})", a.shape, a.dtype, a.facts.join(Facts(0, 1)))


@rule()
def view(w: BetaWriter):
    """Assign a view to a name, which later operations use as a tile."""
    a = w.operand((w.P, w.F), w.dtypes)
    forms = [(f"{a.text}.broadcast_to(({w.P}, {w.F}))", a.shape), (f"{a.text}.expand_dims(1)", (w.P, 1, w.F))]
    if w.F % 2 == 0:
        forms += [(f"{a.text}.reshape(({w.P}, {w.F // 2}, 2))", (w.P, w.F // 2, 2)),
                  (f"{a.text}[:, 1::2]", (w.P, w.F // 2)),
                  (f"{a.text}[nl.arange({w.P})[:, None], nl.arange({w.F // 2})[None, :] * 2]", (w.P, w.F // 2)),
                  (f"{a.text}.reshape(({w.P}, {w.F // 2}, 2))[:, :, 0]", (w.P, w.F // 2))]
    text, shape = w.pick(*forms)
    w.note("view")
    w.let(f"nl.copy({text}{w.mask(shape)})", shape, a.dtype, a.facts)


@rule()
def sums_of_loops(w: BetaWriter):
    if w.loops:
        return False
    name, facts = w.array(FLOAT32, "small")
    total, count, op = w.name("total"), w.between(1, 4), w.pick("add", "maximum", "minimum")
    w.note("nl.loop_reduce")
    w.emit(f"{total} = nl.ndarray(({w.P}, {w.F}), nl.float32)")
    w.emit(f"for k in nl.affine_range({count}):")
    w.emit(f"    {total}[...] = nl.loop_reduce(nl.load({name}[0:{w.P}, nl.ds(k * 20, {w.F})]), op=np.{op}, "
           f"loop_indices=[k])")
    w.keep(Tile(total, (w.P, w.F), FLOAT32, Facts(facts.bound * count, 1)))
    return None


@rule()
def printed(w: BetaWriter):
    a = w.operand((w.P, w.F), w.dtypes)
    w.note("nl.device_print")
    w.emit(f"nl.device_print('value', {a.text}{w.mask(a.shape, fold=True)})")


@rule()
def stored(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    if not w.conditional:
        w.note("nl.store")
        w.store(a)


@rule()
def constants(w: BetaWriter):
    n = w.between(1, 32)
    a = w.operand((w.P, w.F), w.dtypes)
    text, shape, dtype = w.pick(
        (f"nl.load(nl.shared_identity_matrix({n}, dtype=nl.uint8))", (n, n), UINT8),
        (f"nl.load(nl.shared_constant(np.arange({3 * n}).reshape(3, {n}) % 7, dtype=nl.int32))", (3, n), INT32),
        (f"nl.zeros_like({a.text}, dtype=nl.float32)", a.shape, FLOAT32),
        (f"nl.copy(nl.expand_dims({a.text}, 1) * 0, dtype=nl.int32)", (w.P, 1, w.F), INT32),
        (f"nl.copy(nl.broadcast_to(nl.load(nl.shared_constant(np.full((1, {n}), 3), dtype=nl.int32)), shape=(4, {n})))",
         (4, n), INT32))
    w.note("constants")
    if w.loops:
        return False
    return w.let(text, shape, dtype, Facts(7, 1))
