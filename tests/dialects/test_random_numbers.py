# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers, against the raw words of the generator that a state names."""

import numpy as np
import pytest

from .samples import SAMPLES, arrays_of, run

SEED, COUNT = 12345, 7
STATE = np.array([[SEED, COUNT]], np.uint32)


def words(n: int) -> np.ndarray:
    """The first 32-bit words of a state's generator: the halves of its words of 64 bits, the low one first."""
    raw = np.random.Philox(key=np.array([SEED, COUNT], np.uint64)).random_raw(-(-n // 2))
    return np.ascontiguousarray(raw).view("<u4")[:n]


def test_numbers__are_the_leading_24_bits() -> None:
    op = SAMPLES["nisa.rand"].make()
    after = run(op, arrays_of(op) | {"state": STATE})
    np.testing.assert_array_equal(after["dst"].reshape(-1), (words(24) >> 8).astype(np.float32) * np.float32(2 ** -24))
    np.testing.assert_array_equal(after["state"], [[SEED, COUNT + 1]])


@pytest.mark.parametrize("dtype, expected", [
    ("ui32", lambda bits: bits), ("i32", lambda bits: bits.view(np.int32)), ("ui8", lambda bits: bits.astype(np.uint8)),
    ("i16", lambda bits: bits.astype(np.uint16).view(np.int16)), ("i1", lambda bits: bits % 2 == 1)])
def test_bits__are_the_low_ones(dtype: str, expected: object) -> None:
    op = SAMPLES["nisa.rng"].make(dst=f"sbuf PxFx{dtype}")
    after = run(op, arrays_of(op) | {"state": STATE})
    np.testing.assert_array_equal(after["dst"].reshape(-1), expected(words(24)))        # type: ignore[operator]
    np.testing.assert_array_equal(after["state"], [[SEED, COUNT + 1]])


def test_last_count__is_followed_by_the_first() -> None:
    op = SAMPLES["nisa.rand"].make()
    after = run(op, arrays_of(op) | {"state": np.array([[SEED, 0xFFFFFFFF]], np.uint32)})
    np.testing.assert_array_equal(after["state"], [[SEED, 0]])


@pytest.mark.parametrize("element", (0, 5, 23))
@pytest.mark.parametrize("in_tile", (False, True))
def test_dropout__keeps_an_element_whose_number_equals_the_probability(element: int, in_tile: bool) -> None:
    numbers = (words(24) >> 8).astype(np.float32) * np.float32(2 ** -24)
    limit = numbers[element]
    op = SAMPLES["nisa.dropout"].make(**{"prob": "sbuf Px1xf32"} if in_tile else {"imm": float(limit)})
    arrays = arrays_of(op) | {"state": STATE}
    if in_tile:
        arrays["prob"] = np.full((4, 1), limit, np.float32)
    expected = np.where(numbers < limit, 0, arrays["src"].reshape(-1))
    assert expected[element] != 0
    np.testing.assert_array_equal(run(op, arrays)["dst"].reshape(-1), expected)


@pytest.mark.parametrize("seed, state", [(5, 5), (-1, 0xFFFFFFFF), (1 << 31, 1 << 31)])
def test_seed__begins_a_stream_at_its_first_number(seed: int, state: int) -> None:
    op = SAMPLES["nisa.random_seed"].make()
    seeds = np.array([[seed & 0xFFFFFFFF]], np.uint32)
    np.testing.assert_array_equal(run(op, arrays_of(op) | {"seed": seeds})["state"], [[state, 0]])
