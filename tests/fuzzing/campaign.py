# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives each entry random inputs for a while: each ends as a result or an error of ours, in bounded time and memory.

``python -m tests.fuzzing.campaign [--seconds N] [--only ENTRY] [--seed N] [--jobs N]`` prints a table: inputs tried,
accepted (read and verified), executed, and rules that refused others. Inputs run in children of this process, so that
one that ends its process is told as well. What failed, and the first input that each rule refused or each operation ran
on, is kept in ``.fuzz/ENTRY``; an input is its entry, seed and number, and comes again with ``--seed`` and ``--first``.
"""

import argparse
import gc
import io
import math
import os
import pickle
import random
import resource
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nki_mlir import input_limits
from nki_mlir.bindings import ir
from nki_mlir.cli.command import raised_at
from nki_mlir.cli.runnable import runnable
from nki_mlir.cli.source import read_module
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects import mlir_ops
from nki_mlir.graph import upstream
from nki_mlir.graph.custom_call import read_record
from nki_mlir.passes.pass_manager import run_passes
from nki_mlir.passes.pipelines import passes_to

from ..random_programs.comparing import results
from ..random_programs.test_random_kernels import beta_kernel, current_kernel
from ..random_programs.writer import Program
from . import inputs

KEPT = Path(".fuzz")
BATCH = 1000                        # inputs of one child, which imports and memoizes for all of them
WARM = 100                          # inputs that are drawn for what they leave in memory
FIRST = 20                          # of which those that run do so here, too, for what they import
SECONDS, BYTES = 60, 8 << 30        # of the processor for one input; of a child's addresses
ENDLESS = 20                        # seconds after which a kernel's loop counts as one without an end


@dataclass
class Outcome:
    """How far an input came: ``refused``, ``read``, ``executed`` or ``failed``, and the rule or reason."""

    stage: str
    rule: str = ""


@dataclass
class Tally:
    """What became of an entry's inputs."""

    stages: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        return self.stages.total()

    @property
    def accepted(self) -> int:
        return self.stages["read"] + self.stages["executed"]


# -- the entries -------------------------------------------------------------------------------------------------------
def of_file(suffix: str, on: str) -> Callable[[str | bytes, Path], str]:
    """A file that nki-run takes: read, verified, run."""
    def judge(content: str | bytes, folder: Path) -> str:
        file = folder / f"input{suffix}"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        one = runnable(str(file), [], {}, None, ())
        try:
            one.check()
            run_to_an_end(lambda: one.run(on), suffix != ".mlir" or "scf.while" in str(content))
        except NkiMlirError:
            return "read"
        return "executed"
    return judge


def of_passes(text: str, folder: Path) -> str:
    """A module is read, then lowered to instructions; several functions in one are no kernel that runs."""
    module = read_module(text, "input.mlir")
    try:
        with module.context, ir.Location.unknown():
            run_passes(module, passes_to("nisa", module))
    except NkiMlirError:
        return "read"
    return "executed"


def of_kernel(drawn: tuple[str, Program], folder: Path) -> str:
    generation, program = drawn
    kernel = (beta_kernel if generation == "beta" else current_kernel)(program)
    run_to_an_end(lambda: results(kernel, program, "interpreter"), "while_loop" in program.text)
    return "executed"


def run_to_an_end(run: Callable[[], object], loops: bool) -> None:
    """Run what damage may have left in a loop whose condition always holds: that one ends by the limit of time, which is
    an error of ours. ``loops``: whether there is a loop that may not end."""
    os.environ[input_limits.SECONDS.variable] = str(ENDLESS)
    try:
        with input_limits.limited_time():
            run()
    except input_limits.InputTime:
        if not loops:
            raise AssertionError(f"more than {ENDLESS} s without a loop that may have no end") from None
        raise


def of_config(config: str, folder: Path) -> str:
    read_record(config).modules  # noqa: B018
    return "executed"


ENTRIES: dict[str, tuple[Callable[[random.Random], object], Callable[..., str]]] = {
    "nki": (lambda rng: inputs.module("nki", rng), of_file(".mlir", "interpreter")),
    "nisa": (lambda rng: inputs.module("nisa", rng), of_file(".mlir", "interpreter")),
    "linalg": (lambda rng: inputs.from_tests("waist", rng), of_passes),
    "stablehlo": (lambda rng: inputs.from_tests("stablehlo", rng), of_passes),
    "assembly": (inputs.assembly, of_file(".nkiasm", "isa")),
    "binary": (inputs.binary, of_file(".nkibin", "isa")),
    "kernels": (inputs.kernel, of_kernel),
    "configs": (inputs.config, of_config),
}


def outcome(entry: str, drawn: object, folder: Path) -> Outcome:
    """What the entry says of an input. An exception that is not ours, and not the kernel's own, is a failure."""
    try:
        return Outcome(ENTRIES[entry][1](drawn, folder))
    except NkiMlirError as error:
        str(error)
        return Outcome("refused", f"{type(error).__name__} {error.code}")
    except MemoryError:
        return Outcome("refused", "MemoryError")
    except Exception as error:
        if isinstance(cause := error.__cause__, NkiMlirError):          # as Python's own kind of error
            return Outcome("refused", f"{type(cause).__name__} {cause.code}")
        if entry == "kernels" and raised_at(error) is not None:
            return Outcome("refused", f"the kernel's own {type(error).__name__}")
        return Outcome("failed", traceback.format_exc(limit=-6))


# -- children ----------------------------------------------------------------------------------------------------------
def batch(entry: str, seed: int, first: int, count: int, folder: Path, end: float = math.inf) -> list[Outcome]:
    """The outcomes of some inputs until a time, in a child; where that ends early, the last one is its failure."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.simplefilter("ignore")
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        # A context takes longer to make than most modules to read: those of a child share one of each kind.
        mlir_ops.new_context = cache(mlir_ops.new_context)              # type: ignore[misc]
        upstream.graph_context = cache(upstream.graph_context)          # type: ignore[misc]
        try:
            with os.fdopen(writing, "wb") as out:
                for number in range(first, first + count):
                    if time.monotonic() > end:
                        break
                    soft = int(time.process_time()) + SECONDS
                    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
                    pickle.dump(outcome(entry, drawn(entry, seed, number), folder), out)
                    out.flush()
                pickle.dump(None, out)                                  # all that there is time for
        finally:
            os._exit(0)
    os.close(writing)
    found: list[Outcome] = []
    through = False
    with os.fdopen(reading, "rb") as source:
        while not through:
            try:
                one = pickle.load(source)
            except (EOFError, pickle.UnpicklingError):
                break
            through = one is None
            found += [] if through else [one]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status or not through:
        found.append(Outcome("failed", f"the process ended with {status} (-24, -9: more than {SECONDS} s)"))
    return found


def drawn(entry: str, seed: int, number: int) -> object:
    return ENTRIES[entry][0](random.Random(f"{entry} {seed} {number}"))


def keep(entry: str, name: str, content: object) -> None:
    """Write an input down, unless one of its rule is there."""
    folder = KEPT / entry
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "".join(c if c.isalnum() else "_" for c in name)
    text = content[1].text if isinstance(content, tuple) else content
    if not file.exists():
        file.write_bytes(text if isinstance(text, bytes) else str(text).encode())


def campaign(entry: str, seed: int, seconds: float, first: int, folder: Path) -> Tally:
    tally, number = Tally(), first
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in range(WARM):                 # what all children need is computed before they are forked
        drawn(entry, seed, earlier)
    with redirect_stdout(io.StringIO()):        # of kernels that print; what ran in a child ends no process
        for earlier, one in enumerate(batch(entry, seed, 0, FIRST, folder)):
            if one.stage == "executed":
                outcome(entry, drawn(entry, seed, earlier), folder)
    end = time.monotonic() + seconds
    gc.collect()
    gc.freeze()                                 # and is theirs: their collector need not look at it
    while time.monotonic() < end:
        for one in batch(entry, seed, number, BATCH, folder, end):
            tally.stages[one.stage] += 1
            new = one.rule and one.rule not in tally.rules
            tally.rules[one.rule] += 1
            if one.stage == "failed":
                tally.failures.append(f"{entry}, seed {seed}, number {number}: {one.rule}")
                keep(entry, f"failed {number}", drawn(entry, seed, number))
            elif new:
                keep(entry, one.rule, drawn(entry, seed, number))
            number += 1
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzzing.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each entry")
    parser.add_argument("--only", choices=ENTRIES, action="append", help="an entry, repeated; all otherwise")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("NKI_MLIR_FUZZ_SEED", time.time())))
    parser.add_argument("--jobs", type=int, default=1, help="entries at the same time, each in a process and with a table")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    options = parser.parse_args()
    if options.jobs > 1:
        common = ["--seconds", str(options.seconds), "--seed", str(options.seed), "--first", str(options.first)]
        with ThreadPoolExecutor(options.jobs) as pool:
            return max(pool.map(lambda entry: subprocess.run(
                [sys.executable, "-m", "tests.fuzzing.campaign", "--only", entry, *common]).returncode,
                options.only or ENTRIES))
    table = Table("entry", "tried", "accepted", "executed", "rules", "failed", "a second of the processor",
                  title=f"seed {options.seed}")
    failures = []
    for entry in options.only or ENTRIES:
        started = resource.getrusage(resource.RUSAGE_CHILDREN)
        tally = campaign(entry, options.seed, options.seconds, options.first, KEPT / entry)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken = ended.ru_utime - started.ru_utime + ended.ru_stime - started.ru_stime
        share = tally.accepted / max(1, tally.tried)
        table.add_row(entry, f"{tally.tried:,}", f"{share:.0%}", f"{tally.stages['executed']:,}",
                      str(len(tally.rules)), str(len(tally.failures)), f"{tally.tried / max(taken, 0.01):.0f}")
        failures += tally.failures
        print(f"{entry}: {tally.tried} inputs", flush=True)
    Console().print(table)
    print(*failures, sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
