# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A store of verdicts in an SQLite file, by the content of the requests: an interrupted search continues from it."""

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nki_mlir.diagnostics import NkiMlirError, shortened
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.scoring.verdict import CandidateVerdict
from nki_mlir.version import __version__

TABLE = """CREATE TABLE IF NOT EXISTS verdicts (
    number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE NOT NULL, candidate TEXT NOT NULL, verdict TEXT NOT NULL,
    total_time REAL, sbuf_peak_bytes INTEGER, parameters TEXT NOT NULL, source TEXT NOT NULL, document TEXT NOT NULL,
    profile TEXT)"""
# The fields of a request on which a verdict depends.
SETTINGS = "kernel", "target", "seconds", "megabytes", "grid", "level", "cases", "hidden"


ANOTHER = "name an SQLite file that nki-score wrote, or one that does not exist yet"
FREE = "free some space, or name a file on another disk"


class StoreFailed(NkiMlirError):
    code = "NKI-SCORE-STORE"
    message = "{file} cannot be used for verdicts: {reason}"
    fix = "{fix}"


def key_of(request: dict[str, Any]) -> str:
    """Return the key of a request: the hash of the texts of candidate and reference, the settings, and this version."""
    reference = Path(request["reference"])
    text = TEXT_BYTES.read_text(reference, errors="replace") if os.path.isfile(reference) else str(reference)
    parts = [request["source"], text, __version__,
             *(json.dumps(request.get(name), sort_keys=True) for name in SETTINGS)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Store:
    """A store of verdicts. Threads may share it; each verdict is written at once.

    Example:
        store = Store("verdicts.db")
        verdict = CandidateVerdict(candidate="a.py", verdict="refused", reason=None)
        assert store.add("key", {"source": "import nki"}, verdict) and not store.add("key", {"source": ""}, verdict)
        assert store.find("key")["candidate"] == "a.py" and len(store.rows()) == 1
    """

    def __init__(self, file: str | Path) -> None:
        self.lock, self.file = threading.Lock(), str(file)
        is_new = not os.path.lexists(file)
        try:
            with self.accessed():
                self.connection = sqlite3.connect(file, check_same_thread=False)
                with self.connection:
                    self.connection.execute(TABLE)
                self.check_schema()
        except StoreFailed:
            if is_new:                          # leaves no empty file if there is no space
                with suppress(OSError):
                    os.remove(file)
            raise
        self.connection.row_factory = sqlite3.Row

    def check_schema(self) -> None:
        """Raise ``StoreFailed`` if the file has another table, a view, which may have rows without end, or a trigger,
        which may change what is written."""
        schema = self.connection.execute("SELECT sql FROM sqlite_master WHERE name = 'verdicts' OR type = 'trigger'")
        if schema.fetchmany(2) != [(TABLE.replace("IF NOT EXISTS ", ""),)]:
            raise StoreFailed(file=self.file, reason="its tables are not those of a store of verdicts", fix=ANOTHER)

    @contextmanager
    def accessed(self) -> Iterator[None]:
        """Raise ``StoreFailed`` if the ``with`` block cannot write the file, or reads a malformed verdict."""
        try:
            yield
        except NkiMlirError:
            raise
        except (sqlite3.Error, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError
                ) as error:
            reason = str(error) if isinstance(error, sqlite3.Error) else f"a verdict is malformed ({error})"
            fix = FREE if "full" in reason or "disk I/O" in reason else ANOTHER
            raise StoreFailed(file=self.file, reason=shortened(reason), fix=fix) from error

    def find(self, key: str) -> CandidateVerdict | None:
        """Return the verdict with that key, or None."""
        with self.lock, self.accessed():
            row = self.connection.execute("SELECT document FROM verdicts WHERE key = ?", (key,)).fetchone()
            return None if row is None else CandidateVerdict(json.loads(row["document"]))

    def add(self, key: str, request: dict[str, Any], verdict: CandidateVerdict) -> bool:
        """Write a verdict. Return False if there is one with that key already."""
        data = {name: value for name, value in verdict.items() if name != "profile"}
        row = (key, verdict["candidate"], verdict["verdict"], verdict.get("total_time"), verdict.get("sbuf_peak_bytes"),
               json.dumps(request.get("parameters") or {}), request["source"], json.dumps(data), verdict.get("profile"))
        with self.lock, self.accessed(), self.connection:
            return self.connection.execute(
                "INSERT OR IGNORE INTO verdicts (key, candidate, verdict, total_time, sbuf_peak_bytes, parameters, "
                "source, document, profile) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row).rowcount == 1

    def rows(self) -> list[dict[str, Any]]:
        """Return all verdicts with their columns, in the order of their insertion."""
        with self.lock, self.accessed():
            return [dict(row) for row in self.connection.execute("SELECT * FROM verdicts ORDER BY number")]

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
