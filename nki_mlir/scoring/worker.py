# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A warm worker process that judges candidates one after the other: requests and answers are lines of JSON.

A request has ``candidate`` (a file) or ``source`` (its text, with a ``name``), and ``reference`` (a file). Optional
fields are ``id``, ``directory`` (of relative names), ``kernel``, ``target``, ``seconds``, ``megabytes``,
``profile``; ``cases``, ``hidden`` and ``grid``, which replace the reference's; and ``level``, of ``-O``. The answer
is a line with the verdict and the ``id``, or with ``error`` if the request is invalid.
"""

import gc
import json
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nki_mlir.cli.command import LEVELS
from nki_mlir.cli.source import read_module
from nki_mlir.compat import install
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.environment import TARGET
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.language.current.errors import NkiWarning, OlderNkiForm
from nki_mlir.language.lowered import Spec, lower
from nki_mlir.machine import DEFAULT_TARGET
from nki_mlir.scoring import errors
from nki_mlir.scoring.capture import OUTPUT, Captures
from nki_mlir.scoring.judge import LEVEL, Findings, judged
from nki_mlir.scoring.processes import CaptureRequest, ForkServer, ProcessOutput, forked
from nki_mlir.scoring.reference import Reference, Value, bad, described, load_reference, signatures
from nki_mlir.scoring.reports import Remark, reason_of
from nki_mlir.scoring.sandbox import CandidateLimits, confine, limit
from nki_mlir.scoring.source_rules import check_source
from nki_mlir.scoring.verdict import CandidateVerdict, verdict_of
from nki_mlir.scoring.worker_process import FIX
from nki_mlir.targets.interpreter.unwritten_hbm import UnwrittenRead

SHOWN = 2_000                   # most characters of a candidate's output in its verdict
SLOW = "give smaller cases, or more seconds"
MOST_SECONDS, MOST_MEGABYTES = 10_000_000, 1 << 30
FILE_NAME = re.compile(r"[A-Za-z_][\w-]*\.py", re.ASCII)
REFERENCES = 8                  # most references that a worker memoizes
COLLECTED = 500_000             # new objects between garbage collections in a judge, which lives for one candidate


Request = dict[str, Any]        # a request as a JSON object; answers have the same type


class Worker:
    """A worker with its fork server and the references that requests have named."""

    def __init__(self) -> None:
        warm_up()
        gc.freeze()                     # forked processes need not examine the objects that are loaded now
        self.fork_server = ForkServer()
        self.references: dict[tuple[object, ...], Reference] = {}

    def reference(self, file: str, changes: Request) -> Reference:
        """Return the reference in a file, with other cases if ``changes`` has some. Load the reference again if the
        file has changed."""
        try:
            status = os.stat(file)
        except OSError as error:
            raise bad(file, f"cannot be read: {error.strerror}", "name a file that exists") from None
        if not stat.S_ISREG(status.st_mode):            # /dev/stdin is the pipe of the requests
            raise bad(file, "cannot be read: it is not a regular file", "name a file")
        key = os.path.abspath(file), status.st_mtime_ns, status.st_size, json.dumps(changes, sort_keys=True)
        if key not in self.references:
            while len(self.references) >= REFERENCES:
                self.references.pop(next(iter(self.references)))
            self.references[key] = load_reference(file, changes)
        return self.references[key]

    def score(self, request: Request) -> CandidateVerdict:
        """Judge a request's candidate. Raise ``BadReference``, and ``BadCandidate`` if its file cannot be read."""
        if request.get("directory"):
            os.chdir(str(request["directory"]))
        reference = self.reference(str(request["reference"]), changes_of(request))
        name, text = self.text_of(request)
        reference = reference.for_candidate(text)
        level = level_of(request)
        limits = limits_of(request)
        with tempfile.TemporaryDirectory(prefix="nki-score-", ignore_cleanup_errors=True) as folder:
            scratch = Path(folder).resolve()
            file = scratch / (Path(name).name if FILE_NAME.fullmatch(Path(name).name) else "candidate.py")
            file.write_text(text, encoding="utf-8")
            stage, reason, remarks, figures = "text", None, list[Remark](), Request()
            try:
                check_source(text, str(file))
                stage = "capture"
                entry = str(request.get("kernel") or reference.entry)
                target = str(request.get("target") or reference.target or TARGET.text() or DEFAULT_TARGET)
                captures = self.capture(file, entry, target, reference, limits)
                remarks = captures["remarks"]
                if captures["reason"] is not None:
                    stage, reason = captures["stage"], dict(captures["reason"])
                else:
                    stage = "rules"
                    if reference.strict:
                        check_release(remarks)
                    stage = "values"
                    check_written(remarks)
                    figures = self.judge(file, captures, reference,
                                         request | {"target": target, "level": level}, limits)
                    reason, stage = figures.pop("reason"), figures.pop("stage") or "time"
            except NkiMlirError as error:
                reason = dict(reason_of(error))
            verdict = verdict_of(name, reference.file, stage, reason, remarks, figures)
            verdict["output"] = printed(scratch / OUTPUT)
            shown = json.dumps(verdict).replace(json.dumps(str(file))[1:-1], json.dumps(name)[1:-1])
            return CandidateVerdict(json.loads(shown.replace(json.dumps(folder)[1:-1], "scratch")))

    @staticmethod
    def text_of(request: Request) -> tuple[str, str]:
        """Return the candidate's name and text."""
        if "source" in request:
            # JSON may contain half of a surrogate pair
            source = str(request["source"]).encode(errors="replace").decode()
            return str(request.get("name") or "candidate.py"), source
        name = str(request["candidate"])
        try:
            if stat.S_ISREG(os.stat(name).st_mode):
                return name, TEXT_BYTES.read_text(name, errors="replace")
            raise errors.BadCandidate(what=f"{name} cannot be read: it is not a regular file", fix="name a file")
        except OSError as error:
            raise errors.BadCandidate(what=f"{name} cannot be read: {error.strerror}",
                                      fix="name a file that exists") from None

    def capture(self, file: Path, entry: str, target: str, reference: Reference, limits: CandidateLimits
                ) -> Captures:
        """Let the candidate's process capture its kernel. Raise the error that ended the process."""
        numbers = dict.fromkeys(signatures(reference.trials))
        signatures_to_capture = [described(reference.trials[k]) for k in numbers]
        sent = self.fork_server.capture(CaptureRequest(str(file), entry, target, signatures_to_capture, limits,
                                                   reference.strict))
        check_end(sent, "the candidate", limits)
        try:
            captures: Captures = json.loads(sent.data)
            if set(captures) != set(Captures.__annotations__):
                raise ValueError
        except (ValueError, TypeError, RecursionError):
            raise errors.ForbiddenAct(act="sends data that is not a program") from None
        return captures

    @staticmethod
    def judge(file: Path, captures: Captures, reference: Reference, request: Request, limits: CandidateLimits
              ) -> Findings:
        """Run and time the programs in a forked process, and return the findings."""
        def body(out: BinaryIO) -> None:
            gc.set_threshold(COLLECTED)
            limit(limits)
            confine(file.parent)
            outcome = judged(reference, captures["programs"], str(file), bool(request.get("profile")),
                           limits, str(request["target"]), request["level"])
            out.write(json.dumps(outcome).encode())
        sent = forked(body, limits.seconds)
        check_end(sent, "the judge", limits)
        findings: Findings = json.loads(sent.data)
        return findings


def changes_of(request: Request) -> Request:
    """Return the names of the reference that a request replaces."""
    changes = {name.upper(): request[name] for name in ("cases", "hidden", "grid") if request.get(name) is not None}
    return changes | ({"HIDDEN": []} if "CASES" in changes and "HIDDEN" not in changes else {})


def level_of(request: Request) -> int:
    """Return the level of optimization of a request. Raise ``ValueError`` for unknown levels."""
    level = LEVEL if request.get("level") is None else request["level"]
    if level not in LEVELS:
        raise ValueError(f"level is {level}; there are {', '.join(map(str, LEVELS))}")
    return int(level)


def limits_of(request: Request) -> CandidateLimits:
    """Return the limits of a request. Raise ``ValueError`` for numbers that limit nothing."""
    usual = CandidateLimits()
    numbers = {"seconds": usual.seconds, "megabytes": usual.memory >> 20}
    for name, most in (("seconds", MOST_SECONDS), ("megabytes", MOST_MEGABYTES)):
        if request.get(name) is not None:
            numbers[name] = float(request[name])
            if not 0 < numbers[name] <= most:                           # also rejects NaN
                raise ValueError(f"{name} must be more than 0 and at most {most:,}, got {numbers[name]:g}")
    return CandidateLimits(numbers["seconds"], int(numbers["megabytes"] * (1 << 20)))


def check_end(sent: ProcessOutput, description: str, limits: CandidateLimits) -> None:
    """Raise an error if a process sent nothing usable."""
    if sent.ended in ("timeout", "SIGXCPU"):
        raise errors.LimitReached(what=f"takes more than {limits.seconds:g} s", fix=SLOW)
    if sent.ended == "too much":
        raise errors.LimitReached(what="has a program that is too large", fix="write loops that can stay loops")
    if sent.ended or not sent.data:
        raise errors.ProcessEnded(what=description, status=sent.ended or "status 0")


def check_release(remarks: Sequence[Remark]) -> None:
    """Raise ``OlderForm`` if capture used a form that the newest release does not have."""
    for remark in remarks:
        if remark["category"] in (NkiWarning.__name__, OlderNkiForm.__name__):
            raise errors.OlderForm(what=f"{remark['message']} ({remark['location']})")


def check_written(remarks: Sequence[Remark]) -> None:
    """Raise ``UnwrittenMemory`` if capture found a read of on-chip memory that nothing has written."""
    for remark in remarks:
        if remark["category"] == UnwrittenRead.__name__:
            raise errors.UnwrittenMemory(case="all cases", what=remark["message"])


def printed(file: Path) -> str:
    """Return the beginning of the candidate's output."""
    try:
        with open(file, encoding="utf-8", errors="replace") as out:
            return out.read(SHOWN)
    except OSError:
        return ""


def warm_up() -> None:
    """Load all modules that candidates need: both generations, captures, executors, streams, times."""
    install(executables=False)
    import neuronxcc.nki as beta  # start-up: loads the names
    import neuronxcc.nki.language as beta_nl
    import nki as current
    import nki.isa as nisa
    import nki.language as nl

    def scale(x: Value) -> Value:
        out = beta_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta_nl.shared_hbm)
        for i in beta_nl.affine_range(2):
            tile = beta_nl.load(x[i * 64:i * 64 + 64, :])
            beta_nl.store(out[i * 64:i * 64 + 64, :], beta_nl.exp(tile) + beta_nl.sum(tile, axis=1, keepdims=True))
        return out

    def product(x: Value) -> Value:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        sums = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum)
        nisa.dma_copy(dst=tile, src=x)
        nisa.nc_matmul(dst=sums, stationary=tile, moving=tile)
        nisa.tensor_copy(dst=tile, src=sums)
        nisa.dma_copy(dst=out, src=tile)
        return out
    for kernel in (beta.jit(scale), current.jit(product)):
        lowered = lower(kernel, (Spec((128, 128)),), {})
        lowered.profile()
        read_module(str(lowered.module("nki")), "warm-up")
        lowered.specialization.program("interpreter")([np.zeros((128, 128), np.float32)],
                                                      [np.zeros((128, 128), np.float32)])


def serve(lines: BinaryIO, answer: Callable[[str], None]) -> None:
    """Answer each line until the input ends."""
    worker = Worker()
    for line in lines:
        if not line.strip():
            continue
        request: Any = None
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("a request must be an object")
            result: Request = worker.score(request)
        except NkiMlirError as error:
            result = {"error": reason_of(error)}
        except MemoryError as error:
            message = f"the machine has too little memory for a request{f': {error}' if str(error) else ''}"
            result = {"error": {"code": "NKI-MEMORY", "message": message, "fix": FIX, "location": ""}}
        except (ValueError, TypeError, KeyError, RecursionError, OSError) as error:
            result = {"error": {"code": "NKI-SCORE-REQUEST", "message": str(error), "fix": "", "location": ""}}
        if isinstance(request, dict) and "id" in request:
            result = {"id": request["id"], **result}
        answer(json.dumps(result))


def main() -> int:
    """Serve standard input; other output goes to standard error."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    inherited = [out.fileno()]             # children close it, so that the client notices the end of this process

    def close_in_child() -> None:
        while inherited:                # the child of a child closes nothing: the number may be another file's
            os.close(inherited.pop())
    os.register_at_fork(after_in_child=close_in_child)

    def answer(text: str) -> None:
        out.write(text + "\n")
        out.flush()
    try:
        serve(sys.stdin.buffer, answer)
    except BrokenPipeError:                     # the client has ended
        os._exit(1)
    return 0
