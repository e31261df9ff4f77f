# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exponential by sixteenths of powers of two, in registers and in fewer lanes; the rounding behind it."""

import numpy as np
import pytest

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, DType
from nki_mlir.scalar.emit import ScalarEmitter
from nki_mlir.targets.cpu import routines
from nki_mlir.targets.cpu.lanes import FunctionEmitter
from nki_mlir.waist.nest import Nest, Operand, Step

from .nest_reference import ALL_FORMS, Memory, bits, run

EDGES = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 3e38, -3e38, 88.722, 88.73, -87.33, -87.34, -103.9,
                  -104.1, 1e-40, -1e-40, 150, -150, 1e6, -1e6, 1e19], np.float32)


def exponential(count: int, result: DType = FLOAT32) -> Nest:
    steps = (Step("activation", FLOAT32, (0,), "exp"), Step("convert", result, (2,)))
    steps = steps[:1] if result is FLOAT32 else steps
    return Nest((count,), frozenset(), (Operand(FLOAT32, (1,)),), 0, (Operand(result, (1,)),), steps, (1 + len(steps),))


def of(values: np.ndarray, result: DType = FLOAT32) -> np.ndarray:
    nest = exponential(len(values), result)
    source, target = (Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands)
    source.array[:] = values
    run(nest, [source, target], forms=ALL_FORMS)
    return target.array.copy()


def arguments(count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    words = rng.integers(0, 1 << 32, count, np.uint32).view(np.float32)
    return np.concatenate([EDGES, words, rng.uniform(-104, 89, count).astype(np.float32)])


def test_exponential__of_any_bits_is_within_its_bound() -> None:
    x = arguments(200_000)
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(np.float64))
        wanted = exact.astype(np.float32)
    result = of(x)
    assert np.array_equal(np.isnan(result), np.isnan(x))
    finite = np.isfinite(wanted)
    assert np.array_equal(result[np.isinf(wanted)], wanted[np.isinf(wanted)])
    errors = np.abs(result[finite] - exact[finite]) / np.spacing(wanted[finite])
    assert errors.max() <= 1.5
    assert not np.signbit(result[finite]).any()
    assert result[0] == 1 and result[1] == 1 and np.array_equal(result[2:4], [np.inf, 0])


@pytest.mark.parametrize("lanes", (1, 2, 3, 7, 9, 16, 17, 33))
def test_exponential__has_the_same_bits_in_any_number_of_lanes(lanes: int) -> None:
    x = arguments(99)
    parts = [of(x[k:k + lanes]) for k in range(0, len(x) - lanes, lanes)]
    result = np.concatenate(parts)
    assert np.array_equal(bits(of(x)[:len(result)]), bits(result))


def test_exponential__has_the_same_bits_by_general_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_MLIR_CACHE", "off")
    x = arguments(500)
    wanted = of(x)
    routines.clear_memo()
    for name in ("selected", "no_larger"):
        monkeypatch.setattr(FunctionEmitter, name, getattr(ScalarEmitter, name))
    assert np.array_equal(bits(of(x)), bits(wanted))
    routines.clear_memo()


@pytest.mark.parametrize("columns", (16, 32, 64, 256))
def test_rounding__of_denormals_zeros_and_nan_beside_usual_numbers(columns: int) -> None:
    """The instruction of the host takes denormals as 0: one of them is at each place of a vector of other numbers."""
    for others in (-1.0, -np.inf, np.nan, -88.0):
        for column in range(columns):
            x = np.full(columns, others, np.float32)
            x[column] = -90.5
            result, single = of(x, BFLOAT16), of(x)
            assert np.array_equal(bits(result), bits(single.astype(BFLOAT16.numpy)))
            assert 0 < float(result[column]) < 2.0**-126
