# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judge many candidates, on workers of this machine or of a Dask scheduler, with a store of verdicts.

Each verdict is stored at once, under the content of the request. So no request is judged twice, and if a worker dies,
another one judges its current candidate.
"""

import json
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.scoring.client import Scorer, verdict_of
from nki_mlir.scoring.reports import reason_of
from nki_mlir.scoring.store import Store, key_of
from nki_mlir.scoring.verdict import CandidateVerdict

Request = dict[str, Any]
Answer = dict[str, Any]


# most tries of a request whose workers die, as on a cluster that may end them at any time
RESUBMITTED = 20


class NoScheduler(NkiMlirError):
    code = "NKI-SCORE-SCHEDULER"
    message = "there is no Dask scheduler at {address}: {reason}"
    fix = "start one with dask scheduler, install nki_mlir[search], and name its address, tcp://HOST:8786"


def with_source(request: Request) -> Request:
    """Return the request with the candidate's text, so that its file is not needed any more. Raise ``OSError``."""
    if "source" in request:
        return request
    file = str(request["candidate"])
    text = TEXT_BYTES.read_text(file, errors="replace")
    return {**request, "source": text, "name": request.get("name") or file}


class WorkerPool:
    """Workers of this machine, each with a thread that waits for it.

    Example:
        with WorkerPool(2) as pool:
            assert list(score_all([], pool)) == []
    """

    def __init__(self, jobs: int = 1) -> None:
        self.jobs, self.threads = jobs, ThreadPoolExecutor(jobs)
        self.thread_state, self.scorers = threading.local(), list[Scorer]()
        self.stopped = False

    def submit(self, request: Request) -> "Future[Answer]":
        """Queue a request; return a future of its answer."""
        return self.threads.submit(self.send, request)

    def send(self, request: Request) -> Answer:
        if not hasattr(self.thread_state, "scorer"):
            self.thread_state.scorer = Scorer()
            self.scorers.append(self.thread_state.scorer)
            if self.stopped:                    # meanwhile
                self.thread_state.scorer.stop()
        answer: Answer = self.thread_state.scorer.send(request)
        return answer

    def close(self) -> None:
        self.threads.shutdown(cancel_futures=True)
        for scorer in self.scorers:
            scorer.close()

    def stop(self) -> None:
        """End the running candidates without a verdict."""
        self.stopped = True
        self.threads.shutdown(wait=False, cancel_futures=True)
        for scorer in list(self.scorers):
            scorer.stop()

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is not None:
            self.stop()
        self.close()


class Cluster:
    """Workers of a Dask scheduler. They need this package and no files of this machine: a request carries the texts.
    Raise ``NoScheduler``."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client  # start-up: an extra
            self.client = Client(address, timeout=10)
        except (ImportError, OSError, ValueError, TimeoutError) as error:
            raise NoScheduler(address=address, reason=error) from None
        self.jobs = max(1, sum(self.client.nthreads().values()))

    def submit(self, request: Request) -> "Future[Answer]":
        """Queue a request and return a future of its answer. If a worker dies, the scheduler gives its candidate to
        another one."""
        text = TEXT_BYTES.read_text(request["reference"], errors="replace")
        answer: Future[Answer] = Future()
        self.send({**request, "reference_text": text}, answer, RESUBMITTED)
        return answer

    def send(self, request: Request, answer: "Future[Answer]", tries: int) -> None:
        """Submit a request and set its answer. Submit it again, at most ``tries`` times, if the scheduler gives up
        because several workers died with it."""
        from distributed import KilledWorker  # start-up: an extra
        task = self.client.submit(score_here, request, pure=False, retries=RESUBMITTED)

        def done(finished: Any) -> None:
            try:                                # waits for another worker if one died with the result
                answer.set_result(finished.result())
            except KilledWorker as error:       # a candidate runs in a separate process and kills no worker
                if tries:
                    self.send(request, answer, tries - 1)
                else:
                    answer.set_exception(error)
            except BaseException as error:      # including a cancellation
                answer.set_exception(error)
        task.add_done_callback(done)

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_here = threading.local()


def score_here(request: Request) -> Answer:
    """Answer a request by a worker process of this thread. Dask workers call this function."""
    if not hasattr(_here, "scorer"):
        _here.scorer, _here.folder = Scorer(), tempfile.TemporaryDirectory(prefix="nki-score-")
    request = dict(request)
    text = request.pop("reference_text", None)
    if text is not None:
        file = Path(_here.folder.name) / Path(request["reference"]).name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
        request["reference"] = str(file)
    answer: Answer = _here.scorer.send(request)
    return answer


def score_all(requests: Sequence[Request] | Iterator[Request], workers: "WorkerPool | Cluster",
              store: Store | None = None, ahead: int = 2) -> Iterator[tuple[Request, CandidateVerdict]]:
    """Yield each request with its verdict as soon as it is known. Requests with a verdict in the store are not judged
    again.

    At most ``ahead`` requests for each worker are queued at a time. A request without a verdict raises
    ``ScoringFailed``.
    """
    waiting: dict[Future[Answer], str] = {}
    sharing: dict[str, list[Request]] = {}              # by key, the requests that wait for the same verdict
    pending = iter(requests)
    more_requests = True
    while more_requests or waiting:
        while more_requests and len(waiting) < ahead * workers.jobs:
            request = next(pending, None)
            if request is None:
                more_requests = False
                break
            request = with_source(request)
            key = key_of(request)
            stored = store.find(key) if store is not None else None
            if stored is not None:
                yield request, named(stored, request)
                continue
            if key not in sharing:
                waiting[workers.submit(request)] = key
            sharing.setdefault(key, []).append(request)
        finished, _ = wait(waiting, return_when=FIRST_COMPLETED) if waiting else (set(), None)
        for future in finished:
            key = waiting.pop(future)
            verdict, answered = verdict_of(future.result()), sharing.pop(key)
            if store is not None:
                store.add(key, answered[0], verdict)
            for request in answered:
                yield request, named(verdict, request)


def named(verdict: CandidateVerdict, request: Request) -> CandidateVerdict:
    """Return the verdict on an equal text under the name of a request's candidate."""
    name, old = str(request.get("name") or verdict["candidate"]), str(verdict["candidate"])
    if name == old:
        return verdict
    changed = CandidateVerdict(verdict | {"candidate": name})
    reason = verdict.get("reason")
    if reason and str(reason["location"]).startswith(f"{old}:"):
        changed["reason"] = reason | {"location": name + reason["location"].removeprefix(old)}
    return changed


# -- requests in lines -------------------------------------------------------------------------------------------------
UNDER_WAY = 1_000               # requests that may wait for an answer at a time


class BadRequest(NkiMlirError):
    code = "NKI-SCORE-REQUEST"
    message = "the request is not understood: {reason}"
    fix = 'send {{"candidate": FILE, "reference": FILE}} or {{"source": TEXT, "reference": FILE}} in one line'


def request_of(line: str, settings: Request) -> Request:
    """Parse a line to a request, with defaults from ``settings``. Raise ``BadRequest``."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRequest(reason=error) from None
    if not isinstance(request, dict):
        raise BadRequest(reason="it is not an object")
    request = {name: value for name, value in settings.items() if value is not None} | request
    if "reference" not in request or not {"candidate", "source"} & set(request):
        raise BadRequest(reason="it has no candidate and source, or no reference")
    return request


def serve_lines(lines: Iterable[str], settings: Request, workers: "WorkerPool | Cluster",
                answer: Callable[[Answer], None]) -> None:
    """Answer each line as soon as its verdict is known, in any order. Return when all lines are answered."""
    slots, talking = threading.Semaphore(UNDER_WAY), threading.Lock()

    def reply(text: Answer) -> None:
        with talking:
            answer(text)

    def reply_to(future: "Future[Answer]") -> None:
        try:
            reply(future.result())
        except CancelledError:                  # Ctrl-C: nobody waits for the answer
            pass
        except Exception as error:              # the scheduler canceled it: the worker died too often
            reply({"error": reason_of(error)})
        finally:
            slots.release()
    for line in lines:
        if not line.strip():
            continue
        try:
            future = workers.submit(request_of(line, settings))
        except (NkiMlirError, OSError) as error:
            reply({"error": reason_of(error)})
            continue
        slots.acquire()
        future.add_done_callback(reply_to)
    for _ in range(UNDER_WAY):
        slots.acquire()
