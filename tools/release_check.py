# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check whether this checkout can be released: build, compare, install and use its wheel outside of the checkout.

    python tools/release_check.py [--pythons python3.10,python3.12] [--without-frameworks]

It builds the wheel and the source distribution twice, from a clean copy of the last commit; both builds must have the
same bytes and contain every file that belongs to them. It then installs the wheel for each interpreter in a new
environment, where `release_use.py` uses commands and API: without JAX and PyTorch, then with them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).parent.parent
PYTHONS = [f"python3.{minor}" for minor in range(10, 15)]
DEVELOPMENT = ("tests/", "lit_tests/", "tools/", "bench/", "docs/", "examples/", "dialects/")   # not in the wheel
TUTORIAL = "docs/site/tutorials/first-kernel.md"
console = Console(highlight=False)


class Unfit(Exception):
    """The error of a release that fails the check."""


def run(*command: object, where: Path, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NKI_"))}
    process = subprocess.run([str(c) for c in command], cwd=where, env=clean | environment, text=True,
                             capture_output=True)
    if process.returncode:
        raise Unfit(f"{' '.join(map(str, command))} ends with {process.returncode}:\n{process.stdout}{process.stderr}")
    return process.stdout


def tracked(folder: str = ".") -> list[str]:
    return run("git", "ls-files", folder, where=ROOT).split("\n")[:-1]


def build(into: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution from a copy of the last commit."""
    source = into / "source"
    source.mkdir(parents=True)
    archive = into / "commit.tar"
    run("git", "archive", "-o", archive, "HEAD", where=ROOT)
    with tarfile.open(archive) as tar:
        tar.extractall(source)
    date = run("git", "log", "-1", "--format=%ct", where=ROOT).strip()
    run(sys.executable, "-m", "build", "--outdir", into / "dist", where=source, SOURCE_DATE_EPOCH=date)
    wheel, = (into / "dist").glob("*.whl")
    sdist, = (into / "dist").glob("*.tar.gz")
    return wheel, sdist


def content(sdist: Path) -> dict[str, bytes]:
    """Return names and bytes of the files of a source distribution, because its archive contains times of the build."""
    with tarfile.open(sdist) as tar:
        return {m.name.partition("/")[2]: tar.extractfile(m).read() for m in tar.getmembers()   # type: ignore[union-attr]
                if m.isfile()}


def check_same(folder: Path) -> tuple[Path, Path]:
    (wheel, sdist), (again, other) = build(folder / "first"), build(folder / "second")
    if wheel.read_bytes() != again.read_bytes():
        raise Unfit("two builds of the wheel differ")
    if content(sdist) != content(other):
        raise Unfit("two builds of the source distribution differ")
    return wheel, sdist


def check_content(wheel: Path, sdist: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    missing = [f for f in tracked("nki_mlir") if f not in inside]
    if missing:
        raise Unfit(f"the wheel has no {', '.join(missing)}")
    extra = [f for f in inside if f.startswith(DEVELOPMENT)]
    if extra:
        raise Unfit(f"the wheel has {', '.join(sorted(extra)[:5])}, which are for development")
    if not any(f.endswith("licenses/LICENSE") for f in inside):
        raise Unfit("the wheel has no license")
    files = content(sdist)
    missing = [f for f in tracked() if f not in files and not f.startswith(".")]
    if missing:
        raise Unfit(f"the source distribution has no {', '.join(missing[:9])}")


def check_use(python: str, wheel: Path, folder: Path, extras: str) -> str:
    """Install the wheel, and use it from an empty directory: first as in the first tutorial, then by `release_use.py`.
    """
    environment = folder / "environment"
    run(python, "-m", "venv", environment, where=folder)
    interpreter = environment / "bin" / "python"
    run(interpreter, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt",
        f"nki_mlir{extras} @ {wheel.as_uri()}",
        where=folder)
    empty = folder / "empty"
    empty.mkdir()
    shutil.copy(ROOT / "tools" / "release_use.py", empty)
    shutil.copy(ROOT / "tools" / "docs_site" / "cells.py", empty)
    (empty / "tutorials").mkdir()
    shutil.copy(ROOT / TUTORIAL, empty / "tutorials")
    environment_variables = {"PATH": f"{interpreter.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}
    run(interpreter, "-I", "cells.py", Path("tutorials", Path(TUTORIAL).name), where=empty, **environment_variables)
    return run(interpreter, "-I", "release_use.py", *(["--frameworks"] if extras else []), where=empty,
               **environment_variables)


def usable(names: Sequence[str]) -> list[str]:
    """Return the interpreters that are installed and can create environments."""
    return [name for name in names if shutil.which(name) and subprocess.run(
        [name, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pythons", default=",".join(PYTHONS),
                        help="interpreters, separated by commas (default: the installed ones from 3.10 to 3.14)")
    parser.add_argument("--without-frameworks", action="store_true", help="do not install JAX and PyTorch")
    options = parser.parse_args()
    requested = options.pythons.split(",")
    available = usable(requested)
    for name in sorted(set(requested) - set(available)):
        console.print(f"{name}: not installed, or without venv")
    try:
        with tempfile.TemporaryDirectory() as folder:
            wheel, sdist = check_same(Path(folder))
            console.print(f"{wheel.name}, {sdist.name}: the same bytes twice")
            check_content(wheel, sdist)
            console.print("contents: everything that belongs in them")
            for name in available:
                for extras in ("",) if options.without_frameworks else ("", "[jax,torch]"):
                    with tempfile.TemporaryDirectory() as parent, console.status(f"{name}{extras}"):
                        output = check_use(name, wheel, Path(parent), extras)
                    console.print(f"{name}{extras}: {output.strip().splitlines()[-1]}")
    except Unfit as reason:
        console.print(f"release-check: {reason}", style="red", markup=False)
        return 1
    if not available:
        console.print("release-check: no interpreter to install on", style="red")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
