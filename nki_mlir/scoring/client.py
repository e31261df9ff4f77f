# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Workers as seen from the process that asks: started when they are first needed, and anew where one has ended."""

import atexit
import json
import os
import subprocess
import sys
from concurrent.futures import CancelledError
from pathlib import Path
from typing import IO, Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.scoring.verdict import CandidateVerdict

TRIES = 2


class ScoringFailed(NkiMlirError):
    code = "NKI-SCORE"
    message = "{message} [{found}]"
    fix = "{fix}"


class Scorer:
    """One worker, a process that stays for many candidates. Use it in a ``with``, or close it.

    Example:
        with Scorer() as scorer:
            assert scorer.process is None                       # started by the first candidate
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False

    def start(self) -> None:
        """Have a worker that runs."""
        if self.process is None or self.process.poll() is not None:
            path = os.pathsep.join(p for p in (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")) if p)
            self.process = subprocess.Popen([sys.executable, "-m", "nki_mlir.scoring.worker"], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, start_new_session=True,
                                            env=dict(os.environ, PYTHONPATH=path))
        if self.stopped:                        # meanwhile
            self.process.kill()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request, as of ``worker``; raises ``CancelledError`` where another thread stops it."""
        try:
            return self.answer(request)
        except BaseException:                   # the next request must not read the answer to this one
            self.end()
            raise

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        for _ in range(TRIES):
            if self.stopped:
                raise CancelledError
            self.start()
            assert self.process is not None
            to: IO[bytes] | None = self.process.stdin
            back: IO[bytes] | None = self.process.stdout
            assert to is not None and back is not None
            try:
                to.write(json.dumps({"directory": current_directory()} | request).encode() + b"\n")
                to.flush()
                line = back.readline()
            except BrokenPipeError:
                line = b""
            if line.endswith(b"\n"):
                answer: dict[str, Any] = json.loads(line)
                return answer
            self.end()
        if self.stopped:
            raise CancelledError
        return {"error": {"code": "NKI-SCORE-CRASH", "message": "the worker ended before it had a verdict",
                          "fix": "run the reference by itself", "location": ""}}

    def score(self, request: dict[str, Any]) -> CandidateVerdict:
        """The verdict on a request; raises ``ScoringFailed`` where there is none, for a bad reference, say."""
        answer = self.ask(request)
        if "error" in answer:
            error = answer["error"]
            raise ScoringFailed(message=error["message"], found=error["code"], fix=error["fix"])
        return CandidateVerdict(answer)

    def close(self) -> None:
        """End the worker, which another candidate would start anew."""
        self.end()

    def stop(self) -> None:
        """Kill the worker while another thread waits for its answer; none is started any more."""
        self.stopped = True
        process = self.process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """Kill the worker, and wait for its end."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def current_directory() -> str:
    """What relative names of files are below; "" where it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


_shared: list[Scorer] = []


def shared_scorer() -> Scorer:
    """The worker of this process, which ends with it."""
    if not _shared:
        _shared.append(Scorer())
        atexit.register(_shared[0].close)
    return _shared[0]
