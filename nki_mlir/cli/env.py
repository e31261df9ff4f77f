# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-env COMMAND``: run a command that finds stand-ins of the vendor's executables and modules.

For that command and its child processes, ``neuron-profile`` and similar executables are on PATH, ``python`` is the
interpreter that runs ``nki-env``, which has the packages that kernels need, and it can import the vendor's module names
where the vendor's packages are absent. Afterwards all of it is removed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nki_mlir.cli.command import CommandParser, add_common, command_line, exit_status, words_of_program
from nki_mlir.cli.standins import EXECUTABLES
from nki_mlir.compat.executables import package_path, write_executables
from nki_mlir.diagnostics import NkiMlirError

# Python imports ``sitecustomize`` at its start; this one then runs the environment's, if there is one.
SITE = '''import sys
sys.path.remove({folder!r})
this = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    pass
sys.modules.setdefault("sitecustomize", this)
sys.path.insert(0, {folder!r})
from nki_mlir.compat import install
install(torch_xla={torch_xla}, executables=False)
'''


class CommandNotStarted(NkiMlirError):
    code = "NKI-ENV"
    message = "{name} cannot be started: {reason}"
    fix = "name a program of PATH, or its file"


def parser() -> argparse.ArgumentParser:
    p = CommandParser(prog="nki-env", description="Run a command that finds stand-ins of "
                                f"the vendor's executables ({', '.join(EXECUTABLES)}) and Python modules.")
    p.add_argument("--torch-xla", action="store_true", help="also replace torch_xla if it is not installed")
    add_common(p)
    p.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="run this command with its arguments")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``nki-env`` and return the exit status of its command."""
    p = parser()
    options = p.parse_args(command_line(arguments))
    words = words_of_program(options.words)
    if not words:
        p.error("there is no command to run: write nki-env COMMAND")
    return exit_status(lambda: run(words, options.torch_xla))


def run(words: list[str], torch_xla: bool) -> int:
    """Run the command with the stand-ins and this interpreter before those of PATH, and their modules of PYTHONPATH."""
    with tempfile.TemporaryDirectory(prefix="nki-env-") as name:
        folder = Path(name)
        write_executables(folder / "bin")
        (folder / "site").mkdir()
        site = SITE.format(folder=str(folder / "site"), torch_xla=torch_xla)
        (folder / "site" / "sitecustomize.py").write_text(site, encoding="utf-8")
        programs = joined(folder / "bin", Path(sys.executable).parent, os.environ.get("PATH", os.defpath))
        environment = dict(os.environ, PATH=programs,
                           PYTHONPATH=joined(folder / "site", package_path(), os.environ.get("PYTHONPATH", "")))
        try:
            return subprocess.run(words, env=environment, check=False).returncode
        except OSError as error:
            raise CommandNotStarted(name=words[0], reason=error.strerror) from None


def joined(*parts: object) -> str:
    """Join the nonempty parts of a search path."""
    return os.pathsep.join(str(part) for part in parts if str(part))


if __name__ == "__main__":
    sys.exit(main())
