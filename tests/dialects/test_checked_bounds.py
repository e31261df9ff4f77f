# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dimensions that an error of a run names, as the capture noted them for a call."""

from collections.abc import Iterator

import pytest

from nki_mlir.diagnostics import Location
from nki_mlir.dialects import checked_bounds
from nki_mlir.dialects.checked_bounds import MOST, dimensions_at, record_check

AT = Location("kernel.py", 7, 4)
CODE, OTHER = (compile(text, "kernel.py", "exec") for text in ("a = 1", "b = 2"))


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(checked_bounds, "_OF_CALLS", {})
    yield


def test_call_without_a_note() -> None:
    record_check(Location("kernel.py", 8, 4), CODE, "x", 0)
    record_check(Location("kernel.py", 7, 5), CODE, "x", 0)
    record_check(Location("other.py", 7, 4), CODE, "x", 0)
    assert dimensions_at(AT) == dimensions_at(None) == "its dimension"


def test_dimensions_of_a_call__are_named_once_each() -> None:
    for tensor, dim in (("x", 0), ("y", 1), ("x", 0), ("y", 1)):
        record_check(AT, CODE, tensor, dim)
    assert dimensions_at(AT) == "dimension 0 of `x` or dimension 1 of `y`"


def test_other_code_at_the_same_place__replaces_what_was_noted() -> None:
    record_check(AT, CODE, "x", 0)
    record_check(AT, OTHER, "y", 1)
    assert dimensions_at(AT) == "dimension 1 of `y`"


def test_more_dimensions_than_a_line_holds__are_not_named() -> None:
    assert MOST == 3
    for dim in range(MOST):
        record_check(AT, CODE, "x", dim)
    assert dimensions_at(AT) == " or ".join(f"dimension {dim} of `x`" for dim in range(MOST))
    for dim in range(MOST, MOST + 4):
        record_check(AT, CODE, "x", dim)
        assert dimensions_at(AT) == "its dimension"
    assert len(checked_bounds._OF_CALLS[AT.file, AT.line, AT.column].dimensions) == MOST + 1
