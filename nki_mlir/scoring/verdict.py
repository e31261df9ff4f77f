# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verdict on a candidate, in the form of every report: a mapping that is JSON.

``verdict`` is "right"; "wrong" if the candidate runs and its results certainly differ from the reference; or
"refused" if it is not a kernel, or breaks a rule or a limit. Times are seconds of the model, under the names of the
vendor's profiler.
"""

from collections.abc import Sequence
from typing import Any

VERSION = 1
RIGHT, WRONG, REFUSED = "right", "wrong", "refused"
STAGES = ("text", "import", "capture", "rules", "values", "compile", "time")
OF_RESULTS = ("NKI-SCORE-FORM", "NKI-SCORE-VALUES", "NKI-SCORE-INPUT", "NKI-SCORE-ORDER", "NKI-SCORE-UNWRITTEN",
              "NKI-RACE-ITERATIONS", "NKI-RACE-PROGRAMS")


class CandidateVerdict(dict[str, Any]):
    """The findings about a candidate. Figures of stages that it did not reach are missing.

    Example:
        verdict = CandidateVerdict(candidate="a.py", verdict="right", total_time=2e-5, interval=[1.9e-5, 2.1e-5])
        assert verdict.right and verdict.total_time == 2e-5 and "20.0" in str(verdict)
    """

    @property
    def right(self) -> bool:
        """Whether the candidate passed all stages."""
        return bool(self["verdict"] == RIGHT)

    @property
    def total_time(self) -> float | None:
        """The time in seconds on the model of the machine, or None."""
        return self.get("total_time")

    @property
    def advice(self) -> str:
        """The most useful change, as a sentence; of a wrong candidate, the fix of its error."""
        return str(self.get("advice") or (self.get("reason") or {}).get("fix", ""))

    def __str__(self) -> str:
        name, verdict = self.get("candidate", "the candidate"), self["verdict"]
        if self.right:
            low, high = (1e6 * t for t in self["interval"])
            level = f", -O{self['level']}" if self.get("level", 1) != 1 else ""
            cores = f" of {self['cores']} cores" if self.get("cores", 1) > 1 else ""
            return (f"{name}: right, {1e6 * self['total_time']:.1f} us on the model{cores} "
                    f"({low:.1f}-{high:.1f}, 80 of 100{level})\n"
                    f"  {self.advice}")
        reason = self["reason"]
        where = f" at {reason['location']}" if reason["location"] else ""
        return f"{name}: {verdict}{where}: {reason['message']} [{reason['code']}]\n  fix: {reason['fix']}"


def verdict_of(candidate: str, reference: str, stage: str, reason: dict[str, Any] | None, remarks: Sequence[object],
               figures: dict[str, Any]) -> CandidateVerdict:
    """Build the verdict of a candidate that failed at a stage for a reason, or passed all stages."""
    reached = STAGES.index(stage) if reason else len(STAGES)
    checks = {name: "passed" if k < reached else "failed" if k == reached else "not reached"
              for k, name in enumerate(STAGES)}
    word = RIGHT if not reason else WRONG if reason["code"] in OF_RESULTS else REFUSED
    ran = reached > STAGES.index("values") or (word == WRONG and stage == "values")
    compiled = True if reached > STAGES.index("compile") else None if stage == "values" else False
    return CandidateVerdict(version=VERSION, candidate=candidate, reference=reference, verdict=word, reason=reason,
                   compiled=compiled, runnable=ran, correct=reached > STAGES.index("values"), checks=checks,
                   remarks=list(remarks), source="model", **{k: v for k, v in figures.items() if k != "source"})
