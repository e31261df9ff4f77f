# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs as C functions: values by address, exceptions as statuses."""

import gc
import math

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.kernel_function import ArgumentSpec
from nki_mlir.frameworks.process_state import once
from nki_mlir.frameworks.registry import C_ENTRY, FAILURES_KEPT, array_at, callback_entry
from nki_mlir.frameworks.stablehlo import LinkedProgram
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32

from ..at_once import at_once


def spec(dtype=FLOAT32, shape=(4, 3)):
    return ArgumentSpec("input", 0, "x", shape, dtype)


def double(inputs, shared):
    shared[0][...] = inputs[0] * 2


def test_entry__reads_and_writes_memory_by_address():
    entry = callback_entry(double, [spec()], [spec()])
    x, out = np.arange(12, dtype=np.float32).reshape(4, 3), np.zeros((4, 3), np.float32)
    entry([x.ctypes.data, out.ctypes.data])
    np.testing.assert_array_equal(out, x * 2)


def test_entry__keeps_dtypes_that_numpy_does_not_name():
    entry = callback_entry(double, [spec(BFLOAT16)], [spec(BFLOAT16)])
    x, out = np.arange(12).astype(ml_dtypes.bfloat16).reshape(4, 3), np.zeros((4, 3), ml_dtypes.bfloat16)
    entry([x.ctypes.data, out.ctypes.data])
    np.testing.assert_array_equal(out, x * 2)


def test_entry__empty_memory_needs_no_address():
    assert array_at(0, (0, 4), np.dtype(np.float32)).shape == (0, 4)


@pytest.mark.usefixtures("only_new_garbage")
def test_entry__exception_comes_back_by_its_status():
    def fail(inputs, shared):
        raise ValueError(f"saw {inputs[0][0, 0]}")
    entry = callback_entry(fail, [spec()], [])
    x = np.full((4, 3), 7, np.float32)
    with pytest.raises(ValueError, match=r"saw 7\.0"):
        entry([x.ctypes.data])
    gc.collect()


def test_entry__statuses_are_of_one_call_each_and_do_not_pile_up():
    def fail(inputs, shared):
        raise ValueError(inputs[0].sum())
    entry = callback_entry(fail, [spec()], [])
    arrays = [np.full((4, 3), k, np.float32) for k in range(FAILURES_KEPT + 5)]
    statuses = []
    for x in arrays:
        data = np.array([x.ctypes.data], np.int64)
        statuses.append(C_ENTRY(entry.address)(data.ctypes.data))
    assert len(set(statuses)) == len(arrays) and 0 not in statuses
    assert isinstance(entry.error(statuses[0]), InternalError)          # given up for newer ones
    assert entry.error(statuses[-1]).args == (12.0 * (len(arrays) - 1),)


def test_once__is_one_object_for_all_threads():
    objects = at_once(lambda number: once("a test's object", object), range(8))
    assert len(set(map(id, objects))) == 1


@pytest.mark.parametrize("name", ["erf", "lgamma", "sinh", "asin"])
@pytest.mark.parametrize("executor", ["jit", "interpreter"])
def test_functions_of_client_libraries__are_those_of_mathematics(name, executor, monkeypatch):
    """``chlo`` has them; calls of kernels on other executors compile the graph apart."""
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", executor)
    x = np.linspace(-0.9, 0.9, 7, dtype=np.float32) + (1 if name == "lgamma" else 0)
    program = LinkedProgram(f"func.func @main(%x: tensor<7xf32>) -> tensor<7xf32> {{ %y = chlo.{name} %x : tensor<7xf32> "
                            "-> tensor<7xf32> return %y : tensor<7xf32> }")
    assert program.is_one_program == (executor == "jit")
    np.testing.assert_allclose(program(x)[0], [getattr(math, name)(float(value)) for value in x], rtol=1e-5, atol=1e-6)
