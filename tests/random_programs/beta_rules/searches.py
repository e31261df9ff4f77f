# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scans, searches, statistics, shuffles, random numbers."""

from math import inf

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, UINT16, UINT32

from ..beta import BetaWriter, kind, rule
from ..writer import WIDE, Facts, Tile
from .operands import EXACT, ULP, token


@rule()
def scan(w: BetaWriter):
    a = w.operand((w.P, w.F), WIDE)
    b = w.operand((w.P, w.F), WIDE)
    op0, op1 = w.pick(*EXACT), w.pick(*EXACT)
    start = w.pick("0", "0.5", w.operand((w.P, 1), (FLOAT32,)).text)
    w.note("nisa.tensor_tensor_scan")
    w.let(f"nisa.tensor_tensor_scan({a.text}, {b.text}, {start}, {token(op0)}, {token(op1)}, reverse0={w.maybe()}, "
          f"reverse1={w.maybe()}, dtype=nl.float32{w.mask((w.P, w.F), boxes=True)})", (w.P, w.F), FLOAT32, Facts())


@rule()
def search(w: BetaWriter):
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, FLOAT16), lambda t: t.facts.bound < inf, "small")
    if w.special or w.F < 8 or not a.facts.bound < inf:        # a NaN has no rank
        return False
    top = w.let(f"nisa.max8(src={a.text}{w.rows_mask(w.P)})", (w.P, 8), a.dtype, a.facts)
    w.note("nisa.max8")
    match w.between(0, 2):
        case 0:
            w.note("nisa.nc_find_index8")
            w.let(f"nisa.nc_find_index8(data={a.text}, vals={top.text}{w.rows_mask(w.P)})", (w.P, 8), UINT32, Facts(w.F, 1))
        case 1:
            w.note("nisa.nc_match_replace8")
            w.let(f"nisa.nc_match_replace8(data={a.text}, vals={top.text}, imm=-4.0{w.rows_mask(w.P)})", (w.P, w.F), a.dtype,
                  a.facts.join(Facts(4, 1)))
    return None


@rule()
def statistics(w: BetaWriter):
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16), lambda t: t.facts.bound <= 64, "fraction")
    w.note("nisa.bn_stats", "nisa.bn_aggr")
    name = w.name()
    w.emit(f"{name} = nisa.bn_stats({a.text}, dtype=nl.float32{w.rows_mask(w.P)})")
    error = w.F * ULP * 16
    w.store(Tile(name, (w.P, 6), FLOAT32, Facts()), error, error * (a.facts.bound + 1) ** 2)
    w.inexact(f"nisa.bn_aggr({name})", (w.P, 2), FLOAT32, error, error * (a.facts.bound + 1) ** 2)


@rule()
def shuffle(w: BetaWriter):
    if w.P % 32:
        return False
    a = w.operand((w.P, w.F), w.dtypes)
    order = [w.pick(k, 0, 255, 31 - k) for k in range(32)] if w.maybe() else [(k + 1) % 32 for k in range(32)]
    name = w.name()
    w.note("nisa.nc_stream_shuffle")
    w.emit(f"{name} = nl.full({a.shape}, 1, {kind(a.dtype)})")
    w.emit(f"nisa.nc_stream_shuffle({a.text}, {name}, {order}{w.rows_mask(w.P, 32)})")
    w.keep(Tile(name, a.shape, a.dtype, a.facts.join(Facts(1, 1))))
    return None


@rule()
def gathers(w: BetaWriter):
    a = w.operand((w.P, w.F), tuple(d for d in w.dtypes if d.name != "tfloat32"))
    w.note("nl.gather_flattened")
    index, _ = w.array(UINT32, "one")
    places = w.let(f"nl.minimum(nl.load({index}[0:{w.P}, 0:5]) * {w.between(1, 7)}, {w.F - 1}, dtype=nl.uint32)",
                   (w.P, 5), UINT32, Facts(w.F - 1, 1))
    w.let(f"nl.gather_flattened({a.text}, {places.text}{w.rows_mask(w.P)})", (w.P, 5), a.dtype, a.facts)


@rule()
def local_gather(w: BetaWriter):
    if w.P % 16 or w.F < 4:
        return False
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, INT32))
    index, _ = w.array(UINT16, "one")
    places = w.let(f"nl.load({index}[0:{w.P}, 0:2])", (w.P, 2), UINT16, Facts(1, 1))
    w.note("nisa.local_gather")
    w.let(f"nisa.local_gather({a.text}, {places.text}, num_elem_per_idx=2{w.rows_mask(w.P, 16)})", (w.P, 2, 16, 2), a.dtype, a.facts)
    return None


@rule()
def cumulative(w: BetaWriter):
    a = w.operand((w.P, w.F), WIDE)
    name, op0, op1 = w.name(), w.pick("add", "multiply", "subtract"), w.pick("add", "subtract", "multiply", "maximum")
    w.note("nisa.tensor_scalar_cumulative")
    w.emit(f"{name} = nl.zeros({a.shape}, nl.float32)")
    w.emit(f"nisa.tensor_scalar_cumulative(src={a.text}, dst={name}, op0={token(op0)}, op1={token(op1)}, imm0=2.0{w.mask((w.P, w.F), boxes=True)})")
    w.keep(Tile(name, a.shape, FLOAT32, Facts()))


@rule()
def sequence_bounds(w: BetaWriter):
    index, _ = w.array(INT32, "one")
    w.note("nisa.sequence_bounds")
    ids = w.let(f"nl.load({index}[5:6, 0:{w.F}])", (1, w.F), INT32, Facts(1, 1))
    w.let(f"nisa.sequence_bounds(segment_ids={ids.text})", (1, 2, w.F), INT32, Facts(w.F, 1))


@rule()
def random_numbers(w: BetaWriter):
    w.note("nl.rand", "nl.dropout", "nl.random_seed")
    if w.loops:
        return False
    w.emit(f"nl.random_seed({w.between(1, 99)})")
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16))
    if w.maybe():
        w.let(f"nl.rand(({w.P}, {w.F}))", (w.P, w.F), FLOAT32, Facts(1, 0))
    else:
        w.let(f"nl.dropout({a.text}, rate=0.5)", a.shape, a.dtype, a.facts.join(Facts(0, 1)))
    return None
