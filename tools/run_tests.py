# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run all tests, pytest with lit beside it, and print how many passed, failed and were skipped.

Workers of pytest wait for child processes and files some of the time, in which the tests of lit run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from .warm_commands import warm_commands

ROOT = Path(__file__).resolve().parent.parent
LOW_PRIORITY = ["nice", "-n", "10"]


@dataclass
class Counts:
    """The counts in a runner's JUnit file."""

    tests: int = 0
    failed: int = 0
    skipped: int = 0

    @classmethod
    def read(cls, file: Path) -> "Counts":
        if not file.is_file():
            return cls()
        cases = list(ElementTree.parse(file).iter("testcase"))
        failed = sum(1 for c in cases if c.find("failure") is not None or c.find("error") is not None)
        return cls(len(cases), failed, sum(1 for c in cases if c.find("skipped") is not None))

    def __str__(self) -> str:
        return f"{self.tests - self.failed - self.skipped} passed, {self.failed} failed, {self.skipped} skipped"


def outcome(name: str, process: "subprocess.Popen[bytes]", results: Path, started: float) -> tuple[bool, str]:
    """Wait for a test command. Return whether it failed, and a line about the result. A run without tests fails."""
    status = process.wait()
    counts = Counts.read(results)
    return bool(status) or not counts.tests, f"{name}: {counts} in {time.monotonic() - started:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description="Run pytest and lit.")
    parser.add_argument("--jobs", default="2", help="the number of parallel workers (2)")
    parser.add_argument("--fast", action="store_true", help="leave out slow tests and tests of JAX and PyTorch")
    options = parser.parse_args()
    chosen = ["-m", "not slow and not jax and not torch"] if options.fast else []
    # What one process compiles to bytecode, the other worker and the processes that tests start need not compile again.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "pytest.xml", Path(folder) / "lit.xml"
        with warm_commands(environment, LOW_PRIORITY) as warm, (Path(folder) / "lit.txt").open("w+b") as printed:
            started = time.monotonic()
            lit = [str(Path(sys.executable).parent / "lit"), "-q", "-j", options.jobs, f"--xunit-xml-output={second}"]
            beside = subprocess.Popen([*LOW_PRIORITY, sys.executable, *lit, "lit_tests"], cwd=ROOT,
                                      env=warm, stdout=printed, stderr=printed)
            # Each worker would rewrite the assertions of all tests. Only those of tests that fail are worth the time.
            workers = subprocess.Popen([sys.executable, "-m", "pytest", "-n", options.jobs, "--dist", "worksteal",
                                        "--assert=plain", f"--junitxml={first}", *chosen, "tests"], cwd=ROOT,
                                       env=environment)
            outcomes = [outcome("pytest", workers, first, started)]
            if outcomes[0][0]:
                print("The failed tests again, with the values that they compare:", flush=True)
                again = ["-m", "pytest", "-q", "--last-failed", "--last-failed-no-failures=none", "tests"]
                subprocess.run([sys.executable, *again], cwd=ROOT, env=environment, check=False)
            outcomes += [outcome("lit", beside, second, started)]
            printed.seek(0)
            print(printed.read().decode(errors="replace"), end="")
    print("\n".join(line for _, line in outcomes), flush=True)
    return int(any(failed for failed, _ in outcomes))


if __name__ == "__main__":
    sys.exit(main())
