# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters and names that kernels seldom use: result dtypes of searches and transposes, orders, hints, queries."""

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, UINT8, UINT16, UINT32

from ..beta import MEETINGS, BetaWriter, kind, rule
from ..writer import Facts, Tile
from .operands import ULP, token


def finite(w: BetaWriter, shape=None, dtypes=(FLOAT32, BFLOAT16, FLOAT16)) -> Tile | None:
    """Return an operand whose sums are exact."""
    a = w.operand(shape or (w.P, w.F), dtypes, lambda t: t.facts.bound <= 16 and t.facts.sums_exactly(8 * t.free), "small")
    return a if a.facts.bound <= 16 and a.facts.sums_exactly(8 * a.free) else None


@rule()
def activation_reduce(w: BetaWriter):
    a = finite(w)
    if a is None:
        return False
    bias = w.operand((w.P, 1), (FLOAT32, BFLOAT16), lambda t: t.facts.bound <= 16 and t.facts.unit > 0, "small")
    if not bias.facts.bound <= 16:
        return False
    rows = w.name("rows")
    w.emit(f"{rows} = nl.full(({w.P}, 1), 5, nl.float32, buffer=nl.sbuf, name='{rows}')")
    w.note("nisa.activation_reduce bias, scale")
    facts = Facts(2 * a.facts.bound + bias.facts.bound, min(a.facts.unit / 2, bias.facts.unit))
    w.let(f"nisa.activation_reduce(nl.{w.pick('copy', 'relu', 'abs')}, {a.text}, reduce_op=np.add, reduce_res={rows}, "
          f"bias={bias.text}, scale={w.pick(0.5, -2.0)}, dtype=nl.float32)", a.shape, FLOAT32, facts)
    zero = f"nl.add({rows}, 0.0)"                       # the sign of a sum that is 0 is not fixed
    w.let(zero, (w.P, 1), FLOAT32, Facts(facts.bound * w.F, facts.unit))
    return None


@rule()
def copied_onto(w: BetaWriter):
    """Add to a tensor in HBM, to all of it or to some rows; ``oob_mode.skip`` skips rows beyond the table."""
    if w.loops or w.P > 96:
        return False
    a = finite(w, dtypes=(FLOAT32,))
    if a is None:
        return False
    name, rows = w.name("hbm"), w.name("rows")
    w.emit(f"{name} = nl.ndarray((100, {w.F}), nl.float32, buffer=nl.private_hbm, name='{name}')")
    w.emit(f"nl.store({name}, nl.ones((100, {w.F}), nl.float32))")
    if w.maybe():
        w.note("nisa.dma_copy dst_rmw_op")
        w.emit(f"nisa.dma_copy(dst={name}[{w.between(0, 4)}:100][0:{w.P}], src={a.text}, dst_rmw_op=np.add)"
               if w.P <= 90 else f"nisa.dma_copy(dst={name}[0:{w.P}], src={a.text}, dst_rmw_op=np.add)")
        facts = Facts(a.facts.bound + 1, a.facts.unit)
    else:
        w.note("nisa.dma_copy oob_mode")
        w.emit(f"{rows} = nisa.iota(nl.arange({w.P})[:, None] * 2 + {w.between(0, 40)}, dtype=nl.{w.pick('int32', 'uint32')})")
        w.emit(f"nisa.dma_copy(dst={name}[{rows}, nl.arange({w.F})[None, :]], src={a.text}, "
               f"oob_mode=nisa.oob_mode.skip)")
        facts = a.facts.join(Facts(1, 1))
    w.let(f"nl.load({name}[{w.between(0, 100 - w.P)}:100][0:{w.P}])", (w.P, w.F), FLOAT32, facts)
    if w.maybe():
        w.note("nl.load that skips")
        dest = w.name()
        w.emit(f"{dest} = nl.full(({w.P}, {w.F}), 2, nl.float32)")
        w.emit(f"{rows} = nisa.iota(nl.arange({w.P})[:, None] * 2 + {w.between(0, 40)}, nl.int32)")
        w.emit(f"nisa.dma_copy(dst={dest}, src={name}[{rows}, nl.arange({w.F})[None, :]], oob_mode=nisa.oob_mode.skip)")
        w.keep(Tile(dest, (w.P, w.F), FLOAT32, facts.join(Facts(2, 1))))
    return None


@rule(2)
def transposes(w: BetaWriter):
    """Emit transposes with orders of axes, result dtypes, masks and engines."""
    which = w.pick("2", "3", "nc", "nl", "load")
    w.note(f"transpose {which}")
    if which == "3":
        P = min(w.P, 32)
        sizes = (P, w.between(1, 4), w.between(1, 6))
        a = w.fresh((P, sizes[1] * sizes[2]), w.pick(FLOAT32, BFLOAT16, INT32), "small")
        return w.let(f"nisa.dma_transpose({a.text}.reshape({sizes}), axes=(2, 1, 0))", sizes[::-1], a.dtype, a.facts)
    if which == "load":
        name, facts = w.array(FLOAT32, "small")
        dtype = w.pick(FLOAT32, BFLOAT16)
        return w.let(f"nl.load_transpose2d({name}[1:{1 + w.P}, 2:{2 + w.F}]{w.mask((w.P, w.F), boxes=True)}, "
                     f"dtype={kind(dtype)})", (w.F, w.P), dtype, facts.join(Facts(0, 1)).cast(dtype))
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16))
    dtype = w.pick(FLOAT32, BFLOAT16)
    facts = a.facts.join(Facts(0, 1)).cast(dtype)
    if which == "nc":
        small = max(w.P, w.F) <= 32
        engine = w.pick("nisa.engine.unknown", "nisa.tensor_engine", *(["nisa.vector_engine"] * small))
        return w.let(f"nl.copy(nisa.nc_transpose({a.text}, dtype={kind(dtype)}, engine={engine}"
                     f"{w.mask(a.shape, boxes=True)}))", a.shape[::-1], dtype, facts)
    if which == "nl":
        return w.let(f"nl.transpose({a.text}, dtype={kind(dtype)})", a.shape[::-1], dtype, facts)
    return w.let(f"nisa.dma_transpose({a.text}, axes=(1, 0), dtype={kind(dtype)}, dge_mode=nisa.dge_mode.unknown)",
                 a.shape[::-1], dtype, facts)


@rule()
def searches(w: BetaWriter):
    a = finite(w)
    if w.special or a is None or w.F < 8:
        return False
    w.note("searches with dtypes")
    top = w.let(f"nisa.max8(src={a.text}, dtype={kind(a.dtype)})", (w.P, 8), a.dtype, a.facts)
    places = w.pick(UINT32, UINT16)
    w.let(f"nisa.nc_find_index8(data={a.text}, vals={top.text}, dtype={kind(places)})", (w.P, 8), places, Facts(w.F, 1))
    where = w.name("places")
    w.emit(f"{where} = nl.full(({w.P}, 8), 9, dtype=nl.uint32)")
    w.let(f"nisa.nc_match_replace8(data={a.text}, vals={top.text}, imm=-4.0, dst_idx={where}, dtype={kind(a.dtype)})",
          a.shape, a.dtype, a.facts.join(Facts(4, 1)))
    w.keep(Tile(where, (w.P, 8), UINT32, Facts(w.F, 1)))
    return None


@rule()
def products(w: BetaWriter):
    """Emit products with hints that change nothing, transposes by the identity, and tiles of the array."""
    K = min(w.P, 32)
    ones = w.fresh((K, 8), FLOAT32, "one")
    b = finite(w, (K, w.F), (FLOAT32,))
    if b is None:
        return False
    facts = Facts(K * b.facts.bound, b.facts.unit)
    hint = w.pick("is_stationary_onezero=True", "is_stationary_onezero=False, is_moving_onezero=False",
                  "tile_position=(0, 0), tile_size=(32, 64)", "tile_position=(32, 0), tile_size=(32, 128)")
    w.note("nisa.nc_matmul with hints", hint)
    w.let(f"nl.add(nisa.nc_matmul({ones.text}, {b.text}, {hint}), 0.0)", (8, w.F), FLOAT32, facts)
    if w.F <= 32 and w.maybe():
        w.note("nisa.nc_matmul is_transpose")
        w.let(f"nl.copy(nisa.nc_matmul({b.text}, nl.load(nl.shared_identity_matrix({K}, dtype=nl.float32)), "
              f"is_transpose=True, is_moving_onezero=True))", (w.F, K), FLOAT32, b.facts)
    return None


@rule()
def product_of_rows(w: BetaWriter):
    """``nl.matmul`` whose left operand is transposed on the way."""
    K = min(w.F, 32)
    a, b = finite(w, (w.P, K), (FLOAT32,)), finite(w, (K, w.F), (FLOAT32,))
    if a is None or b is None:
        return False
    w.note("nl.matmul transpose_x=False")
    return w.let(f"nl.add(nl.matmul({a.text}, {b.text}), 0.0)", (w.P, w.F), FLOAT32,
                 Facts(K * a.facts.bound * b.facts.bound, a.facts.unit * b.facts.unit))


@rule(4)
def assigned(w: BetaWriter):
    """Assign a result to a declared tile of another dtype, perhaps after it is rounded to a third dtype.

    Elements that the mask leaves out keep the values of the tile.
    """
    a, b = (w.operand((w.P, w.F), (BFLOAT16, FLOAT16), kind="wild") for _ in range(2))
    dtype, t = w.pick(FLOAT32, FLOAT32, BFLOAT16, FLOAT16), w.name()
    w.note("assigned with another dtype")
    shape, result = w.pick(
        (a.shape, f"nl.{w.pick('add', 'multiply', 'subtract')}({a.text}, {b.text}"),
        (a.shape, f"nl.copy({a.text}"),
        (a.shape, f"nl.where({a.text}, {b.text}, {w.pick(0.5, 2)}"),
        ((w.P, 1), f"nl.{w.pick('max', 'min')}({a.text}, axis=1, keepdims=True"))
    mask = w.mask(a.shape, often=not w.maybe(4), fold=shape != a.shape)
    kwarg = "" if w.maybe(3) else f", dtype={kind(w.pick(*(d for d in (FLOAT32, BFLOAT16, FLOAT16) if d is not dtype)))}"
    w.emit(f"{t} = nl.full({shape}, 1, {kind(dtype)})")
    w.emit(f"{t}[...] = {result}{kwarg}{mask})")
    if kwarg and mask:
        w.note("assigned under a mask after it was rounded")
    w.keep(Tile(t, shape, dtype, Facts()))


@rule()
def selections(w: BetaWriter):
    a = finite(w, dtypes=(FLOAT32,))
    if a is None:
        return False
    rows = w.name("rows")
    w.emit(f"{rows} = nl.zeros(({w.P}, 1), nl.float32, buffer=nl.sbuf, name='{rows}')")
    if w.maybe():
        w.note("nisa.select_reduce reduce_op, dtype")
        flags = w.operand(a.shape, (UINT8, UINT16))
        chosen = w.name()
        w.emit(f"{chosen} = nl.ones({a.shape}, nl.float32, buffer=nl.sbuf, name='{chosen}')")
        w.emit(f"nisa.select_reduce(dst={chosen}, predicate={flags.text}, on_true={a.text}, on_false=-3.0, "
               f"reduce_res={rows}, reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_op=np.max, dtype=nl.float32)")
        w.keep(Tile(chosen, a.shape, FLOAT32, a.facts.join(Facts(3, 1))))
    else:
        w.note("nisa.range_select reduce_op, on_false_value")
        low, high = (w.operand((w.P, 1), (FLOAT32,)).text for _ in range(2))
        w.let(f"nisa.range_select(on_true_tile={a.text}, comp_op0=np.greater, comp_op1=np.less_equal, bound0={low}, "
              f"bound1={high}, reduce_res={rows}, reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_op=np.max, "
              f"on_false_value=nl.fp32.min, dtype=nl.float32)", a.shape, FLOAT32, Facts())
    w.keep(Tile(rows, (w.P, 1), FLOAT32, Facts()))
    return None


@rule()
def predicated(w: BetaWriter):
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, INT32))
    flags, name = w.operand(a.shape, (UINT8,)), w.name()
    w.note("nisa.tensor_copy_predicated dtype")
    w.emit(f"{name} = nl.full({a.shape}, 3, {kind(a.dtype)}, name='{name}')")
    w.emit(f"nisa.tensor_copy_predicated(src={a.text}, dst={name}, predicate={flags.text}, dtype={kind(a.dtype)})")
    w.keep(Tile(name, a.shape, a.dtype, a.facts.join(Facts(3, 1))))


@rule()
def shuffled(w: BetaWriter):
    if w.P % 32:
        return False
    a, name = w.operand((w.P, w.F), (FLOAT32, INT32)), w.name()
    w.note("nisa.nc_stream_shuffle dtype")
    w.emit(f"{name} = nl.zeros({a.shape}, {kind(a.dtype)}, name='{name}')")
    w.emit(f"nisa.nc_stream_shuffle({a.text}, {name}, [{', '.join(str(31 - k) for k in range(32))}], dtype={kind(a.dtype)})")
    w.keep(Tile(name, a.shape, a.dtype, a.facts.join(Facts(0, 1))))
    return None


@rule()
def folds(w: BetaWriter):
    a = finite(w)
    if a is None:
        return False
    rows = w.name("rows")
    w.emit(f"{rows} = nl.full(({w.P}, 1), 5, nl.float32)")
    w.note("nisa.tensor_scalar_reduce reverse0", "nisa.tensor_partition_reduce dtype")
    w.let(f"nisa.tensor_scalar_reduce(data={a.text}, op0=np.subtract, operand0=2.0, reduce_op=np.max, reduce_res={rows}, "
          f"reverse0=False, dtype=nl.float32)", a.shape, FLOAT32, Facts(a.facts.bound + 2, a.facts.unit))
    w.keep(Tile(rows, (w.P, 1), FLOAT32, Facts(a.facts.bound + 5, a.facts.unit)))
    w.let(f"nisa.tensor_partition_reduce(np.max, {a.text}, dtype=nl.float32)", (1, w.F), FLOAT32, a.facts)
    return None


@rule()
def cumulative(w: BetaWriter):
    """Begin with the destination's first column, a number or the engine's register."""
    a = finite(w)
    if a is None:
        return False
    name, command = w.name(), w.pick("reset_reduce", "load_reduce")
    w.note(f"nisa.tensor_scalar_cumulative {command}")
    start = f", imm1={w.pick('1.5', w.operand((w.P, 1), (FLOAT32,)).text)}" if command == "load_reduce" else ""
    w.emit(f"{name} = nl.zeros({a.shape}, nl.float32)")
    w.emit(f"nisa.tensor_scalar_cumulative(src={a.text}, dst={name}, op0={token('multiply')}, op1={token('add')}, imm0=2.0"
           f"{start}, reduce_cmd=nisa.reduce_cmd.{command})")
    w.keep(Tile(name, a.shape, FLOAT32, Facts()))
    return None


@rule()
def statistics(w: BetaWriter):
    a = finite(w, dtypes=(FLOAT32,))
    if a is None:
        return False
    stats = w.name()
    w.note("nisa.bn_aggr mask, dtype")
    w.emit(f"{stats} = nisa.bn_stats({a.text}, dtype=nl.float32)")
    error = w.F * ULP * 16
    return w.inexact(f"nisa.bn_aggr({stats}, dtype=nl.float32{w.rows_mask(w.P)})", (w.P, 2), FLOAT32, error, error * 400)


@rule()
def gathers(w: BetaWriter):
    a = finite(w)
    if a is None:
        return False
    index, _ = w.array(UINT32, "one")
    w.note("nl.gather_flattened dtype")
    places = w.let(f"nl.minimum(nl.load({index}[0:{w.P}, 0:5]) * {w.between(1, 7)}, {w.F - 1}, dtype=nl.uint32)",
                   (w.P, 5), UINT32, Facts(w.F - 1, 1))
    w.let(f"nl.gather_flattened({a.text}, {places.text}, dtype=nl.float32)", (w.P, 5), FLOAT32, a.facts)
    if w.P % 16 == 0 and w.F >= 4:
        w.note("nisa.local_gather num_valid_indices")
        at = w.let(f"nl.load({w.array(UINT16, 'one')[0]}[0:{w.P}, 0:2])", (w.P, 2), UINT16, Facts(1, 1))
        w.let(f"nisa.local_gather({a.text}, {at.text}, num_elem_per_idx=1, num_valid_indices=32)", (w.P, 2, 16, 1), a.dtype,
              a.facts)
    return None


@rule()
def updates(w: BetaWriter):
    """Add rows under a mask, or sums of a loop in another dtype and under a mask."""
    if w.loops or w.P > 64:
        return False
    a = finite(w, dtypes=(FLOAT32,))
    if a is None:
        return False
    name, total, rows = w.name("hbm"), w.name("total"), w.name("rows")
    w.note("nl.atomic_rmw mask", "nl.loop_reduce dtype, mask")
    w.emit(f"{name} = nl.ndarray((100, {w.F}), nl.float32, buffer=nl.hbm)")
    w.emit(f"nl.store({name}, nl.ones((100, {w.F}), nl.float32))")
    w.emit(f"{rows} = nisa.iota(nl.arange({w.P})[:, None], nl.int32)")
    w.emit(f"nl.atomic_rmw({name}[{rows}, nl.arange({w.F})[None, :]], {a.text}, op=np.add{w.rows_mask(w.P)})")
    w.let(f"nl.load({name}[0:{w.P}])", (w.P, w.F), FLOAT32, Facts(a.facts.bound + 1, a.facts.unit))
    source, facts = w.array(FLOAT32, "small")
    w.emit(f"{total} = nl.zeros(({w.P}, {w.F}), nl.float32)")
    w.emit("for k in nl.affine_range(3):")
    w.emit(f"    {total}[...] = nl.loop_reduce(nl.load({source}[0:{w.P}, nl.ds(k * 20, {w.F})]), op=np.max, "
           f"loop_indices=[k], dtype=nl.float32{w.rows_mask(w.P)})")
    w.keep(Tile(total, (w.P, w.F), FLOAT32, facts.join(Facts(0, 1))))
    return None


@rule(4)
def functions(w: BetaWriter):
    a = finite(w)
    if a is None:
        return False
    which = w.pick("softmax", "rms_norm", "ceil", "logical_not", "invert", "empty_like", "zeros_like", "gelu",
                   "dropout", "rand", "static_cast", "bounds", "broadcast", "quotient", "queries")
    w.note(f"functions.{which}")
    match which:
        case "softmax":
            return w.inexact(f"nl.softmax({a.text}, axis=1, compute_dtype=nl.float32)", a.shape, FLOAT32, 1e-5, 1e-6) \
                if a.dtype is FLOAT32 else False
        case "rms_norm":
            if a.dtype is not FLOAT32:
                return False
            weight = w.fresh((1, w.F), FLOAT32, "small")
            return w.inexact(f"nl.rms_norm({a.text}, {weight.text}, axis=1, n={w.F}, epsilon=0.5, compute_dtype=nl.float32)",
                             a.shape, FLOAT32, 1e-5, 1e-5)
        case "ceil":
            return w.let(f"nl.{w.pick('ceil', 'floor', 'trunc')}({a.text}, dtype=nl.int32{w.mask(a.shape)})", a.shape, INT32,
                         a.facts.join(Facts(0, 1)).cast(INT32))
        case "logical_not":
            return w.let(f"nl.logical_not({a.text}, dtype=nl.uint8)", a.shape, UINT8, Facts(1, 1))
        case "invert":
            b = w.operand((w.P, w.F), (INT32, UINT8))
            return w.let(f"nl.invert({b.text}, dtype={kind(b.dtype)})", b.shape, b.dtype, Facts(2.0 ** 32, 1).cast(b.dtype))
        case "empty_like" | "zeros_like":
            copied = w.name()
            w.emit(f"{copied} = nl.{which}({a.text}, dtype=nl.float32, buffer=nl.sbuf, name='{copied}')")
            w.emit(f"{copied}[...] = nl.copy({a.text}, dtype=nl.float32)")
            return w.keep(Tile(copied, a.shape, FLOAT32, a.facts))
        case "gelu":
            return w.inexact(f"nl.gelu_apprx_sigmoid({a.text}, dtype=nl.float32{w.mask(a.shape)})", a.shape, FLOAT32,
                             64 * ULP, 1e-6)
        case "dropout":
            call = w.pick("nl.dropout({0}, rate={1}", "nisa.dropout({0}, prob={1}").format(a.text, w.pick("0.0", "1.0"))
            return w.let(f"{call}, dtype={kind(a.dtype)}{w.mask(a.shape, boxes=True, often=True)})",
                         a.shape, a.dtype, a.facts.join(Facts(0, 1)))
        case "rand":
            if w.loops:
                return False
            w.emit("nl.random_seed(7, mask=None)")
            return w.let(f"nl.floor(nl.rand(({w.P}, {w.F}), dtype=nl.float32))", (w.P, w.F), FLOAT32, Facts(0, 1))
        case "quotient":
            b = w.operand((w.P, w.F), (INT32, UINT8), lambda t: t.facts.bound < 1e6, "small")
            if not b.facts.bound < 1e6:
                return False
            text = w.pick(f"nl.divide({b.text}, {{0}})", f"{b.text} / {{0}}").format(w.pick(2, 4))
            return w.let(text, b.shape, FLOAT32, Facts(b.facts.bound, 0.25))
        case "bounds":
            ids = w.fresh((1, w.F), INT32, "one")
            return w.let(f"nisa.sequence_bounds(segment_ids={ids.text}, dtype=nl.int32)", (1, 2, w.F), INT32, Facts(w.F, 1))
        case "broadcast":
            row = w.fresh((1, w.F), FLOAT32, "small")
            return w.let(f"nl.copy(nl.broadcast_to({row.text}, shape=({w.P}, {w.F})))", (w.P, w.F), FLOAT32, row.facts)
        case "static_cast":
            return w.let("nl.load(nl.shared_constant(nl.static_cast(np.full((2, 3), 2.6), nl.int32), dtype=nl.int32))"
                         , (2, 3), INT32, Facts(3, 1)) if not w.loops else False
    count = len(w.grid)
    axes = [f"nl.num_programs({k})" for k in range(count)] + [f"nl.program_ndim() * {count}"]
    value = w.name("n")
    w.emit("assert nisa.get_nc_version() >= nisa.nc_version.gen2 and nl.tile_size.pmax == 128 and nl.finfo(nl.bfloat16).max > 1")
    w.emit(f"{value} = {' + '.join(axes)}")
    return w.let(f"nl.add({a.text}, {value})", a.shape, a.dtype, Facts(a.facts.bound + 64, min(a.facts.unit, 1)).cast(a.dtype))


@rule(rules=MEETINGS)
def all_reduce(w: BetaWriter):
    """Emit ``nl.all_reduce`` with its options and a mask over the rows."""
    if not w.grid:
        return False
    a = w.operand((w.P, w.F), (FLOAT32,))
    w.note("nl.all_reduce with options")
    return w.let(f"nl.all_reduce({a.text}, op=np.max, program_axes=0, dtype=nl.float32, parallel_reduce={w.maybe()}, "
                 f"asynchronous=False{w.rows_mask(w.P)})", a.shape, FLOAT32, a.facts.join(Facts(0, 1)))
