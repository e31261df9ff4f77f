# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of wrong types, without an end, nested too deep or without a text: one error that names rule and fix."""

import itertools
import traceback

import numpy as np
import pytest

import nki_mlir
from nki_mlir.capture.locations import is_toolchain
from nki_mlir.diagnostics import NkiMlirError


class NoText:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class SaysArray:
    @property
    def __class__(self) -> type:
        return np.ndarray


class AnyAttribute:
    def __getattr__(self, name: str) -> "AnyAttribute":
        return self


def nested() -> list:
    value: list = []
    for _ in range(100_000):
        value = [value]
    return value


SHAPES = {"none": (None, "'NoneType' object is not iterable"), "text": ("x", "it is a text"),
          "endless": (itertools.repeat(4), "it has more than 64 extents"), "no text": (NoText(), "<NoText>"),
          "nested": (nested(), "<tuple>"), "negative": ((-1, 4), "an extent is -1"),
          "large": ((10 ** 18, 10 ** 18), "fix: give smaller extents"), "65 extents": ((1,) * 65, "more than 64 extents")}
DTYPES = {"dict": {"a": 1}, "nested": nested(), "attributes": AnyAttribute(), "long": "x" * 1_000_000}


@pytest.fixture(autouse=True)
def short_tracebacks(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_TRACEBACK", raising=False)


def error_of(function, *arguments: object) -> str:
    with pytest.raises(NkiMlirError) as caught:
        function(*arguments)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.filename for frame in frames if is_toolchain(frame.filename)] == []
    text = str(caught.value)
    assert "fix: " in text and len(text) < 6_000
    return text


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    shape, reason = SHAPES[name]
    assert reason in error_of(nki_mlir.spec, shape)


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(name):
    assert "a tensor of shape (4, 8) and dtype" in error_of(nki_mlir.spec, (4, 8), DTYPES[name])


@pytest.mark.parametrize("value", [10 ** 5_000, nested()], ids=["digits", "nested"])
def test_kernels_and_spaces_without_a_text(value):
    assert f"<{type(value).__name__}" in error_of(nki_mlir.tune, value, {"s": [1]}, [])


@pytest.mark.parametrize("values", [10 ** 5_000, np.array(2.0), AnyAttribute()], ids=["digits", "scalar", "attributes"])
def test_values_that_are_no_sequence(values):
    def kernel(x, s=1):
        return x
    from nki_mlir.language.kernel import Kernel
    assert "the values of s are" in error_of(nki_mlir.tune, Kernel(kernel), {"s": values}, [np.ones((4, 8), np.float32)])


def test_an_object_that_says_it_is_an_array_is_a_constant():
    from nki_mlir.language.kernel import is_array
    assert not is_array(SaysArray()) and is_array(np.ones(3).view(np.matrix))
