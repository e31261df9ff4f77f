# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emulates the instructions of AVX512-BF16, so that hosts with AVX-512 alone run the code that has them.

Each of them is several steps, with the results that the processor's documentation specifies.
"""

from collections.abc import Iterator

import pytest

from nki_mlir.bindings import ir
from nki_mlir.targets.cpu import routines
from nki_mlir.targets.cpu.fitted import fit_of
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.runtime import host

LEAST_NORMAL = 0x0080_0000          # the bits of a float32
can_emulate = host.lanes() == 16    # the emulated code has other instructions of such a host


def without_denormals(code: FunctionEmitter, bits: Value) -> Value:
    """Emit the bits of float32, with a zero of the same sign for each denormal."""
    magnitude = code.and_(bits, 0x7FFF_FFFF)
    return code.select(code.cmp("ult", magnitude, LEAST_NORMAL), code.and_(bits, 0x8000_0000), bits)


def rounded(code: FunctionEmitter, numbers: Value) -> Value:
    """Emit the upper halves of 16 numbers in float32, rounded to the nearest, ties to even; NaN becomes quiet."""
    bits = without_denormals(code, code.bitcast(numbers, "i32"))
    odd = code.and_(code.shrui(bits, 16), 1)
    nearest = code.add(code.add(bits, 0x7FFF), odd)
    return code.trunci(code.shrui(code.select(code.is_nan(numbers), code.or_(bits, 0x40_0000), nearest), 16), "i16")


def added_products(code: FunctionEmitter, total: Value, a: Value, b: Value) -> Value:
    """Emit sums with the products of two pairs: the odd elements first, then the even ones."""
    words = [code.vector.BitCastOp(ir.VectorType.get([16], ir.IntegerType.get_signless(32)), x).result for x in (a, b)]
    for factors in ([code.and_(word, 0xFFFF_0000) for word in words], [code.shl(word, 16) for word in words]):
        x, y = (code.bitcast(without_denormals(code, factor), "f32") for factor in factors)
        total = code.fma(x, y, code.bitcast(without_denormals(code, code.bitcast(total, "i32")), "f32"))
    return code.bitcast(without_denormals(code, code.bitcast(total, "i32")), "f32")


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the host round to bfloat16 and multiply pairs, in several steps where it has no instruction."""
    if host.multiplies_pairs():
        yield
        return
    if not can_emulate:
        pytest.skip("the host has no registers of 16 numbers")
    usual = FunctionEmitter._intrinsic

    def intrinsic(code: FunctionEmitter, name: str, *operands: Value, result: ir.Type | None = None) -> Value:
        if "avx512bf16" not in name:
            return usual(code, name, *operands, result=result)
        if "dpbf16ps" in name:
            return added_products(code, *operands)
        halves = code.joined([rounded(code, part) for part in reversed(operands)])
        return code.vector.BitCastOp(result, halves).result
    monkeypatch.setenv("NKI_MLIR_CACHE", "off")
    monkeypatch.setattr(host, "multiplies_pairs", lambda: True)
    monkeypatch.setattr(FunctionEmitter, "_intrinsic", intrinsic)
    routines.clear_memo()
    fit_of.cache_clear()
    yield
    monkeypatch.undo()
    routines.clear_memo()
    fit_of.cache_clear()
