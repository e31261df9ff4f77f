# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Profiles attribute the time of instruction streams, as JSON, as a trace, and as a page.

    profile = profile_of(programs)
    write_profile(profile, folder)

The page contains everything that it needs: style, scripts, the charting library, the document.
"""

import errno
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from nki_mlir.alone import uncollected
from nki_mlir.diagnostics import NkiMlirError, value_text
from nki_mlir.dialects.isa.program import Program
from nki_mlir.files import write_file
from nki_mlir.progress import phase
from nki_mlir.targets.neuron.profile.advice import advice_of
from nki_mlir.targets.neuron.profile.document import Document, document_of
from nki_mlir.targets.neuron.profile.perfetto import trace
from nki_mlir.targets.neuron.timing.machine import Loaded, TimedMachine

__all__ = ["Document", "check_folder", "page", "profile_of", "write_profile"]

ADVISED = 300_000               # most instructions of a run that gets advice
JSON, TRACE, PAGE = "profile.json", "trace.json.gz", "profile.html"


class ProfileFolder(NkiMlirError):
    code = "NKI-PROFILE-FOLDER"
    message = "a profile cannot be written into {folder}: {reason}"
    fix = "name a directory that can be written to; it is created if it does not exist"


@uncollected()
def profile_of(programs: Sequence[Program], mode: str = "optimized", loaded: Loaded | None = None, texts: bool = True
               ) -> Document:
    """Return the profile of programs that run together, each on a separate core. ``loaded`` has the numbers that
    engines load into registers, ``texts`` is as for ``document_of``. Raise ``Deadlock`` if they wait for ever."""
    run = TimedMachine(programs, loaded, mode)
    with phase("timing"):
        run.run()
    with phase("profile"):
        document, count = document_of(run, texts=texts), len(run.record)
    if count > ADVISED:
        document["notes"].append(f"no advice is given on {count} instructions: each rule would run them again.")
        return document
    with phase("advice"):
        return document | {"advice": advice_of(run)}


def check_folder(folder: str | Path) -> Path:
    """Return the folder, which may not exist yet. Raise ``ProfileFolder`` if no file can be written there. Create
    nothing."""
    try:
        path = Path(folder)
        if b"\0" in os.fsencode(path):
            raise TypeError
        if not os.fspath(folder):                   # a variable that is not set, not the current folder
            raise ProfileFolder(folder="''", reason="the name is empty").here()
    except (TypeError, UnicodeEncodeError):
        raise ProfileFolder(folder=value_text(folder, repr), reason="it is not a path").here() from None
    try:
        existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        TemporaryFile(dir=existing).close()
    except OSError as error:
        raise ProfileFolder(folder=str(folder), reason=error.strerror).here() from None
    return path


def write_profile(profile: Document, folder: str | Path) -> list[Path]:
    """Write the files of a profile, and return their names."""
    path = check_folder(folder)
    texts: dict[str, str | bytes] = {
        JSON: json.dumps(profile, separators=(",", ":")), TRACE: trace(profile), PAGE: page(profile)}
    return write_profile_files(texts, path)


def write_profile_files(texts: Mapping[str, str | bytes], folder: Path) -> list[Path]:
    """Write all files of a profile into a folder, or none of them and raise ``ProfileFolder``: files of an earlier
    profile then stay as they are, and folders that did not exist are removed again."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".profile.", dir=folder) as unfinished:
            for name, text in texts.items():
                write_file(Path(unfinished) / name, text)
                if (folder / name).is_dir():
                    raise IsADirectoryError(errno.EISDIR, f"{name} is a directory")
            for name, text in texts.items():
                if (folder / name).is_symlink():                # to a file that may be on another device
                    write_file(folder / name, text)
                else:
                    os.replace(Path(unfinished) / name, folder / name)
    except OSError as error:
        with suppress(OSError):                 # inner folders first; a folder may not exist, or contain files
            for path in new:
                path.rmdir()
        raise ProfileFolder(folder=str(folder), reason=error.strerror).here() from None
    return [folder / name for name in texts]


# -- the page ----------------------------------------------------------------------------------------------------------
FILES = Path(__file__).parent / "page_files"
SCRIPTS = "uplot.js", "theme.js", "timeline.js", "tools.js", "panels.js"
STYLES = "uplot.css", "page.css"
NOT_ON_PAGE = "iterations", "loops", "semaphores", "streams", "updates"


def page(document: Document) -> str:
    """Return the HTML text of the page."""
    shown = {name: part for name, part in document.items() if name not in NOT_ON_PAGE}
    parts = {"TITLE": escape(document["timing"]["kernel"]), "STYLE": "\n".join(map(_read, STYLES)),
             # No text of a kernel can end the element that contains it.
             "PROFILE": json.dumps(shown, separators=(",", ":")).replace("<", "\\u003c"),
             "SCRIPT": "\n".join([f"/*\n{_read('uplot.license')}*/", *map(_read, SCRIPTS)])}
    pieces = _read("page.html").split("@")
    return "".join(parts.get(piece, piece) if k % 2 else piece for k, piece in enumerate(pieces))


def _read(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")
