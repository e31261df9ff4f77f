# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write scripts that stand in for the vendor's executables, and put them on PATH."""

import atexit
import os
import shlex
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from nki_mlir.cli.standins import EXECUTABLES
from nki_mlir.files import private_folder, replace
from nki_mlir.python_commands import LEAVE_CURRENT_DIRECTORY

DEVICE = "neuron-ls"            # lists a device, from which programs conclude that there is one
_installed: list[str] = []      # the directory on PATH, once there is one


def write_executables(folder: Path, names: Iterable[str] = EXECUTABLES) -> None:
    """Write a script for each executable, which runs this Python interpreter, into a directory that need not exist.
    Scripts that exist already stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        script = folder / name
        program = (f"{LEAVE_CURRENT_DIRECTORY}; sys.argv[0] = {name!r}; from {EXECUTABLES[name]} import main; "
                   "sys.exit(main())")
        text = (f"#!/bin/sh\nPYTHONPATH={shlex.quote(package_path())}${{PYTHONPATH:+:$PYTHONPATH}} "
                f'exec {shlex.quote(sys.executable)} -c {shlex.quote(program)} "$@"\n')
        if not script.is_file() or script.read_bytes() != text.encode():
            replace(str(script), text.encode(), 0o755, None)            # also a FIFO or a link of that name


def package_path() -> str:
    """Return the directory from which this package is imported."""
    return str(Path(__file__).resolve().parents[2])


def put_on_path() -> None:
    """Append the executables to the PATH of this process and its children, except the one that lists a device.

    The scripts are in the cache, in a directory for each interpreter and package; without a cache they exist until
    the process ends. Do nothing if no file can be written.
    """
    if _installed:
        return
    cached = private_folder("executables")
    try:
        if cached is None:
            folder = temporary_folder()
            atexit.register(remove, folder, os.getpid())
        else:
            folder = str(cached / sha256(f"{sys.executable}\n{package_path()}".encode()).hexdigest()[:16])
        write_executables(Path(folder) / "bin", [name for name in EXECUTABLES if name != DEVICE])
    except OSError:
        return
    _installed.append(folder)
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(folder) / "bin")])


def temporary_folder() -> str:
    """Create a directory of this user. ``tempfile`` would do it, but its import takes longer than all of the rest."""
    folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"nki-executables-{os.getpid()}-{os.urandom(8).hex()}")
    os.mkdir(folder, 0o700)
    return folder


def take_off_path() -> None:
    """Remove the executables from PATH."""
    for folder in _installed:
        entry = str(Path(folder) / "bin")
        parts = os.environ.get("PATH", "").split(os.pathsep)
        os.environ["PATH"] = os.pathsep.join(p for p in parts if p != entry)
    _installed.clear()


def remove(folder: str, owner: int) -> None:
    """Remove the scripts when the process ends that wrote them, not a fork of it.

    The program may have replaced built-in functions, so this calls none, and imports nothing.
    """
    if os.getpid() == owner:
        try:
            for name in os.listdir(f"{folder}/bin"):
                os.unlink(f"{folder}/bin/{name}")
            os.rmdir(f"{folder}/bin")
            os.rmdir(folder)
        except OSError:
            return
