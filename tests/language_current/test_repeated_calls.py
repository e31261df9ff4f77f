# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A call that repeats what an earlier call of its form did emits the same operations, warnings and errors."""

import random
import warnings
from unittest.mock import patch

import numpy as np
import pytest

from nki_mlir.capture.builder import Builder
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki, repeated_calls
from nki_mlir.language.current.recorded_calls import EmittedOperation
from nki_mlir.language.kernel import describe_array, is_array
from tests.random_programs.current import CurrentWriter
from tests.random_programs.test_random_kernels import current_kernel


def captured(kernel, *arrays):
    """The text of each module, with the number of calls that were repeated."""
    with patch.object(repeated_calls, "repeat", wraps=repeated_calls.repeat) as repeat:
        call = kernel.specialize(kernel.bind(arrays, {}, is_array, describe_array))
    return [str(variant.module) for variant in call.captured.variants.values()], repeat.call_count


def fresh(kernel):
    """The kernel without the memo of its captures."""
    return nki.jit(kernel.func)


def with_checks(kernel, *arrays):
    with patch.object(repeated_calls, "is_plain", lambda builder: False):
        return captured(kernel, *arrays)[0]


def after_another(monkeypatch):
    """Let each capture begin with what the calls of the previous captures did."""
    create, records = Builder.__init__, {}

    def created(builder, *arguments, **keywords):
        create(builder, *arguments, **keywords)
        for recorded in records.values():
            for step in recorded.steps:
                if isinstance(step, EmittedOperation):
                    step.verified = None                # it belongs to the previous builder
        builder.recorded_calls = records
    monkeypatch.setattr(Builder, "__init__", created)


@pytest.mark.filterwarnings("ignore")
def test_random_programs(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    after_another(monkeypatch)
    total = 0
    for seed in range(8):
        program = CurrentWriter(random.Random(seed).randrange).program()
        arrays = program.arrays.values()
        kernels = [current_kernel(program) for _ in range(3)]
        if program.grid:
            kernels = [kernel[program.grid if len(program.grid) > 1 else program.grid[0]] for kernel in kernels]
        expected = with_checks(kernels[0], *arrays)
        for kernel in kernels[1:]:
            text, repeats = captured(kernel, *arrays)
            assert text == expected
        total += repeats
    assert total > 30


@nki.jit
def sums(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for k in range(4):
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, k * 128:(k + 1) * 128])
        total = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        for _ in range(3):                              # the first overwrites, the others add
            nisa.nc_matmul(dst=total, stationary=tile, moving=tile)
        result = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=total)
        if k == 2:
            nisa.nc_matmul(dst=total, stationary=tile, moving=tile)      # adds to a sum that was read
        nisa.dma_copy(dst=out[:, k * 128:(k + 1) * 128], src=result)
    return out


def test_products_add_to_what_products_wrote():
    x = np.zeros((128, 512), np.float32)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        text, repeats = captured(fresh(sums), x)
    assert [str(w.message).partition("nc_matmul ")[2][:33] for w in shown] == ["adds to PSUM that was read after "]
    assert repeats > 12
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert text == with_checks(fresh(sums), x)


@nki.jit
def shifted(x):
    """Moves within one tensor, by distances that differ, and onto itself."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    for to, source in ((0, 0), (0, 128), (128, 256), (256, 128), (128, 128), (0, 256)):
        nisa.dma_copy(dst=out[to:to + 128], src=out[source:source + 128])
    for k in range(3):
        tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[k * 128:(k + 1) * 128])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=(0.0, -0.0, 0.0)[k])
        nisa.tensor_scalar(dst=tile[:, 0:32], data=tile[:, 32:64], op0=nl.add, operand0=(1, 1.0, True)[k])
        nisa.dma_copy(dst=out[k * 128:(k + 1) * 128], src=tile)
    return out


def test_tensors_that_share_memory_and_numbers_that_are_equal():
    x = np.arange(384 * 64, dtype=np.float32).reshape(384, 64)
    text, repeats = captured(fresh(shifted), x)
    assert text == with_checks(fresh(shifted), x)
    assert repeats > 6
    np.testing.assert_array_equal(shifted.on("interpreter")(x), shifted.on("eager")(x))


@nki.jit
def too_far(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for k in range(4):
        tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.ap([[64, 128], [1, 64]], offset=k * 128 * 64))
        nisa.dma_copy(dst=out[0:128], src=tile)
    return out


@nki.jit
def across_banks(x):
    total = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.psum)
    tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for start in (0, 512, 256, 0):
        nisa.nc_matmul(dst=total[:, start:start + 512], stationary=tile[:, 0:128], moving=tile, accumulate=False)
    return x


def test_products_across_banks_of_psum():
    x = np.zeros((128, 512), np.float32)
    text, _ = captured(fresh(across_banks), x)
    assert text == with_checks(fresh(across_banks), x)


def test_errors_of_repeated_calls():
    errors = []
    for run in (captured, with_checks):
        with pytest.raises(AssertionError) as error:
            run(fresh(too_far), np.zeros((384, 64), np.float32))
        errors.append(str(error.value))
    assert errors[0] == errors[1]
    assert "the access pattern reaches elements 24576 to 32767" in errors[0]


@nki.jit
def rows(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    totals = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.psum)
    for k in range(4):
        part = slice(k * 128, k * 128 + 128)
        tile = nl.load(x[part], dtype=nl.bfloat16 if k % 2 else None)
        largest, column = nl.max(tile, axis=1, keepdims=True), nl.copy(tile[:, k:k + 1])
        powers = nl.exp(nl.subtract(tile, largest))
        nisa.tensor_copy(dst=totals, src=nl.sum(powers, axis=1, keepdims=True))
        nl.store(out[part], nl.divide(powers, totals) + column * 0.5)
    nl.store(out[0:128, 0:128], nl.transpose(nl.matmul(tile, tile, transpose_x=True)[:, 0:128]))
    return out


def test_functions_that_return_tiles():
    x = np.zeros((512, 128), np.float32)
    shown, texts = [], []
    for run in (captured, with_checks):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            texts.append(run(fresh(rows), x))
        shown.append([(str(w.message), w.lineno) for w in warned])
    (text, repeats), expected = texts
    assert text == expected
    assert 'nki.name = "largest"' in text[0] and 'nki.name = "column"' in text[0]
    assert repeats > 15
    assert len(shown[0]) > 2 and shown[0] == shown[1]
