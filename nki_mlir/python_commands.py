# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Command lines of Python programs that do not search the current directory for modules, and of ``ruff``.

``python -c`` and ``python -m`` search it first, so a file ``json.py`` beside the user's files would run. ``-P`` and
``PYTHONSAFEPATH`` prevent it from Python 3.11 on only.
"""

import re
import sys
from pathlib import Path

LEAVE_CURRENT_DIRECTORY = "import sys; sys.path[:] = filter(None, sys.path)"        # sys is built in


def module_command(module: str) -> list[str]:
    """Return the command that runs an installed module as ``python -m`` does; arguments may follow."""
    run = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", f"{LEAVE_CURRENT_DIRECTORY}; {run}"]


def format_command(file: Path) -> list[str]:
    """Return the command that formats standard input as ``ruff format`` formats a file of that name.

    For the text of a file, ``ruff`` reads only the settings of the folders around it; for the file, it reads those
    around the current directory if there are no others.
    """
    around = settings_of(Path.cwd()) if settings_of(file.resolve().parent) is None else None
    settings = [] if around is None else ["--config", str(around)]
    return [*module_command("ruff"), "format", *settings, "--stdin-filename", str(file), "-"]


def settings_of(folder: Path) -> Path | None:
    """Return the file of ruff's settings in a folder or in the nearest folder around it."""
    for parent in (folder, *folder.parents):
        for name in (".ruff.toml", "ruff.toml", "pyproject.toml"):
            file = parent / name
            if file.is_file() and (name != "pyproject.toml" or re.search(
                    r"^\s*\[\s*tool\s*\.\s*ruff\b", file.read_text(errors="replace"), re.MULTILINE)):
                return file
    return None
