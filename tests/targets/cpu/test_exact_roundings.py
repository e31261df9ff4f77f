# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Roundings that the facts about them leave out, on every 16-bit float: results have the same bits."""

import numpy as np
import pytest

from nki_mlir.scalar.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8_E5M2,
    FLOAT8_E8M0FNU,
    FLOAT16,
    FLOAT32,
    INT8,
    INT16,
    UINT16,
    DType,
    convert,
)
from nki_mlir.targets.cpu.code_forms import can_have
from nki_mlir.targets.cpu.passes.drop_roundings import without_exact_roundings
from nki_mlir.targets.cpu.roundings import is_representable, keeping_nans, roundings, shortened_inputs
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step

from .nest_reference import ALL_FORMS, Memory, bits, run

COUNT = 1 << 16


def rounded_and_doubled(dtype: DType, *steps: Step) -> Nest:
    """Return steps on a number, which value 3 has in float32, and on a truth value, which is value 4; the last result
    is rounded, doubled and rounded again."""
    row = Operand(dtype, (1,))
    last = 4 + len(steps)
    return Nest((COUNT,), frozenset(), (row, Operand(BOOL, (1,))), 0, (row,), (
        Step("convert", FLOAT32, (0,)), Step("convert", FLOAT32, (1,)), *steps, Step("convert", dtype, (last,)),
        Step("convert", FLOAT32, (last + 1,)), Step("alu", FLOAT32, (last + 2, last + 2), "add"),
        Step("convert", dtype, (last + 3,))), (last + 4,))


def results_of(nest: Nest, forms: tuple[str, ...] = ()) -> np.ndarray:
    numbers, truth, result = (Memory(nest, operand, np.random.default_rng(5)) for operand in nest.operands)
    numbers.array[:] = np.arange(COUNT, dtype=np.uint16).view(numbers.array.dtype)
    truth.array[:] = np.random.default_rng(6).integers(0, 2, COUNT)
    run(nest, [numbers, truth, result], forms=forms)
    return result.array.copy()


@pytest.mark.parametrize("dtype", (BFLOAT16, FLOAT16), ids=str)
@pytest.mark.parametrize("step", (Step("alu", FLOAT32, (3, 4), "multiply"), Step("alu", FLOAT32, (4, 3), "multiply"),
                                  Step("alu", FLOAT32, (3,), "abs"), Step("alu", FLOAT32, (3,), "negative"),
                                  Step("alu", FLOAT32, (4, 4), "multiply")), ids=lambda step: step.name)
def test_rounding__of_a_representable_value_changes_nothing(step: Step, dtype: DType) -> None:
    nest = rounded_and_doubled(dtype, step)
    assert roundings(nest) and not roundings(without_exact_roundings(nest))
    wanted, result = results_of(nest), results_of(without_exact_roundings(nest))
    nan = np.isnan(wanted.astype(np.float32))
    assert np.array_equal(np.isnan(result.astype(np.float32)), nan)
    assert np.array_equal(bits(result)[~nan], bits(wanted)[~nan])


def test_rounding__of_a_product_or_to_powers_of_two_stays() -> None:
    """Bytes of exponents have neither 0 nor negative numbers."""
    product = rounded_and_doubled(BFLOAT16, Step("alu", FLOAT32, (3, 3), "multiply"))
    assert without_exact_roundings(product) is product
    negative = rounded_and_doubled(FLOAT8_E8M0FNU, Step("alu", FLOAT32, (3,), "negative"))
    value, = roundings(negative)
    assert not is_representable(negative, roundings(negative)[value][0], FLOAT8_E8M0FNU)


def around_ties() -> np.ndarray:
    """Return every upper half, with lower halves around a tie."""
    upper, lower = np.meshgrid(np.arange(COUNT, dtype=np.uint32) << 16,
                               np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32))
    return (upper | lower).ravel().view(np.float32)


@pytest.fixture(params=["", "pairs"], ids=["usual", "one instruction"])
def instructions(request: pytest.FixtureRequest) -> None:
    """Round as this host does, and by the instruction that rounds to bfloat16."""
    if request.param:
        request.getfixturevalue(request.param)


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("start", (0, 1, 17), ids=str)
def test_rounding__to_store_has_the_bits_of_conversion(start: int) -> None:
    """NaN of any payload stays NaN, with its sign."""
    x = around_ties()[start:]
    nest = Nest((x.size,), frozenset(), (Operand(FLOAT32, (1,)),), 0, (Operand(BFLOAT16, (1,)),), (
        Step("convert", BFLOAT16, (0,)),), (2,))
    source, result = (Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands)
    source.array[:] = x
    run(nest, [source, result], forms=ALL_FORMS)
    wanted = convert(x, BFLOAT16)
    assert np.array_equal(bits(result.array), bits(wanted))
    assert np.array_equal(np.signbit(result.array.astype(np.float32)), np.signbit(wanted.astype(np.float32)))


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("dtype", (INT8, INT16, UINT16), ids=str)
def test_rounding__of_integers_has_the_bits_of_conversion(dtype: DType) -> None:
    x = np.arange(COUNT).astype(dtype.numpy)
    nest = Nest((x.size,), frozenset(), (Operand(dtype, (1,)),), 0, (Operand(BFLOAT16, (1,)),), (
        Step("convert", BFLOAT16, (0,)),), (2,))
    source, result = (Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands)
    source.array[:] = x
    run(nest, [source, result], forms=ALL_FORMS)
    assert np.array_equal(bits(result.array), bits(convert(x, BFLOAT16, dtype)))


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("scale", (1.0, 2.0**-126, 1 / 3, np.inf, np.uint32(0xFFFFFFFF).view(np.float32)), ids=str)
def test_rounding__of_words_to_store_has_the_bits_of_conversion(scale: np.float32) -> None:
    """Products with a number of float32 for each row, whose NaN may have any payload."""
    row = Operand(BFLOAT16, (COUNT // 4, 1))
    nest = Nest((4, COUNT // 4), frozenset(), (row, Operand(FLOAT32, (1, 0))), 0, (row,), (
        Step("convert", FLOAT32, (0,)), Step("alu", FLOAT32, (3, 1), "multiply"), Step("convert", BFLOAT16, (4,))), (5,))
    source, scales, result = (Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands)
    source.array[:], scales.array[:] = np.arange(COUNT, dtype=np.uint16).view(BFLOAT16.numpy), scale
    run(nest, [source, scales, result], forms=ALL_FORMS)
    with np.errstate(all="ignore"):
        wanted = convert(source.array.astype(np.float32) * np.float32(scale), BFLOAT16)
    assert np.array_equal(bits(result.array), bits(wanted))


def test_rounding__of_a_rounded_nan_of_any_payload_is_nan() -> None:
    """A rounding inside of a body leaves NaN as it is, so that the next one repairs it again."""
    steps = [Step("alu", FLOAT32, (0, 0), "add")]
    for value in (2, 5, 8):
        steps += [Step("convert", BFLOAT16, (value,)), Step("convert", FLOAT32, (value + 1,)),
                  Step("alu", FLOAT32, (value + 2, value + 2), "add")]
    nest = Nest((64,), frozenset(), (Operand(FLOAT32, (1,)),), 0, (Operand(FLOAT32, (1,)),), tuple(steps), (11,))
    source, result = (Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands)
    source.array[:] = np.uint32(0x7FFFFFFF).view(np.float32)
    run(nest, [source, result], forms=ALL_FORMS)
    assert np.isnan(result.array).all()


def test_rounding_by_words__gives_the_bits_of_conversion() -> None:
    """NaN of any payload stays NaN."""
    x = around_ties()
    row = Operand(FLOAT32, (1,))
    nest = Nest((x.size,), frozenset(), (row,), 0, (row,), (Step("convert", BFLOAT16, (0,)), Step(
        "convert", FLOAT32, (2,))), (3,))
    source, result = (Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands)
    source.array[:] = x
    for forms in ((), ("dots",)):
        run(nest, [source, result], forms=forms)
        wanted = convert(x, BFLOAT16).astype(np.float32)
        assert np.array_equal(np.isnan(result.array), np.isnan(x))
        assert np.array_equal(bits(result.array)[~np.isnan(x)], bits(wanted)[~np.isnan(x)])
    assert can_have(nest, "dots") == host.adds_word_products()


def test_rounding__of_an_exponential_keeps_each_nan_without_a_repair() -> None:
    nest = rounded_and_doubled(BFLOAT16, Step("activation", FLOAT32, (3,), "exp"))
    assert keeping_nans(nest)
    for forms in (("nans",), ("nans", "powers")):
        wanted, result = results_of(nest, forms[1:]), results_of(nest, forms)
        nan = np.isnan(wanted.astype(np.float32))
        assert np.array_equal(nan, np.isnan(np.arange(COUNT, dtype=np.uint16).view(BFLOAT16.numpy).astype(np.float32)))
        assert np.array_equal(np.isnan(result.astype(np.float32)), nan)
        assert np.array_equal(bits(result)[~nan], bits(wanted)[~nan])


@pytest.mark.parametrize("forms", (("nans",), ("nans", "words"), ALL_FORMS), ids=str)
@pytest.mark.parametrize("steps", (
    (Step("alu", FLOAT32, (3, 1), "multiply"),), (Step("alu", FLOAT32, (1, 3), "subtract"),),
    (Step("alu", FLOAT32, (3, 1), "add"), Step("activation", FLOAT32, (4,), "exp"))), ids=lambda steps: steps[-1].name)
def test_rounding__of_results_with_a_number_for_each_row_keeps_nan(steps: tuple[Step, ...], forms: tuple[str, ...]
                                                                   ) -> None:
    """Numbers of the rows are NaN of all lengths of payloads, infinities and denormals."""
    scales = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF807FFF, 0x7FBF8000, 0x7FC00000, 0x7F800000, 0xFF800000,
                       0x00000001, 0x80400000, 0x3F800000, 0xC0490FDB, 0x7F7FFFFF, 0x80000000, 0x0DA24260, 0x5D5E0B6B],
                      np.uint32).view(np.float32)
    row = Operand(BFLOAT16, (COUNT // 16, 1))
    nest = Nest((16, COUNT // 16), frozenset(), (row, Operand(FLOAT32, (1, 0))), 0, (row,), (
        Step("convert", FLOAT32, (0,)), *steps, Step("convert", BFLOAT16, (3 + len(steps),))), (4 + len(steps),))
    assert keeping_nans(nest) and shortened_inputs(nest) == {1}
    results = []
    for chosen in ((), forms):
        numbers, per_row, result = (Memory(nest, operand, np.random.default_rng(5)) for operand in nest.operands)
        numbers.array[:] = np.random.default_rng(7).permutation(COUNT).astype(np.uint16).view(BFLOAT16.numpy)
        per_row.array[:] = scales
        run(nest, [numbers, per_row, result], forms=chosen)
        results.append(result.array.copy())
    wanted, result = results
    nan = np.isnan(wanted.astype(np.float32))
    assert nan.sum() > COUNT // 4 and np.array_equal(np.isnan(result.astype(np.float32)), nan)
    powers = "powers" in forms and steps[-1].name == "exp"
    assert powers or np.array_equal(bits(result)[~nan], bits(wanted)[~nan])


@pytest.mark.parametrize("narrower", (FLOAT8_E5M2, FLOAT16, INT8), ids=str)
@pytest.mark.parametrize("forms", ((), ("delays",), ("rounds",), ("delays", "rounds")), ids=str)
def test_rounding__that_is_stored_and_converted_to_another_dtype(forms: tuple[str, ...], narrower: DType) -> None:
    """The second result is computed from the first one, which is no last step."""
    row = Operand(BFLOAT16, (1,))
    nest = Nest((COUNT,), frozenset(), (row,), 0, (row, Operand(narrower, (1,))), (
        Step("convert", FLOAT32, (0,)), Step("activation", FLOAT32, (3,), "square"), Step("convert", BFLOAT16, (4,)),
        Step("convert", FLOAT32, (5,)), Step("alu", FLOAT32, (6, 3), "multiply"), Step("convert", BFLOAT16, (7,)),
        Step("convert", narrower, (8,))), (8, 9))
    source, first, second = (Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands)
    source.array[:] = np.arange(COUNT, dtype=np.uint16).view(BFLOAT16.numpy)
    run(nest, [source, first, second], forms=forms)
    with np.errstate(all="ignore"):
        number = source.array.astype(np.float32)
        cube = convert(convert(np.square(number), BFLOAT16).astype(np.float32) * number, BFLOAT16)
    for result, wanted in ((first.array, cube), (second.array, convert(cube, narrower))):
        nan = np.isnan(wanted.astype(np.float32))
        assert np.array_equal(np.isnan(result.astype(np.float32)), nan)
        assert np.array_equal(bits(result)[~nan], bits(wanted)[~nan])
