# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which findings tell of a mistake that another one tells of."""

import pytest

from nki_mlir.checking.repeated_findings import unrepeated
from nki_mlir.checking.report import CheckFinding
from nki_mlir.diagnostics import Location

AT, NEXT = Location("k.py", 7, 4), Location("k.py", 8, 4)


def finding(kind="device-rule", severity="error", message="the rule is broken", at=AT, fix="mend it", code="NKI-RULE"):
    return CheckFinding(kind, severity, message, at, fix, code)


REPEATED = {
    "the same text at another column": (finding(), finding(at=Location("k.py", 7, 9))),
    "the same text of another check": (finding("failed", code=""), finding("streams", "warning")),
    "other numbers": (finding(message="sqrt of -9.5 at [0, 12]"), finding(message="sqrt of 1e-05 at [33, 0]")),
    "another rule with the same fix": (finding(code="NKI-ONE", message="one"), finding(code="NKI-TWO", message="two")),
    "a warning of the same rule": (finding("warning", "warning", "p of a"), finding("warning", "warning", "q of b")),
    "a warning of a rule that a check reports": (finding("device-rule", "warning", "p of a"), finding(
        "warning", "warning", "q of b")),
    "another instruction of a stream": (finding("streams", message="act reads t"), finding("streams", message="pool reads t")),
    "an operand that is not in the domain": (finding("not-finite", code="", message="NaN"), finding(
        message="rsqrt of -9", severity="warning", code="NKI-DOMAIN", fix="bring")),
    "the stream of a read": (finding("unwritten-read", code="", fix="x"), finding("streams", code="NKI-STREAM-UNWRITTEN",
                                                                            message="sp reads b", fix="y")),
    "a missing index": (finding("race", message="missing", code="err_unexpected_output_dependencies", fix="index"), finding(
        "race", message="t is written", code="NKI-RACE-ITERATIONS", fix="+="))}
SEPARATE = {
    "another line": (finding(), finding(at=NEXT)),
    "another file": (finding(), finding(at=Location("other.py", 7, 4))),
    "another operand": (finding(message="stationary is in HBM"), finding(message="moving is in HBM")),
    "no code": (finding(code="", message="sum of 3", fix=""), finding(code="", message="sum of 4", fix="")),
    "no fix": (finding(code="NKI-ONE", message="one", fix=""), finding(code="NKI-TWO", message="two", fix="")),
    "a note": (finding(code="NKI-ONE", message="one"), finding("older-form", "note", "two", code="")),
    "no line": (finding(message="one 1", at=None), finding(message="one 2", at=None)),
    "the cause at another line": (finding("not-finite", code="", message="NaN", at=NEXT, fix="x"), finding(code="NKI-DOMAIN")),
    "another kind as the cause": (finding("range", code="", message="NaN", fix="x"), finding(code="NKI-DOMAIN"))}


@pytest.mark.parametrize("case", REPEATED)
def test_a_mistake_is_told_once(case):
    first, again = REPEATED[case]
    assert unrepeated([first, again]) == [first]
    assert unrepeated([first, again, first]) == [first]


@pytest.mark.parametrize("case", SEPARATE)
def test_other_mistakes_stay(case):
    pair = list(SEPARATE[case])
    assert unrepeated(pair) == pair and unrepeated(pair[::-1]) == pair[::-1]


def test_the_severest_stays_in_the_order_of_the_findings():
    other = finding(message="another operand")
    note, warning, error = (finding(severity=severity) for severity in ("note", "warning", "error"))
    assert unrepeated([note, other, warning, error]) == [other, error]
    consequence = finding(code="NKI-DOMAIN", message="log of 0", fix="x")
    cause = finding("not-finite", "warning", "the first -inf", code="", fix="y")
    assert unrepeated([consequence, cause]) == [cause]              # whichever is severer
