# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The judge's process: run the captured programs of a candidate on arrays, compare, compile and time them.

The captures are untrusted data: they are parsed and checked like a file. Each trial runs on the interpreter. Trials
with hidden seeds run parallel iterations and programs in the opposite order, and fill fresh memory with bytes other
than zero, since a device is free to choose both.
"""

import base64
import json
import warnings
import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nki_mlir.capture.attempts import Captured, Variant
from nki_mlir.cli.runnable import check_bytes
from nki_mlir.cli.source import read_module
from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.isa.instruction import TensorLoad
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.kernel_function import KernelFunction, the_kernel
from nki_mlir.language.results import ElementsLeftOut, assemble, report_missing
from nki_mlir.machine import machine_named
from nki_mlir.passes.levels import Level, check_level
from nki_mlir.scalar.dtypes import dtype_of
from nki_mlir.scoring import errors
from nki_mlir.scoring.capture import CapturedText, out_of_memory
from nki_mlir.scoring.reference import Reference, Trial, difference, flat, signatures, tensors_of
from nki_mlir.scoring.reports import reason_of
from nki_mlir.scoring.sandbox import CandidateLimits
from nki_mlir.targets import interpreter, neuron
from nki_mlir.targets.interpreter.module import USUAL, Freedom
from nki_mlir.targets.interpreter.unwritten_hbm import UnwrittenRead, tracked
from nki_mlir.targets.neuron.profile import profile_of
from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary
from nki_mlir.targets.neuron.simulator import simulate_cores
from nki_mlir.targets.neuron.timing.machine import Loaded

HOSTILE = Freedom(backwards=True, fill=0xFF)            # all floats of this byte are NaN
LEVEL = 1                                               # the level of the search for a fast order


class CapturedProgram:
    """A captured program with its inputs. Raise the errors of its text."""

    def __init__(self, program: CapturedText, trial: Trial, file: str, target: str) -> None:
        modules = [read_module(text, file) for text in program["modules"]]
        for module in modules:
            check_level(module, Level.NKI, "as captured")
        self.functions = [the_kernel(module) for module in modules]
        self.variants = {tuple((int(a), int(n)) for a, n in fixed): Variant(modules[number], [], None, 0)
                         for fixed, number in program["variants"]}
        self.captured = Captured(self.variants, 0, {})
        self.grid, self.cores = tuple(program["grid"]), tuple(program["cores"])
        self.inputs, self.results, self.structure = program["inputs"], program["results"], program["structure"]
        self.check(trial, target)

    def check(self, trial: Trial, target: str) -> None:
        """Raise ``ForbiddenAct`` unless the program fits the arguments: a candidate that sends another program did not
        capture its kernel."""
        arrays = tensors_of(trial)
        expected = [(arrays[k].shape, dtype_of(arrays[k].dtype)) for k in self.inputs if 0 <= k < len(arrays)]
        fits = len(expected) == len(self.inputs) and all(
            [(a.shape, a.dtype) for a in f.inputs] == expected and f.grid in (self.grid, ()) for f in self.functions)
        machines = {machine_named(f.target).name for f in self.functions}
        fits = fits and machines == {machine_named(target).name} and (not trial.grid or self.grid == trial.grid)
        if not fits or not self.functions or not self.variants:
            raise errors.ForbiddenAct(act="sends a program that is not its kernel")
        check_bytes([(a.name, a.shape, a.dtype) for a in self.shared])

    @cached_property
    def run(self) -> interpreter.FreeRun:
        """The compiled program, for all trials."""
        return interpreter.load_freely(self.captured, self.grid)

    @property
    def shared(self) -> Sequence[Any]:
        return max((f.shared for f in self.functions), key=len)

    @property
    def function(self) -> KernelFunction:
        return self.functions[0]


class Outputs:
    """The outcome of a run: results, changed inputs, and warnings about memory that was not written."""

    def __init__(self, program: CapturedProgram, trial: Trial, freedom: Freedom) -> None:
        self.tensors = [np.require(a, requirements=["C", "A"]).copy() for a in tensors_of(trial)]
        arrays = [self.tensors[k] for k in program.inputs]
        shared = [tracked(freedom.fresh(a.shape, a.dtype.numpy, "hbm"), a.name) for a in program.shared]
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            program.run(arrays, shared, freedom)
            report_missing([(shared[k], program.shared[k].name, None) for kind, k in program.results     # type: ignore
                            if kind == "shared"])
        self.unwritten = [str(w.message) for w in recorded if issubclass(w.category, (UnwrittenRead, ElementsLeftOut))]
        values = [np.asarray(shared[k] if kind == "shared" else arrays[k]) for kind, k in program.results]
        self.results = assemble(program.structure, values)
        self.returned = {program.inputs[k] for kind, k in program.results if kind != "shared"}


def differences(reference: Reference, trial: Trial, outputs: Outputs) -> list[str]:
    """Return for each output how it differs from the expected one, or "". Raise ``WrongOutputForm``."""
    results = outputs.results
    if reference.transform is not None:
        results = reference.transform(results, trial.expected[0] if len(trial.expected) == 1 else
                                      tuple(trial.expected))
    arrays = flat(results)
    if len(arrays) != len(trial.expected):
        raise errors.WrongOutputForm(
            what=f"the kernel returns {len(arrays)} tensors, the reference {len(trial.expected)}", case=trial.label)
    for number, (output, want) in enumerate(zip(arrays, trial.expected)):
        if output.shape != want.shape:
            raise errors.WrongOutputForm(
                what=f"output {number} has shape {list(output.shape)}, expected {list(want.shape)}", case=trial.label)
        wide = want.dtype == np.float64 and dtype_of(output.dtype).is_float
        if not wide and dtype_of(output.dtype) is not dtype_of(want.dtype):
            raise errors.WrongOutputForm(what=f"output {number} has dtype {output.dtype}, expected {want.dtype}",
                                         case=trial.label)
    return [difference(want, output, reference.tolerance) for output, want in zip(arrays, trial.expected)]


def try_out(reference: Reference, trial: Trial, program: CapturedProgram) -> None:
    """Run a trial. Raise an error if the results are wrong."""
    outputs = Outputs(program, trial, HOSTILE if trial.hidden else USUAL)
    wrong = differences(reference, trial, outputs)
    number = next((k for k, text in enumerate(wrong) if text), None)
    if number is not None:
        if trial.hidden and not any(differences(reference, trial, Outputs(program, trial, USUAL))):
            raise errors.LeftToDevice(case=trial.label, difference=f"output {number}, {wrong[number]}")
        raise errors.WrongValues(number=number, case=trial.label, difference=wrong[number])
    if outputs.unwritten:
        raise errors.UnwrittenMemory(case=trial.label, what=outputs.unwritten[0])
    before = tensors_of(trial)
    names = [a.name for a in program.function.inputs]
    for name, k in zip(names, program.inputs):
        changed = before[k].tobytes() != outputs.tensors[k].tobytes()
        if changed and name not in reference.updates and k not in outputs.returned:
            raise errors.InputChanged(name=name, case=trial.label)


# -- all trials --------------------------------------------------------------------------------------------------------
Findings = dict[str, Any]       # as JSON has them


def judged(reference: Reference, programs: Sequence[CapturedText], file: str, with_profile: bool,
           limits: CandidateLimits, target: str, level: int = LEVEL) -> Findings:
    """Run all trials, compile and time. If an error ends it, ``reason`` and ``stage`` of the findings describe it."""
    first_of = signatures(reference.trials)
    findings: Findings = {"reason": None, "stage": "", "trials": 0}
    stage = "rules"
    try:
        if len(programs) != len(set(first_of)):
            raise errors.ForbiddenAct(act="sends a program that is not its kernel")
        parsed = {k: CapturedProgram(program, reference.trials[k], file, target)
                  for k, program in zip(dict.fromkeys(first_of), programs)}
        stage = "values"
        for trial, k in zip(reference.trials, first_of):
            try_out(reference, trial, parsed[k])
            findings["trials"] += 1
        stage = "compile"
        compiled = {k: neuron.streams(p.captured, p.grid, neuron.emission(level=level), p.cores)
                    for k, p in parsed.items()}
        stage = "time"
        findings |= {"level": level, **figures(compiled[0], reference.trials[0], parsed[0].inputs, with_profile)}
    except InternalError:
        raise
    except MemoryError as error:
        findings |= {"reason": reason_of(out_of_memory(limits, error)), "stage": stage}
    except Exception as error:
        findings |= {"reason": reason_of(error), "stage": stage}
    return findings


def numbers_loaded(streams: Sequence[Program], trial: Trial, inputs: Sequence[int]) -> Loaded | None:
    """Return the numbers that engines load into registers in this case, which give run-time loops their actual length.
    Return None if nothing is loaded."""
    if not any(isinstance(step.op, TensorLoad) for p in streams for stream in p.streams.values() for step in stream):
        return None
    tensors = tensors_of(trial)
    arrays = [np.require(tensors[k], requirements=["C", "A"]).copy() for k in inputs]
    outputs = [np.zeros(v.shape, v.dtype.numpy) for v in streams[0].of_kind("output")]
    cores = simulate_cores(streams, arrays, outputs)
    return {(core.number, engine): numbers for core in cores for engine, numbers in core.loaded.items()}


def figures(streams: Sequence[Program], trial: Trial, inputs: Sequence[int], with_profile: bool) -> Findings:
    """Return time, bytes, memory and advice of the timed case, under the vendor's names where they exist."""
    document = profile_of(streams, loaded=numbers_loaded(streams, trial, inputs), texts=with_profile)
    timing, memory = document["timing"], document["memory"]
    least = sum(a.nbytes for a in tensors_of(trial)) + sum(
        a.size * min(a.itemsize, 4) for a in trial.expected)
    advice = document.get("advice") or []
    summary = vendor_summary(document)
    result: Findings = {
        **{name: value for name, value in summary.items() if value is not None},
        "interval": [ns / 1e9 for ns in timing["interval_ns"]], "confidence": timing["confidence"],
        "cores": len(timing["cores"]), "instructions": timing["instructions"], "least_hbm_bytes": least,
        "hbm_bytes_ratio": timing["hbm_bytes"] / least if least else None,
        **{f"{space}_peak_bytes": max(core[space]["peak"] for core in memory["cores"])
           for space in ("sbuf", "psum")},
        "laws": timing["laws"], "advice": advice[0]["text"] if advice else document["cause"]["text"]}
    if with_profile:
        result["profile"] = base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()
    return result

