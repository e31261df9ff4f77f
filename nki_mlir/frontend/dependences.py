# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes whose index lacks the variable of a parallel loop or a program id, which the documents call an error.

Iterations and programs are independent of each other: what one writes must lie elsewhere than what another does, unless
it is accumulated, or a condition on the loop variable picks the iteration that writes. ``hazards`` judges the others.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nki_mlir.dialects.op import Op
from nki_mlir.frontend.errors import UnexpectedOutputDependencies
from nki_mlir.frontend.locations import user_location
from nki_mlir.frontend.symbol import Symbol
from nki_mlir.frontend.tensor import View

if TYPE_CHECKING:
    from nki_mlir.frontend.mlir_builder import Scope


class CaptureDependences:
    """Those of one capture, until it is clear that its loops stay rolled: a place in a Python variable is no index."""

    def __init__(self) -> None:
        self.of_loops: UnexpectedOutputDependencies | None = None
        self.of_programs: list[UnexpectedOutputDependencies] = []

    def check(self, op: Op, views: Sequence[View], symbols: Sequence[Symbol], scopes: "Sequence[Scope]",
              programs: Sequence[tuple[int, Symbol | None]]) -> None:
        found = dependence(op, views, symbols, scopes, programs) if self.of_loops is None else None
        if found is not None and found.located(user_location()):
            if found.programs:
                self.of_programs.append(found)
            else:
                self.of_loops = found

    def violation(self, ignored: Iterable[int]) -> UnexpectedOutputDependencies | None:
        """The error, if there is one. Programs whose ids the kernel ignores write the same, which is none."""
        if self.of_loops is not None:
            return self.of_loops
        return next((e for e in self.of_programs if not set(e.programs) <= set(ignored)), None)


def dependence(op: Op, views: Sequence[View], symbols: Sequence[Symbol], scopes: "Sequence[Scope]",
               programs: Sequence[tuple[int, Symbol | None]]) -> UnexpectedOutputDependencies | None:
    """The error of an operation that writes what other iterations write, too.

    ``programs`` are the grid's axes that were not fixed, with their symbols where the kernel has asked for them.
    """
    for (field, _), view in zip(op.operands(), views):
        if not field.writes or (field.reads and field.name in {name for name, _ in op.sources()}):
            continue
        buffer = view.buffer
        inner = scopes[scopes.index(buffer.scope) + 1:]
        shared = programs if buffer.role in ("input", "output") else ()
        if not shared and not any([scope.parallel for scope in inner]):
            continue
        used = origins(s for i in (view.partition, view.free) for s in i.symbols)
        used |= origins(symbols[p] for c in (*op.mask, *op.limits) for p, _ in c.form.symbols)
        used |= origins(s for scope in inner for fact in scope.condition for s in fact.symbols)
        missing = [s.symbol.name for s in reversed(inner)
                   if s.symbol is not None and s.parallel and s.symbol not in used]
        axes = tuple(axis for axis, symbol in shared if symbol is None or symbol not in used)
        if missing or axes:
            names = [*missing, *(f"program_id({axis})" for axis in axes)]
            found = UnexpectedOutputDependencies(missing=", ".join(names), name=buffer.name)
            found.programs = () if missing else axes
            return found
    return None


def origins(symbols: Iterable[Symbol]) -> set[Symbol]:
    """The symbols with those that they are derived from."""
    found: set[Symbol] = set()
    for symbol in symbols:
        found.add(symbol)
        if symbol.parents:
            found |= origins(symbol.parents)
    return found


