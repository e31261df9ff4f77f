# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Many candidates: on workers of this machine, or on those of a Dask scheduler, with verdicts kept in a store.

Each verdict is written as it comes, by the content of what was judged. So what has a verdict is not judged again, and
a worker that dies loses the candidate it was at, which another one takes.
"""

import json
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.scoring.client import Scorer, ScoringFailed
from nki_mlir.scoring.reports import reason_of
from nki_mlir.scoring.store import Store, key_of
from nki_mlir.scoring.verdict import CandidateVerdict

Request = dict[str, Any]
Answer = dict[str, Any]


RESUBMITTED = 20                # times, where workers die: of a cluster that takes them back whenever it likes


class NoScheduler(NkiMlirError):
    code = "NKI-SCORE-SCHEDULER"
    message = "there is no Dask scheduler at {address}: {reason}"
    fix = "start one with dask scheduler, install nki_mlir[search], and name its address, tcp://HOST:8786"


def with_source(request: Request) -> Request:
    """The request with the candidate's text, so that its file is not needed any more. Raises ``OSError``."""
    if "source" in request:
        return request
    file = str(request["candidate"])
    return {**request, "source": Path(file).read_text(errors="replace"), "name": request.get("name") or file}


class WorkerPool:
    """Workers of this machine: as many candidates at once as there are jobs.

    Example:
        with WorkerPool(2) as pool:
            assert list(score_all([], pool)) == []
    """

    def __init__(self, jobs: int = 1) -> None:
        self.jobs, self.threads = jobs, ThreadPoolExecutor(jobs)
        self.own, self.scorers = threading.local(), list[Scorer]()
        self.stopped = False

    def submit(self, request: Request) -> "Future[Answer]":
        """Queue a request; return a future of its answer."""
        return self.threads.submit(self.ask, request)

    def ask(self, request: Request) -> Answer:
        if not hasattr(self.own, "scorer"):
            self.own.scorer = Scorer()
            self.scorers.append(self.own.scorer)
            if self.stopped:                    # meanwhile
                self.own.scorer.stop()
        answer: Answer = self.own.scorer.ask(request)
        return answer

    def close(self) -> None:
        self.threads.shutdown(cancel_futures=True)
        for scorer in self.scorers:
            scorer.close()

    def stop(self) -> None:
        """End the candidates that are under way without a verdict."""
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
    """Workers of a Dask scheduler. They need this package, and nothing of this machine's files: a request carries the
    texts. Raises ``NoScheduler``."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client  # start-up: an extra
            self.client = Client(address, timeout=10)
        except (ImportError, OSError, ValueError, TimeoutError) as error:
            raise NoScheduler(address=address, reason=error) from None
        self.jobs = max(1, sum(self.client.nthreads().values()))

    def submit(self, request: Request) -> "Future[Answer]":
        """The answer to come. Where a worker dies, the scheduler gives its candidate to another one."""
        text = Path(request["reference"]).read_text(errors="replace")
        answer: Future[Answer] = Future()
        self.send({**request, "reference_text": text}, answer, RESUBMITTED)
        return answer

    def send(self, request: Request, answer: "Future[Answer]", tries: int) -> None:
        """Have a request answered, anew where the scheduler gives up since several workers died with it."""
        from distributed import KilledWorker  # start-up: an extra
        task = self.client.submit(score_here, request, pure=False, retries=RESUBMITTED)

        def done(finished: Any) -> None:
            try:                                # waits where a worker died with the result, which comes from another
                answer.set_result(finished.result())
            except KilledWorker as error:       # a candidate is in its own process: it ends none
                if tries:
                    self.send(request, answer, tries - 1)
                else:
                    answer.set_exception(error)
            except BaseException as error:      # also that it was cancelled
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
    """Answer a request in a worker process of this thread; Dask workers call this."""
    if not hasattr(_here, "scorer"):
        _here.scorer, _here.folder = Scorer(), tempfile.TemporaryDirectory(prefix="nki-score-")
    request = dict(request)
    text = request.pop("reference_text", None)
    if text is not None:
        file = Path(_here.folder.name) / Path(request["reference"]).name
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        request["reference"] = str(file)
    answer: Answer = _here.scorer.ask(request)
    return answer


def score_all(requests: Sequence[Request] | Iterator[Request], workers: "WorkerPool | Cluster",
              store: Store | None = None, ahead: int = 2) -> Iterator[tuple[Request, CandidateVerdict]]:
    """Each request with its verdict, as they come; those that the store has are not judged again.

    So many requests for each job are under way at once. A request without a verdict is a ``ScoringFailed``.
    """
    waiting: dict[Future[Answer], tuple[str, Request]] = {}
    pending = iter(requests)
    more = True
    while more or waiting:
        while more and len(waiting) < ahead * workers.jobs:
            request = next(pending, None)
            if request is None:
                more = False
                break
            request = with_source(request)
            key = key_of(request)
            known = store.find(key) if store is not None else None
            if known is not None:
                yield request, known
            elif key not in {k for k, _ in waiting.values()}:
                waiting[workers.submit(request)] = key, request
        done, _ = wait(waiting, return_when=FIRST_COMPLETED) if waiting else (set(), None)
        for future in done:
            key, request = waiting.pop(future)
            answer = future.result()
            if "error" in answer:
                error = answer["error"]
                raise ScoringFailed(message=error["message"], found=error["code"], fix=error["fix"])
            verdict = CandidateVerdict(answer)
            if store is not None:
                store.add(key, request, verdict)
            yield request, verdict


# -- requests in lines -------------------------------------------------------------------------------------------------
UNDER_WAY = 1_000               # requests that are read before the first of them is answered


class BadRequest(NkiMlirError):
    code = "NKI-SCORE-REQUEST"
    message = "the request is not understood: {reason}"
    fix = 'send {{"candidate": FILE, "reference": FILE}} or {{"source": TEXT, "reference": FILE}} in one line'


def request_of(line: str, settings: Request) -> Request:
    """A line as a request, with settings where it says nothing. Raises ``BadRequest``."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRequest(reason=error) from None
    if not isinstance(request, dict):
        raise BadRequest(reason="it is no object")
    request = {name: value for name, value in settings.items() if value is not None} | request
    if "reference" not in request or not {"candidate", "source"} & set(request):
        raise BadRequest(reason="it has no candidate and source, or no reference")
    return request


def serve_lines(lines: Iterable[str], settings: Request, workers: "WorkerPool | Cluster",
                answer: Callable[[Answer], None]) -> None:
    """Answer each line as soon as its verdict is there, in any order; returns when all are answered."""
    slots, talking = threading.Semaphore(UNDER_WAY), threading.Lock()

    def reply(text: Answer) -> None:
        with talking:
            answer(text)

    def reply_to(future: "Future[Answer]") -> None:
        try:
            reply(future.result())
        except CancelledError:                  # Ctrl-C: nobody waits for the answer
            pass
        except Exception as error:              # of the scheduler: its worker died too often
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
