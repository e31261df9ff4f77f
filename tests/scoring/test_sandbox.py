# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a candidate's process cannot do, where the check of its text is left out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nki_mlir.scoring import landlock
from tests.scoring.candidates import REFERENCES, RIGHT, before, within

ROOT = Path(__file__).parents[2]
ACTS = {
    "os.fork()": "starts a process (os.fork)",
    "os.system('true')": "starts a process (os.system)",
    "__import__('subprocess').run(['true'])": "starts a process (subprocess.Popen)",
    "__import__('socket').socket()": "uses the network (socket.__new__)",
    "__import__('ctypes').CDLL(None)": "calls a C library (ctypes.dlopen)",
    "open(REFERENCE)": "opens the file REFERENCE",
    "os.listdir(os.path.dirname(REFERENCE))": "lists the directory FOLDER",
    "open('/proc/self/environ')": "opens the file /proc/self/environ",
    "open('/tmp/nki-score-cheat', 'w')": "writes to the file /tmp/nki-score-cheat",
    "os.remove(REFERENCE)": "changes the file REFERENCE",
    "os.kill(os.getppid(), 9)": "inspects its process (os.kill)",
    "__import__('gc').get_objects()": "inspects its process (gc.get_objects)",
}
# What it may do, and what becomes of it.
ENDS = {
    "os._exit(0)": "NKI-SCORE-CRASH",
    "os._exit(7)": "NKI-SCORE-CRASH",
    "[os.write(n, b'{\"kernel\": 1}') for n in range(3, 20) if is_pipe(n)], os._exit(0)": "NKI-SCORE-FORBIDDEN",
    "sys.modules.pop('nki_mlir.scoring.judge', None)": "",
    "setattr(sys.modules['time'], 'time', lambda: 0.0)": "NKI-SCORE-FORBIDDEN",
    "setattr(sys.modules['nki_mlir.scoring.capture'], 'failed', None)": "NKI-SCORE-FORBIDDEN",
    "setattr(sys.modules['numpy'], 'allclose', lambda *a, **k: True)": "NKI-SCORE-FORBIDDEN",
}
HEAD = "import os, stat, sys\nis_pipe = lambda n: os.path.exists(f'/dev/fd/{n}') or is_open(n)\n" \
       "def is_open(n):\n    try:\n        return stat.S_ISFIFO(os.fstat(n).st_mode)\n    except OSError:\n        return False\n"
PROGRAM = """
import json, sys
from nki_mlir.scoring import worker
worker.check_source = lambda text, file: None
one = worker.Worker()
for source in json.load(sys.stdin):
    print(json.dumps(one.score({"source": source, "reference": sys.argv[1], "seconds": 20})), flush=True)
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    reference = tmp_path_factory.mktemp("reference") / "reference.py"
    reference.write_text(REFERENCES["small"])
    acts = [*ACTS, *ENDS]
    sources = [before(f"{HEAD}REFERENCE = {str(reference)!r}\n{act}") for act in acts]
    # An array of what is expected cannot be found in memory, since it is not there.
    sources.append(within("import gc\nfor one in []:\n    pass"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(reference)], input=json.dumps(sources), cwd=ROOT,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return reference, dict(zip([*acts, "honest"], map(json.loads, done.stdout.splitlines())))


@pytest.mark.parametrize("act", ACTS)
def test_forbidden_act__ends_the_candidate(act, verdicts):
    reference, by_act = verdicts
    text = ACTS[act].replace("REFERENCE", str(reference)).replace("FOLDER", str(reference.parent))
    assert by_act[act]["reason"]["message"] == f"the candidate {text}"


@pytest.mark.parametrize("act", ENDS)
def test_process_that_is_changed__changes_no_verdict(act, verdicts):
    _, by_act = verdicts
    assert (by_act[act]["reason"] or {"code": ""})["code"] == ENDS[act]
    if not ENDS[act]:
        assert by_act[act]["total_time"] == by_act["honest"]["total_time"]


def test_worker__goes_on_behind_all_of_them(verdicts):
    _, by_act = verdicts
    assert by_act["honest"]["verdict"] == "right"


@pytest.mark.skipif(not landlock.version(), reason="the kernel has no Landlock")
def test_landlock__hides_files(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("42")
    program = ("import os, sys\nfrom pathlib import Path\nfrom nki_mlir.scoring.landlock import restrict\n"
               "folder = Path(sys.argv[1])\nassert restrict([], [folder / 'in'])\n(folder / 'in' / 'own').write_text('1')\n"
               "try:\n    os.open(folder / 'secret', os.O_RDONLY)\nexcept PermissionError as error:\n    print(error)")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert "Permission denied" in done.stdout, done.stderr


def test_wrong_arity__is_at_the_kernel(scorer, tmp_path):
    (tmp_path / "reference.py").write_text(REFERENCES["small"])
    source = RIGHT.replace("def kernel(x", "def kernel(x, y")
    assert source != RIGHT
    line = source[:source.index("def kernel(x")].count("\n") + 1
    reason = scorer.score({"source": source, "name": "a.py", "reference": str(tmp_path / "reference.py")})["reason"]
    assert "missing a required argument: 'y'" in reason["message"] and reason["location"] == f"a.py:{line}:1"


def test_limits__of_the_process_stay_where_they_are_lower():
    code = """
import resource
from nki_mlir.scoring.sandbox import OUTPUT_BYTES, CandidateLimits, limit
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (50, 55))
limit(CandidateLimits())
assert resource.getrlimit(resource.RLIMIT_AS) == (3 << 30, 3 << 30)
assert resource.getrlimit(resource.RLIMIT_CPU) == (55, 55)
assert resource.getrlimit(resource.RLIMIT_FSIZE) == (OUTPUT_BYTES, OUTPUT_BYTES)
limit(CandidateLimits(7.5, 1 << 20))
assert resource.getrlimit(resource.RLIMIT_CPU) == (8, 9)
assert resource.getrlimit(resource.RLIMIT_AS)[0] < 3 << 30
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
