# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a location tells is found wherever it is within locations of calls, names and fused operations."""

import random

import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.source_locations import (
    errors_at,
    file_location,
    is_mlir_text,
    location_of,
    name_operations,
    origin_of,
    source_location,
    with_origin,
)
from nki_mlir.graph.upstream import graph_context


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


def test_columns__count_from_0_and_come_with_the_origin() -> None:
    """MLIR counts columns from 1; one that it does not know is the first."""
    with shared_context():
        for column, counted in ((5, 4), (1, 0), (0, 0)):
            at = ir.Location.file("kernel.py", 3, column)
            assert source_location(at) == Location("kernel.py", 3, counted)
            assert source_location(with_origin("a", at)) == Location("kernel.py", 3, counted, origin="a")
        assert source_location(ir.Location.unknown()) is None


@pytest.mark.parametrize("layer", ["/site-packages/nki_mlir/frameworks/jax.py", "/src/nki_mlir/language/kernel.py"])
def test_position_of_a_call__is_the_users_instead_of_the_toolchains(layer: str) -> None:
    """A call within the toolchain has the position of its caller, if that is known."""
    with shared_context():
        inside, user, other = (ir.Location.file(file, line, 1) for line, file in enumerate(
            (layer, "user.py", "/src/nki_mlir/graph/nests.py"), 1))
        unknown = ir.Location.unknown()

        def line(callee: ir.Location, caller: ir.Location) -> int | None:
            position = file_location(ir.Location.callsite(callee, [caller]))
            return None if position is None else position.start_line
        assert line(inside, user) == line(unknown, user) == line(user, inside) == line(user, other) == 2
        assert line(inside, unknown) == 1
        assert line(other, user) == 3
        assert line(unknown, unknown) is None


GRAPH = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %b = stablehlo.add %a, %a : tensor<4xf32> loc({first})
  return %b : tensor<4xf32> loc("{second}":7:3)
}}
"""


@pytest.mark.parametrize("file, is_text", [("a.mlir", True), ("-", True), ("a.py", False), ("<string>", False)])
def test_lines_of_python__are_no_lines_of_mlir(file: str, is_text: bool) -> None:
    """One operation with a line of Python is enough; operations without a location do not count."""
    with graph_context():
        for first in ("unknown", '"b.mlir":2:1'):
            module = ir.Module.parse(GRAPH.format(first=first, second=file))
            for op in [*module.body.operations, module.operation]:
                op.operation.location = ir.Location.unknown()
            assert is_mlir_text(module) is is_text


def test_operations_of_a_graph__are_origins_at_their_lines() -> None:
    """Text from standard input gets the name of its file."""
    with graph_context():
        module = ir.Module.parse(GRAPH.format(first='"user.py":2:4', second="-"))
        name_operations(module, "graph.mlir")
        add, end = module.body.operations[0].regions[0].blocks[0].operations
        assert location_of(add.operation) == Location("user.py", 2, 3, origin="add")
        assert location_of(end.operation) == Location("graph.mlir", 7, 2, origin="func.return")


def test_errors__get_the_location_of_the_operation_unless_they_have_one() -> None:
    with shared_context():
        operation = ir.Module.parse("module {} loc(\"a.py\":4:2)").operation
        for location, line in ((None, 4), (Location("b.py", 9, 1), 9)):
            with pytest.raises(NkiMlirError, match=rf"{line}:\d+: error: what") as caught, errors_at(operation):
                raise NkiMlirError("what").located(location)
            assert caught.value.at is not None and caught.value.at.line == line
