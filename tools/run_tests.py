# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run all tests, pytest and then lit, and print how many passed, failed and were skipped."""

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


def run(name: str, command: list[str], results: Path, environment: dict[str, str]) -> tuple[bool, str]:
    """Run a test command. Return whether it failed, and a line about the result. A run without tests fails."""
    started = time.monotonic()
    status = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=False).returncode
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
        # Each worker would rewrite the assertions of all tests. Only those of tests that fail are worth the time.
        outcomes = [run("pytest", ["-m", "pytest", "-n", options.jobs, "--dist", "worksteal", "--assert=plain",
                                   f"--junitxml={first}", *chosen, "tests"], first, environment)]
        if outcomes[0][0]:
            print("The failed tests again, with the values that they compare:", flush=True)
            again = ["-m", "pytest", "-q", "--last-failed", "--last-failed-no-failures=none", "tests"]
            subprocess.run([sys.executable, *again], cwd=ROOT, env=environment, check=False)
        with warm_commands(environment) as warm:
            outcomes += [run("lit", [str(Path(sys.executable).parent / "lit"), "-q", "-j", options.jobs,
                                     f"--xunit-xml-output={second}", "lit_tests"], second, warm)]
    print("\n".join(line for _, line in outcomes), flush=True)
    return int(any(failed for failed, _ in outcomes))


if __name__ == "__main__":
    sys.exit(main())
