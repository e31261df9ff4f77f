# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The candidate's process: run its Python with shapes instead of values, capture its kernel, and send the capture as
text.

This process contains no code that judges. The process sends untrusted data, which ``judge`` parses like a file from a
stranger.
"""

import errno
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypedDict

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.arguments import Described as ShapeAlone
from nki_mlir.language.arguments import map_leaves
from nki_mlir.language.current.kernel import Kernel as CurrentKernel
from nki_mlir.language.kernel import Kernel, is_array
from nki_mlir.language.specialization import Specialization
from nki_mlir.scoring.errors import BadCandidate, ForbiddenAct, LimitReached
from nki_mlir.scoring.reference import Described
from nki_mlir.scoring.reports import Reason, Remark, reason_of, remarks_of
from nki_mlir.scoring.sandbox import OUTPUT_BYTES, CandidateLimits, confine, limit, watch

OUTPUT = "output.txt"           # the file in the scratch directory with the output of a candidate


class CapturedText(TypedDict):
    """A captured kernel: modules, the module of each set of program ids, inputs as indices of tensors, and results."""

    modules: list[str]
    variants: list[tuple[list[tuple[int, int]], int]]
    inputs: list[int]
    results: list[tuple[str, int]]
    structure: str
    grid: list[int]
    cores: list[int]


class Captures(TypedDict):
    """The message of the candidate's process: a program for each signature, or the reason why there is none."""

    kernel: str
    programs: list[CapturedText]
    remarks: list[Remark]
    reason: Reason | None
    stage: str


def capture_in_sandbox(file: Path, entry: str, target: str, signatures: Sequence[Described], limits: CandidateLimits,
                       out: BinaryIO, strict: bool) -> NoReturn:
    """Run the candidate's file in its directory, send the captures, and end the process."""
    scratch = file.parent

    def send(captures: Captures) -> None:
        try:
            out.write(json.dumps(captures).encode())
            out.flush()
        finally:
            os._exit(0)

    def refuse(act: str) -> NoReturn:
        send(failed("import", ForbiddenAct(act=act)))
        os._exit(0)
    os.chdir(scratch)
    redirect(scratch / OUTPUT)
    os.environ["NKI_MLIR_RACES"] = "error"
    if strict:
        os.environ["NKI_MLIR_STRICT"] = "1"
    sys.path[:] = [p for p in sys.path if p.endswith(("-packages", "lib-dynload", ".zip")) or "/lib/python" in p]
    limit(limits)
    confine(scratch)
    recorded = note_warnings()
    watch(scratch, refuse)
    send(captures_of(file, entry, target, signatures, limits, recorded))
    os._exit(0)


def captures_of(file: Path, entry: str, target: str, signatures: Sequence[Described], limits: CandidateLimits,
                recorded: Sequence[warnings.WarningMessage]) -> Captures:
    """Capture the file's kernel for each signature. Whatever its code raises becomes the reason of the failure."""
    stage = "import"
    try:
        kernel = kernel_in(file, entry)
        stage = "capture"
        kernel = kernel.with_changes(target=target)
        programs = [program_of(kernel, signature) for signature in signatures]
        return Captures(kernel=kernel.__name__, programs=programs, remarks=remarks_of(recorded), reason=None, stage="")
    except BaseException as error:
        return failed(stage, explained(error, limits))


def explained(error: BaseException, limits: CandidateLimits) -> BaseException:
    """Return the error that tells a candidate which limit it has reached; the same error if it is another."""
    match error:
        case SystemExit():
            return BadCandidate(what=f"the candidate exits with status {error.code}", fix="leave sys.exit to programs")
        case MemoryError():
            return out_of_memory(limits, error)
        case RecursionError():
            return LimitReached(what="recurses without an end", fix="write a loop").located(getattr(error, "at", None))
        case OSError(errno=errno.EFBIG):
            return LimitReached(what=f"writes more than {OUTPUT_BYTES:,} bytes", fix="print less")
    return error


def note_warnings() -> list[warnings.WarningMessage]:
    """Record each warning when it is issued. Filters, which a candidate can set, have no effect."""
    recorded: list[warnings.WarningMessage] = []

    def note(message: Any, category: Any, file: str, line: int) -> None:
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        recorded.append(warnings.WarningMessage(str(message), kind, file, line))

    def warn(message: Any, category: Any = None, stacklevel: int = 1, source: object = None, **options: object) -> None:
        frame = sys._getframe(1)
        for _ in range(stacklevel - 1):
            frame = frame.f_back or frame
        note(message, category, frame.f_code.co_filename, frame.f_lineno)

    def warn_explicit(message: Any, category: Any, filename: str, lineno: int, *more: object, **options: object
                      ) -> None:
        note(message, category, filename, lineno)
    warnings.warn, warnings.warn_explicit = warn, warn_explicit
    return recorded


def failed(stage: str, error: BaseException) -> Captures:
    return Captures(kernel="", programs=[], remarks=[], reason=reason_of(error), stage=stage)


def out_of_memory(limits: CandidateLimits, error: BaseException) -> LimitReached:
    return LimitReached(what=f"takes more than {limits.memory >> 20:,} MB of memory ({str(error) or 'MemoryError'})",
                        fix="allocate tensors of the language; a kernel needs no memory of the host")


def redirect(file: Path) -> None:
    """Redirect standard output and standard error to a file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", buffering=1, closefd=False, errors="replace")


def kernel_in(file: Path, entry: str) -> Kernel:
    """Return the file's kernel: the one called ``entry``, or the only one. Raise ``BadCandidate``."""
    spec = importlib.util.spec_from_file_location("candidate", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    kernels = {name: value for name, value in vars(module).items() if isinstance(value, Kernel)}
    if entry:
        chosen = vars(module).get(entry)
        if chosen is None or not callable(chosen):
            raise BadCandidate(what=f"the candidate has no kernel {entry}", fix=f"it has: {named(kernels)}")
        if isinstance(chosen, Kernel):
            return chosen
        inner = getattr(chosen, "kernel", None)
        if isinstance(inner, Kernel):               # a kernel of nki.simulate
            return inner
        current = "neuronxcc" not in file.read_text(encoding="utf-8")
        return CurrentKernel(chosen) if current else Kernel(chosen)
    if len({id(k.func) for k in kernels.values()}) != 1:
        description = "no kernel" if not kernels else f"{len(kernels)} kernels ({named(kernels)})"
        raise BadCandidate(what=f"the candidate has {description}",
                           fix="decorate one function with nki.jit, or name it ENTRY in the reference")
    return next(iter(kernels.values()))


def named(kernels: dict[str, Kernel]) -> str:
    return ", ".join(kernels) or "none"


def program_of(kernel: Kernel, signature: Described) -> CapturedText:
    """Capture the kernel for arguments of these shapes."""
    positional, keywords, grid = signature
    leaves: list[np.ndarray] = []

    def zeros(shape: Any) -> np.ndarray:
        leaves.append(shape.zeros())
        return leaves[-1]
    is_shape: Callable[[object], bool] = lambda value: isinstance(value, ShapeAlone)
    positional = map_leaves(positional, is_shape, zeros)
    keywords = map_leaves(keywords, is_shape, zeros)
    launched = kernel[grid] if grid else kernel
    try:
        bound = launched.bind(positional, keywords, is_array, launched.describe)
    except TypeError as error:
        if isinstance(error, NkiMlirError):
            if error.at is None or not error.at.line:       # the kernel's caller is not code of the candidate
                error.at = launched.location
            raise
        raise BadCandidate(what=f"the kernel does not take the arguments: {error}",
                           fix="give it the parameters of the reference").located(launched.location) from None
    numbers = {id(array): k for k, array in enumerate(leaves)}
    return program_from(launched.specialize(bound), [numbers[id(array)] for array in bound.tensors])


def program_from(spec: Specialization, inputs: list[int]) -> CapturedText:
    """Convert a capture to data. Modules keep their locations."""
    distinct = spec.modules
    order = {id(module): k for k, module in enumerate(distinct)}
    # The judge verifies the modules that it reads; a second verification here would take a third of the time of a
    # capture.
    texts = [module.operation.get_asm(enable_debug_info=True, assume_verified=True) for module in distinct]
    variants = [([(int(a), int(n)) for a, n in fixed], order[id(v.module)])
                for fixed, v in spec.captured.variants.items()]
    results = [("shared", r.shared) if r.shared is not None else ("input", int(r.input or 0)) for r in spec.results]
    return CapturedText(modules=texts, variants=variants, inputs=inputs, results=results, structure=spec.structure,
                   grid=list(spec.grid), cores=list(spec.cores))
