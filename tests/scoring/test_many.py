# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Many candidates: the command, ranks, the store, its page, requests in lines, workers that die."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nki_mlir.cli import score
from nki_mlir.scoring import store as store_module
from nki_mlir.scoring.client import ScoringFailed
from nki_mlir.scoring.engine import Cluster, NoScheduler, WorkerPool, score_all
from nki_mlir.scoring.page import front, history, page_of, write_page
from nki_mlir.scoring.ranking import lines_of, ranked
from nki_mlir.scoring.store import Store, StoreFailed, key_of
from nki_mlir.scoring.verdict import CandidateVerdict
from tests.scoring.candidates import CANDIDATES, REFERENCES, RIGHT

ROOT = Path(__file__).parents[2]
LAWS = {"close": [{"law": "a", "ns": 1e4, "residual": 0.2}], "far": [{"law": "a", "ns": 9e4, "residual": 0.2}]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Candidates a (right), b (right, slower), c (wrong), and the reference, in the current directory."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"a": RIGHT, "b": CANDIDATES["slow: loads twice"].source,
                       "c": CANDIDATES["wrong constant"].source, "reference": REFERENCES["small"]}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def timed(name, us, laws):
    return CandidateVerdict(candidate=name, verdict="right", total_time=us / 1e6, interval=[us / 1.1e6, us / 0.9e6], laws=laws)


def test_ranks__are_shared_by_what_cannot_be_told_apart():
    wrong = CandidateVerdict(candidate="w", verdict="wrong", reason={"message": "differs", "code": "NKI-X"})
    ranking = ranked([timed("slow", 90, LAWS["far"]), wrong, timed("fast", 10, LAWS["close"]), timed("same", 10, LAWS["close"])])
    assert [(f.rank, f.verdict["candidate"]) for f in ranking] == [(1, "fast"), (1, "same"), (2, "slow"), (None, "w")]
    assert lines_of(ranking) == [
        "1  fast: 10.0 us on the model (9.1-11.1)",
        "1  same: 10.0 us on the model (9.1-11.1); cannot be told apart from the one before (50% sure of the order)",
        "2  slow: 90.0 us on the model (81.8-100.0), 99.9% sure that it is slower than the one before",
        "-  w: wrong: differs [NKI-X]"]


def test_command__ranks_stores_and_writes_a_page(folder, capsys):
    """The command runs with all options, then again: the second run takes all verdicts from the store."""
    options = ["a.py", "b.py", "c.py", "-r", "reference.py", "--compare", "--json", "--jobs", "2", "--store", "s.db",
               "--page", "page.html"]
    assert score.main(options) == 1
    first = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {v["candidate"]: v["verdict"] for v in first} == {"a.py": "right", "b.py": "right", "c.py": "wrong"}
    assert first[2]["rank"] is None and first[2]["reason"]["location"] == ""
    assert {v["source"] for v in first} == {"model"} and all(v["hbm_bytes_ratio"] >= 1 for v in first[:2])
    page = Path("page.html").read_text()
    assert "3 candidates, 2 right" in page and page.count("data-number=") == 2 and "DecompressionStream" in page
    store = Store("s.db")
    assert len(store.rows()) == 3
    with store.connection:
        store.connection.execute("UPDATE verdicts SET document = replace(document, '\"right\"', '\"known\"')")
    store.close()
    assert score.main(options[:5] + ["--json", "--store", "s.db"]) == 1
    again = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [v["verdict"] for v in again] == ["known", "known", "wrong"]


def test_front__has_what_none_beats_in_both():
    assert front([(3, 1, ""), (1, 5, ""), (2, 5, ""), (2, 3, ""), (4, 4, "")]) == [(1, 5), (2, 3), (3, 1)]


def test_history__steps_down():
    rows = [{"verdict": v, "total_time": t, "candidate": "a", "number": n} for n, (v, t) in enumerate(
        [("right", 3e-6), ("wrong", None), ("right", 5e-6), ("right", 1e-6)], 1)]
    _, steps = history(rows)
    assert [(n, round(us)) for n, us in steps] == [(1, 3), (3, 3), (3, 3), (4, 3), (4, 1)]
    assert "None is right yet" in page_of([])


def test_store__refuses_what_is_no_database(tmp_path):
    (tmp_path / "no.db").write_text("no database, but text that is long enough to be looked at" * 20)
    with pytest.raises(StoreFailed, match=r"no.db cannot be used for verdicts: file is not a database \[NKI-SCORE-STORE\]"):
        Store(tmp_path / "no.db")


@pytest.mark.parametrize("column, value", [
    ("document", "[1"), ("document", '{"interval": 3}'), ("document", "{}"), ("parameters", "[]"), ("total_time", "soon"),
    ("document", b"\xff"), ("candidate", b"\xff")])
def test_store__whose_verdicts_are_malformed_is_refused(column, value, tmp_path):
    store = Store(tmp_path / "verdicts.db")
    verdict = CandidateVerdict(candidate="a.py", verdict="right", reason=None, total_time=1e-6, sbuf_peak_bytes=0,
                               interval=[1e-6, 1e-6], hbm_bytes_ratio=None, advice="none")
    store.add("key", {"source": ""}, verdict)
    write_page(store, tmp_path / "page.html")
    store.connection.execute(f"UPDATE verdicts SET {column} = CAST(? AS TEXT)", (value,))
    with pytest.raises(StoreFailed, match=r"verdicts.db cannot be used for verdicts: (a verdict is malformed|Could not decode)"):
        write_page(store, tmp_path / "page.html")


def test_store__that_cannot_be_created_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "TABLE", "CREATE")
    with pytest.raises(StoreFailed, match="incomplete input"):
        Store(tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_keys__differ_by_all_that_a_verdict_depends_on(folder):
    request = {"source": "a", "reference": "reference.py"}
    keys = {key_of(request), key_of(request | {"source": "b"}), key_of(request | {"target": "trn1"}),
            key_of(request | {"reference": "a.py"})}
    assert len(keys) == 4 and key_of(request | {"id": 3}) in keys
    levels = {key_of(request | {"level": level}) for level in (0, 1, 3)}
    assert len(levels) == 3 and key_of(request) not in levels
    assert key_of(request | {"hidden": []}) != key_of(request)


def test_scheduler_that_is_not_there__is_an_error():
    with pytest.raises(NoScheduler, match=r"there is no Dask scheduler at nowhere://1"):
        Cluster("nowhere://1")


def test_bad_references__are_errors(folder, scorer):
    functions = "def inputs(rng): return []\ndef reference(): return 1\n"
    for text, message in {"import nothing_like_this": "1:1: error: the reference cannot be imported: ModuleNotFoundError",
                          "x =": "1:4: error: the reference cannot be imported: SyntaxError",
                          "x = 1": "1:1: error: the reference has no functions inputs",
                          f"{functions}TOLERANCE = 3": "3:1: error: .* its TOLERANCE is no dict",
                          f"{functions}TOLERANCE = {{'absolute': float('nan')}}": "3:1: error: .* has nan as absolute",
                          f"{functions}TOLERANCE = {{'l1': 1}}": "3:1: error: .* its TOLERANCE has l1",
                          "def inputs(rng):\n  return [1 / 0]\ndef reference(x): return x":
                              "2:11: error: the reference does not run: ZeroDivisionError"}.items():
        (folder / "bad.py").write_text(text)
        with pytest.raises(ScoringFailed, match=f"^bad.py:{message}"):
            scorer.score({"source": RIGHT, "reference": "bad.py"})
    with pytest.raises(ScoringFailed, match=r"^none.py: error: the reference cannot be read: No such file"):
        scorer.score({"source": RIGHT, "reference": "none.py"})
    with pytest.raises(ScoringFailed, match=r"nowhere.py cannot be read"):
        scorer.score({"candidate": "nowhere.py", "reference": "reference.py"})
    scorer.start()
    os.kill(scorer.process.pid, signal.SIGKILL)         # the next one starts another worker
    assert scorer.score({"source": RIGHT, "reference": "reference.py"}).right


def test_level__is_in_the_verdict(folder, scorer):
    """Program order is timed slower than the order that a search finds; a level that there is not blames no candidate."""
    request = {"source": CANDIDATES["slow: loads twice"].source, "reference": "reference.py"}
    fast, written = scorer.score(request), scorer.score(request | {"level": 0})
    assert (fast["level"], written["level"]) == (1, 0) and fast["total_time"] <= written["total_time"]
    assert "80 of 100)" in str(fast) and "80 of 100, -O0)" in str(written)
    with pytest.raises(ScoringFailed, match="level is 2; there are 0, 1, 3"):
        scorer.score(request | {"level": 2})


@pytest.mark.parametrize("name, value, text", [
    ("seconds", 0, "at most 10,000,000, got 0"), ("seconds", -1.5, "at most 10,000,000, got -1.5"),
    ("seconds", float("nan"), "got nan"), ("seconds", float("inf"), "got inf"), ("megabytes", 0, "1,073,741,824, got 0"),
    ("megabytes", 10 ** 30, r"1,073,741,824, got 1e\+30"), ("seconds", "soon", "could not convert string to float: 'soon'")])
def test_limits_that_limit_nothing__are_refused(name, value, text, folder, scorer):
    with pytest.raises(ScoringFailed, match=text):
        scorer.score({"candidate": "a.py", "reference": "reference.py", name: value})


def test_serve__answers_every_line(folder):
    """Broken lines, a candidate that is wrong, one that is right: each has its answer."""
    lines = ["{", "[]", '{"id": 1}', json.dumps({"id": 2, "candidate": "c.py"}), json.dumps({"id": 3, "candidate": "a.py"})]
    done = subprocess.run([sys.executable, "-m", "nki_mlir.cli.score", "--serve", "-r", "reference.py"], cwd=folder,
                          input="\n".join(lines), capture_output=True, text=True, timeout=120,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [a["error"]["code"] for a in answers if "error" in a] == ["NKI-SCORE-REQUEST"] * 3
    assert {a["id"]: a["verdict"] for a in answers if "id" in a} == {2: "wrong", 3: "right"}, done.stderr


def test_equal_texts__have_a_verdict_each(folder):
    """They are judged once: also the copy that comes later takes the verdict of the store, under its own name."""
    text = "import os\n"
    for name in ("d", "e", "f"):
        (folder / f"{name}.py").write_text(text)
    store, judged = Store("s.db"), []
    with WorkerPool(1) as pool:
        submit, pool.submit = pool.submit, lambda request: judged.append(request["name"]) or submit(request)
        names = ["d.py", "e.py", "d.py"], ["f.py"]
        got = [[verdict for _, verdict in score_all([{"candidate": name, "reference": "reference.py"} for name in batch], pool, store)]
               for batch in names]
    assert [[verdict["candidate"] for verdict in verdicts] for verdicts in got] == [*names] and judged == ["d.py"]
    assert got[1][0]["reason"]["location"].startswith("f.py:") and {v["verdict"] for vs in got for v in vs} == {"refused"}


@pytest.mark.slow
def test_cluster__loses_nothing_with_a_worker(folder):
    """Three workers of a Dask scheduler, of which one is killed while it judges: all verdicts come, each once."""
    distributed = pytest.importorskip("distributed")
    store = Store("cluster.db")
    requests = [{"source": f"{RIGHT}\n# {n}", "name": f"{n}.py", "reference": "reference.py"} for n in range(12)]
    with distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None,
                                  env={"PYTHONPATH": str(ROOT)}) as local:
        with Cluster(local.scheduler_address) as workers:
            got = []
            for _, verdict in score_all(requests, workers, store, ahead=4):
                got.append(verdict["candidate"])
                if len(got) == 1:
                    os.kill(next(one.pid for one in local.workers.values() if one.pid), signal.SIGKILL)
    assert sorted(got) == sorted(f"{n}.py" for n in range(12)) and len(store.rows()) == 12


def test_pool__goes_on_where_a_worker_is_killed(folder):
    requests = [{"source": f"{RIGHT}\n# {n}", "name": f"{n}.py", "reference": "reference.py"} for n in range(6)]
    with WorkerPool(1) as pool:
        scores = score_all(iter(requests), pool)
        names = [next(scores)[1]["candidate"]]
        os.kill(pool.scorers[0].process.pid, signal.SIGKILL)
        names += [verdict["candidate"] for _, verdict in scores]
    assert sorted(names) == [f"{n}.py" for n in range(6)]
