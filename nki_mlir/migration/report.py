# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records the changes by line, with the reason, and the lines that are left for a person."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, order=True)
class Entry:
    """A change of a line of the old text or, with ``left``, a line that the tool could not change."""

    line: int
    text: str
    left: bool = False


@dataclass
class MigrationReport:
    """The changes of a migration in one file, and the lines that it leaves to a person."""

    file: str
    entries: list[Entry] = field(default_factory=list)
    muted: int = 0
    attempts: list[list[Entry]] = field(default_factory=list)       # the entries of each attempt that has not ended

    @contextmanager
    def attempt(self, abandoning: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Attempt a rewriting: an exception of these types removes its entries. Those of attempts within it that have
        ended well stay: nobody repeats them."""
        self.attempts.append([])
        try:
            yield
        except abandoning:
            self.entries = [e for e in self.entries if e not in self.attempts[-1]]
            raise
        finally:
            self.attempts.pop()

    def changed(self, line: int, text: str) -> None:
        """Record a change."""
        self._add(Entry(line, text))

    def add_manual(self, line: int, text: str) -> None:
        """Record a line that a person must rewrite."""
        self._add(Entry(line, text, True))

    def remove_changes(self, line: int, ending: str = "") -> None:
        """Remove the changes of a line that stays as it is; with ``ending``, those whose text ends so."""
        if not self.muted:
            self.entries = [e for e in self.entries if e.left or e.line != line or not e.text.endswith(ending)]

    def rename(self, names: Mapping[str, str]) -> None:
        """Give variables of the new text their new names in the entries of the attempt."""
        if not names or self.muted:
            return
        pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
        renamed = {e: replace(e, text=pattern.sub(lambda match: names[match.group()], e.text))
                   for e in (self.attempts[-1] if self.attempts else ())}
        for entries in (self.entries, *self.attempts):
            entries[:] = dict.fromkeys(renamed.get(e, e) for e in entries)

    def _add(self, entry: Entry) -> None:
        if self.muted:
            return
        if entry not in self.entries:
            self.entries.append(entry)
            for owner in self.attempts[-1:]:
                owner.append(entry)
        else:
            for outer in self.attempts[:-1]:            # an outer attempt that ends badly must not remove it
                outer[:] = [e for e in outer if e != entry]

    @property
    def is_complete(self) -> bool:
        """Return whether the tool left no line to a person."""
        return not any(e.left for e in self.entries)

    def __str__(self) -> str:
        entries = sorted(self.entries)
        lines = [f"{self.file}:{e.line}: {e.text}" for e in entries if not e.left]
        lines += [f"{self.file}:{e.line}: left for a person: {e.text}" for e in entries if e.left]
        return "\n".join(lines)
