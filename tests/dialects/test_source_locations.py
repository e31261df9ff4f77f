# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a location tells is found wherever it is within locations of calls, names and fused operations."""

import random

import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.source_locations import file_location, origin_of, with_origin


def around(inner: ir.Location, draw: random.Random, depth: int) -> ir.Location:
    """A random nest of locations around one that tells something; the others tell nothing."""
    for _ in range(depth):
        other = draw.choice([ir.Location.unknown(), ir.Location.name("other")])
        inner = draw.choice([
            lambda at: ir.Location.callsite(at, [other]), lambda at: ir.Location.callsite(other, [at]),
            lambda at: ir.Location.name("a name", at), lambda at: ir.Location.fused([at, other]),
            lambda at: ir.Location.fused([other, at])])(inner)
    return inner


@pytest.mark.parametrize("seed", range(30))
def test_the_only_origin_and_position__are_found(seed: int) -> None:
    draw = random.Random(seed)
    with shared_context():
        at = ir.Location.file("kernel.py", 3, 5)
        named = with_origin("stablehlo.add", at)
        assert origin_of(around(named, draw, seed % 6)) == "stablehlo.add"
        assert origin_of(around(at, draw, seed % 6)) == ""
        for inner in (at, named):
            position = file_location(around(inner, draw, seed % 6))
            assert position is not None
            assert (position.filename, position.start_line, position.start_col) == ("kernel.py", 3, 5)
        assert file_location(around(ir.Location.unknown(), draw, 3)) is None


def test_first_origin__is_that_of_the_outermost_name_and_of_the_callee() -> None:
    with shared_context():
        inner, outer = (with_origin(name, ir.Location.file("kernel.py", line, 1)) for line, name in ((1, "a"), (2, "b")))
        assert origin_of(with_origin("c", inner)) == "c"
        assert origin_of(ir.Location.callsite(inner, [outer])) == "a"
        assert origin_of(ir.Location.callsite(outer, [inner])) == "b"
        assert origin_of(ir.Location.fused([outer, inner])) == "b"
