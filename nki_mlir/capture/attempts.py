# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Captures a kernel as nki-level MLIR: loops stay rolled unless Python needs the number of an iteration.

The kernel's own bytecode runs once per attempt. Where the body of a loop differs between iterations, the kernel is
captured again with numbers for the loop's variable. The builder records the loop, and the next attempt reads the record
instead of an exception, because the kernel may swallow exceptions. Each attempt fixes at least one more loop or grid
axis, so the attempts end.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nki_mlir.alone import ALONE, uncollected
from nki_mlir.bindings import ir
from nki_mlir.capture import tracing
from nki_mlir.capture.builder import current
from nki_mlir.capture.capture_attempt import UnrollPlan
from nki_mlir.capture.errors import UnrollLimit
from nki_mlir.capture.index import NeedsValue
from nki_mlir.capture.locations import raised_at
from nki_mlir.capture.mlir_builder import MlirBuilder
from nki_mlir.capture.operation_limit import limited
from nki_mlir.capture.races.hazards import ProgramTouches, ignored_axes, judge_loops, judge_programs, program_of
from nki_mlir.capture.races.verdicts import Verdict
from nki_mlir.capture.shared_tensors import SharedTensors
from nki_mlir.capture.tensor import Buffer
from nki_mlir.capture.wrapping import wrap
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.kernel_function import KernelFunction, the_kernel
from nki_mlir.dialects.late_operations import LateOperations
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.machine import DEFAULT_TARGET
from nki_mlir.progress import phase
from nki_mlir.scalar.dtypes import DType


class KernelOutput(NamedTuple):
    """One result of a kernel; ``argument`` is the number of the captured function's argument that contains it."""

    name: str
    argument: int
    shape: tuple[int, ...]
    dtype: DType
    shared: int | None          # its number among the tensors that all programs share; None for an input
    at: Location | None = None  # where the kernel allocates it


@dataclass(eq=False)
class Variant:
    """A captured module, for the programs with given ids on the fixed axes. ``late``: operations of its function that
    it does not have until it is read."""

    partial_module: ir.Module
    outputs: list[KernelOutput]
    structure: str | None       # the form in which the kernel returned them: None, one tensor, or a tuple
    unproved: int               # number of operations with a bound that is checked at run time
    open: frozenset[int] = frozenset()          # numbers of the outputs that a run may leave unwritten
    certain: frozenset[int] = frozenset()       # numbers of the outputs that every run writes
    late: LateOperations | None = None

    @property
    def module(self) -> ir.Module:
        """The complete module."""
        if self.late is not None:
            with ALONE, uncollected(), self.partial_module.context, ir.Location.unknown():
                if self.late is not None:
                    self.late.write()
                    self.late = None
        return self.partial_module

    @property
    def signature(self) -> KernelFunction:
        """The kernel as its function's attributes describe it; the function may lack its operations."""
        return the_kernel(self.partial_module)


@dataclass
class Captured:
    """The modules of a kernel by the ``(axis, program id)`` pairs that were fixed: () if one module serves every
    program."""

    variants: dict[tuple[tuple[int, int], ...], Variant]
    attempts: int
    reasons: dict[tuple[object, ...], str]
    verdict: Verdict = field(default_factory=Verdict)       # races of its iterations and programs

    @property
    def unproved(self) -> int:
        return sum(v.unproved for v in self.variants.values())

    def variant_for(self, point: tuple[int, ...]) -> Variant:
        return next(v for fixed, v in self.variants.items() if all(point[axis] == n for axis, n in fixed))


Body = Callable[[MlirBuilder, Callable[..., object]], tuple[list[Buffer], str | None]]


def capture(function: Callable[..., object], body: Body, grid: tuple[int, ...] = (), *, target: str = DEFAULT_TARGET,
            unroll_limit: int = 50_000, replay: bool = True, rolls: bool = True) -> Captured:
    """Capture a kernel, and repeat the attempt until no loop or grid axis needs numbers any more.

    ``body(builder, wrapped)`` creates the parameters, calls the wrapped function and returns the output buffers and the
    structure in which the kernel returned them; the language layer, which knows the argument conventions, provides it.
    Without ``rolls`` the function's Python runs unchanged, once for each program: its loops unroll and program ids are
    numbers.
    """
    plan, attempts = UnrollPlan(limit=unroll_limit, replay=replay), 0
    if not rolls:
        plan.reasons = {("program_id", axis): "programs are captured one by one" for axis in range(len(grid))}
    wrapped = wrap(function, True, tracing) if rolls else function
    failure: Exception | None = None
    while True:
        axes = [key[1] for key in plan.reasons if key[0] == "program_id"]
        variants = {}
        texts: dict[str, Variant] = {}
        programs: list[ProgramTouches] = []
        verdict = Verdict()
        for ids in itertools.product(*(range(grid[axis]) for axis in axes)):
            fixed = tuple(zip(axes, ids))
            attempts += 1
            try:
                outcome = _attempt(wrapped, body, grid, plan, dict(fixed), target, verdict)
            except UnrollLimit as error:
                raise failure or error from None
            if isinstance(outcome, NeedsNumbers):
                plan.reasons.update(outcome.requests)
                plan.shared = SharedTensors()
                failure = outcome.error or failure
                break
            # Programs with equal text share one module, so that it is compiled once.
            variants[fixed] = texts.setdefault(str(outcome[0].module), outcome[0]) if axes else outcome[0]
            programs.append(replace(outcome[1], identity=id(variants[fixed])))
        else:
            if len(variants) > 1 and any(len(v.signature.shared) < len(plan.shared) for v in variants.values()):
                continue                # a later program allocates a tensor of which an earlier one has no argument
            open_outputs = frozenset[int]().union(*(v.open for v in variants.values())).difference(
                *(v.certain for v in variants.values()))
            if all(("written", n) in plan.reasons for n in open_outputs):
                judge_programs(programs, len(grid), verdict)
                return Captured(variants, attempts, plan.reasons, verdict)
            plan.reasons.update({("written", n): "only a run can tell whether it is written" for n in open_outputs})


class NeedsNumbers(NamedTuple):
    """The outcome of an attempt that needs numbers; ``error`` is the error that it would have raised."""

    requests: dict[tuple[object, ...], str]
    error: Exception | None = None


def _attempt(wrapped: Callable[..., object], body: Body, grid: tuple[int, ...], plan: UnrollPlan, point: dict[int, int],
             target: str, verdict: Verdict) -> tuple[Variant, ProgramTouches] | NeedsNumbers:
    with shared_context(), ir.Location.unknown():
        builder = MlirBuilder(wrapped, grid, plan, point, target)
        token = current.set(builder)
        try:
            with phase("capture", unit="operations") as advance:
                builder.advance = limited(advance)
                outputs, structure = body(builder, wrapped)
            if requests := builder.requests | builder.left_open():
                return NeedsNumbers(requests)
            if (violation := builder.dependences.violation(ignored_axes(builder))) is not None:
                raise violation
            module = builder.finish(outputs)
        except NeedsValue:
            return NeedsNumbers(builder.requests)
        except Exception as error:
            if isinstance(error, NkiMlirError):
                error.located(raised_at(error.__traceback__))
            if requests := builder.requests or builder.requests_after(error):
                return NeedsNumbers(requests, error)
            raise
        finally:
            current.reset(token)
        results = [KernelOutput(b.name, b.handle.value.arg_number, b.shape, b.dtype, b.shared, b.created_at)
                   for b in outputs]
        judge_loops(builder.touches, builder.programs.values(), verdict)
        variant = Variant(module, results, structure, builder.unproved, *builder.output_writes.coverage(outputs),
                          late=builder.late if builder.late.complete else None)
        return variant, program_of(builder)
