# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that are no more than their operation: what each parameter is to the operation's class.

Both generations make their functions of these entries and of the table of signatures: in one they give a new tile, in
the other they write ``dst``. A parameter that is in no list is the attribute of its name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nki_mlir.dialects.catalogue import load
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.language.instructions import engine_name
from nki_mlir.language.signatures.generation import Generation, signature_of
from nki_mlir.language.signatures.table import signatures


@dataclass(frozen=True)
class Regular:
    """An instruction of its operation's name. Its tiles have one shape, which is the result's, unless it makes ``rows``
    of a length of their own."""

    does: str
    tiles: dict[str, str]                                               # parameter -> tile
    scalars: dict[str, tuple[str, str]] = field(default_factory=dict)   # parameter -> tile, attribute of a number
    named: dict[str, str] = field(default_factory=dict)                 # parameter -> attribute of another name
    rows: int = 0


REGULAR = {
    "reciprocal": Regular("1 / data.", {"data": "src"}),
    "tensor_copy": Regular("src, on chip.", {"src": "src"}),
    "scalar_tensor_tensor": Regular(
        "(data op0 operand0) op1 operand1; operand0 is a number or a [P, 1] tile, operand1 a tile.",
        {"data": "src", "operand1": "rhs"}, {"operand0": ("operand0", "imm0")}),
    "tensor_tensor_scan": Regular(
        "r, with r[i] = op1(op0(data0[i], r[i-1]), data1[i]) along the free axis; r[-1] is ``initial``.",
        {"data0": "data0", "data1": "data1"}, {"initial": ("initial", "imm")}),
    "bn_stats": Regular("[P, 6]: count, mean and variance * count of the even elements, then of the odd ones.",
                        {"data": "src"}, rows=6),
    "bn_aggr": Regular("[P, 2]: mean and variance of groups given as (count, mean, variance * count).",
                       {"data": "src"}, rows=2),
    "max8": Regular("[P, 8]: the largest values of each partition, largest first.", {"src": "src"}, rows=8),
    "nc_find_index8": Regular("[P, 8]: where each of 8 values occurs in data, flattened; all ones where it does not.",
                              {"data": "data", "vals": "vals"}, rows=8),
    "nonzero_with_count": Regular(
        "in partitions 0, 16, ...: the places of what is not zero, padding, and their count at the end.",
        {"src": "src"}, named={"index_offset": "base", "padding_val": "padding"}, rows=1),
}
load()


def functions(generation: Generation, operator: Callable[[Any, str], str], maker: Callable[..., Any], there: Any,
              not_given: str = "") -> dict[str, Callable]:
    """The functions of a generation for the entries that are not ``there``.

    ``operator`` gives the name of an operator; ``maker(class, entry)`` gives what is called with the values of all
    parameters and the operation's attributes.
    """
    return {name: _function(name, entry, generation, operator, maker, not_given) for name, entry in REGULAR.items()
            if name not in there and signatures(f"nki.isa.{name}", generation.name)}


def _function(name: str, entry: Regular, generation: Generation, operator: Callable[[Any, str], str],
              maker: Callable[..., Any], not_given: str) -> Callable:
    signature = signature_of(signatures(f"nki.isa.{name}", generation.name)[0], generation, without=not_given)
    names = [n for n, p in signature.parameters.items() if p.kind is not p.KEYWORD_ONLY]
    cls = REGISTRY[f"nisa.{name}"]
    defaults = {n: p.default for n, p in signature.parameters.items() if p.default is not p.empty}
    attributes = [(n, made, cls.attributes[made]) for n in signature.parameters
                  if (made := entry.named.get(n, n)) in cls.attributes and n not in entry.scalars]
    run = maker(cls, entry)

    def function(*values: Any, **named: Any) -> Any:
        given = defaults | named
        given.update(zip(names, values))
        made: dict[str, Any] = {}
        for parameter, attribute, kind in attributes:
            value = given[parameter]
            made[attribute] = kind(value) if kind is not str else engine_name(value) if attribute == "engine" else (
                operator(value, f"{name} {parameter}"))
        return run(given, made)
    function.__name__ = function.__qualname__ = name
    function.__doc__, function.__signature__ = entry.does, signature        # type: ignore[attr-defined]
    return function
