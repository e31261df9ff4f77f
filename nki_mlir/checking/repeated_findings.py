# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tell each mistake of a kernel once: several checks may find the same one, and a check may find it several times."""

import re
from collections import defaultdict
from collections.abc import Sequence

from nki_mlir.checking.report import NOTE, SEVERITIES, CheckFinding

NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?")
# What one check reports at a line follows from what another one reports there: codes, and kinds or codes of causes
CONSEQUENCES: dict[str, set[str]] = {
    "NKI-DOMAIN": {"not-finite"},                                       # an operand beyond the domain of a function
    "NKI-STREAM-UNWRITTEN": {"unwritten-read"},
    "NKI-RACE-ITERATIONS": {"err_unexpected_output_dependencies"},      # an index that the loop's variable lacks
}


def unrepeated(findings: Sequence[CheckFinding]) -> list[CheckFinding]:
    """Return the findings without those that tell of a mistake again: at the same line with other values, with another
    rule but the same fix, or as a consequence of what another check found. The severest of them stays."""
    reported: dict[int, CheckFinding] = {}
    at_line: defaultdict[object, list[CheckFinding]] = defaultdict(list)
    for number, finding in sorted(enumerate(findings), key=lambda one: SEVERITIES.index(one[1].severity)):
        of_line = at_line[line_of(finding)]
        if not any(tells(earlier, finding) for earlier in of_line):
            reported[number] = finding
            of_line.append(finding)
    return [f for _, f in sorted(reported.items())
            if f.location is None or not any(follows(f, cause) for cause in at_line[line_of(f)])]


def line_of(finding: CheckFinding) -> object:
    return finding.location and finding.location[:2]


def tells(earlier: CheckFinding, finding: CheckFinding) -> bool:
    """Return whether a finding at the same line tells of the same mistake."""
    if earlier.message == finding.message:
        return True
    if finding.location is None:
        return False
    if earlier.code != finding.code:
        return bool(finding.fix) and earlier.fix == finding.fix and NOTE not in (earlier.severity, finding.severity)
    return bool(finding.code) and (finding.kind in ("warning", "streams")
                                   or without_numbers(earlier.message) == without_numbers(finding.message))


def follows(finding: CheckFinding, cause: CheckFinding) -> bool:
    """Return whether a finding is a consequence of another one at the same line."""
    return not CONSEQUENCES.get(finding.code, set()).isdisjoint({cause.kind, cause.code})


def without_numbers(message: str) -> str:
    return NUMBER.sub("#", message)
