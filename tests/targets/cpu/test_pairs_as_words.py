# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Words of two bfloat16: lanes are elements with even numbers, then those with odd numbers."""

import ctypes
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from nki_mlir.targets.cpu.addressed_nest import AddressedNest
from nki_mlir.targets.cpu.code_forms import can_load_words, with_form
from nki_mlir.targets.cpu.loops import MemoryUse
from nki_mlir.targets.cpu.pipeline import PIPELINE
from nki_mlir.targets.cpu.routines import compiled
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step

from ...forced_passes import forced
from .nest_reference import ALL_FORMS, Memory, bits, reference, run

ROWS = 3


def scaled(columns: int, dtype: DType = BFLOAT16, output: DType = BFLOAT16) -> Nest:
    """Multiply rows by a row, and add a number to each; every step rounds."""
    inputs = (Operand(dtype, (columns, 1)), Operand(dtype, (0, 1)), Operand(FLOAT32, (1, 0)))
    widened = [Step("convert", FLOAT32, (k,)) for k in range(2)]
    steps = (*widened, Step("alu", FLOAT32, (4, 5), "multiply"), Step("convert", dtype, (6,)),
             Step("convert", FLOAT32, (7,)), Step("alu", FLOAT32, (8, 2), "add"), Step("convert", output, (9,)))
    steps, result = (steps, 10) if output is not FLOAT32 else (steps[:-1], 9)
    return Nest((ROWS, columns), frozenset(), inputs, 0, (Operand(output, (columns, 1)),), steps, (result,))


def with_gelu(columns: int) -> Nest:
    nest = scaled(columns)
    return replace(nest, steps=(*nest.steps[:-1], Step("activation", FLOAT32, (9,), "gelu"),
                                Step("convert", BFLOAT16, (10,))), results=(11,))


def memories_of(nest: Nest, seed: int, any_bits: bool) -> list[Memory]:
    rng = np.random.default_rng(seed)
    memories = [Memory(nest, operand, rng) for operand in nest.operands]
    if any_bits:
        for memory in memories[:2]:
            words = rng.integers(0, 1 << 16, memory.array.size).astype(np.uint16)
            memory.array[:] = words.view(memory.array.dtype)
    return memories


@pytest.mark.parametrize("any_bits", (False, True), ids=("numbers", "any bits"))
@pytest.mark.parametrize("columns", (1, 31, 32, 33, 64, 100, 128, 511, 512, 1000))
def test_bodies__of_bfloat16_keep_the_order_of_elements(columns: int, any_bits: bool) -> None:
    nest = scaled(columns)
    memories = memories_of(nest, columns, any_bits)
    with np.errstate(all="ignore"):
        wanted, = reference(nest, memories)
    before = memories[-1].raw.copy()
    run(nest, memories, forms=ALL_FORMS)
    assert np.array_equal(bits(memories[-1].array), bits(wanted))
    guards = len(before) - memories[-1].array.nbytes
    assert np.sum(memories[-1].raw == before) >= guards             # nothing beside the result is written


@pytest.mark.parametrize("columns", (64, 576, 1024))
def test_functions__of_pairs_have_the_bits_of_lanes_in_memory_order(columns: int) -> None:
    """Rows of 16 columns have one register, in the order of memory."""
    nest, part = with_gelu(columns), with_gelu(16)
    memories = memories_of(nest, 1, any_bits=False)
    run(nest, memories, forms=ALL_FORMS)
    rows = memories[-1].array.reshape(ROWS, columns)
    for column in range(0, columns, 16):
        parts = memories_of(part, 1, any_bits=False)
        parts[0].array[:] = memories[0].array.reshape(ROWS, columns)[:, column:column + 16].ravel()
        parts[1].array[:] = memories[1].array[column:column + 16]
        parts[2].array[:] = memories[2].array
        run(part, parts)
        assert np.array_equal(bits(parts[-1].array), bits(rows[:, column:column + 16].ravel()))


def folded(fn: str, columns: int, dtype: DType = BFLOAT16) -> Nest:
    """Return a nest that folds the squares of rows."""
    steps = (Step("convert", FLOAT32, (0,)), Step("alu", FLOAT32, (2, 2), "multiply"), Step("alu", FLOAT32, (1, 3), fn))
    if dtype is FLOAT32:
        steps = (Step("alu", FLOAT32, (0, 0), "multiply"), Step("alu", FLOAT32, (1, 2), fn))
    return Nest((ROWS, columns), frozenset({1}), (Operand(dtype, (columns, 1)),), 0, (Operand(FLOAT32, (1, 0)),), steps,
                (1 + len(steps),))


@pytest.mark.parametrize("fn", ("add", "multiply", "maximum"))
@pytest.mark.parametrize("columns", (32, 64, 100, 128, 192, 256, 512, 4096))
def test_folds__of_pairs_have_the_order_of_float32(columns: int, fn: str) -> None:
    """Rounding errors differ from lane to lane, so that another order would give other bits."""
    values = np.random.default_rng(columns).uniform(0.9, 1.1, (ROWS, columns)).astype(BFLOAT16.numpy)
    results = []
    for dtype in (BFLOAT16, FLOAT32):
        nest = folded(fn, columns, dtype)
        source, result = (Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands)
        source.array[:], result.array[:] = values.astype(dtype.numpy).ravel(), 1.5
        run(nest, [source, result], forms=ALL_FORMS)
        results.append(result.array)
    assert np.array_equal(bits(results[0]), bits(results[1]))


@pytest.mark.skipif(host.lanes() != 16, reason="registers of 32 such numbers")
def test_words__are_loaded_where_all_operands_in_lanes_are_bfloat16() -> None:
    assert all(map(can_load_words, (scaled(512), with_gelu(512), folded("add", 512), folded("maximum", 512))))
    assert not any(map(can_load_words, (
        scaled(512, FLOAT16, FLOAT16), scaled(512, output=FLOAT32), scaled(16), scaled(512, FLOAT32, BFLOAT16),
        folded("add", 100), folded("add", 512, FLOAT32))))


def rounded_product(x, g):
    """Multiply rows by weights, in parts of large nests that run on the pool."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), nl.load(g)))
    return out


@pytest.mark.parametrize("threads", (1, 2))
def test_parts__of_a_large_nest_load_words(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "threads", lambda: threads)
    rng = np.random.default_rng(threads)
    x, g = (rng.standard_normal((rows, 512)).astype(BFLOAT16.numpy) for rows in (128, 1))
    with forced("spread-nests"), patch.dict(PIPELINE, {"load-words": ""}):
        result = nki.trace(rounded_product).on("jit")(x, g)
    wanted = (x.astype(np.float32) * g.astype(np.float32)).astype(BFLOAT16.numpy)
    assert np.array_equal(bits(result), bits(wanted))


@pytest.mark.skipif(host.lanes() != 16, reason="registers of 32 such numbers")
def test_streaming_stores__of_pairs_write_each_element() -> None:
    nest = scaled(1024)
    memories = memories_of(nest, 5, any_bits=False)
    wanted, = reference(nest, memories)
    routine = with_form(AddressedNest(nest, MemoryUse(streams=(0,))), "words")
    batch, number = compiled([routine])[routine]
    raw = np.zeros(ROWS * 1024 + 64, np.uint16)
    shift = -raw.ctypes.data % 128 // 2
    for start in (shift, shift + 1):                    # aligned for streaming stores, and not
        result = raw[start:start + ROWS * 1024]
        words = (ctypes.c_int64 * 4)(*(m.address for m in memories[:-1]), result.ctypes.data)
        result[:] = 0
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(batch.addresses[number])(ctypes.addressof(words)) == 0
        assert np.array_equal(result, bits(wanted))
