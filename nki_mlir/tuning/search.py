# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choose the next choices to try: all of a small space, else what optuna's tree-structured Parzen estimator proposes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.tuning.space import Choice, Space, grid_of, size_of

TOGETHER = 4                    # proposals for each worker in a batch
Judge = Callable[[Sequence[Choice]], Iterable["Attempt"]]


class NoSearch(NkiMlirError):
    code = "NKI-TUNE-EXTRA"
    message = "a space of {size:,} choices is searched with optuna, which is not installed"
    fix = "install nki_mlir[search], or give a space of at most {trials} choices"


class NothingRight(NkiMlirError):
    code = "NKI-TUNE-NONE"
    message = "none of {count} choices computes right results; the first: {reason}"
    fix = "make the kernel pass nki-score before you tune it"


@dataclass
class Attempt:
    """A choice with its outcome. ``seconds`` is infinite unless it is right."""

    choice: Choice
    seconds: float
    interval: tuple[float, float] = (math.inf, math.inf)
    reason: str = ""
    sbuf_peak_bytes: int = 0


@dataclass
class TuningResult:
    """The attempts of a search, in their order.

    Example:
        result = TuningResult([Attempt({"n": 1}, 3e-6), Attempt({"n": 2}, 2e-6), Attempt({"n": 3}, math.inf)])
        assert result.best == {"n": 2} and result.seconds == 2e-6 and result.speedup == 1.5
    """

    attempts: list[Attempt] = field(default_factory=list)

    def check(self) -> None:
        """Raise ``NothingRight`` if no attempt is right."""
        if all(math.isinf(a.seconds) for a in self.attempts):
            raise NothingRight(count=len(self.attempts),
                               reason=self.attempts[0].reason if self.attempts else "none").here()

    @property
    def fastest(self) -> Attempt:
        """The fastest right attempt, the first of equally fast ones. Raise ``NothingRight`` if there is none."""
        self.check()
        return min(self.attempts, key=lambda a: a.seconds)

    @property
    def best(self) -> Choice:
        """The choice of the fastest attempt."""
        return self.fastest.choice

    @property
    def seconds(self) -> float:
        """The time of the fastest attempt on the model."""
        return self.fastest.seconds

    @property
    def speedup(self) -> float:
        """The time of the first correct attempt divided by the time of the fastest one."""
        return next(a.seconds for a in self.attempts if not math.isinf(a.seconds)) / self.seconds

    def __str__(self) -> str:
        right = sum(not math.isinf(a.seconds) for a in self.attempts)
        low, high = (1e6 * t for t in self.fastest.interval)
        named = ", ".join(f"{name}={value}" for name, value in self.best.items())
        return (f"{named}: {1e6 * self.seconds:.1f} us on the model ({low:.1f}-{high:.1f}), {self.speedup:.2f} times "
                f"as fast as the first of {right} that are right, of {len(self.attempts)} tried")


def search(space: Space, judge: Judge, trials: int, seed: int = 0, together: int = 1) -> TuningResult:
    """Try at most ``trials`` choices of a space, each once. Equal seeds try the same choices. ``together`` choices are
    judged at a time."""
    result = TuningResult()
    if size_of(space) <= trials:
        for batch in batches(grid_of(space), together * TOGETHER):
            result.attempts += judge(batch)
        return result
    propose(space, judge, trials, seed, together, result)
    return result


def batches(choices: Iterator[Choice], size: int) -> Iterator[list[Choice]]:
    batch: list[Choice] = []
    for choice in choices:
        batch.append(choice)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def propose(space: Space, judge: Judge, trials: int, seed: int, together: int, result: TuningResult) -> None:
    """Let optuna propose choices. Repeated proposals get the known time."""
    try:
        import optuna  # start-up: an extra
    except ImportError:
        raise NoSearch(size=size_of(space), trials=trials) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(
        seed=seed % (1 << 32), n_startup_trials=max(5, trials // 6), constant_liar=together > 1)
    study = optuna.create_study(sampler=sampler)
    seconds_of: dict[str, float] = {}
    idle = 0
    while len(result.attempts) < trials and idle < 20:
        proposals: list[tuple[Any, Choice]] = []
        new: dict[str, Choice] = {}
        for _ in range(together):
            trial = study.ask()
            choice = {name: values[chosen(trial, name, values)] for name, values in space.items()}
            proposals.append((trial, choice))
            if repr(choice) not in seconds_of and len(result.attempts) + len(new) < trials:
                new.setdefault(repr(choice), choice)
        idle = 0 if new else idle + 1
        attempts = list(judge(list(new.values()))) if new else []
        result.attempts += attempts
        seconds_of |= {repr(a.choice): a.seconds for a in attempts}
        worst = max((s for s in seconds_of.values() if not math.isinf(s)), default=1.0)
        for trial, choice in proposals:
            seconds = seconds_of.get(repr(choice), math.inf)
            study.tell(trial, 10 * worst if math.isinf(seconds) else seconds)
    untried = (choice for choice in grid_of(space) if repr(choice) not in seconds_of)
    for batch in batches(untried, together):
        if len(result.attempts) + len(batch) > trials:
            return
        result.attempts += judge(batch)


def chosen(trial: Any, name: str, values: Sequence[object]) -> int:
    """Return the index of the proposed value: an ordered parameter if the values are sorted numbers, else a
    categorical one."""
    ordered = all(type(v) in (int, float) for v in values) and list(values) == sorted(values)       # type: ignore
    if ordered:
        return int(trial.suggest_int(name, 0, len(values) - 1))
    return int(trial.suggest_categorical(name, list(range(len(values)))))
