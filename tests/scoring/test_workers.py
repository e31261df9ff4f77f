# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of nki-score without its processes: when a client starts a worker, keys, rights, the notes of warnings."""

import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.scoring import client, landlock, worker, worker_process
from nki_mlir.scoring.capture import note_warnings
from nki_mlir.scoring.client import TRIES, Scorer
from nki_mlir.scoring.store import key_of


class Worker:
    """A worker that answers some requests, and then ends."""

    def __init__(self, answers: int, status: int | None = None) -> None:
        self.answers, self.status, self.requests = answers, status, list[dict]()
        self.stdin = self.stdout = self

    def poll(self) -> int | None:
        return self.status

    def write(self, line: bytes) -> None:
        if self.status is not None:
            raise BrokenPipeError
        self.requests.append(json.loads(line))

    def flush(self) -> None:
        pass

    def readline(self) -> bytes:
        if len(self.requests) > self.answers:
            self.status = -9
            return b'{"half'
        return json.dumps({"number": len(self.requests)}).encode() + b"\n"

    def kill(self) -> None:
        self.status = -9

    def communicate(self) -> None:
        assert self.status is not None


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[Worker], list[Worker]]]:
    """The workers to start, the last one first, and those that were started."""
    waiting, started = list[Worker](), list[Worker]()

    def start(*arguments: object, **settings: object) -> Worker:
        started.append(waiting.pop())
        return started[-1]
    monkeypatch.setattr(subprocess, "Popen", start)
    yield waiting, started


def test_worker__answers_until_it_ends(workers):
    waiting, started = workers
    waiting += [Worker(3), Worker(2)]
    scorer = Scorer()
    assert [scorer.send({"source": str(k)})["number"] for k in range(4)] == [1, 2, 1, 2]
    assert [[r["source"] for r in worker.requests] for worker in started] == [["0", "1", "2"], ["2", "3"]]
    assert all("directory" in request for worker in started for request in worker.requests)


def test_worker__that_has_ended_is_not_asked(workers):
    """It would take one of the tries."""
    waiting, started = workers
    waiting += [Worker(1), Worker(0), Worker(1)]
    scorer = Scorer()
    scorer.send({})
    started[0].status = 1
    assert scorer.send({})["number"] == 1 and [len(worker.requests) for worker in started] == [1, 1, 1]


def test_worker__that_never_answers_is_an_error_after_some_tries(workers):
    waiting, started = workers
    waiting += [Worker(0) for _ in range(TRIES + 1)]
    answer = Scorer().send({})
    assert answer["error"]["message"] == "the worker ended before it had a verdict" and len(started) == TRIES


def test_worker__of_a_stopped_client_is_killed_as_it_starts(workers):
    waiting, started = workers
    waiting.append(Worker(1))
    scorer = Scorer()
    scorer.stop()
    with pytest.raises(client.CancelledError, match=r"^$"):
        scorer.send({})
    assert not started
    scorer.start()
    assert started[0].status == -9


def test_worker__that_does_not_load_answers_that_memory_is_short(monkeypatch, capsys):
    class Package:
        def __getattr__(self, name):
            raise MemoryError("no room")
    monkeypatch.setitem(sys.modules, "nki_mlir.scoring", Package())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=[b"{}\n", b"{}\n"]))
    assert worker_process.main() == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == second == {"error": {"code": "NKI-MEMORY", "message": "the machine has too little memory for a worker: no room",
                                         "fix": worker_process.FIX, "location": ""}}


def test_worker__that_has_too_little_memory_for_a_request_answers_the_next_one(monkeypatch):
    class Failing:
        def score(self, request):
            if request["id"] == 1:
                raise MemoryError
            return {"verdict": "right"}
    monkeypatch.setattr(worker, "Worker", Failing)
    answers: list[str] = []
    worker.serve(io.BytesIO(b'{"id": 1}\n\n{"id": 2}\n'), answers.append)
    assert [json.loads(answer) for answer in answers] == [{"id": 1, "error": {
        "code": "NKI-MEMORY", "message": "the machine has too little memory for a request", "fix": worker_process.FIX,
        "location": ""}}, {"id": 2, "verdict": "right"}]


def test_files_that_are_not_regular__are_not_read(tmp_path):
    """A reading worker would wait for ever: for a writer, or for its own requests."""
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "reference.py").write_text("import numpy\ndef inputs(rng): return [numpy.ones(4)]\ndef reference(x): return x\n")
    scorer = worker.Worker()
    for request in ({"reference": str(tmp_path / "pipe.py"), "source": ""},
                    {"reference": str(tmp_path / "reference.py"), "candidate": str(tmp_path / "pipe.py")}):
        with pytest.raises(NkiMlirError, match=r"pipe.py.* cannot be read: it is not a regular file"):
            scorer.score(request)


def test_keys__of_references_that_are_no_text_differ_by_their_bytes(tmp_path):
    keys = set()
    for content in (b"x = 1", b"x = 2", b"\xff = 1", b"\xff = 2"):
        (tmp_path / "reference.py").write_bytes(content)
        keys.add(key_of({"source": "", "reference": str(tmp_path / "reference.py")}))
    assert len(keys) == 4


def test_landlock__each_version_handles_the_rights_of_the_earlier_ones():
    """Version 1 has 13 rights, 2 adds moves between directories, 3 truncation, 5 device control."""
    assert {version: (rights.bit_length(), rights.bit_count()) for version, rights in landlock.FILE_RIGHTS.items()} == {
        1: (13, 13), 2: (14, 14), 3: (15, 15), 5: (16, 16)}
    assert landlock.OF_FILES & ~landlock.FILE_RIGHTS[5] == 0 and landlock.OF_FILES.bit_length() == 16


def warned(message: object, category: type[Warning] | None, level: int) -> None:
    """Warn as a library does, of the code that calls it."""
    def library() -> None:
        warnings.warn(message, category, level)
    library()


@pytest.mark.parametrize("message, category", [("text", None), ("text", RuntimeWarning), (FutureWarning("own"), None)])
@pytest.mark.parametrize("level", (1, 2, 3))
def test_warnings__are_noted_where_python_reports_them(level, message, category, monkeypatch):
    pythons = warnings.warn, warnings.warn_explicit

    def use(functions):
        for name, function in zip(("warn", "warn_explicit"), functions):
            monkeypatch.setattr(warnings, name, function)
    use(pythons)                            # what the end of the test restores
    noted = note_warnings()
    notings = warnings.warn, warnings.warn_explicit
    with warnings.catch_warnings(record=True) as reported:
        for action, functions in (("always", pythons), ("ignore", notings)):            # which has no effect on notes
            warnings.simplefilter(action)
            use(functions)
            warned(message, category, level)
            warnings.warn_explicit("explicit", UserWarning, "kernel.py", 7)
    told = [[(str(note.message), note.category, note.filename, note.lineno) for note in notes]
            for notes in (reported, noted)]
    assert told[0] == told[1] and len(told[0]) == 2


def test_a_reference_that_scores_itself__is_one_error(tmp_path):
    """Each worker would start another one."""
    path = tmp_path / "itself.py"
    path.write_text("import nki_mlir\nnki_mlir.score(__file__, __file__)\n", encoding="utf-8")
    with Scorer() as scorer, pytest.raises(NkiMlirError, match=r"calls nki_mlir\.score"):
        scorer.score({"candidate": str(path), "reference": str(path), "kernel": "", "target": "", "seconds": 20,
                      "megabytes": 4096, "level": 0})


def test_files_may_be_paths__and_other_values_are_one_error(tmp_path):
    missing = tmp_path / "missing.py"
    with Scorer() as scorer:
        with pytest.raises(NkiMlirError, match=r"missing\.py: error: the reference cannot be read"):
            scorer.score({"candidate": missing, "reference": missing})
        for value in (b"a.py", object(), {1: {2}}):
            with pytest.raises(NkiMlirError, match=f"candidate has the type {type(value).__name__}"):
                scorer.score({"candidate": value, "reference": missing})
