# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reference that candidates are compared with: a Python file with the inputs, the answer and the tolerance.

    def inputs(rng, rows, columns): return [rng.standard_normal((rows, columns)).astype("float32")]
    def reference(x): return x * 2
    CASES = [{"rows": 256, "columns": 512}]         # the first is timed
    HIDDEN = [{"rows": 200, "columns": 96}]         # of which a verdict tells no values
    TOLERANCE = {"relative_l2": 2e-5}               # also absolute and relative; integers are compared exactly
    ENTRY, TARGET, GRID, UPDATES, SEEDS, STRICT = "kernel", "trn2", (), (), 1, False

Only the two functions are required. ``forward`` and ``get_inputs`` are accepted as well, with the optional functions
``transform_to_nki_inputs`` and ``transform_nki_outputs``. Each case runs with ``SEEDS`` fixed seeds and a hidden seed,
a hash of the texts of the reference and of the candidate, which no author of one of them can predict.
"""

import hashlib
import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.capture.locations import raised_at
from nki_mlir.compat import install
from nki_mlir.diagnostics import Location
from nki_mlir.input_limits import TEXT_BYTES, InputTooLarge
from nki_mlir.language.arguments import map_leaves
from nki_mlir.language.kernel import is_array
from nki_mlir.language.lowered import Spec
from nki_mlir.scalar.dtypes import dtype_of
from nki_mlir.scoring.errors import BadReference

KEYS = {"absolute", "relative", "relative_l2"}
# Relative L2 error by dtype, if the reference defines no tolerance.
DEFAULTS = {"float64": 2e-5, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}
COARSE = 6e-2                   # for 8-bit floats

# A value in a reference: an array, a constant, or a container of these.
Value = Any
Names = dict[str, Value]
Function = Callable[..., Value]
Described = tuple[tuple[Value, ...], Names, tuple[int, ...]]     # arguments by position and name, launch grid


class Trial(NamedTuple):
    """A case with a seed: arguments by position and name, and the expected outputs. ``label`` does not contain the
    seed."""

    label: str
    hidden: bool
    positional: tuple[Value, ...]
    keywords: Names
    expected: list[np.ndarray]
    grid: tuple[int, ...]


@dataclass
class Reference:
    """A loaded reference with all of its trials, the first of which is timed."""

    file: str
    digest: str
    trials: list[Trial]
    tolerance: dict[str, float]
    entry: str
    target: str
    updates: tuple[str, ...]
    strict: bool
    transform: Callable[[Value, Value], Value] | None
    draw: Callable[[int], "Iterator[Trial]"] | None = None      # computes the trials with another hidden seed

    def for_candidate(self, text: str) -> "Reference":
        """Return the reference with new hidden seeds for a candidate. Raise ``BadReference``."""
        if self.draw is None:
            return self
        salt = hashlib.sha256(f"{self.digest}\n{text}".encode(errors="replace")).hexdigest()
        return replace(self, trials=trials_from(self.file, self.draw, salt))


def trials_from(file: str, draw: "Callable[[int], Iterator[Trial]]", digest: str) -> "list[Trial]":
    """Return all trials, with hidden seeds from a digest. Raise ``BadReference``."""
    try:
        return list(draw(int(digest[:12], 16)))
    except BadReference:
        raise
    except Exception as error:
        raise raised(file, "does not run", error) from error


def bad(file: str, description: str, fix: str = "correct the reference", line: int = 0, column: int = 0
        ) -> BadReference:
    """Return the error of a reference at a line of its file, by default at the file as a whole."""
    error = BadReference(what=description, fix=fix)
    error.at = Location(file, line, column)
    return error


def raised(file: str, action: str, error: Exception) -> BadReference:
    """Return the error of a reference whose code has raised an exception, at the line that raised it."""
    at = Location(file, 1, 0)
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
        at = Location(error.filename, error.lineno, max(0, (error.offset or 1) - 1))
    elif (line := raised_at(error.__traceback__)) is not None:
        at = line
    failed = BadReference(what=f"{action}: {type(error).__name__}: {error}", fix="correct the reference")
    failed.at = at._replace(file=file) if os.path.abspath(at.file) == os.path.abspath(file) else at
    return failed


def line_of(text: bytes, name: str) -> int:
    """Return the first line of a reference that assigns a name, or 1."""
    lines = text.decode(errors="replace").split("\n")
    return next((k for k, line in enumerate(lines, 1) if re.match(rf"{name}\s*[:=]", line)), 1)


def load_reference(path: str | Path, changes: Names | None = None) -> Reference:
    """Run the file of a reference and return the reference. ``changes`` replaces values of its names. Raise
    ``BadReference``."""
    file, path = str(path), Path(path)
    try:
        text = TEXT_BYTES.read(path)
    except OSError as error:
        raise bad(file, f"cannot be read: {error.strerror}", "name a file that exists") from None
    except InputTooLarge as error:
        raise bad(file, f"is too large: {error.headline}", error.advice[1], 1) from None
    names = run(path, file) | (changes or {})
    digest = hashlib.sha256(text).hexdigest()
    answer = names.get("reference") or names.get("forward")
    make = names.get("inputs") or (from_global_generator(names) if "get_inputs" in names else None)
    if not callable(answer) or not callable(make):
        raise bad(file, "has no functions inputs(rng, ...) and reference(...)", "define both", 1)
    tolerance = names.get("TOLERANCE") or {}
    if wrong := mistake_of(tolerance):
        mistake, fix = wrong
        raise bad(file, f"is not understood: its TOLERANCE {mistake}", fix, line_of(text, "TOLERANCE"))
    transform = names.get("transform_nki_outputs")
    memo: dict[tuple[int, int], Trial] = {}
    draw: Callable[[int], Iterator[Trial]] = lambda salt: trials_of(names, make, answer, salt, memo)
    trials = trials_from(file, draw, digest)
    updates = tuple(map(str, names.get("UPDATES", ())))
    return Reference(file, digest, trials, tolerance, str(names.get("ENTRY", "")), str(names.get("TARGET", "")),
                     updates, bool(names.get("STRICT", False)), transform if callable(transform) else None,
                     draw)


def run(path: Path, file: str) -> Names:
    """Run the file with its directory on the path, and return the names that it defines."""
    install(executables=False)
    spec = importlib.util.spec_from_file_location("nki_score_reference", path)
    if spec is None or spec.loader is None:
        raise bad(file, "is not a Python file", "give a file that ends in .py", 1)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise raised(file, "cannot be imported", error) from error
    finally:
        sys.path.pop(0)
    return vars(module)


def from_global_generator(names: Names) -> Function:
    """Wrap ``get_inputs``, which draws from NumPy's global generator, as a function of a generator."""
    def make(rng: np.random.Generator, **case: object) -> Value:
        np.random.seed(int(rng.integers(1 << 31)))
        return names["get_inputs"](**case)
    return make


def trials_of(names: Names, make: Function, answer: Function, salt: int, memo: dict[tuple[int, int], Trial]
              ) -> Iterator[Trial]:
    """Yield the trials of each case, public cases first. Hidden seeds derive from ``salt``; ``memo`` keeps trials
    with fixed seeds."""
    cases, hidden = list(names.get("CASES", [{}])), list(names.get("HIDDEN", []))
    for number, case in enumerate([*cases, *hidden]):
        is_hidden = number >= len(cases)
        label = ", ".join(f"{k}={v}" for k, v in case.items()) or "the case"
        if is_hidden:
            label = f"hidden case {number - len(cases) + 1}"
        shown = 0 if is_hidden else int(names.get("SEEDS", 1))
        for seed in range(shown):
            if (number, seed) not in memo:
                memo[number, seed] = trial_of(names, make, answer, case, seed, label)
            yield memo[number, seed]
        yield trial_of(names, make, answer, case, salt + number, label if is_hidden else f"{label}, with a hidden seed",
                       True)


def trial_of(names: Names, make: Function, answer: Function, case: Names, seed: int, label: str, hidden: bool = False
             ) -> Trial:
    """Generate the inputs of a case from a seed, and compute the expected outputs."""
    convert, grid = names.get("transform_to_nki_inputs"), names.get("GRID", ())
    values = make(np.random.default_rng(seed), **case)
    keywords = dict(values) if isinstance(values, dict) else {}
    positional = () if isinstance(values, dict) else tuple(values) if isinstance(values, (tuple, list)) else (values,)
    expected = answer(*map(copied, positional), **{k: copied(v) for k, v in keywords.items()})
    if convert is not None and not keywords:
        converted = convert(list(positional))
        positional = tuple(converted) if isinstance(converted, (tuple, list)) else (converted,)
    launch = grid(**case) if callable(grid) else grid
    return Trial(label, hidden, positional, keywords, flat(expected),
                 tuple(launch) if isinstance(launch, (tuple, list)) else (int(launch),))


def copied(value: Value) -> Value:
    return value.copy() if isinstance(value, np.ndarray) else value


def flat(value: Value) -> list[np.ndarray]:
    """Return the arrays of a result, in order."""
    if isinstance(value, dict):
        return flat(list(value.values()))
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in flat(item)]
    return [np.asarray(value)]


def mistake_of(tolerance: object) -> tuple[str, str] | None:
    """Return what is wrong with a tolerance, and the fix: an unknown name would accept all values, as NaN would."""
    if not isinstance(tolerance, Mapping):
        return "is no dict", f"use {', '.join(sorted(KEYS))}"
    if unknown := tolerance.keys() - KEYS:
        return f"has {', '.join(sorted(map(str, unknown)))}", f"use {', '.join(sorted(KEYS))}"
    for name, value in tolerance.items():
        if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            return f"has {value!r:.40} as {name}", "give a finite number that is not negative"
    return None


# -- comparing ---------------------------------------------------------------------------------------------------------
def difference(expected: np.ndarray, actual: np.ndarray, tolerance: dict[str, float]) -> str:
    """Describe how an output differs from the expected one by more than the tolerance. Return "" if it does not.

    Both have the same shape. Infinities and NaNs must be where they are expected.
    """
    if not expected.size:
        return ""
    if not dtype_of(actual.dtype).is_float:
        wrong = np.asarray(actual) != np.asarray(expected)
        return at_first(wrong, expected, actual)
    if expected.dtype == actual.dtype and np.array_equal(expected, actual):
        return ""
    want, have = (np.asarray(a).astype(np.float64) for a in (expected, actual))
    equal = (want == have) | (np.isnan(want) & np.isnan(have))
    odd = ~(np.isfinite(want) & np.isfinite(have)) & ~equal
    if odd.any():
        return at_first(odd, expected, actual)
    error = np.where(equal, 0.0, np.abs(np.where(equal, 0.0, want) - np.where(equal, 0.0, have)))
    if not tolerance:
        tolerance = {"relative_l2": DEFAULTS.get(str(actual.dtype), COARSE)}
    if "relative_l2" in tolerance:
        size = float(np.sqrt(np.square(np.where(np.isfinite(want), want, 0.0)).sum()))
        ratio = float(np.sqrt(np.square(error).sum())) / size if size else float(error.max() > 0)
        if ratio > tolerance["relative_l2"]:
            allowed_ratio = tolerance["relative_l2"]
            over = error > allowed_ratio * size / error.size ** 0.5
            return (f"relative L2 error {ratio:.3g}, allowed {allowed_ratio:.3g}; the largest error: "
                    f"{at_first(error == error.max(), expected, actual, int(over.sum()))}")
    if "absolute" in tolerance or "relative" in tolerance:
        allowed = tolerance.get("absolute", 0.0) + tolerance.get("relative", 0.0) * np.abs(want)
        over = error > allowed
        if over.any():
            return at_first(over, expected, actual)
    return ""


def at_first(wrong: np.ndarray, expected: np.ndarray, actual: np.ndarray, count: int | None = None) -> str:
    """Describe the first wrong element; return "" if there is none. ``count`` is the number of all elements that are
    wrong, by default those that ``wrong`` marks."""
    if not wrong.any():
        return ""
    first = tuple(int(k) for k in np.argwhere(wrong)[0])
    return (f"element {list(first)} is {actual[first]}, expected {expected[first]} "
            f"({int(wrong.sum()) if count is None else count} of {wrong.size} elements)")


def tensors_of(trial: Trial) -> list[np.ndarray]:
    """Return the arrays of a trial, including those in tuples, lists and dicts, in the order of the arguments."""
    arrays: list[np.ndarray] = []
    map_leaves((trial.positional, trial.keywords), is_array, arrays.append)
    return arrays


def described(trial: Trial) -> Described:
    """Return the trial's arguments with a shape and dtype in place of each array, for the candidate's process."""
    change: Callable[[np.ndarray], Spec] = lambda array: Spec(array.shape, array.dtype)
    return (map_leaves(trial.positional, is_array, change), map_leaves(trial.keywords, is_array, change), trial.grid)


def signatures(trials: Sequence[Trial]) -> list[int]:
    """Return for each trial the number of the first trial with the same signature: a kernel is captured once for each
    of these."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(repr(described(t)), k) for k, t in enumerate(trials)]
