# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each form of code gives the bits of the code without it; exp by sixteenths of powers has a bound instead."""

from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from nki_mlir.targets.cpu.addressed_nest import AddressedNest, can_stream, with_memory
from nki_mlir.targets.cpu.code_forms import IN_ANY_REGISTERS, can_have
from nki_mlir.targets.cpu.delayed_stores import delayed_outputs
from nki_mlir.targets.cpu.loops import MemoryUse
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step

from .nest_reference import ALL_FORMS, Memory, bits, call, run, with_forms

ROWS = 3


def powers_and_folds(columns: int, narrow: DType, function: str = "exp") -> Nest:
    """Compute a function of rows, rounded; twice the stored value less the function, rounded; the function's sum; and
    the maximum of other rows."""
    row, one = Operand(narrow, (columns, 1)), Operand(FLOAT32, (1, 0))
    steps = (Step("convert", FLOAT32, (0,)), Step("activation", FLOAT32, (6,), function), Step("convert", narrow, (7,)),
             Step("convert", FLOAT32, (8,)), Step("alu", FLOAT32, (9, 9), "add"), Step("convert", narrow, (10,)),
             Step("convert", FLOAT32, (11,)), Step("alu", FLOAT32, (12, 9), "subtract"), Step("convert", narrow, (13,)),
             Step("alu", FLOAT32, (4, 7), "add"), Step("convert", FLOAT32, (1,)),
             Step("alu", FLOAT32, (5, 16), "maximum"))
    return Nest((ROWS, columns), frozenset({1}), (row, row), 0, (row, row, one, one), steps, (8, 14, 15, 17))


def results_of(nest: Nest, forms: tuple[str, ...], seed: int) -> list[np.ndarray]:
    """Return the arrays after a call on numbers, denormals and special values, with the bytes around them."""
    rng = np.random.default_rng(seed)
    memories = [Memory(nest, operand, rng) for operand in nest.operands]
    for memory in memories[:2]:
        values = rng.choice([0, -0.0, np.inf, -np.inf, np.nan, -90.5, -100, 88.5, 1e-40], memory.array.size)
        usual = rng.random(values.size) < 0.9
        memory.array[:] = np.where(usual, rng.uniform(-20, 5, values.size), values).astype(memory.array.dtype)
    memories[-2].array[:], memories[-1].array[:] = 0.5, -np.inf
    run(nest, memories, forms=forms)
    return [bits(memory.array) for memory in memories]


@pytest.mark.parametrize("form", ALL_FORMS)
@pytest.mark.parametrize("narrow", (BFLOAT16, FLOAT16), ids=str)
@pytest.mark.parametrize("columns", (16, 100, 256, 576))
def test_form__keeps_bits(form: str, narrow: DType, columns: int) -> None:
    nest = powers_and_folds(columns, narrow, "tanh" if form == "powers" else "exp")
    for wanted, result in zip(results_of(nest, (), columns), results_of(nest, (form,), columns)):
        assert np.array_equal(wanted, result)


@pytest.mark.parametrize("columns", (64, 100, 576))
def test_forms__together_keep_the_bits_of_the_exponential(columns: int) -> None:
    nest = powers_and_folds(columns, BFLOAT16)
    wanted, result = (results_of(nest, forms, columns) for forms in (("powers",), ALL_FORMS))
    assert all(map(np.array_equal, wanted, result))


@pytest.mark.parametrize("extents", ((1, 4096), (5, 192), (128, 31)))
def test_delayed_stores__of_rows_without_folds_write_each_element_once(extents: tuple[int, int]) -> None:
    row = Operand(BFLOAT16, (extents[1], 1))
    nest = Nest(extents, frozenset(), (row,), 0, (row,), (Step("convert", FLOAT32, (0,)), Step(
        "activation", FLOAT32, (2,), "sigmoid"), Step("convert", BFLOAT16, (3,))), (4,))
    rng = np.random.default_rng(extents)
    memories = [Memory(nest, operand, rng) for operand in nest.operands]
    both = []
    for forms in ((), ("delays",)):
        memories[1].raw[:] = 7
        run(nest, memories, forms=forms)
        both.append(memories[1].raw.copy())
    assert np.array_equal(*both)


def test_forms__are_those_that_code_of_a_nest_can_have() -> None:
    nest = powers_and_folds(4096, BFLOAT16)
    plan = schedule(nest)
    assert delayed_outputs(nest, plan) == (0, 1)
    old_value = Nest((64,), frozenset(), (), 0, (Operand(BFLOAT16, (1,)),), (
        Step("convert", FLOAT32, (0,)), Step("alu", FLOAT32, (1, 1), "add"), Step("convert", BFLOAT16, (2,))), (3,))
    assert not can_have(old_value, "delays") and not can_have("nki_spread", "delays")
    if host.multiplies_pairs():
        routine = with_forms(nest, ALL_FORMS)
        assert isinstance(routine, AddressedNest)
        assert routine.forms == tuple([form for form in ALL_FORMS if form != "halves"])


@pytest.mark.skipif(host.lanes() != 16, reason="no registers of 64 bytes")
@pytest.mark.parametrize("columns, streams", ((16, False), (100, False), (576, False), (16, True), (576, True)))
def test_halves__of_each_step_keep_bits(columns: int, streams: bool) -> None:
    row = Operand(FLOAT32, (columns, 1))
    # Each step reads the one before.
    steps = [Step("constant", FLOAT32, (), "", 1.5)] + [
        Step("alu", FLOAT32, (3 + k,) if name == "square" else (k % 2, 3 + k), name)
        for k, name in enumerate(sorted(IN_ANY_REGISTERS))]
    nest = Nest((ROWS, columns), frozenset(), (row, row), 0, (row,), tuple(steps), (2 + len(steps),))
    assert can_have(nest, "halves") and can_stream(nest) == (columns % 16 == 0)
    results = []
    for forms in ((), ("halves",)):
        rng = np.random.default_rng(columns)
        memories = [Memory(nest, operand, rng, alignment=64) for operand in nest.operands]
        for memory in memories[:2]:
            special = rng.choice(np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38]), memory.array.size)
            memory.array[:] = np.where(rng.random(special.size) < 0.8, rng.uniform(-2, 2, special.size), special)
        memories[2].raw[:] = 7                                      # around the array, too, which may lie elsewhere
        routine = with_forms(nest, forms)
        use = MemoryUse((0,) if streams else ())
        call(replace(with_memory(routine), use=use), memories)
        results.append(memories[2].guarded.copy())
    np.testing.assert_array_equal(*results)


def test_halves__are_for_plain_steps_along_rows() -> None:
    row, column = Operand(FLOAT32, (64, 1)), Operand(FLOAT32, (1, 64))

    def nest(source: Operand, *steps: Step) -> Nest:
        return Nest((64, 64), frozenset(), (source,), 0, (row,), steps, (1 + len(steps) if steps else 0,))
    wide = host.lanes() == 16
    assert can_have(nest(row), "halves") == can_have(nest(row, Step("alu", FLOAT32, (0, 0), "add")), "halves") == wide
    for step in (Step("alu", FLOAT32, (0, 0), "maximum"), Step("activation", FLOAT32, (0,), "exp")):
        assert not can_have(nest(row, step), "halves")
    assert not can_have(nest(column), "halves")
    assert not can_have(replace(nest(row, Step("alu", FLOAT32, (1, 0), "add")), reduced=frozenset({0}), outputs=(
        Operand(FLOAT32, (0, 1)),), results=(2,)), "halves")
