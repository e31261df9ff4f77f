# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds ``lib<name>.so`` from a user's sources and the emulated engine.

A library is built in a folder of its own and moved to its place when it is whole, under a lock for the name, so that
builds of several processes do not meet. Beside it lies a list of the content hashes of all that went into it: where
nothing changed it is not built again. The engine's own objects are kept for all libraries, in the user's cache.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from nki_mlir.customop.abi import ABI
from nki_mlir.customop.errors import (
    BadFlags,
    BadName,
    BadSources,
    BadStackSize,
    MissingSource,
    UnwritableDirectory,
)
from nki_mlir.customop.toolchain import HERE, INCLUDE, Compiler, find_compiler
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.files import cache_folder, shown, write_file

STACK_MAX = 400_000                 # bytes
# In two parts that take equally long; the files of one are compiled at once, which reads the standard headers once.
ENGINE_PARTS = (("core", "engine", "streams", "tcm"), ("functions", "instrumentation", "memory"))
ENGINE_FILES = tuple(sorted((HERE / "engine").iterdir()))
ENGINE_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-ffp-contract=off")


@dataclass(frozen=True)
class Recipe:
    """What a library is built from, and how."""

    name: str
    sources: tuple[Path, ...]
    directory: Path
    multicore: bool
    checked: bool
    flags: tuple[str, ...]
    verbose: bool = False

    @property
    def library(self) -> Path:
        return self.directory / f"lib{self.name}.so"

    @property
    def inputs(self) -> Path:
        """The file with the hashes of what the library was built from."""
        return self.directory / f".lib{self.name}.inputs"

    def definitions(self) -> list[str]:
        return [f"-DGPSIMD_MULTICORE={int(self.multicore)}", f"-DGPSIMD_CHECKED={int(self.checked)}", f"-I{INCLUDE}"]


def recipe(name: str, compute_srcs: Sequence[str | Path], shape_srcs: Sequence[str | Path],
           build_directory: str | Path | None, multicore: bool, checked: bool, extra_cflags: Sequence[str],
           extra_include_paths: Sequence[str | Path], verbose: bool) -> Recipe:
    """Check what a user gave; raises the errors of this module before anything is compiled."""
    if not re.fullmatch(r"[\w-]+", str(name)) or name == "builtin":
        raise BadName(name=name)
    sources: list[Path] = []
    for parameter, files in (("compute_srcs", compute_srcs), ("shape_srcs", shape_srcs)):
        if isinstance(files, str | Path) or not files:
            raise BadSources(parameter=parameter, given=repr(files))
        for file in files:
            if not Path(file).is_file():
                raise MissingSource(file=file, directory=os.getcwd())
            sources.append(Path(file).resolve())
    for parameter, given in (("extra_cflags", extra_cflags), ("extra_include_paths", extra_include_paths)):
        if isinstance(given, str | Path):
            raise BadFlags(parameter=parameter, given=repr(given), wanted=[str(given)])
    for flag in extra_cflags:
        size = re.fullmatch(r"-DSTACK_SIZE=(.*)", flag)
        if size and not (size[1].isdecimal() and 0 < int(size[1]) <= STACK_MAX):
            raise BadStackSize(given=size[1], limit=STACK_MAX)
    flags = (*extra_cflags, *(f"-I{Path(p).resolve()}" for p in extra_include_paths))
    return Recipe(name, tuple(dict.fromkeys(sources)), Path(build_directory or ".").resolve(), bool(multicore),
                  bool(checked), flags, verbose)


def build_library(this: Recipe, examine: Callable[[Path], object]) -> Path:
    """The library's path; ``examine(path)`` looks at a new library before it takes its place."""
    compiler = find_compiler()
    try:
        this.directory.mkdir(parents=True, exist_ok=True)
        with locked(this.directory / f".lib{this.name}.lock"):
            if up_to_date(this, compiler):
                if this.verbose:
                    print(f"{shown(this.library)} is up to date", flush=True)
                return this.library
            with tempfile.TemporaryDirectory(dir=this.directory, prefix=f".lib{this.name}.") as folder:
                made, read = compile_all(this, compiler, Path(folder))
                examine(made)
                write_file(this.library, made.read_bytes(), 0o777)
            hashes = {str(f): digest(f) for f in sorted(read)}
            write_file(this.inputs, json.dumps({"settings": settings(this, compiler), "files": hashes,
                                                "library": identity(this.library)}, indent=1))
    except OSError as error:
        if isinstance(error, NkiMlirError):
            raise
        raise UnwritableDirectory(directory=shown(this.directory), reason=error.strerror or error) from None
    return this.library


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a file's lock: other processes, and other threads, wait."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# -- compiling ---------------------------------------------------------------------------------------------------------
def compile_all(this: Recipe, compiler: Compiler, folder: Path) -> tuple[Path, set[Path]]:
    """The library in the folder, and every file of the user that was read."""
    flags = [*compiler.kernel_flags(this.checked), *this.definitions(), *this.flags]
    objects = [folder / f"{k}.o" for k in range(len(this.sources))]

    def compile_one(source: Path, made: Path) -> None:
        compiler.run([*flags, "-MMD", "-MF", f"{made}.d", "-c", str(source), "-o", str(made)],
                     f"{shown(source)} does not compile", this.verbose)
    engine = engine_objects(this, compiler, folder)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        longer = [pool.submit(compile_engine, this, compiler, part, made)           # first: they take longer
                  for part, made in zip(ENGINE_PARTS, engine) if not made.is_file()]
        for job in [*(pool.submit(compile_one, s, o) for s, o in zip(this.sources, objects)), *longer]:
            job.result()
    library = folder / f"lib{this.name}.so"
    compiler.run([*map(str, objects), *map(str, engine), *compiler.link_flags(this.checked), "-o",
                  str(library)], f"lib{this.name}.so cannot be linked", this.verbose)
    return library, {Path(f) for made in objects for f in files_in(Path(f"{made}.d").read_text())}


def files_in(rule: str) -> list[str]:
    """The prerequisites of a rule that a compiler wrote for make."""
    text = rule.partition(":")[2].replace("\\\n", " ")
    return [re.sub(r"\\([ #])", r"\1", f).replace("$$", "$") for f in re.findall(r"(?:\\ |\S)+", text)]


def engine_objects(this: Recipe, compiler: Compiler, folder: Path) -> list[Path]:
    """The places of the emulated engine's objects, for this compiler and kind of build; one that exists is whole."""
    content = hashlib.sha256(repr((compiler, ENGINE_FLAGS, this.checked)).encode())
    for file in sorted([*ENGINE_FILES, *INCLUDE.rglob("*.h"), *INCLUDE.rglob("*.hpp")]):
        content.update(file.read_bytes())
    kept = cache_folder() / "gpsimd" / content.hexdigest()[:16]
    try:
        kept.mkdir(parents=True, exist_ok=True)
        if not os.access(kept, os.W_OK):
            kept = folder
    except OSError:                         # no home, or a read-only one
        kept = folder
    return [kept / f"{part[0]}.o" for part in ENGINE_PARTS]


def compile_engine(this: Recipe, compiler: Compiler, part: Sequence[str], made: Path) -> None:
    sources = [word for name in part for word in ("-include", str(HERE / "engine" / f"{name}.cpp"))]
    with tempfile.TemporaryDirectory() as folder:
        partial = Path(folder) / made.name
        compiler.run([*ENGINE_FLAGS, *this.definitions(), *sources, "-x", "c++", "-c", os.devnull, "-o", str(partial)],
                     "the emulated engine does not compile", this.verbose)
        write_file(made, partial.read_bytes())


# -- what a library was built from -------------------------------------------------------------------------------------
def settings(this: Recipe, compiler: Compiler) -> str:
    """Everything that a library depends on, but for the content of the user's files and of our headers."""
    engine = [digest(f) for f in ENGINE_FILES]
    return repr((ABI, compiler, this.multicore, this.checked, this.flags, [str(s) for s in this.sources], engine))


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def identity(library: Path) -> list[int]:
    found = library.stat()
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def up_to_date(this: Recipe, compiler: Compiler) -> bool:
    """Whether the library is there as it would be built again."""
    try:
        known = json.loads(this.inputs.read_text())
        return (known["settings"] == settings(this, compiler) and known["library"] == identity(this.library)
                and all(digest(Path(f)) == said for f, said in known["files"].items()))
    except (OSError, ValueError, KeyError):
        return False
