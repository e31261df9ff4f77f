# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The names that Python code may look up: those that it has, and words of its texts where it looks up by text."""

import pytest

from nki_mlir.capture.global_names import global_names


def evaluated():
    return eval("SCALE * module_1.rows")


def printed():
    print("SCALE * module_1.rows")


def by_attribute(settings):
    def inner():
        return getattr(settings, "the scale of rows")
    return inner().size


@pytest.mark.parametrize("function, names", [
    (evaluated, {"eval", "SCALE * module_1.rows", "SCALE", "module_1", "rows"}),
    (printed, {"print"}),
    (by_attribute, {"getattr", "the scale of rows", "the", "scale", "of", "rows", "size"})])
def test_names_that_code_looks_up(function, names):
    listed = global_names(function.__code__)
    assert list(listed) == sorted(listed)
    assert {*listed} - {"by_attribute.<locals>.inner"} == names
