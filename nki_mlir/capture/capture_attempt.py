# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One attempt at capturing a kernel: its plan, and its requests for numbers instead of symbols.

``attempts`` reads the requests after the attempt, adds them to the plan, and tries again.
"""

from dataclasses import dataclass, field
from typing import Any

from nki_mlir.capture.affine import Affine
from nki_mlir.capture.builder import Builder, Site
from nki_mlir.capture.errors import UnrollLimit
from nki_mlir.capture.index import NeedsValue, Symbol
from nki_mlir.capture.loop_state import Trace
from nki_mlir.capture.scope import Scope
from nki_mlir.capture.shared_tensors import SharedTensors
from nki_mlir.capture.waiting_result import WaitingResult
from nki_mlir.diagnostics import Location, NkiMlirError


@dataclass
class UnrollPlan:
    """The options of a capture, and the loops and axes that earlier attempts found to need numbers, each with the
    reason."""

    reasons: dict[tuple[Any, ...], str] = field(default_factory=dict)
    limit: int = 50_000
    replay: bool = True
    shared: SharedTensors = field(default_factory=SharedTensors)    # of the programs that have been captured


class CaptureAttempt(Builder):
    """A builder whose loops and branches have symbols, as far as the plan does not require numbers."""

    symbolic = True
    scopes: list[Scope]

    def __init__(self, grid: tuple[int, ...], plan: UnrollPlan, target: str) -> None:
        super().__init__(grid, target)
        self.plan, self.trace = plan, Trace()
        self.requests: dict[tuple[object, ...], str] = {}
        self.hints: dict[tuple[object, ...], str] = {}   # requests to make should the attempt fail
        self.abandoned: dict[tuple[object, ...], str] = {}       # requests to make should it succeed
        self.unrolled, self.counted, self.replaying = 0, 0, False
        self.programs: dict[int, Symbol] = {}
        self.waiting: WaitingResult | None = None
        self.continued: set[str] = set()        # engines whose registers an operation reads
        self.left_out: set[str] = set()         # engines whose registers lack the total of an operation

    def request(self, symbol: Symbol, reason: str) -> None:
        self.requests.setdefault(symbol.key, reason)
        raise NeedsValue(f"{symbol.name}: {reason}")

    def hint(self, symbol: Symbol, reason: str) -> None:
        self.hints.setdefault(symbol.key, reason)

    def needs_total(self, engine: str) -> bool:
        """Return whether an earlier attempt found that the kernel reads the registers of the engine. Most kernels do
        not, and their instructions reduce without registers."""
        if ("registers", engine) in self.plan.reasons:
            return True
        self.left_out.add(engine)
        self._request_totals()
        return False

    def continues_total(self, engine: str) -> bool:
        self.continued.add(engine)
        self._request_totals()
        return engine in self.left_out or super().continues_total(engine)

    def _request_totals(self) -> None:
        for engine in self.continued & self.left_out:
            self.requests.setdefault(("registers", engine),
                                     f"an operation adds to the accumulation registers of the {engine} engine")

    def left_open(self) -> dict[tuple[object, ...], str]:
        """Return requests for constructs that Python left before their end and went on: loops by a jump, branches by
        an exception."""
        reasons = dict(self.abandoned)
        for scope in self.scopes[1:]:
            for symbol in (s for e in scope.condition for s in e.symbols):
                reasons |= {s.key: "an exception left an if statement half way" for s in symbol.roots()}
        return reasons

    def requests_after(self, error: Exception) -> dict[tuple[object, ...], str]:
        """Return the requests for numbers after an error that numbers may avoid.

        The error may be due to capture if both branches of a symbolic ``if`` have run, a symbol's text was used, or
        Python mistook a symbol for another type.
        """
        reasons, symbols = dict(self.hints), [s for scope in self.scopes for e in scope.condition for s in e.symbols]
        if not isinstance(error, NkiMlirError):
            symbols += [s.symbol for s in self.scopes if s.symbol is not None] + list(self.programs.values())
        for symbol in symbols:
            reasons |= {s.key: f"{type(error).__name__}: {error}" for s in symbol.roots()}
        return reasons

    def iteration(self, site: Site) -> None:
        if (performed := self.performed()) == self.counted:         # iterations without operations do not count
            return
        self.counted = performed
        self.unrolled += 1
        if self.unrolled > self.plan.limit:
            reason = self.plan.reasons.get(site, "it is iterated outside a for statement")
            raise UnrollLimit(site=f"{site[0]}:{site[1]}", why=reason, limit=self.plan.limit).located(
                Location(site[0], site[1], site[2]))

    def facts(self) -> tuple[Affine, ...]:
        return tuple(f for s in self.scopes for f in s.facts)

    def at_top_level(self) -> bool:
        return self.inlined == 0 and len(self.scopes) == 1

    def performed(self) -> int:
        """Return the number of operations so far, including those that are not emitted yet."""
        return self.trace.mark() + (0 if self.waiting is None else 1 + (self.waiting.writer is not None))
