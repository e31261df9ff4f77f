# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Clients of worker processes: they start a worker when they first need it, and again when it has ended."""

import atexit
import json
import os
import re
import subprocess
import sys
from concurrent.futures import CancelledError
from pathlib import Path
from typing import IO, Any

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.files import name_source
from nki_mlir.scoring.verdict import CandidateVerdict

TRIES = 2
is_worker = False                       # whether this process is a worker; it sets this


class ScoringFailed(NkiMlirError):
    code = "NKI-SCORE"
    message = "{message}"
    fix = "{fix}"


class Scorer:
    """A worker process that judges many candidates. Use it in a ``with`` statement, or close it.

    Example:
        with Scorer() as scorer:
            assert scorer.process is None                       # started by the first candidate
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False

    def start(self) -> None:
        """Start the worker if it does not run. Raise ``ScoringFailed`` in a worker: a reference that scores itself
        would start workers without an end."""
        if is_worker:
            raise ScoringFailed(message="a file that nki-score runs calls nki_mlir.score",
                                fix="call it in a program that no request names")
        if self.process is None or self.process.poll() is not None:
            packages = str(Path(__file__).parents[2])
            path = os.pathsep.join(p for p in (packages, os.environ.get("PYTHONPATH", "")) if p)
            # Python puts the directory in which it starts on the path of modules
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nki_mlir.scoring.worker_process"], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, start_new_session=True, cwd=packages, env=dict(os.environ, PYTHONPATH=path))
        if self.stopped:                        # another thread has stopped it in the meantime
            self.process.kill()

    def send(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the worker and return the answer. Raise ``CancelledError`` if another thread stops it."""
        try:
            return self.answer(request)
        except BaseException:                   # the next request must not read the answer to this one
            self.end()
            raise

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        text = text_of(request)
        for _ in range(TRIES):
            if self.stopped:
                raise CancelledError
            self.start()
            assert self.process is not None
            to: IO[bytes] | None = self.process.stdin
            output: IO[bytes] | None = self.process.stdout
            assert to is not None and output is not None
            try:
                to.write(text)
                to.flush()
                line = output.readline()
            except BrokenPipeError:
                line = b""
            if line.endswith(b"\n"):
                answer: dict[str, Any] = json.loads(line)
                return answer
            self.end()
        if self.stopped:
            raise CancelledError
        return {"error": {"code": "NKI-SCORE-CRASH", "message": "the worker ended before it had a verdict",
                          "fix": "run only the reference", "location": ""}}

    def score(self, request: dict[str, Any]) -> CandidateVerdict:
        """Return the verdict on a request. Raise ``ScoringFailed`` if there is none, for example for a bad reference.
        """
        return verdict_of(self.send(request))

    def close(self) -> None:
        """End the worker. Another request would start a new one."""
        self.end()

    def stop(self) -> None:
        """Kill the worker while another thread waits for its answer; no new one starts."""
        self.stopped = True
        process = self.process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """Kill the worker and wait for its end."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def text_of(request: dict[str, Any]) -> bytes:
    """Return a request as a line of JSON. Raise ``ScoringFailed`` for an argument that is no text, path or number."""
    for argument, value in request.items():
        try:
            json.dumps(value, default=os.fspath)
        except (TypeError, ValueError, RecursionError):
            raise ScoringFailed(message=f"{argument} has the type {type(value).__name__}",
                                fix="give files as texts or paths, and limits as numbers") from None
    return json.dumps({"directory": current_directory()} | request, default=os.fspath).encode() + b"\n"


def verdict_of(answer: dict[str, Any]) -> CandidateVerdict:
    """Return the verdict in a worker's answer. Raise ``ScoringFailed`` if there is none."""
    if "error" in answer:
        error = answer["error"]
        failed = ScoringFailed(message=error["message"], fix=error["fix"])
        failed.code = error["code"]                                     # type: ignore[misc]
        raise failed.located(location_of(error["location"]))
    return CandidateVerdict(answer)


def location_of(text: str) -> Location | None:
    """Return the location that a worker's error names, with or without a line; None if it names none."""
    match = re.fullmatch(r"(.+?)(?::(\d+):(\d+))?", text, re.DOTALL)
    if match is None:
        return None
    name_source(match[1])
    return Location(match[1], int(match[2] or 0), int(match[3] or 1) - 1)


def current_directory() -> str:
    """Return the directory of relative file names, or "" if it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


_shared: list[Scorer] = []


def shared_scorer() -> Scorer:
    """Return the worker of this process, which ends with the process."""
    if not _shared:
        _shared.append(Scorer())
        atexit.register(_shared[0].close)
    return _shared[0]
