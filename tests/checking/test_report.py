# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports of checks as text and JSON: the order of findings, and what each line shows."""

import itertools
import json

import pytest

from nki_mlir.checking.report import ERROR, KINDS, NOTE, WARNING, CheckFinding, KernelReport, StatementError, as_map
from nki_mlir.diagnostics import Location

PLACES = [None, Location("a.py", 2, 0), Location("a.py", 2, 4), Location("a.py", 10, 0), Location("b.py", 1, 0)]


def test_findings__are_errors_first_then_in_the_order_of_lines():
    findings = [CheckFinding(KINDS[0], severity, f"{severity} {k}", at) for severity, (k, at) in
                itertools.product((ERROR, WARNING, NOTE), enumerate(PLACES))]
    for seed in range(5):
        report = KernelReport("k", [*findings[seed:], *findings[:seed]][::-1 if seed % 2 else 1])
        assert report.ordered() == findings
        assert [f["message"] for f in report.json()["findings"]] == [f.message for f in findings]
        assert str(report) == "\n".join(map(str, findings))


@pytest.mark.parametrize("severities, sound", [((), True), ((WARNING, NOTE), True), ((NOTE, ERROR), False)])
def test_only_errors__make_a_report_unsound(severities, sound):
    report = KernelReport("k", [CheckFinding("race", severity, "x") for severity in severities])
    assert report.sound is sound and report.json()["sound"] is sound
    assert len(report.of("race")) == len(severities) and report.of("range") == []


def test_lines_of_findings():
    at = Location("folder/k.py", 7, 3)
    assert str(CheckFinding("race", ERROR, "two writes", at, "wait", "NKI-RACE")) == (
        "k.py:7: error: two writes [NKI-RACE]\n  fix: wait")
    assert str(CheckFinding("race", NOTE, "two writes")) == "note: two writes"
    assert str(CheckFinding("race", NOTE, "two writes", fix="wait")) == "note: two writes\n  fix: wait"
    assert str(StatementError(at, "exp", 0.012345)) == "k.py:7 exp: 0.012"
    assert str(StatementError(None, "exp", 2.0)) == "? exp: 2"


def test_reports__show_the_five_statements_that_round_most():
    precision = [StatementError(PLACES[1], f"op{k}", 1 / (k + 1)) for k in range(7)]
    report = KernelReport("k", [], precision)
    assert str(report) == ("k: no mistakes found\nrounding, by statement: a.py:2 op0: 1; a.py:2 op1: 0.5; a.py:2 op2: 0.33; "
                           "a.py:2 op3: 0.25; a.py:2 op4: 0.2")
    assert len(report.json()["precision"]) == 7 and report.json()["kernel"] == "k"
    assert str(KernelReport("k")) == "k: no mistakes found"


def test_json__has_columns_that_count_from_one():
    entry = as_map(CheckFinding("race", ERROR, "x", Location("k.py", 7, 3), "f", "C"))
    assert json.loads(json.dumps(entry)) == {"kind": "race", "severity": "error", "message": "x", "fix": "f", "code": "C",
                                             "location": {"file": "k.py", "line": 7, "column": 4}}
    assert as_map(StatementError(None, "exp", 0.5)) == {"location": None, "operation": "exp", "relative": 0.5}
