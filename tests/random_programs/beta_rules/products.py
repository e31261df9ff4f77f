# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products and transposes."""

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32

from ..beta import BetaWriter, rule
from ..writer import FLOATS, Facts
from .operands import ULP

MULTIPLIED = tuple(d for d in FLOATS if d.name not in ("float8_e4m3fn", "tfloat32"))


@rule(3)
def product(w: BetaWriter):
    K, M, N = w.pick(w.P, 32, 5), w.between(1, 24), w.pick(w.F, 1, 33)
    fits = (lambda t: t.facts.sums_exactly(K * 64) and t.facts.bound <= 16)
    dtype = w.pick(*MULTIPLIED)
    a = w.operand((K, M), (dtype,), fits, "small")
    b = w.operand((K, N), (dtype,), fits, "small")
    facts = Facts(K * a.facts.bound * b.facts.bound, a.facts.unit * b.facts.unit)
    if not (facts.unit and facts.bound * 8 / facts.unit < 2.0 ** 24):
        return False
    w.note("nisa.nc_matmul", f"matmul.{dtype.name}")
    text = w.pick(f"nisa.nc_matmul({a.text}, {b.text}", f"nl.matmul({a.text}, {b.text}, transpose_x=True")
    if w.maybe(3):
        mask = w.mask((K, 1), boxes=True, often=True) if w.maybe() else matmul_mask(w, K, M, N)
        return w.let(f"nl.copy({text}{mask}))", (M, N), FLOAT32, facts)
    total = w.name("acc")
    if w.maybe() and not w.loops:
        turns = w.between(1, 3)
        w.emit(f"{total} = nl.zeros(({M}, {N}), nl.float32, buffer=nl.psum)")
        w.emit(f"for k in nl.{w.pick('affine_range', 'sequential_range')}({turns}):")
        w.emit(f"    {total} += {text}{w.pick('', ', mask=k > 0', ', mask=k < 2')})")
        facts = Facts(facts.bound * turns, facts.unit)
        return w.let(f"nl.copy({total})", (M, N), FLOAT32, facts)
    return w.let(f"nl.copy({text}))", (M, N), FLOAT32, facts)


def matmul_mask(w: BetaWriter, K: int, M: int, N: int) -> str:
    """Return a mask over the three axes of a product."""
    return w.mask((K, M, N), often=True, fold=True)


@rule()
def rounded_product(w: BetaWriter):
    a = w.operand((w.P, w.between(1, 16)), (BFLOAT16, FLOAT16), lambda t: t.facts.bound <= 64, "fraction")
    b = w.operand((w.P, w.F), (BFLOAT16, FLOAT16), lambda t: t.facts.bound <= 64, "fraction")
    w.note("nisa.nc_matmul")
    K = a.shape[0]
    return w.inexact(f"nl.copy(nisa.nc_matmul({a.text}, {b.text}))", (a.shape[1], b.shape[1]), FLOAT32, K * ULP,
                     K * K * ULP * a.facts.bound * b.facts.bound)


@rule(2)
def transpose(w: BetaWriter):
    a = w.operand((w.P, w.F), tuple(d for d in w.dtypes if d.bits > 8))
    call = w.pick("nl.transpose", "nisa.nc_transpose", "nisa.dma_transpose")
    w.note(call)
    if call == "nisa.nc_transpose":
        if max(a.shape) > 32 and not a.dtype.is_float:
            return False
        return w.let(f"nl.copy({call}({a.text}))", a.shape[::-1], a.dtype, a.facts)
    if call == "nisa.dma_transpose":
        return w.let(f"{call}({a.text}{w.mask(a.shape, boxes=True)})", a.shape[::-1], a.dtype, a.facts.join(Facts(0, 1)))
    return w.let(f"{call}({a.text}{w.mask(a.shape, fold=True)})", a.shape[::-1], a.dtype, a.facts.join(Facts(0, 1)))


@rule()
def load_transposed(w: BetaWriter):
    name, facts = w.array(w.pick(FLOAT32, BFLOAT16), "small")
    w.note("nl.load_transpose2d")
    dtype = BFLOAT16 if "bfloat" in name else FLOAT32
    w.let(f"nl.load_transpose2d({name}[1:{1 + w.P}, 2:{2 + w.F}])", (w.F, w.P), dtype, facts)
