# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scans, searches, statistics, lists, random numbers."""

from math import inf

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, UINT16, UINT32

from ..current import CurrentWriter, rule
from ..writer import WIDE, Facts, Tile
from .operands import ANY_BITS, EXACT, PLAIN, ULP


@rule()
def scan(w: CurrentWriter):
    a, b = w.operand((w.P, w.F), WIDE), w.operand((w.P, w.F), WIDE)
    start = w.pick("0.0", "0.5", w.operand((w.P, 1), (FLOAT32,)).text)
    w.note("nisa.tensor_tensor_scan")
    w.into(f"nisa.tensor_tensor_scan(DST, {a.text}, {b.text}, {start}, nl.{w.pick(*EXACT)}, nl.{w.pick(*EXACT)}, "
           f"reverse0={w.maybe()}, reverse1={w.maybe()})", a.shape, FLOAT32, Facts())


@rule()
def cumulative(w: CurrentWriter):
    a = w.operand((w.P, w.F), WIDE)
    w.note("nisa.tensor_scalar_cumulative")
    op0, op1 = w.pick("add", "multiply", "subtract"), w.pick("add", "subtract", "multiply", "maximum", "minimum")
    w.into(f"nisa.tensor_scalar_cumulative(DST, {a.text}, nl.{op0}, nl.{op1}, {w.pick(0.0, 1.0, 2.0)})", a.shape,
           FLOAT32, Facts())


@rule()
def search(w: CurrentWriter):
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, FLOAT16), lambda t: t.facts.bound < inf, "small")
    if w.special or w.F < 8 or not a.facts.bound < inf:        # a NaN has no rank
        return False
    w.note("nisa.max8")
    top = w.into(f"nisa.max8(DST, {a.text})", (w.P, 8), a.dtype, a.facts)
    if w.maybe():
        w.note("nisa.nc_find_index8")
        w.into(f"nisa.nc_find_index8(DST, {a.text}, {top.text})", (w.P, 8), UINT32, ANY_BITS)
    else:
        w.note("nisa.nc_match_replace8")
        places = w.into("nisa.memset(DST, 0)", (w.P, 8), UINT32, ANY_BITS)
        w.into(f"nisa.nc_match_replace8(DST, {a.text}, {top.text}, -4.0, dst_idx={places.text})", a.shape, a.dtype,
               a.facts.join(Facts(4, 1)))
    return None


@rule()
def statistics(w: CurrentWriter):
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16), lambda t: t.facts.bound <= 64, "fraction")
    w.note("nisa.bn_stats", "nisa.bn_aggr")
    name, error = w.name(), w.F * ULP * 16
    bound = error * (min(a.facts.bound, 64) + 1) ** 2
    if a.facts.bound > 64:
        return False
    w.emit(f"{name} = nl.ndarray(({w.P}, 6), nl.float32)")
    w.emit(f"nisa.bn_stats({name}, {a.text})")
    w.store(Tile(name, (w.P, 6), FLOAT32, Facts()), error, bound)
    return w.rounded(f"nisa.bn_aggr(DST, {name})", (w.P, 2), error, bound)


@rule()
def shuffle(w: CurrentWriter):
    if w.P % 32:
        return False
    a = w.operand((w.P, w.F), PLAIN)
    order = [w.pick(k, 0, 255, 31 - k) for k in range(32)]
    w.note("nisa.nc_stream_shuffle")
    return w.into(f"nisa.nc_stream_shuffle(DST, {a.text}, {order})", a.shape, a.dtype, a.facts, before=1)


@rule()
def gathers(w: CurrentWriter):
    a = w.operand((w.P, w.F), PLAIN)
    places = w.into(f"nisa.tensor_scalar(DST, {w.fresh((w.P, 5), UINT32, 'one').text}, nl.multiply, {w.between(0, w.F - 1)})",
                    (w.P, 5), UINT32, Facts(w.F, 1))
    w.note("nisa.nc_n_gather")
    w.into(f"nisa.nc_n_gather(DST, {a.text}, {places.text})", (w.P, 5), a.dtype, a.facts)


@rule()
def local_gather(w: CurrentWriter):
    if w.P % 16 or w.F < 4:
        return False
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, INT32))
    places = w.fresh((w.P, 2), UINT16, "one")
    w.note("nisa.local_gather")
    return w.into(f"nisa.local_gather(DST, {a.text}, {places.text}, 2)", (w.P, 64), a.dtype, a.facts)


@rule()
def lists(w: CurrentWriter):
    if w.P % 32:
        return False
    ids = w.fresh((w.P, w.F), w.pick(FLOAT32, INT32), "one")
    w.note("nisa.nonzero_with_count")
    return w.into(f"nisa.nonzero_with_count(DST, {ids.text}, index_offset={w.between(0, 9)}, padding_val=-1)",
                  (w.P, w.F + 1), INT32, Facts(2000, 1), before=4)


@rule()
def topk(w: CurrentWriter):
    if w.special or w.P not in (16, 32, 64, 128):
        return False
    a = w.operand((w.P, w.F), (BFLOAT16,), lambda t: t.facts.bound < inf, "small")
    if not a.facts.bound < inf:
        return False
    w.note("nisa.topk")
    places = w.into("nisa.memset(DST, 0)", (w.P, w.F), UINT32, ANY_BITS)
    return w.into(f"nisa.topk(DST, {places.text}, {a.text}, {w.between(max(8, w.F), 16 * w.F)})", (w.P, w.F), BFLOAT16, a.facts,
                  before=0)


@rule()
def sequence_bounds(w: CurrentWriter):
    ids = w.fresh((1, w.F), FLOAT32, "one")
    w.note("nisa.sequence_bounds")
    w.into(f"nisa.sequence_bounds(DST, {ids.text})", (1, 2, w.F), FLOAT32, Facts(w.F, 1))


@rule()
def random_numbers(w: CurrentWriter):
    if w.loops:
        return False
    seed = w.into(f"nisa.memset(DST, {w.between(1, 99)})", (1, 1), INT32, Facts(99, 1))
    w.note("nisa.set_rng_seed", "nisa.rand2", "nisa.rng", "nisa.dropout")
    w.emit(f"nisa.set_rng_seed({seed.text})")
    match w.between(0, 2):
        case 0:
            return w.into("nisa.rand2(DST, 2.0, 4.0)", (w.P, w.F), FLOAT32, Facts(4, 0))
        case 1:
            return w.into("nisa.rng(DST)", (w.P, w.F), UINT32, ANY_BITS)
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16))
    return w.into(f"nisa.dropout(DST, {a.text}, 0.5)", a.shape, a.dtype, a.facts.join(Facts(0, 1)))
