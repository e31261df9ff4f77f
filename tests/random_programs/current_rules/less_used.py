# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters and names that kernels seldom use: registers of engines, hints, orders, ranges, queries."""

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, UINT8, UINT16, UINT32

from ..beta import kind
from ..current import CurrentWriter, rule
from ..writer import Facts, Loop, Tile
from .operands import ANY_BITS, PLAIN, ULP, WORDS, number, small

OPERAND = (FLOAT32, BFLOAT16, FLOAT16)


def rows_of(w: CurrentWriter, value: int = 5) -> str:
    name = w.name("rows")
    w.emit(f"{name} = nl.full(({w.P}, 1), {value}, nl.float32, buffer=nl.sbuf, name='{name}')" if not w.loops else
           f"{name} = nl.full(({w.P}, 1), {value}, nl.float32)")
    return name


def kept_rows(w: CurrentWriter, rows: str, facts: Facts) -> None:
    """Keep the sums of rows as a tile. Adding 0 makes -0 positive, since the sign of a sum of 0 is not defined."""
    w.emit(f"nisa.tensor_scalar({rows}, {rows}, nl.add, 0.0)")
    w.keep(Tile(rows, (w.P, 1), FLOAT32, facts))


@rule()
def engine_registers(w: CurrentWriter):
    """Add to the registers of an engine by consecutive instructions."""
    a = small(w, (w.P, w.F), OPERAND)
    if a is None:
        return False
    rows = rows_of(w)
    facts = Facts(4 * (a.facts.bound + 4) * a.free, min(a.facts.unit, 0.25))
    which = w.pick("activation", "activation_reduce", "activate2", "exponential", "tensor_scalar_reduce", "cumulative")
    w.note(f"registers.{which}")
    match which:
        case "activation":
            for command in ("reset", "reduce") if w.maybe() else ("reset_reduce", "reduce"):
                w.into(f"nisa.activation(DST, nl.copy, {a.text}, reduce_op=nl.add, reduce_res={rows}, "
                       f"reduce_cmd=nisa.reduce_cmd.{command})", a.shape, FLOAT32, a.facts)
        case "activation_reduce":
            bias = w.fresh((w.P, 1), FLOAT32, "small")
            w.into(f"nisa.activation_reduce(DST, nl.{w.pick('copy', 'relu', 'abs')}, {a.text}, nl.add, {rows}, "
                   f"bias={bias.text}, scale={w.pick(0.5, -2.0)})", a.shape, FLOAT32,
                   Facts(2 * a.facts.bound + 6, min(a.facts.unit / 2, 1)))
            facts = Facts((2 * a.facts.bound + 6) * a.free, min(a.facts.unit / 2, 1))
        case "activate2":
            fold = w.pick("add", "maximum", "minimum")
            w.into(f"nisa.activate2(DST, nl.copy, {a.text}, 2.0, 1.0, nl.multiply, nl.subtract, reverse0=False, "
                   f"reverse1={w.maybe()}, reduce_op=nl.{fold}, reduce_res={rows}, "
                   f"reduce_cmd=nisa.reduce_cmd.reset_reduce)", a.shape, FLOAT32,
                   Facts(2 * a.facts.bound + 1, min(a.facts.unit, 1)))
        case "exponential":
            powers = w.name()
            w.emit(f"{powers} = nl.ndarray({a.shape}, nl.float32)")
            command, init = w.pick(("reset_reduce", "0.0"), ("load_reduce", "2.0"))
            w.emit(f"nisa.exponential({powers}, {a.text}, max_value=64.0, reduce_res={rows}, "
                   f"reduce_cmd=nisa.reduce_cmd.{command}, reduce_init={init})")
            w.store(Tile(powers, a.shape, FLOAT32, Facts()), 8 * ULP, 1e-30)
            w.store(Tile(rows, (w.P, 1), FLOAT32, Facts()), w.F * 8 * ULP, 1e-25)
            return None
        case "tensor_scalar_reduce":
            command, init = w.pick(("reset_reduce", ""), ("load_reduce", f", reduce_init={w.pick(0.5, 2.0)}"))
            w.into(f"nisa.tensor_scalar_reduce(DST, {a.text}, nl.add, 2.0, nl.{w.pick('add', 'maximum')}, {rows}, "
                   f"reverse0=False, reduce_cmd=nisa.reduce_cmd.{command}{init}, reduce_res_negate={w.maybe()})", a.shape,
                   FLOAT32, Facts(a.facts.bound + 2, a.facts.unit))
        case _:
            command = w.pick("reset_reduce", "load_reduce")
            start = f", imm1={w.pick('1.5', w.fresh((w.P, 1), FLOAT32, 'small').text)}" if command == "load_reduce" else ""
            return w.into(f"nisa.tensor_scalar_cumulative(DST, {a.text}, nl.multiply, nl.add, 1.0{start}, "
                          f"reduce_cmd=nisa.reduce_cmd.{command})", a.shape, FLOAT32, Facts())
    return kept_rows(w, rows, facts)


@rule()
def selections(w: CurrentWriter):
    a = small(w, (w.P, w.F), (FLOAT32,))
    if a is None:
        return False
    rows = rows_of(w)
    if w.maybe():
        w.note("nisa.select_reduce reduce_op")
        flags = w.operand(a.shape, (UINT8, UINT16))
        w.into(f"nisa.select_reduce(DST, {flags.text}, {a.text}, -2.0, reduce_res={rows}, "
               f"reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_op=nl.maximum)", a.shape, FLOAT32, a.facts.join(Facts(2, 1)))
        return kept_rows(w, rows, Facts())
    w.note("nisa.range_select with all")
    low, high = (w.operand((w.P, 1), (FLOAT32,)).text for _ in range(2))
    w.into(f"nisa.range_select(DST, {a.text}, nl.greater, nl.less_equal, {low}, {high}, "
           f"reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_res={rows}, reduce_op=nl.maximum, range_start=1, "
           f"on_false_value=-3.0)", a.shape, FLOAT32, Facts())
    return kept_rows(w, rows, Facts())


@rule()
def transfers(w: CurrentWriter):
    """Emit DMA with hints, sums of sources, skipped rows beyond a table, and orders of axes."""
    a = small(w, (w.P, w.F), (FLOAT32,))
    if a is None:
        return False
    name, hint = w.name("hbm"), w.pick("priority=2", "dge_mode=nisa.dge_mode.none", "dge_mode=nisa.dge_mode.swdge",
                                       "dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.sync",
                                       "dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.scalar",
                                       "oob_mode=nisa.oob_mode.error")
    w.note(f"nisa.dma_copy {hint}")
    w.emit(f"{name} = nl.ndarray(({w.P}, {w.F}), nl.float32, buffer={w.pick('nl.private_hbm', 'nl.hbm')})")
    w.emit(f"nisa.dma_copy({name}, {a.text}, {hint})")
    match w.pick("compute", "skip", "transpose", "load"):
        case "compute":
            w.note("nisa.dma_compute with options")
            w.emit(f"nisa.dma_compute({name}, [{name}, {a.text}, {a.text}], nl.add, scales=[1.0, 1.0, 1.0], "
                   f"unique_indices=True, oob_mode=nisa.oob_mode.error)")
            loaded = w.into(f"nisa.dma_copy(DST, {name})", a.shape, FLOAT32, Facts(3 * a.facts.bound, a.facts.unit))
            return w.emit(f"nisa.tensor_scalar({loaded.text}, {loaded.text}, nl.add, 0.0)")
        case "skip":
            w.note("nisa.dma_copy that skips")
            rows = w.into(f"nisa.iota(DST, [[0, 1]], offset={w.between(0, 9)}, channel_multiplier=2)", (w.P, 1), INT32,
                          Facts(300, 1))
            return w.into(f"nisa.dma_copy(DST, {name}.ap([[{w.F}, {w.P}], [1, {w.F}]], vector_offset={rows.text}), "
                          f"oob_mode=nisa.oob_mode.skip)", a.shape, FLOAT32, a.facts.join(Facts(3, 1)), before=3)
        case "transpose":
            w.note("nisa.dma_transpose with options")
            return w.into(f"nisa.dma_transpose(DST, {name}, axes=(1, 0), {w.pick('priority=1', 'dge_mode=nisa.dge_mode.none')}, "
                          f"oob_mode=nisa.oob_mode.error)", a.shape[::-1], FLOAT32, a.facts)
    w.note("nl.load dtype")
    dtype = w.pick(BFLOAT16, INT32)
    return w.let(f"nl.load({name}, dtype={kind(dtype)})", a.shape, dtype, a.facts.cast(dtype))


@rule()
def products(w: CurrentWriter):
    K = min(w.P, 32)
    b = small(w, (K, w.F), (FLOAT32,), K * 4)
    if b is None:
        return False
    ones, total = w.fresh((K, 8), FLOAT32, "one"), w.name("acc")
    hint = w.pick("is_stationary_onezero=True", "is_moving_onezero=False", "tile_position=(0, 0), tile_size=(32, 128)",
                  "tile_position=(0, 0), tile_size=(64, 64)", "perf_mode=nisa.matmul_perf_mode.none")
    w.note(f"nisa.nc_matmul {hint}")
    w.emit(f"{total} = nl.ndarray((8, {w.F}), nl.float32, buffer=nl.psum)")
    w.emit(f"nisa.nc_matmul({total}, {ones.text}, {b.text}, accumulate=False, {hint})")
    w.into(f"nisa.tensor_scalar(DST, {total}, nl.add, 0.0)", (8, w.F), FLOAT32, Facts(K * b.facts.bound, b.facts.unit))
    if w.F <= 128 and w.maybe() and not w.loops:
        w.note("nisa.nc_matmul is_transpose")
        transposed, one = w.name("transposed"), w.name("one")
        if w.maybe():
            w.emit(f"{one} = nl.shared_identity_matrix({K}, dtype=nl.float32)")
        else:
            w.emit(f"{one} = nl.ndarray(({K}, {K}), nl.float32)")
            w.emit(f"nl.shared_identity_matrix({K}, nl.float32, dst={one})")
        w.emit(f"{transposed} = nl.ndarray(({w.F}, {K}), nl.float32, buffer=nl.psum)")
        w.emit(f"nisa.nc_matmul({transposed}, {b.text}, {one}, is_transpose=True)")
        w.into(f"nisa.tensor_copy(DST, {transposed})", (w.F, K), FLOAT32, b.facts)
    if max(w.P, w.F) <= 32:
        a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16))
        w.note("nisa.nc_transpose engine")
        w.into(f"nisa.nc_transpose(DST, {a.text}, engine=nisa.engine.vector)", a.shape[::-1], a.dtype, a.facts)
    return None


@rule(2)
def bits(w: CurrentWriter):
    a = w.operand((w.P, w.F), WORDS)
    op = w.pick("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "invert")
    w.note(f"nl.{op}")
    if op == "invert":
        return w.let(f"nl.invert({a.text}, dtype={kind(a.dtype)})", a.shape, a.dtype, ANY_BITS.cast(a.dtype))
    b = w.fresh(a.shape, a.dtype, "amount") if "shift" in op else w.operand(a.shape, (a.dtype,))
    return w.let(f"nl.{op}({a.text}, {b.text}, dtype={kind(a.dtype)})", a.shape, a.dtype, ANY_BITS.cast(a.dtype))


@rule(4)
def functions(w: CurrentWriter):
    a = small(w, (w.P, w.F), OPERAND)
    if a is None:
        return False
    which = w.pick("abs", "broadcast", "softmax", "rms_norm", "gather", "transpose", "load_transpose2d", "like", "constant",
                   "dropout", "print", "queries", "local_gather", "no_reorder")
    w.note(f"functions.{which}")
    P, F = w.P, w.F
    match which:
        case "abs":
            b = w.operand(a.shape, (FLOAT32,), lambda t: t.facts.bound < 1e6, "small")
            return w.let(f"nl.abs_{w.pick('max', 'min')}({a.text}, {b.text}, dtype=nl.float32)", a.shape, FLOAT32,
                         a.facts.join(b.facts))
        case "broadcast":
            return w.let(f"nl.copy(nl.broadcast_to(nl.expand_dims({a.text}, 1), ({P}, 2, {F}), dtype={kind(a.dtype)}))",
                         (P, 2, F), a.dtype, a.facts)
        case "softmax":
            return w.inexact(f"nl.softmax({a.text}, axis=1, dtype=nl.float32)", a.shape, FLOAT32, 1e-5, 1e-6)
        case "rms_norm":
            if a.dtype is not FLOAT32:
                return False
            weight = w.fresh((1, F), FLOAT32, "fraction")
            return w.inexact(f"nl.rms_norm({a.text}, {weight.text}, axis=1, n={F}, epsilon=0.5, compute_dtype=nl.float32)",
                             a.shape, FLOAT32, 1e-5, 1e-5)
        case "gather":
            index = w.fresh((P, F), UINT32, "one")
            return w.let(f"nl.gather_flattened({a.text}, {index.text}, axis=0, dtype={kind(a.dtype)})", (P, F), a.dtype,
                         a.facts) if F >= 2 else False
        case "transpose":
            return w.let(f"nl.copy(nl.transpose({a.text}, dtype={kind(a.dtype)}))", (F, P), a.dtype, a.facts)
        case "load_transpose2d":
            name, facts = w.array(FLOAT32, "small")
            return w.let(f"nl.load_transpose2d({name}[1:{1 + P}, 2:{2 + F}], dtype=nl.bfloat16)", (F, P), BFLOAT16,
                         facts.cast(BFLOAT16))
        case "like":
            copied, how = w.name(), w.pick("empty_like({0}", "zeros_like({0}", "ones({1}", "zeros({1}")
            label = f", name='{copied}'" if not w.loops else ""
            w.emit(f"{copied} = nl.{how.format(a.text, a.shape)}, dtype=nl.float32, buffer=nl.sbuf{label})")
            w.emit(f"nisa.tensor_copy({copied}, {a.text})")
            return w.keep(Tile(copied, a.shape, FLOAT32, a.facts))
        case "constant":
            n = w.between(1, 16)
            return w.let(f"nl.load(nl.shared_constant(np.arange({3 * n}).reshape(3, {n}), dtype=nl.int32))", (3, n), INT32,
                         Facts(48, 1)) if not w.loops else False
        case "dropout":
            return w.let(f"nl.dropout({a.text}, {w.pick('0.0', '1.0')}, dtype={kind(a.dtype)})", a.shape, a.dtype,
                         a.facts.join(Facts(0, 1)))
        case "print":
            return w.emit(f"nl.device_print('value', {a.text})")
        case "local_gather":
            if P % 16 or F < 4:
                return False
            places = w.fresh((P, 2), UINT16, "one")
            return w.into(f"nisa.local_gather(DST, {a.text}, {places.text}, 1, num_valid_indices=32)", (P, 32), a.dtype, a.facts)
        case "no_reorder":
            w.emit("with nl.no_reorder():")
            w.indent += 1
            copied = w.name()
            w.emit(f"{copied} = nl.ones({a.shape}, nl.float32, buffer=nl.sbuf)")
            w.emit(f"nisa.tensor_copy({copied}, {a.text}, engine=nisa.engine.vector)")
            w.indent -= 1
            return w.keep(Tile(copied, a.shape, FLOAT32, a.facts))
    n = w.name("n")
    w.emit("assert nisa.get_nc_version() >= nisa.nc_version.gen2 and nisa.get_nc_sub_version() >= 0 and nl.tile_size.pmax == 128")
    w.emit(f"{n} = nl.num_programs(axes=0) + nl.program_ndim() * 0 + int(nl.is_sbuf({a.text}.buffer)) + "
           f"2 * int(nl.is_psum({a.text}.buffer)) + 4 * int(nl.is_hbm({a.text}.buffer)) + int(nl.is_on_chip({a.text}.buffer))")
    return w.into(f"nisa.tensor_scalar(DST, {a.text}, nl.add, {n})", a.shape, FLOAT32,
                  Facts(a.facts.bound + 16, min(a.facts.unit, 1)))


@rule()
def ranges(w: CurrentWriter):
    """Write loops with a start and a step."""
    if len(w.loops) - len(w.grid) >= 2:
        return False
    form = w.pick("range", "nl.affine_range", "nl.sequential_range", "nl.static_range", "nl.dynamic_range", "nl.fori_loop")
    start, step, turns, i = w.between(0, 3), w.between(1, 3), w.between(1, 3), w.name("i")
    stop = start + step * (turns - 1) + 1
    total = w.full(0, (w.P, 4), INT32)
    w.note(f"ranges.{form}")
    if form == "nl.fori_loop":
        w.emit(f"def body_{i}({i}):")
    else:
        w.emit(f"for {i} in {form}({start}, {stop}, {step}):")
    on_device = form in ("nl.fori_loop", "nl.dynamic_range")
    w.dynamic += on_device
    with w.block(Loop(i, turns, symbolic=False)):
        if on_device:
            w.emit(f"nisa.tensor_scalar({total}, {total}, nl.add, 1)")
        else:
            w.emit(f"nisa.tensor_scalar({total}, {total}, nl.add, {i})")
    w.dynamic -= on_device
    if form == "nl.fori_loop":
        w.emit(f"nl.fori_loop({start}, {stop}, body_{i}, step={step})")
    w.keep(Tile(total, (w.P, 4), INT32, Facts(200, 1)))
    return None


@rule()
def placed(w: CurrentWriter):
    """Allocate at an address that the kernel chooses."""
    if w.loops or w.P > 64:
        return False
    name, dtype = w.name(), w.pick(*(d for d in PLAIN if d.bits > 8))
    source, facts = w.array(dtype, "small")
    w.note("nl.ndarray address")
    w.emit(f"{name} = nl.ndarray(({w.P}, {w.F}), {kind(dtype)}, buffer=nl.sbuf, address=({w.pick(0, 64)}, {131072 + 512 * w.count}))")
    w.emit(f"nisa.dma_copy({name}, {source}[0:{w.P}, 3:{3 + w.F}])")
    copied = w.into(f"nisa.tensor_copy(DST, {name})", (w.P, w.F), dtype, facts)
    w.emit(f"nisa.tensor_scalar({copied.text}, {copied.text}, nl.maximum, {number(w)[0]})")
    return None


@rule(2)
def random_state(w: CurrentWriter):
    """Read a generator's state and write it again, so that the numbers repeat."""
    if w.loops:
        return False
    state = w.name("state")
    w.note("nisa.rand_get_state", "nisa.rand_set_state", "nl.rand", "nl.random_seed", "nl.unique_name")
    seed = w.into(f"nisa.memset(DST, {w.between(1, 99)})", (1, 1), INT32, Facts(99, 1))
    w.emit(f"nl.random_seed({seed.text})")
    w.emit(f"{state} = nl.ndarray((128, 6), nl.uint32, name=nl.unique_name('state'))")
    w.emit(f"nisa.rand_get_state({state}, engine=nisa.engine.gpsimd)")
    w.emit(f"nisa.rand_set_state({state}, engine=nisa.engine.gpsimd)")
    w.into("nisa.rng(DST, engine=nisa.engine.gpsimd)", (w.P, w.F), UINT32, ANY_BITS)
    w.let(f"nl.floor(nl.rand(({w.P}, {w.F}), nl.float32, buffer=nl.sbuf, name=nl.unique_name('drawn')))", (w.P, w.F), FLOAT32, Facts(1, 1))
    return None
