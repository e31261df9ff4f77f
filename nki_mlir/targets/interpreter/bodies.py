# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The body of a ``linalg.generic``, compiled to functions of whole arrays, and what each of its outputs is.

An output is assigned, or it is a fold: ``alu(output, value)`` where nothing else reads the output. The value of a fold
over reduced axes is computed for all elements at once and then reduced by the operation's NumPy reduction.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.targets.interpreter.scalars import scalar_function

# Folds of other dialects, by the name of the ALU operation that means the same.
_FOLDS = {"arith.addf": "add", "arith.addi": "add", "arith.mulf": "multiply", "arith.muli": "multiply",
          "arith.maximumf": "maximum", "arith.minimumf": "minimum", "arith.maxsi": "maximum", "arith.minsi": "minimum",
          "arith.andi": "bitwise_and", "arith.ori": "bitwise_or", "arith.xori": "bitwise_xor"}
_CASTS = ("scalar.convert", "arith.extf")


@dataclass
class Output:
    """One yielded value: ``place`` is that of the value, or of what is folded in by the ALU operation ``fold``."""

    place: int
    reads: bool                         # whether the output's value before is used, other than by the fold
    fold: str | None = None
    identity: Any = None
    of_integers: bool = False           # what is folded in is computed from integers alone


class Body:
    """Values have places: the block's arguments first, then the indices of the axes, then the operations' results."""

    def __init__(self, block: Any, inputs: int, rank: int) -> None:
        self.places: dict[Any, int] = {a: k for k, a in enumerate(block.arguments)}
        self.inputs, self.arguments, self.rank = inputs, len(self.places), rank
        self.indices: list[int] = []            # the axes whose index is used
        operations = [op.operation for op in block.operations]
        self.program: list[tuple[int, Callable, list[int]]] = []
        for op in operations[:-1]:
            if op.name == "linalg.index":
                axis = op.attributes["dim"].value
                self.indices.append(axis)
                self.places[op.results[0]] = self.arguments + axis
                continue
            place = self.places[op.results[0]] = self.arguments + rank + len(self.program)
            self.program.append((place, scalar_function(op), [self.places[v] for v in op.operands]))
        self.owner = {self.places[op.results[0]]: op for op in operations[:-1]}
        self.types: dict[int, Any] = {place: value.type for value, place in self.places.items()}
        self.uses: dict[int, int] = {}
        for op in operations:
            for value in op.operands:
                self.uses[self.places[value]] = self.uses.get(self.places[value], 0) + 1
        self.yielded = [self.places[v] for v in operations[-1].operands]

    # -- running -------------------------------------------------------------------------------------------------------
    def run(self, arguments: list[Any], indices: list[Any], skipped: frozenset[int] = frozenset()) -> list[Any]:
        """The values at all places; operations at ``skipped`` places are not computed."""
        values = [*arguments, *indices, *[None] * len(self.program)]
        for place, function, operands in self.program:
            if place not in skipped:
                values[place] = function(*[values[k] for k in operands])
        return values

    # -- understanding -------------------------------------------------------------------------------------------------
    def assigned(self, k: int) -> Output:
        """Output ``k`` as a value that may depend on what it was before."""
        return Output(self.yielded[k], self.uses.get(self.inputs + k, 0) > 0)

    def folded(self, k: int) -> Output | None:
        """Output ``k`` as a fold that has an identity, or None."""
        total, place = self.inputs + k, self.yielded[k]
        op = self.owner.get(place)
        if op is None or self.uses.get(total) != 1 or self.uses[place] != 1 or len(op.operands) != 2:
            return None
        name = op.attributes["fn"].value if op.name == "scalar.alu" else _FOLDS.get(op.name)
        left, right = (self.places[v] for v in op.operands)
        if name not in ALU or (left != total and not (right == total and ALU[name].commutative)):
            return None
        text = str(op.results[0].type)
        identity = ALU[name].identity(BY_MLIR[text]) if text in BY_MLIR else None
        if identity is None:
            return None
        dtype = BY_MLIR[text].numpy
        value = right if left == total else left
        return Output(value, False, name, dtype.type(identity), self.of_integers(value))

    def of_integers(self, place: int) -> bool:
        """Whether all that a value is computed from is integers and constants."""
        if isinstance(self.types.get(place), ir.IntegerType | ir.IndexType):
            return True
        op = self.owner.get(place)
        return op is not None and all(self.of_integers(self.places[v]) for v in op.operands)

    def product(self, place: int) -> tuple[int, int] | None:
        """The two arguments whose product, after conversions, is the value at ``place``."""
        op = self.owner.get(place)
        if op is None or not (op.name == "arith.mulf" or (op.name == "scalar.alu" and
                                                          op.attributes["fn"].value == "multiply")):
            return None
        sources = [self._argument(self.places[v]) for v in op.operands]
        return None if None in sources else (sources[0], sources[1])        # type: ignore[return-value]

    def factors(self, place: int) -> list[int]:
        """The places of a product's two operands."""
        return [self.places[v] for v in self.owner[place].operands]

    def _argument(self, place: int) -> int | None:
        while (op := self.owner.get(place)) is not None and op.name in _CASTS:
            place = self.places[op.operands[0]]
        return place if place < self.inputs else None
