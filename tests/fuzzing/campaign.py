# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run random inputs of each entry for a while: each ends as a result or an error of the toolchain, in bounded time and
memory.

``python -m tests.fuzzing.campaign [--seconds N] [--inputs N] [--only ENTRY] [--seed N] [--jobs N]`` prints a table:
inputs tried, accepted (read and verified), executed, and rules that rejected others. Inputs run in child processes of
the workers, so the campaign also reports one that ends its process. ``.fuzz/ENTRY`` keeps the inputs that failed, and
the first input that each rule rejected; an input is an entry, a seed and a number, and ``--seed`` and ``--first``
repeat it. ``--counts FILE`` writes the counts after each batch; the next run with the file continues after the inputs
of the last.
"""

import argparse
import gc
import io
import json
import math
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from unittest.mock import patch

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
BATCH = 500                         # inputs of one child, which imports and memoizes for all of them
POOLED = 10_000                     # inputs that are drawn from the same random programs
OF_ONE = 4                          # kernels of one random program; `make fuzz` runs those without a change elsewhere
COLLECTED = 250                     # inputs after which a child looks for cycles of objects, which takes up to 0.4 s
WARM = 100                          # inputs that are drawn for what they leave in memory
FIRST = 20                          # inputs of an entry that run for what they import
SECONDS, BYTES = 60, 8 << 30        # of the processor for one input; of a child's addresses
ENDLESS = 20                        # seconds after which a kernel's loop counts as one without an end


@dataclass
class Outcome:
    """The outcome of an input: ``refused``, ``read``, ``executed`` or ``failed``, and the rule or reason."""

    stage: str
    rule: str = ""


@dataclass
class Tally:
    """The counts of the outcomes of an entry's inputs."""

    stages: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0                          # of the processor
    following: int = 0                          # the number of the first input after those judged

    @property
    def tried(self) -> int:
        return self.stages.total()

    @property
    def accepted(self) -> int:
        return self.stages["read"] + self.stages["executed"]


# -- the entries -------------------------------------------------------------------------------------------------------
def of_file(suffix: str, on: str) -> Callable[[str | bytes, Path], str]:
    """Return a function that reads, verifies and runs a file as nki-run does."""
    def judge(content: str | bytes, folder: Path) -> str:
        file = folder / f"input{suffix}"
        file.unlink(missing_ok=True)            # some file systems write what is there to the disk before they replace it
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
    """Read a module and lower it to instructions; a module of several functions is no kernel, and is read only."""
    module = read_module(text, "input.mlir")
    try:
        with module.context, ir.Location.unknown():
            run_passes(module, passes_to("nisa", module))
    except NkiMlirError:
        return "read"
    return "executed"


def of_kernel(drawn: tuple[str, Program], folder: Path) -> str:
    """Run a kernel; most of the current generation for the target that has all of its instructions."""
    generation, program = drawn
    default = generation == "beta" or len(program.text) % 8 == 0
    with patch.dict(os.environ, {} if default else {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"}):
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


ENTRIES: dict[str, tuple[Callable[..., object], Callable[..., str]]] = {
    "nki": (inputs.nki_module, of_file(".mlir", "interpreter")),
    "nisa": (lambda rng, pool: inputs.module("nisa", rng), of_file(".mlir", "interpreter")),
    "linalg": (inputs.waist_module, of_passes),
    "stablehlo": (lambda rng, pool: inputs.from_tests("stablehlo", rng), of_passes),
    "assembly": (inputs.assembly, of_file(".nkiasm", "isa")),
    "binary": (inputs.binary, of_file(".nkibin", "isa")),
    "kernels": (inputs.kernel, of_kernel),
    "configs": (lambda rng, pool: inputs.config(rng), of_config),
}


def outcome(entry: str, drawn: object, folder: Path) -> Outcome:
    """Judge an input. An exception is a failure if it is neither the toolchain's nor raised by the kernel itself."""
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
    """Return the outcomes of inputs that a child judges until a time; if it dies, its last input is a failure."""
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
        share_contexts()
        gc.disable()
        try:
            with os.fdopen(writing, "wb") as out:
                for number in range(first, first + count):
                    if time.time() > end:
                        break
                    if number % COLLECTED == 0:
                        gc.collect()
                    soft = int(time.process_time()) + SECONDS
                    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
                    pickle.dump(outcome(entry, drawn(entry, seed, number), folder), out)
                    out.flush()
                pickle.dump(None, out)                                  # all that there is time for
        finally:
            os._exit(0)
    os.close(writing)
    outcomes: list[Outcome] = []
    through = False
    with os.fdopen(reading, "rb") as source:
        while not through:
            try:
                one = pickle.load(source)
            except (EOFError, pickle.UnpicklingError):
                break
            through = one is None
            outcomes += [] if through else [one]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status or not through:
        outcomes.append(Outcome("failed", f"the process ended with {status} (-24, -9: more than {SECONDS} s)"))
    return outcomes


def drawn(entry: str, seed: int, number: int) -> object:
    """Return an input. ``OF_ONE`` neighboring kernels are one program, as it was written and with one change each."""
    if entry == "kernels":
        return inputs.kernel(f"{entry} {seed} {number // OF_ONE}", number % OF_ONE)
    return ENTRIES[entry][0](random.Random(f"{entry} {seed} {number}"), seed % 10_000 * 1_000 + number // POOLED)


def keep(entry: str, name: str, content: object) -> None:
    """Write an input to a file, unless the folder has one of the same rule."""
    folder = KEPT / entry
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "".join(c if c.isalnum() else "_" for c in name)
    text = content[1].text if isinstance(content, tuple) else content
    if not file.exists():
        file.write_bytes(text if isinstance(text, bytes) else str(text).encode())


@cache
def share_contexts() -> None:
    """Let all inputs of a process share one MLIR context of each kind: most modules take less time to read than a
    context to make. Without threads, which a fork does not copy."""
    def shared(make: Callable[..., ir.Context]) -> Callable[..., ir.Context]:
        @cache
        def context(*arguments: object) -> ir.Context:
            new = make(*arguments)
            new.enable_multithreading(False)
            return new
        return context
    mlir_ops.new_context = shared(mlir_ops.new_context)
    upstream.graph_context = shared(upstream.graph_context)


@cache
def warmed(entry: str, seed: int, start: int, folder: Path) -> None:
    """Compute in this process what all inputs of an entry from a number on need, before children are forked from it."""
    import_all(entry, seed, folder)
    for number in range(start, start + WARM):
        drawn(entry, seed, number)
    gc.collect()
    gc.freeze()                                 # the children's collector need not look at it


@cache
def import_all(entry: str, seed: int, folder: Path) -> None:
    """Import in this process what inputs of an entry need, by running some that did not end a child."""
    share_contexts()
    for number, one in enumerate(batch(entry, seed, 0, FIRST, folder)):
        if one.stage == "executed":
            outcome(entry, drawn(entry, seed, number), folder)


def measured(entry: str, seed: int, first: int, count: int, end: float) -> tuple[list[Outcome], float]:
    """Return the outcomes of some inputs, and the processor's seconds that they took."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():         # of kernels that print
        warnings.simplefilter("ignore")
        folder = KEPT / entry / str(os.getpid())
        folder.mkdir(parents=True, exist_ok=True)
        warmed(entry, seed, first - first % POOLED, folder)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        outcomes = batch(entry, seed, first, count, folder, end)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(folder, ignore_errors=True)
    return outcomes, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def count(entry: str, seed: int, first: int, outcomes: list[Outcome], tally: Tally) -> None:
    """Add the outcomes of the inputs from a number on to an entry's tally, and keep what is new."""
    for number, one in enumerate(outcomes, first):
        tally.stages[one.stage] += 1
        if one.stage == "failed":
            tally.failures.append(f"{entry}, seed {seed}, number {number}: {one.rule}")
            keep(entry, f"failed {number}", drawn(entry, seed, number))
        elif one.stage == "refused":
            if one.rule not in tally.rules:
                keep(entry, one.rule, drawn(entry, seed, number))
            tally.rules[one.rule] += 1


@dataclass
class Counts:
    """The tallies of all entries and the seed of their inputs, kept in a file (None: in memory alone)."""

    seed: int
    tallies: dict[str, Tally]
    file: Path | None = None

    @classmethod
    def read(cls, file: Path, seed: int | None) -> "Counts | None":
        """Return what the file says, or None if there is none. A seed is an error if the file's is another."""
        if not file.exists():
            return None
        written = json.loads(file.read_text())
        if seed not in (None, written["seed"]):
            raise SystemExit(f"{file} counts inputs of seed {written['seed']}, not {seed}")
        tallies = {entry: Tally(**tally) for entry, tally in written["tallies"].items()}
        for tally in tallies.values():
            tally.stages, tally.rules = Counter(tally.stages), Counter(tally.rules)
        return cls(written["seed"], tallies, file)

    def write(self) -> None:
        """Replace the file in one step: a run that is ended leaves all batches before."""
        if self.file is not None:
            new = self.file.with_name(self.file.name + ".new")
            new.write_text(json.dumps({"seed": self.seed, "tallies": {entry: vars(tally) for entry, tally
                                                                      in self.tallies.items()}}, indent=1))
            new.replace(self.file)


def campaign(entries: list[str], counts: Counts, inputs: int, seconds: float, jobs: int) -> None:
    """Judge inputs in batches, after those that are counted, until each entry has its number or the time is over.

    The next batch is of the entry with the fewest inputs: all have about as many, however long one of them takes.
    """
    end = time.time() + seconds
    tallies, seed = counts.tallies, counts.seed
    following = {entry: tallies[entry].following for entry in entries}
    running: dict[Future[tuple[list[Outcome], float]], tuple[str, int]] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        while True:
            while len(running) < jobs and time.time() < end:
                entry = min(entries, key=following.__getitem__)
                size = min(BATCH, inputs - following[entry])
                if size <= 0:
                    break
                task = pool.submit(measured, entry, seed, following[entry], size, end)
                running[task] = entry, following[entry]
                following[entry] += size
            if not running:
                return
            for task in wait(running, return_when=FIRST_COMPLETED).done:
                entry, number = running.pop(task)
                outcomes, taken = task.result()
                count(entry, seed, number, outcomes, tallies[entry])
                tallies[entry].seconds += taken
                tallies[entry].following = max(tallies[entry].following, number + len(outcomes))
                counts.write()


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for, with imports and drawing."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (resource.RUSAGE_SELF,
                                                                                  resource.RUSAGE_CHILDREN)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzzing.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="for all entries")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of each entry in all runs, if there is time")
    parser.add_argument("--only", choices=ENTRIES, action="append", help="an entry, repeated; all otherwise")
    parser.add_argument("--seed", type=int, help="by default NKI_MLIR_FUZZ_SEED, or the time")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with the next batch of inputs")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="where the counts of several runs add up")
    options = parser.parse_args()
    counts = options.counts and Counts.read(options.counts, options.seed)
    if counts is None:
        seed = int(os.environ.get("NKI_MLIR_FUZZ_SEED", time.time())) if options.seed is None else options.seed
        counts = Counts(seed, {entry: Tally(following=options.first) for entry in ENTRIES}, options.counts)
    campaign(options.only or list(ENTRIES), counts, options.first + options.inputs, options.seconds, options.jobs)
    tallies = {entry: tally for entry, tally in counts.tallies.items() if tally.tried}
    table = Table("entry", "tried", "accepted", "executed", "rules", "failed", "a second of the processor",
                  title=f"seed {counts.seed}")
    for entry, tally in tallies.items():
        table.add_row(entry, f"{tally.tried:,}", f"{tally.accepted / max(1, tally.tried):.0%}",
                      f"{tally.stages['executed']:,}", str(len(tally.rules)), str(len(tally.failures)),
                      f"{tally.tried / max(tally.seconds, 0.01):.0f}")
    failures = [failure for tally in tallies.values() for failure in tally.failures]
    Console().print(table)
    print(*failures, sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
