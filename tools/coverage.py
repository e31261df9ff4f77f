# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write ``docs/coverage.md``: every documented name of both generations, its operations, and its executors.

For each name, the example of its ``help()``, or a kernel of ``coverage_kernels.py``, runs on every executor. An
executor supports the name if its results equal those of the eager executor. ``--check`` writes nothing and exits with
status 1 if the file differs.
"""

import argparse
import contextlib
import importlib
import inspect
import io
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import coverage_kernels
import numpy as np

from nki_mlir.capture.mlir_builder import MlirBuilder
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.language.signatures.table import BETA, CURRENT, GONE, RELEASES, histories, releases_with, spans
from tests.language import surface_beta
from tests.language.example_kernels import example_of
from tests.language_current import test_names as current

PAGE = Path(__file__).resolve().parent.parent / "docs" / "coverage.md"
EXECUTORS = {"interpreter": "interpreter", "jit": "JIT", "isa": "ISA"}
TOLERANCE = 1e-4                    # relative: executors add in different orders, NumPy's functions vary by host


@dataclass
class Outcome:
    """The outcome of a name's kernel: operations of the module, the executors that agree, messages of the others."""

    operations: list[str] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)


@contextlib.contextmanager
def watching(module: Any, name: str) -> Iterator[list[str]]:
    """Record the operations that a function of the module emits. Something must call it in the meantime."""
    function, emitted, depth, calls = getattr(module, name), [], 0, 0
    emit = MlirBuilder.emit

    def record(builder: Any, cls: Any, *arguments: Any, **keywords: Any) -> Any:
        if depth:
            emitted.append(cls.full_name())
        return emit(builder, cls, *arguments, **keywords)

    def call(*arguments: Any, **keywords: Any) -> Any:
        nonlocal depth, calls
        depth, calls = depth + 1, calls + 1
        try:
            return function(*arguments, **keywords)
        finally:
            depth -= 1
    watched = inspect.isfunction(function)
    call.__dict__.update(getattr(function, "__dict__", {}))
    MlirBuilder.emit = record                                   # type: ignore[method-assign]
    if watched:
        setattr(module, name, call)
    try:
        yield emitted
        assert calls or not watched, f"the kernel for {name} does not call it"
    finally:
        MlirBuilder.emit = emit                                 # type: ignore[method-assign]
        setattr(module, name, function)


def operations(module: Any, name: str, sample: Any) -> list[str]:
    """Return the distinct operations of a name, in the order of their emission."""
    with watching(module, name) as emitted:
        kernel = sample.kernel()
        spec = kernel.specialize(kernel.bind(sample.arrays, {}, is_array, describe_array))
    if name.endswith(("range", "loop", "scalar")):          # other operations that it emits belong to the body
        emitted = re.findall(r"\bscf\.(?:for|while)\b", "\n".join(map(str, spec.modules)))[:1] or emitted
    return list(dict.fromkeys(emitted))


def flat(result: Any) -> list[np.ndarray]:
    """Return the arrays of nested results."""
    if isinstance(result, dict):
        result = list(result.values())
    return [result] if isinstance(result, np.ndarray) else [a for r in result for a in flat(r)]


def agree(actual: Any, expected: Any) -> bool:
    pairs = list(zip(flat(actual), flat(expected), strict=True))
    return all(g.shape == e.shape and g.dtype == e.dtype and np.allclose(
        g.astype(np.float64), e.astype(np.float64), rtol=TOLERANCE, atol=1e-6, equal_nan=True) for g, e in pairs)


def run(sample: Any, on: str) -> tuple[Any, list[str]]:
    """Return the results on an executor, and its warnings that another executor ran."""
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        result = sample.run(on)
    return result, [str(w.message) for w in caught if "runs in the" in str(w.message)]


def look(module: Any, name: str, sample: Any) -> Outcome:
    entry = Outcome()
    if sample is None:
        return entry
    expected, _ = run(sample, "eager")
    if sample.simulated:
        entry.runs = dict.fromkeys(EXECUTORS, "simulator")
        entry.limits.append(sample.simulated)
        return entry
    for on in EXECUTORS:
        try:
            result, elsewhere = run(sample, on)
        except Exception as error:
            entry.runs[on], text = "no", getattr(error, "headline", str(error))
            entry.limits.append(f"{EXECUTORS[on]}: {text}")
            continue
        entry.runs[on] = "yes" if agree(result, expected) else "differs"
        if elsewhere:
            entry.runs[on] = "simulator" if "simulator" in elsewhere[0] else "interpreter"
            entry.limits.append(re.sub(r"^the kernel ", "", elsewhere[0]))
    if "simulator" not in entry.runs.values():
        entry.operations = operations(module, name, sample)
    return entry


# -- the page ----------------------------------------------------------------------------------------------------------
SAME = ("2.24", "2.26.1", "2.31.1")         # releases that change no signature
PREFIX = {"nki": "nki", "language": "nl", "isa": "nisa", "compiler": "ncc", "typing": "nt",
          "collectives": "nki.collectives"}


HISTORY = {"nki": "nki", "nl": "nki.language", "nisa": "nki.isa", "ncc": "nki.compiler", "nt": "nki.typing",
           "nki.collectives": "nki.collectives"}
Section = tuple[list[str], list[Outcome]]         # lines of the page, and what they say


def section(prefix: str, names: Sequence[str], table: dict[str, Any], module: Any) -> Section:
    lines = [f"### `{prefix}`", "", "| name | becomes | interpreter | JIT | ISA | limits | releases |",
             "|---|---|---|---|---|---|---|"]
    entries = []
    for name in names:
        entry = look(module, name, table[name])
        entries.append(entry)
        becomes = ", ".join(f"`{o}`" for o in entry.operations) or "-"
        states = " | ".join(entry.runs[on] for on in EXECUTORS)
        limits = "; ".join(dict.fromkeys(entry.limits)).replace("|", "\\|").replace("\n", " ")
        releases = spans(releases_with(f"{HISTORY[prefix]}.{name}")) or "-"
        lines.append(f"| `{prefix}.{name}` | {becomes} | {states} | {limits} | {releases} |")
    return [*lines, ""], entries


def generation(title: str, name: str, modules: dict[str, list[str]], kernels: dict[str, dict], every: int) -> Section:
    """Return the tables of a generation: of each module's names, or of one in ``every`` of them. ``kernels`` are those
    of names without an example."""
    lines, entries = [f"## {title}", ""], []
    for key, names in modules.items():
        module = importlib.import_module(f"nki_mlir.language.{name}.{key}")
        samples = kernels.get(key) or {n: example_of(f"nki.{key}", n, name) for n in names}
        part, part_entries = section(PREFIX[key], names[::every], samples, module)
        lines += part
        entries += part_entries
    return lines, entries


def counts(title: str, entries: list[Outcome]) -> str:
    share = [sum(f.runs[on] == "yes" for f in entries) for on in EXECUTORS]
    return f"| {title} | {len(entries)} | " + " | ".join(f"{n} ({100 * n / len(entries):.0f} %)" for n in share) + " |"


HEAD = """# Coverage

This page lists every documented name of both generations, and the executors that support it. `tools/coverage.py` (`make
docs`) writes it: it runs the example of each name on every executor.

*Becomes* has the operations that the function emits during the capture; `-` marks a name that emits none. *yes*: the
executor computes the results of the eager executor. *simulator*, *interpreter*: the executor passes the kernel to that
one. *no*: the executor refuses the kernel, with the text under *limits*. *Releases* are those whose documents have the
name (2.20 to 2.26.1 in `neuronxcc.nki`, from 2.27 on in `nki`); `-` marks a name that public code uses and no document
has. Both packages accept every form of every release; the last table has all names of all releases. Tests of
`tests/language` and `tests/language_current` check signatures, and values against NumPy.

| generation | names | interpreter | JIT | ISA |
|---|---|---|---|---|"""


def page(every: int = 1) -> str:
    kernels = coverage_kernels
    beta_lines, beta_found = generation(
        "Beta generation (`neuronxcc.nki`)", BETA, {m: list(names) for m, names in surface_beta.MODULES.items()},
        {"nki": kernels.BETA_NKI, "compiler": kernels.COMPILER, "typing": kernels.TYPING},
        every)
    names = {"nki": [*kernels.NKI], "language": [*current.LANGUAGE, *current.OTHER_LANGUAGE.split()],
             "isa": [*current.ISA, *current.OTHER_ISA.split()], "collectives": ["ReplicaGroup", *current.COLLECTIVES]}
    current_lines, current_found = generation("Current generation (`nki`)", CURRENT, names, {"nki": kernels.NKI}, every)
    return "\n".join([HEAD, counts("beta", beta_found), counts("current", current_found), "", *beta_lines,
                      *current_lines, *by_release()]).rstrip() + "\n"


MARKS = {GONE: "", "token": "op"}       # a release without the name; one with an operator of the name


def by_release() -> list[str]:
    """Return the table of all names with a column for each release: the number of its signature, counted from the
    first."""
    columns = [r for r in RELEASES if r not in SAME]
    lines = ["## Names by release", "", "*1*, *2* ...: the name's first, second ... form; *op*: a value for `op=` "
             f"only; empty: not there. Releases {', '.join(SAME)} change no signature.", "",
             "| name | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for name, entries in sorted(histories().items()):
        texts, forms, state, cells = dict(entries), [], GONE, []   # type: ignore[var-annotated]
        for release in RELEASES:
            state = texts.get(release, state)
            if state not in MARKS and state not in forms:
                forms.append(state)
            if release in columns:
                cells.append(MARKS.get(state) if state in MARKS else str(forms.index(state) + 1))
        lines.append(f"| `{name}` | " + " | ".join(map(str, cells)) + " |")
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/coverage.md from kernels that run.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with status 1 if the page differs")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="check each N-th name of a module alone (1)")
    parser.add_argument("--output", type=Path, default=PAGE, metavar="FILE", help="the page (docs/coverage.md)")
    options = parser.parse_args()
    if options.every > 1 and not options.check:
        parser.error("--every needs --check: the page has all names")
    warnings.simplefilter("ignore")             # older forms cause warnings
    text, old = page(options.every), options.output.read_text() if options.output.is_file() else ""
    is_unchanged = old == text
    if options.check:
        if options.every > 1:
            is_unchanged = {line for line in text.splitlines() if line.startswith("| `")} <= {*old.splitlines()}
        if not is_unchanged:
            print(f"{options.output} differs from what the kernels show. fix: make docs", file=sys.stderr)
        return 0 if is_unchanged else 1
    if not is_unchanged:
        options.output.write_text(text)
        print(f"wrote {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
