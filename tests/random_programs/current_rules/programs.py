# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations between the cores of a launch, and between ranks."""

from ..beta import kind
from ..current import MEETINGS, CurrentWriter, rule
from ..writer import Facts
from .operands import PLAIN, small


@rule(rules=MEETINGS)
def sendrecv(w: CurrentWriter):
    if not w.grid:
        return False
    a = w.operand(None, PLAIN)
    w.note("nisa.sendrecv")
    by = w.pick("", ", dma_engine=nisa.dma_engine.gpsimd_dma")
    came = w.into(f"nisa.sendrecv({a.text}, DST, 1 - g0, 1 - g0, {w.between(0, 3)}{by})", a.shape, a.dtype, a.facts)
    if w.maybe():
        w.emit(f"nisa.tensor_copy({came.text}, {came.text})")
    return None


@rule(rules=MEETINGS)
def shared(w: CurrentWriter):
    """Exchange values through memory that both cores see, with a barrier after the write and one after the read."""
    if not w.grid:
        return False
    a, buffer = w.operand(None, PLAIN), w.name("exchanged")
    w.note("nisa.core_barrier")
    w.declared.append(f"    {buffer} = nl.ndarray((2, {', '.join(map(str, a.shape))}), {kind(a.dtype)}, "
                      f"buffer=nl.shared_hbm, name='{buffer}')")
    w.emit(f"nisa.dma_copy({buffer}[g0], {a.text})")
    for core in ("1 - g0", "g0")[:w.between(1, 2)]:
        w.emit(f"nisa.core_barrier({buffer}, (0, 1), engine=nisa.engine.{w.pick('gpsimd', 'vector', 'scalar')})")
        w.into(f"nisa.dma_copy(DST, {buffer}[{core}])", a.shape, a.dtype, a.facts)
    if w.loops != w.loops[:1]:                          # it is written again
        w.emit(f"nisa.core_barrier({buffer}, (0, 1))")
    return None


@rule(rules=MEETINGS)
def collectives(w: CurrentWriter):
    n = w.ranks
    if n == 1:
        return False
    call = w.pick("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute_implicit")
    group = f"ncc.ReplicaGroup([{w.pick(list(range(n)), list(range(n))[::-1])}])"
    a = small(w, (w.P, w.F), tuple(d for d in PLAIN if d.bits > 8 or d.is_integer), 4 * n)
    if a is None:
        return False
    (P, F), facts, op = a.shape, a.facts, w.pick("add", "maximum", "minimum")
    folded = Facts(n * facts.bound, facts.unit) if op == "add" else facts
    on_chip = call != "all_to_all" and w.maybe()
    axis = int(on_chip and call == "all_gather")
    if P % n and call in ("reduce_scatter", "all_to_all"):
        return False
    shape, facts, more = {
        "all_reduce": (a.shape, folded, f", nl.{op}"),
        "all_gather": ((n * P, F) if axis == 0 else (P, n * F), facts, f", {axis}"),
        "reduce_scatter": ((P // n, F), folded, f", 0, nl.{op}"),
        "all_to_all": (a.shape, facts, ", 0"),
        "collective_permute_implicit": (a.shape, facts, ""),
    }[call]
    if shape[0] > 128:
        return False
    w.note(f"ncc.{call}")
    before, after = w.name("hbm"), w.name("hbm")
    if on_chip:
        source = w.into(f"nisa.tensor_copy(DST, {a.text})", a.shape, a.dtype, a.facts).text
        return w.into(f"ncc.{call}([{source}], [DST], {group}{more})", shape, a.dtype, facts.cast(a.dtype))
    for name, extents in ((before, a.shape), (after, shape)):
        w.emit(f"{name} = nl.ndarray({extents}, {kind(a.dtype)}, buffer=nl.private_hbm)")
    w.emit(f"nisa.dma_copy({before}, {a.text})")
    w.emit(f"ncc.{call}([{before}], [{after}], {group}{more})")
    return w.into(f"nisa.dma_copy(DST, {after})", shape, a.dtype, facts.cast(a.dtype))
