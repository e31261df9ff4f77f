# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seed random faults in a copy of the compiler, its executors and checkers, and run the tests of the changed module.

``python tools/mutation.py [--count N] [--seed N] [--only TEXT] [--jobs N] [--table FILE]`` changes each module in turn.
Without the change all tests pass. With it, tests run until one fails: first those that import the module, short ones
before long ones, then those of its folder, then those of other folders. If all pass, the mutant survives, and its line
and change are printed. ``tools/mutation_survivors.txt`` gives the reason of each survivor that needs no test: the
program is equal, or the difference is not an error.
"""

import argparse
import ast
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.seeding import PACKAGE, ROOT, Change, copy_project, mutants_of, restore, seed

AREAS = {
    "passes": ("transforms", "conversion", "selection", "waist", "graph", "targets/neuron/codegen",
               "targets/cpu/passes"),
    "executors": ("capture/eager.py", "targets/interpreter", "targets/cpu", "targets/neuron/simulated_core.py",
                  "targets/neuron/simulator.py", "targets/neuron/execution.py", "scalar"),
    "checkers": ("targets/neuron/checker", "targets/neuron/validate.py", "dialects/verifier.py",
                 "dialects/verification.py", "dialects/target_rules.py", "dialects/target_findings.py",
                 "passes/safety.py", "text_limits.py", "capture/races", "capture/unwritten_reads.py", "checking"),
    "front end": ("capture", "language"),                   # without the modules above
    "migration": ("migration",),
}
# Tests that run kernels of all kinds, for modules whose own tests find nothing.
GENERAL = ("tests/conversion/test_kernels.py", "tests/targets/neuron/test_kernels.py", "tests/test_examples.py")
# Tests of a folder's modules together, for modules that no test imports.
TOGETHER = {"graph": ("tests/conversion/test_tile_and_place.py", "tests/random_graphs/test_random_graphs.py",
                      "tests/frameworks/test_linked_control_flow.py"),
            "conversion": ("tests/conversion/test_tile_and_place.py", "tests/frameworks/test_linked_control_flow.py"),
            "transforms": ("tests/frameworks/test_link_kernels.py", "tests/frameworks/test_linked_programs.py"),
            "scalar": ("tests/scalar/test_activation.py", "tests/language_current/test_functions.py",
                       "tests/language_current/test_instructions.py"),
            "targets/neuron/checker": ("tests/targets/neuron/test_checker.py",
                                      "tests/targets/neuron/test_stream_mutants.py"),
            "targets/neuron/codegen": ("tests/targets/neuron/test_random_code.py",
                                       "tests/targets/neuron/test_run_time_loops.py"),
            "targets/cpu": ("tests/targets/cpu/test_operations.py", "tests/targets/cpu/test_bounds.py",
                            "tests/targets/cpu/test_packed_products.py"),
            "dialects": ("tests/dialects/test_rules.py", "tests/dialects/test_operations.py",
                         "tests/language/test_instruction_rules.py"),
            "capture/races": ("tests/checking/test_kinds_of_findings.py", "tests/language/test_hazard_verdicts.py"),
            "capture": ("tests/capture/test_capture.py", "tests/capture/test_overlaps.py",
                        "tests/forms/test_unwritten_tiles.py"),
            "language/entries": ("tests/language/test_documentation.py",),
            "language/current": ("tests/language_current/test_validation.py",
                                 "tests/language_current/test_operators.py",
                                 "tests/language_current/test_instructions.py",
                                 "tests/language_current/test_older_forms.py",
                                 "tests/language_current/test_error_catalogue.py"),
            "language/beta": ("tests/language/test_surface.py", "tests/language/test_error_catalogue.py",
                              "tests/compat/test_install.py"),
            "migration": ("tests/migration/test_migration.py", "tests/migration/test_releases.py"),
            "waist": ("tests/waist/test_reader.py", "tests/conversion/test_structured.py"),
            "selection": ("tests/conversion/test_linalg_to_nisa.py", "tests/conversion/test_selection_of_bodies.py",
                          "tests/conversion/test_linalg_to_nisa_masks.py")}
# The folder of FileCheck tests that run the code of a folder.
LIT = {"graph": "stablehlo", "conversion": "nisa", "transforms": "nki", "selection": "nisa", "waist": "waist",
       "targets/cpu": "cpu", "targets/neuron/codegen": "isa"}
# The last ring: folders of tests that run the code of a folder, most without importing it.
WIDE = {"capture": ("capture", "checking", "forms", "language", "language_current"),
        "language": ("forms", "language", "language_current", "compat", "harnesses"), "migration": ("migration",),
        "waist": ("waist", "conversion", "targets/cpu"), "selection": ("conversion", "targets/neuron/codegen"),
        "conversion": ("conversion",), "graph": ("graph", "frameworks", "random_graphs"),
        "transforms": ("transforms", "conversion"), "scalar": ("scalar", "dialects", "language_current"),
        "targets/cpu": ("targets/cpu",), "targets/interpreter": ("targets/interpreter", "conversion"),
        "targets/neuron": ("targets/neuron",), "dialects": ("dialects", "language_current"), "checking": ("checking",)}
NEAREST, NEAR = 3, 4                # test files of the first and of the second ring
SECONDS = 300                       # of processor time for a ring of tests, which usually takes 20; then it is endless
SECONDS_WIDE = 3600                 # the same for a folder of the last ring, which usually takes some hundred
DEADLOCK = 1800                     # seconds until tests that only wait count as endless
REASONS = Path(__file__).with_name("mutation_survivors.txt")
MARKS = "not slow"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a mutant: ``found`` is the test that failed, or ""."""

    change: Change
    found: str
    seconds: float
    reason: str = ""


def area_of(file: str) -> str:
    return next(area for area, parts in AREAS.items() if any(file == p or file.startswith(p + "/") for p in parts))


def modules() -> list[str]:
    """Return the files to change, relative to the package."""
    candidates = {str(f.relative_to(ROOT / PACKAGE)) for f in (ROOT / PACKAGE).rglob("*.py")}
    return sorted(f for f in candidates if any(f == p or f.startswith(p + "/") for ps in AREAS.values() for p in ps))


def sample(count: int, rng: random.Random, only: list[str]) -> Iterator[Change]:
    """Yield mutants, one of each module in turn, up to a number, of modules whose path has one of the texts."""
    sources = {file: mutants_of(file, rng) for file in modules() if any(text in file for text in only)}
    while sources and count:
        for file in rng.sample(sorted(sources), len(sources)):
            change = next(sources[file], None)
            if change is None:
                del sources[file]
            else:
                yield change
                count -= 1
            if not count:
                return


# -- choosing tests ----------------------------------------------------------------------------------------------------
@cache
def imports_of(file: Path) -> frozenset[str]:
    """Return the modules of the package that a test file imports, directly or through modules of the tests."""
    imported: set[str] = set()
    folder = file.parent.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*folder[:len(folder) - node.level + 1], *((node.module or "").split("."))]) if node.level \
                else node.module or ""
            names = [base.rstrip("."), *(f"{base.rstrip('.')}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if name.startswith(PACKAGE):
                imported.add(name)
            elif name.startswith("tests."):
                imported_file = ROOT / (name.replace(".", "/") + ".py")
                imported |= imports_of(imported_file) if imported_file.is_file() and imported_file != file else set()
    return frozenset(imported)


def rings(file: str) -> list[list[str]]:
    """Return the commands that test a module, from the nearest tests outwards."""
    path = Path(file)
    module = ".".join((PACKAGE, *path.with_suffix("").parts)).removesuffix(".__init__")
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    package = module.rpartition(".")[0]                     # it may re-export names of its modules
    inner = len(path.parts) > 2
    names = {f"test_{path.stem}", f"test_{path.parent.name}"} if inner else {f"test_{path.stem}"}
    direct = [t for t in tests if module in imports_of(t) or (inner and package in imports_of(t)) or t.stem in names]
    direct.sort(key=lambda t: (t.stem != f"test_{path.stem}", module not in imports_of(t), t.stem not in names,
                               len(imports_of(t))))
    folder = next(f for f in ((ROOT / "tests" / path).parents) if f.is_dir())
    beside = [t for t in tests if t.parent == folder and t not in direct]
    beside.sort(key=lambda t: len(imports_of(t)))
    name = path.stem.replace("_", "-")
    lit = sorted(str(f.relative_to(ROOT)) for f in (ROOT / "lit_tests").rglob("*.*")
                 if f.stem == name or f.stem.startswith(name + "-"))
    commands = [pytest(direct[:NEAREST])] if direct else []
    run_lit = [str(Path(sys.executable).parent / "lit"), "-q", "-j1"]
    if lit:
        commands.append([*run_lit, *lit])
    together = [ROOT / t for prefix, names in TOGETHER.items() if file.startswith(prefix + "/") for t in names]
    outer = list(dict.fromkeys(t for t in [*together, *direct[NEAREST:], *beside] if t not in direct[:NEAREST]))[:NEAR]
    commands += [pytest(outer)] if outer else []
    commands += [[*run_lit, f"lit_tests/{level}"] for prefix, level in LIT.items() if file.startswith(prefix + "/")]
    general = [t for t in map(ROOT.joinpath, GENERAL) if t not in direct[:NEAREST] and t not in outer]
    folders = next((names for prefix, names in WIDE.items() if file.startswith(prefix + "/")), ())
    return [*commands, pytest(general), *(pytest([ROOT / "tests" / name]) for name in folders)]


def pytest(files: list[Path]) -> list[str]:
    return [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "tools.fastest_first",
            "-m", MARKS, *(str(f.relative_to(ROOT)) for f in files)]


# -- running them ------------------------------------------------------------------------------------------------------
def run(command: list[str], directory: Path) -> str:
    """Run a test command and return the test that failed, or "". The limit is processor time, which other load does
    not change; a folder of tests gets more of it than files."""
    of_folder = any((directory / part).is_dir() for part in command if part.startswith("tests/"))
    seconds = SECONDS_WIDE if of_folder else SECONDS
    environment = {**os.environ, "PYTHONPATH": str(directory),
                   "NKI_MLIR_DURATIONS": str(directory.parent / "durations.json"),
                   "HYPOTHESIS_STORAGE_DIRECTORY": str(directory / ".hypothesis")}
    limited = ["sh", "-c", 'ulimit -c 0; ulimit -t "$0"; exec "$@"', str(seconds)]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([*limited, *command], cwd=directory, stdout=output, stderr=subprocess.STDOUT,
                                   env=environment, start_new_session=True)
        try:
            status = process.wait(DEADLOCK * seconds // SECONDS)
        except subprocess.TimeoutExpired:
            status = -signal.SIGALRM
        with suppress(ProcessLookupError):                  # processes that tests left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        lines = output.read().splitlines()
    if status in (0, 5):                                    # 5: the marks deselect all tests
        return ""
    if status in (-signal.SIGKILL, -signal.SIGXCPU, -signal.SIGALRM):
        return "does not end"
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR", "  nki_mlir ::"))]
    return " ".join((failed or [f"status {status}"])[-1].split()[:3]).removeprefix("FAILED ")


class Bench:
    """Copies of the project, one for each job."""

    def __init__(self, directory: Path, jobs: int) -> None:
        self.free: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            copy_project(directory / str(number))
            self.free.put(directory / str(number))

    def judge(self, change: Change) -> Verdict:
        directory, started, found_by = self.free.get(), time.monotonic(), ""
        seed(change, directory)
        try:
            for command in rings(change.file):
                # without tests that were written after the copy
                known = [part for part in command if not part.startswith("tests/") or (directory / part).exists()]
                if found_by := run(known, directory):
                    break
        finally:
            restore(change, directory)
            self.free.put(directory)
        return Verdict(change, found_by, time.monotonic() - started, reasons().get(key(change), ""))


# -- survivors that need no test ---------------------------------------------------------------------------------------
def key(change: Change) -> str:
    """Describe a change in words that do not depend on line numbers."""
    return f"{change.file}: {' '.join(change.old.split())} -> {' '.join(change.new.split())}"


@cache
def reasons() -> dict[str, str]:
    """Read ``mutation_survivors.txt``: a line with the change, then a line with the reason."""
    if not REASONS.is_file():
        return {}
    lines = [line for line in REASONS.read_text().splitlines() if line and not line.startswith("#")]
    return dict(zip(lines[::2], (line.strip() for line in lines[1::2]), strict=True))


def table_of(verdicts: list[Verdict]) -> str:
    """Return the table in Markdown, by area and for each module with a survivor."""
    lines = ["| area | modules | mutants | found | survivors with a reason | other survivors |",
             "|---|---|---|---|---|---|"]
    for area in AREAS:
        these = [v for v in verdicts if area_of(v.change.file) == area]
        kinds = Counter("found" if v.found else "reason" if v.reason else "other" for v in these)
        lines.append(f"| {area} | {len({v.change.file for v in these})} | {len(these)} | {kinds['found']} | "
                     f"{kinds['reason']} | {kinds['other']} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="the number of mutants (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the random choice of mutants (0)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT",
                        help="modules whose path has one of these texts")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants are tested at a time (2)")
    parser.add_argument("--table", type=Path, help="the file to write the table to")
    options = parser.parse_args(arguments)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:
        bench = Bench(Path(name), options.jobs)
        for verdict in pool.map(bench.judge, sample(options.count, random.Random(options.seed), options.only)):
            verdicts.append(verdict)
            outcome = verdict.found or ("survives, for a reason" if verdict.reason else "SURVIVES")
            print(f"{len(verdicts)} of {options.count}: {verdict.change.file}:{verdict.change.line}: "
                  f"{verdict.change.kind}: {outcome} ({verdict.seconds:.0f} s)", flush=True)
            if not verdict.found:
                print(f"    {key(verdict.change)}", flush=True)
    table = Table("module", "line", "change", "found by", "s")
    for v in verdicts:
        table.add_row(v.change.file, str(v.change.line), f"{v.change.kind}: {' '.join(v.change.new.split())[:40]}",
                      v.found or v.reason or "nothing", f"{v.seconds:.0f}")
    Console().print(table)
    print(table_of(verdicts))
    if options.table:
        options.table.write_text(table_of(verdicts))
    detected = sum(bool(v.found or v.reason) for v in verdicts)
    print(f"{detected} of {len(verdicts)} are found or have a reason: {detected / max(1, len(verdicts)):.0%}")
    return int(detected < 0.95 * len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
