# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ctrl-C in commands that judge candidates and in servers: one line, status 130, no process that goes on."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nki_mlir.scoring.client import Scorer
from tests.scoring.candidates import REFERENCES, RIGHT

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")

ENTRY = "import sys; from nki_mlir.cli import entry; sys.exit(entry.{}())"
ENDLESS = RIGHT.replace("def kernel(x):\n", "def kernel(x, step=1):\n    while True:\n        pass\n")
CANDIDATE = 3                   # processes at least when a candidate runs: a worker, its fork server, the candidate
INITIALIZE = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}'


def descendants(parent: int) -> set[int]:
    """The running processes that one has started, and those have."""
    children: dict[int, set[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, above = entry.read_text().rpartition(")")[2].split()[:2]
        except OSError:                         # it has ended
            continue
        if state != "Z":
            children.setdefault(int(above), set()).add(int(entry.parent.name))
    processes, left = set[int](), [parent]
    while left:
        below = children.get(left.pop(), set())
        processes |= below
        left += below
    return processes


def until(holds, what):
    """Wait for something that comes, however busy the machine is."""
    for _ in range(3_000):
        if (value := holds()):
            return value
        time.sleep(0.04)
    pytest.fail(f"{what} does not come")


def runs(process):
    """Whether a process that may be no child of this one goes on."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("reference.py").write_text(REFERENCES["scale"])
    Path("endless.py").write_text(ENDLESS)
    Path("right.py").write_text(RIGHT)
    return tmp_path


def started(command, *options):
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen([sys.executable, "-c", ENTRY.format(command), *options], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                            env=dict(os.environ, PYTHONPATH=path))


def assert_interrupted(process, below):
    """Ctrl-C of a terminal, which all processes of the group get."""
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (130, b"", b"interrupted\n")
    until(lambda: not any(map(runs, below)), "the end of what the command has started")


@pytest.mark.share(3)
@pytest.mark.parametrize("options", [
    ["score", "endless.py", "right.py", "-r", "reference.py", "--jobs", "2"],
    ["score", "--serve", "-r", "reference.py"],
    ["tune", "endless.py", "-r", "reference.py", "--space", "step=1,2"]], ids=["several", "server", "tune"])
def test_while_a_candidate_runs(options, folder):
    process = started(*options, "--seconds", "100")
    if "--serve" in options:
        process.stdin.write(b'{"candidate": "endless.py"}\n')
        process.stdin.flush()
    below = until(lambda: len(processes := descendants(process.pid)) >= CANDIDATE and processes, "the candidate")
    assert_interrupted(process, below)


def test_while_a_server_waits(folder):
    process = started("score", "--serve", "-r", "reference.py")
    process.stdin.write(b"[]\n")
    process.stdin.flush()
    assert b"the request is not understood: it is not an object" in process.stdout.readline()
    assert_interrupted(process, descendants(process.pid))


def test_while_the_language_server_waits():
    process = started("lsp")
    process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(INITIALIZE), INITIALIZE))
    process.stdin.flush()
    length = int(process.stdout.readline().partition(b":")[2])
    process.stdout.readline()
    assert b"capabilities" in process.stdout.read(length)
    assert_interrupted(process, descendants(process.pid))


@pytest.mark.slow
def test_while_a_worker_of_dask_runs_the_candidate(folder):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None,
                                  worker_dashboard_address=None) as local:
        before = descendants(os.getpid())
        process = started("score", "endless.py", "-r", "reference.py", "--seconds", "2", "--scheduler",
                          local.scheduler_address)
        until(lambda: len(descendants(os.getpid()) - before) > CANDIDATE, "the candidate")
        assert_interrupted(process, descendants(process.pid))


def test_a_worker_that_was_interrupted__answers_the_next_request_alone(folder):
    """In a program that goes on after Ctrl-C: the late answer is not that to the next request."""
    code = ("import nki_mlir, sys, pathlib\n"
            "try:\n"
            "    nki_mlir.score('endless.py', 'reference.py', seconds=100)\n"
            "except KeyboardInterrupt:\n"
            "    print(nki_mlir.score('right.py', 'reference.py')['verdict'])\n")
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True,
                               env=dict(os.environ, PYTHONPATH=path))
    below = until(lambda: len(processes := descendants(process.pid)) >= CANDIDATE and processes, "the candidate")
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=120)[0] == "right\n"
    until(lambda: not any(map(runs, below)), "the end of the worker")


def test_a_stopped_worker__is_not_started_again(folder):
    scorer, ended = Scorer(), []

    def ask():
        try:
            scorer.send({"candidate": "endless.py", "reference": "reference.py", "seconds": 100})
        except BaseException as error:
            ended.append(type(error).__name__)
    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: scorer.process is not None and descendants(scorer.process.pid), "the fork server")
    scorer.stop()
    thread.join(60)
    assert ended == ["CancelledError"] and scorer.process is None



def script(code):
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=path))


# The child asks the system to end it with its parent only when the parent has ended.
LATE = """
import os, time
from nki_mlir.scoring import sandbox
end_with_parent = sandbox.end_with_parent

def late():
    parent = os.getppid()
    print(os.getpid(), flush=True)
    while os.getppid() == parent:
        time.sleep(0.01)
    end_with_parent()
sandbox.end_with_parent = late
if sandbox.fork_bound() == 0:
    while True:
        time.sleep(0.01)
"""


def test_a_process_whose_parent_ends_early__ends_too():
    with script(LATE) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
    until(lambda: not runs(child), "the end of the child")


# The worker's child and its child, whose numbers are the answer, go on when the worker ends.
SURVIVORS = """
import os, time
from nki_mlir.scoring import worker

def serve(lines, answer):
    reader, writer = os.pipe()
    if os.fork() == 0:
        again = os.pipe()                       # has the number of the closed file
        if os.fork() == 0:
            os.write(again[1], b"open")
            os.write(writer, b"%s %d %d" % (os.read(again[0], 4), os.getppid(), os.getpid()))
        time.sleep(1_000)
    answer(os.read(reader, 100).decode())
worker.serve = serve
worker.main()
"""


def test_the_end_of_a_worker_is_noticed__while_its_children_go_on():
    with script(SURVIVORS) as worker:
        state, child, grandchild = worker.communicate(timeout=60)[0].split()
    os.kill(int(child), signal.SIGKILL)
    os.kill(int(grandchild), signal.SIGKILL)
    assert state == b"open"
