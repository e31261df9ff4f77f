# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verdicts on candidates: each gets the one that it has to get, whatever came before it."""

import pytest

from nki_mlir.scoring.client import Scorer
from tests.scoring.candidates import CANDIDATES, REFERENCES


@pytest.fixture(scope="module")
def scorer():
    with Scorer() as one:
        yield one


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    folder = tmp_path_factory.mktemp("references")
    for name, text in REFERENCES.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.mark.parametrize("name", CANDIDATES)
def test_candidate(name, scorer, references):
    candidate = CANDIDATES[name]
    verdict = scorer.score({"source": candidate.source, "name": "candidate.py", "seconds": candidate.seconds,
                            "reference": str(references / f"{candidate.reference}.py"), "megabytes": 1024})
    reason = verdict["reason"] or {"code": "", "message": ""}
    assert (verdict["verdict"], reason["code"] if candidate.code != "*" else "*") == (candidate.verdict, candidate.code
                                                                                     ), reason
    assert verdict.right == (candidate.verdict == "right") and (verdict.total_time is not None) == verdict.right
