# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The body of a nest, compiled to functions of whole arrays, and what each of its outputs is.

An output is assigned, or it is a fold: ``alu(output, value)`` where nothing else reads the output. The value of a fold
over reduced axes is computed for all elements at once and then reduced by the operation's NumPy reduction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nki_mlir.targets.interpreter.scalars import function_of
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.recognition import fold_of, of_integers


@dataclass
class BodyOutput:
    """One result: ``value`` is its number, or that of what is folded in by the ALU operation ``fold``."""

    value: int
    reads: bool                         # whether the output's value before is used, other than by the fold
    fold: str | None = None
    identity: Any = None
    of_integers: bool = False           # what is folded in is computed from integers alone


class Body:
    """The steps of a nest as functions."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.indices: list[tuple[int, int]] = []        # values that are the position on an axis
        self.program: list[tuple[int, Callable[..., object], tuple[int, ...]]] = []
        for value, step in enumerate(nest.steps, nest.first_step):
            if step.kind == "index":
                self.indices.append((value, step.number))
            else:
                function = function_of(step, [nest.dtype_of(v) for v in step.operands])
                self.program.append((value, function, step.operands))

    def run(self, given: Sequence[Any], position: Callable[[int], Any], skipped: frozenset[int] = frozenset()
            ) -> list[Any]:
        """All values, from those of inputs, symbols and outputs; ``position`` has those along an axis.

        The ``skipped`` ones are not computed.
        """
        values = [*given, *[None] * len(self.nest.steps)]
        for value, axis in self.indices:
            values[value] = position(axis)
        for value, function, operands in self.program:
            if value not in skipped:
                values[value] = function(*[values[k] for k in operands])
        return values

    def assigned(self, k: int) -> BodyOutput:
        """Output ``k`` as a value that may depend on what it was before."""
        return BodyOutput(self.nest.results[k], self.nest.uses(self.nest.first_output + k) > 0)

    def folded(self, k: int) -> BodyOutput | None:
        """Output ``k`` as a fold that has an identity, or None."""
        fold = fold_of(self.nest, k)
        if fold is None or fold.identity is None or self.nest.uses(self.nest.results[k]) != 1:
            return None
        assert fold.step.dtype is not None
        identity = fold.step.dtype.numpy.type(fold.identity)
        return BodyOutput(fold.value, False, fold.fn, identity, of_integers(self.nest, fold.value))
