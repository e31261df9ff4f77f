# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run all checks of a kernel for given arguments.

The kernel runs eagerly, with each operation observed; then it is captured and compiled, and its streams are checked.
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np

from nki_mlir import diagnostics
from nki_mlir.capture.eager import EagerBuilder, Launch, verdict_on
from nki_mlir.capture.operation_limit import limited
from nki_mlir.capture.races.verdicts import ProgramsRepeat, RaceWarning
from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.checking.observer import OperationObserver
from nki_mlir.checking.repeated_findings import unrepeated
from nki_mlir.checking.report import ERROR, NOTE, WARNING, CheckFinding, KernelReport
from nki_mlir.diagnostics import DeviceRules, DeviceRuleWarning, Location, NkiMlirError
from nki_mlir.dialects.launch_members import RANKS, FewerRanks
from nki_mlir.dialects.nisa.movement import DmaComputeOp
from nki_mlir.dialects.target_rules import TargetRule
from nki_mlir.language import eager_run
from nki_mlir.language.argument_memory import ArgumentMemory, bits_of
from nki_mlir.language.arguments import Bound
from nki_mlir.language.current.errors import NkiWarning
from nki_mlir.language.current.kernel import Kernel as CurrentKernel
from nki_mlir.language.current.refused_python import RefusedPython, classes_within, refused_python
from nki_mlir.language.kernel import Kernel, describe_array, is_array
from nki_mlir.language.launching import NotNumpy
from nki_mlir.language.older_forms import OlderFormWarning, report_forms_of
from nki_mlir.language.results import ElementsLeftOut
from nki_mlir.progress import ignore
from nki_mlir.targets import neuron
from nki_mlir.targets.interpreter.unwritten_hbm import Tracked, UnwrittenRead
from nki_mlir.targets.mesh import Mesh
from nki_mlir.targets.neuron.checker.violations import UnorderedAccesses

if TYPE_CHECKING:
    from nki_mlir.targets.neuron.checker import StreamReport

KINDS_OF = {DeviceRuleWarning: "device-rule", UnwrittenRead: "unwritten-read", RaceWarning: "race",
            OlderFormWarning: "older-form"}
SEVERITY_OF = {"unwritten-read": ERROR, "older-form": NOTE}             # other warnings stay warnings
KINDS_BY_CODE = {"err_tensor_access_out_of_bound": "out-of-bounds",
                 "err_local_variable_used_out_of_scope": "lifetime", "NKI-ADDRESS": "lifetime",
                 "err_unexpected_output_dependencies": "race",
                 "err_cannot_update_immutable_parameter": "overwritten-input",
                 "err_mutable_parameter_not_returned": "overwritten-input"}
ADVISED = re.compile(r"(.*) \[([\w-]+)\](?:; (.*))?$", re.DOTALL)  # the text of an error that is issued as a warning
INITIALIZE = "write all of it first, for example with nl.zeros or nisa.memset"


class NotDecorated(NkiMlirError, TypeError):
    code = "NKI-CHECK-KERNEL"
    message = "{found} is not a kernel"
    fix = "decorate the function with nki.jit, and pass it before its arguments: nki_mlir.check(kernel, x)"


@without_internal_frames
def check_kernel(kernel: Kernel, arguments: Sequence[object], keywords: dict[str, object]) -> KernelReport:
    """Check a kernel for some arguments, which do not change, and return the report."""
    if not isinstance(kernel, Kernel):
        raise NotDecorated(found=getattr(kernel, "__name__", f"a value of type {type(kernel).__name__}")).here()
    NotNumpy.check("nki_mlir.check", (*arguments, *keywords.values()))
    bound = kernel.bind(tuple(arguments), keywords, is_array, describe_array)
    before, diagnostics.shown = diagnostics.shown, {}          # also reports warnings that have been issued before
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            report, observer, has_ended = run_with_ranks(kernel, bound, caught)
            report.findings += observer.findings
            if has_ended:
                check_compiled(kernel, bound, report, observer.races)
    finally:
        diagnostics.shown = before
    if isinstance(kernel, CurrentKernel):
        classes = tuple(dict.fromkeys(classes_within(bound.values.values())))
        report.findings += [CheckFinding("python", WARNING, str(rule), at, rule.instead)
                            for rule, at in refused_python(kernel.func, classes)]
    report.precision = observer.errors()
    reported_lines = {f.location.line for f in report.of("overwritten-input") if f.location}
    for warning in caught:
        category, line = warning.category, warning.lineno
        repeated = issubclass(category, ElementsLeftOut | RefusedPython) or (issubclass(category, NkiWarning)
                                                             and line in reported_lines)
        if issubclass(category, UserWarning) and not repeated:
            kind = next((kind for base, kind in KINDS_OF.items() if issubclass(category, base)), "warning")
            match = ADVISED.match(str(warning.message))
            message, code, fix = match.groups() if match else (str(warning.message), "", "")
            report.findings.append(CheckFinding(kind, SEVERITY_OF.get(kind, WARNING), message, Location(
                warning.filename, line, 0), fix or (INITIALIZE if kind == "unwritten-read" else ""), code))
    report.findings = unrepeated(report.findings)
    return report


Observation = tuple[KernelReport, OperationObserver, bool]      # report and observer of a run, and whether it completed


def run_with_ranks(kernel: Kernel, bound: Bound, caught: list[warnings.WarningMessage]) -> Observation:
    """Run and observe the kernel as rank 0 of all ranks that its collectives name. Every rank gets these arguments."""
    def other() -> None:
        eager_run.results(kernel, bound, arrays_of(bound), kernel.eager_program(), lambda launch, programs: None)
    count = 1
    while True:
        try:
            bodies: list[Callable[[], object]] = [partial(run_observed, kernel, bound), *[other] * (count - 1)]
            observation, *_ = Mesh(bodies, RANKS, closed=True).run()
            return cast(Observation, observation)
        except FewerRanks as error:
            count = error.count
            caught.clear()
            diagnostics.shown = {}


def arrays_of(bound: Bound) -> list[np.ndarray]:
    """Copy the arrays among a kernel's arguments."""
    return [np.array(a) for a in ArgumentMemory(bound.tensors, [s.name for s in bound.specs]).arrays]


def run_observed(kernel: Kernel, bound: Bound) -> Observation:
    """Run the kernel eagerly with an observer and report the observer's findings."""
    report, observer = KernelReport(kernel.__name__), OperationObserver(not isinstance(kernel, CurrentKernel))
    builders: list[EagerBuilder] = []
    arrays = arrays_of(bound)
    originals = [a.copy() for a in arrays]
    program = kernel.eager_program()

    def observed(*arguments: Any, **options: Any) -> EagerBuilder:
        builder = program(*arguments, **options)
        # the observer records all of them, and none raises
        builder.observer, builder.rules = observer, DeviceRules.WARN
        builder.advance = limited(ignore)
        report_forms_of(builder)
        builders.append(builder)
        return builder

    def judge(launch: Launch, programs: Sequence[EagerBuilder]) -> None:
        for error in verdict_on(programs).races:
            report.findings.append(finding("race", error, NOTE if isinstance(error, ProgramsRepeat) else ERROR))
            observer.races.append(error)
    try:
        structure, values, _ = eager_run.results(kernel, bound, arrays, observed, judge)
    except FewerRanks:
        raise
    except NkiMlirError as error:
        report.findings.append(finding("failed", error))
        return report, observer, False
    observer.end(any(builder.properties.get("idle_loops") for builder in builders), values)
    first_write = {b.name: at for builder in builders for b, at in builder.first_writes.items()}
    if structure is not None:
        report.findings += overwritten_inputs(bound, arrays, originals, values, first_write)
    if all(np.isfinite(np.asarray(v).astype(np.float64)).all() for v in values):    # masks may leave the others out
        observer.findings = [replace(f, severity=NOTE) if f.kind == "not-finite" else f for f in observer.findings]
    report.findings += unwritten_outputs(values, first_write)
    return report, observer, True


def overwritten_inputs(bound: Bound, arrays: Sequence[np.ndarray], originals: Sequence[np.ndarray],
                       values: Sequence[Any], first_write: Mapping[str, Location | None]) -> list[CheckFinding]:
    """Return a finding for each argument that the run changed and that is not among the results ``values``."""
    return [CheckFinding("overwritten-input", WARNING,
                         f"the kernel overwrites its argument {spec.name}, and does not return it",
                         first_write.get(spec.name),
                         "swap the operands if the argument was meant to be read, or return it")
            for array, original, spec in zip(arrays, originals, bound.specs)
            if not np.array_equal(bits_of(array), bits_of(original)) and not any(v is array for v in values)]


def unwritten_outputs(values: Sequence[Any], first_write: Mapping[str, Location | None]) -> list[CheckFinding]:
    """Return a finding for each result with elements that the run has not written."""
    return [CheckFinding("unwritten-output", ERROR,
                         f"{missing[0]} elements of the output {value.label} are not written, the first at "
                         f"{missing[1]}",
                         first_write.get(value.label), "store to all of the output")
            for value in values
            if isinstance(value, Tracked) and (missing := value.first_unwritten()) is not None]


def check_compiled(kernel: Kernel, bound: Bound, report: KernelReport, races: Sequence[NkiMlirError]) -> None:
    """Compile the kernel for the device, and check its streams. The report has the ``races`` of programs already."""
    try:
        spec = kernel.specialize(bound)
        streams: StreamReport = neuron.checked(neuron.streams(spec.captured, spec.grid, cores=spec.cores))
    except NkiMlirError as error:
        report.findings.append(finding("failed", error))
        return
    report.findings += [finding("streams", violation, NOTE if both_add(violation) else ERROR)
                        for violation in streams.violations if not is_reported(violation, races)]
    report.findings += [CheckFinding("streams", NOTE, f"the streams are not proved correct: {reason}")
                        for reason in streams.not_analyzed]


def is_between_cores(error: NkiMlirError) -> TypeGuard[UnorderedAccesses]:
    return isinstance(error, UnorderedAccesses) and error.conflict.first.core != error.conflict.then.core


def both_add(error: NkiMlirError) -> bool:
    """Return whether two cores add to a tensor, which the race check of the programs allows in any order."""
    return is_between_cores(error) and all(isinstance(e.instruction.op, DmaComputeOp) for e in error.conflict[:2])


def is_reported(error: NkiMlirError, races: Sequence[NkiMlirError]) -> bool:
    """Return whether the race check of the programs has reported that two cores access a tensor at the same lines, or
    that all programs write the same values to it."""
    if not is_between_cores(error):
        return False
    lines = {event.instruction.location and event.instruction.location[:2] for event in error.conflict[:2]}
    return any(race.values["tensor"] == error.tensor
               and (isinstance(race, ProgramsRepeat)
                    or {at and at[:2] for at in (race.at, race.values["location"])} == lines) for race in races)


def finding(kind: str, error: NkiMlirError, severity: str = ERROR) -> CheckFinding:
    """Convert an error to a finding."""
    if kind == "failed":
        kind = "device-rule" if isinstance(error, TargetRule) else KINDS_BY_CODE.get(error.code, kind)
    return CheckFinding(kind, severity, error.headline, error.at, error.advice[1], error.code)
