# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Build ``lib<name>.so`` from a user's sources and the emulated engine, with the host's C++ compiler.

A build happens in a temporary folder and moves the complete library to its destination, under a lock for the name,
so that builds of several processes do not interfere. The content hashes of all inputs are stored beside the
library: it is not built again if nothing changed. The user's cache keeps the objects of the engine for all
libraries, as entries with a digest: a damaged one is compiled again.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nki_mlir.cache_entries import read_entry, write_entry
from nki_mlir.customop.abi import ABI
from nki_mlir.customop.limited_processes import CompilationMemory, CompilationTime, LimitedProcesses
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.files import owned_folder, shown, write_file

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
STACK_MAX = 400_000                 # bytes
MOST_BYTES = 64 << 20               # of an object of the engine, which takes a megabyte
# The two parts take equally long to compile. The files of a part are a single compilation, which reads headers once.
ENGINE_PARTS = (("core", "engine", "streams", "tcm"), ("functions", "instrumentation", "memory"))
ENGINE_FILES = tuple(sorted((HERE / "engine").iterdir()))
ENGINE_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-ffp-contract=off")


class NoCompiler(NkiMlirError, RuntimeError):
    code = "NKI-CUSTOMOP-COMPILER"
    message = "custom operators are built with a C++ compiler, and {tried} is not found"
    why = "only this part of nki_mlir needs one"
    fix = "install g++ (Debian, Ubuntu: apt install g++), or set CXX to a compiler"


class CompilationFailed(NkiMlirError, RuntimeError):
    code = "NKI-CUSTOMOP-COMPILE"
    message = "{what}\n{output}"


class BadName(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-NAME"
    message = "'{name}' cannot be the name of a library"
    why = "the name becomes the file lib<name>.so; 'builtin' is reserved"
    fix = "use letters, digits, '-' and '_'"


class BadSources(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-SOURCES"
    message = "{parameter} is {given}"
    fix = "give a list of at least one file name: {parameter}=['kernel.cpp']"


class MissingSource(NkiMlirError, FileNotFoundError):
    code = "NKI-CUSTOMOP-SOURCE"
    message = "there is no source file {file}"
    fix = "correct the path: compute_srcs and shape_srcs are relative to the current directory, {directory}"


class BadFlags(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-FLAGS"
    message = "{parameter} is {given}"
    fix = "give a list: {parameter}={wanted}"


class BadStackSize(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-STACK"
    message = "STACK_SIZE cannot be {given}"
    fix = "declare at most {limit} bytes: extra_cflags=['-DSTACK_SIZE=20000']"


class UnwritableDirectory(NkiMlirError, PermissionError):
    code = "NKI-CUSTOMOP-DIRECTORY"
    message = "the library cannot be written to {directory}: {reason}"
    fix = "give another build_directory"


# -- the compiler ------------------------------------------------------------------------------------------------------
WRAPPED = ("printf", "vprintf", "puts", "putchar", "putc")                 # output of kernels goes to a ring buffer
CLANG_CALLS = ("instrumentation-with-call-threshold=0", "stack=0", "globals=0")
WRAPPED_CHECKED = ("memcpy", "memmove", "memset")

# file:line:column: error: text, and the linker's file:line: undefined reference to ...
MESSAGE = re.compile(r"^(?:.*?\s)?(?P<file>/[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)?\s*"
                     r"(?P<kind>fatal error|error|required from|note: (?=in instantiation)|undefined reference)",
                     re.MULTILINE)


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command, and the first line that it prints about its version."""

    command: tuple[str, ...]
    version: str

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version

    def kernel_flags(self, checked: bool) -> list[str]:
        """Return the flags for the user's sources. They insert a call where a function ends without a result, and in
        the checked build before loads, stores and divisions."""
        flags = ["-std=c++14", "-fPIC", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-g1", "-O1" if checked else "-O3",
                 "-fsanitize=return"]
        if self.is_clang:                       # accept sizes of type size_t in braces, as GCC does
            flags.append("-Wno-error=c++11-narrowing")
        if checked:
            flags += ["-fsanitize=kernel-address", "-fsanitize=integer-divide-by-zero"]
            if self.is_clang:                   # call functions, as GCC does, instead of reading shadow memory
                flags += ["-gdwarf-4", *(word for option in CLANG_CALLS for word in ("-mllvm", f"-asan-{option}"))]
        return flags

    def link_flags(self, checked: bool) -> list[str]:
        """Return the linker's flags. ``-Bsymbolic`` binds the library's names within it, even if the process has
        PyTorch's of the same name."""
        wrapped = WRAPPED + (WRAPPED_CHECKED if checked else ())
        return ["-shared", "-Wl,-Bsymbolic", "-Wl,--no-undefined", *(f"-Wl,--wrap={name}" for name in wrapped),
                "-pthread"]

    def run(self, arguments: Sequence[str], purpose: str, processes: LimitedProcesses, verbose: bool = False) -> None:
        """Run the compiler. Raise ``CompilationFailed`` with its message, at the user's line that it names, or that it
        exceeds a limit."""
        command = [*self.command, *arguments]
        if verbose:
            print(shlex.join(command), flush=True)
        if shutil.which(command[0]) is None:
            raise NoCompiler(tried=self.command[0])
        ended = processes.run(command, purpose)
        if ended.returncode:
            error = CompilationFailed(what=purpose, output=readable(ended.output))
            raise error.located(first_user_line(ended.output))
        if verbose and ended.output.strip():
            print(readable(ended.output), flush=True)


def readable(output: str) -> str:
    """Shorten the file names in a compiler's message to the user's form."""
    try:
        folder = os.path.join(os.getcwd(), "")
    except OSError:                         # the directory is gone
        return output.rstrip()
    return re.sub(rf"(?<![^\s:]){re.escape(folder)}", "", output.rstrip())


def first_user_line(output: str) -> Location | None:
    """Return the first line of the user's files that a message names, since it caused the errors inside of our
    headers."""
    messages = [m for m in MESSAGE.finditer(output)
             if not Path(m["file"]).is_relative_to(HERE) and Path(m["file"]).is_file()]
    message = next((m for m in messages if m["kind"].endswith("error")), messages[0] if messages else None)
    if message is None:
        return None
    column = int(message["column"] or 1) - 1
    return Location(shown(message["file"]), int(message["line"]), column)


def find_compiler() -> Compiler:
    """Return ``CXX``, or the first of g++, c++ and clang++ on PATH. Raise ``NoCompiler``."""
    return _find(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@cache
def _find(requested: str, path: str) -> Compiler:
    choices = [tuple(shlex.split(requested))] if requested.strip() else [("g++",), ("c++",), ("clang++",)]
    for command in choices:
        if shutil.which(command[0], path=path or None):
            ended = LimitedProcesses().run([*command, "--version"], "CXX does not say its version")
            return Compiler(command, ended.output.split("\n")[0])
    raise NoCompiler(tried=" or ".join(c[0] for c in choices))


# -- libraries ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Recipe:
    """The inputs and settings of a library's build."""

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
        """The file with the hashes of the library's inputs."""
        return self.directory / f".lib{self.name}.inputs"

    def definitions(self) -> list[str]:
        return [f"-DGPSIMD_MULTICORE={int(self.multicore)}", f"-DGPSIMD_CHECKED={int(self.checked)}", f"-I{INCLUDE}"]


def recipe(name: str, compute_srcs: Sequence[str | Path], shape_srcs: Sequence[str | Path],
           build_directory: str | Path | None, multicore: bool, checked: bool, extra_cflags: Sequence[str],
           extra_include_paths: Sequence[str | Path], verbose: bool) -> Recipe:
    """Check the user's arguments and return the recipe. Raise the errors of this module before compiling anything."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name) or name == "builtin":
        raise BadName(name=name)
    sources: list[Path] = []
    for parameter, files in (("compute_srcs", compute_srcs), ("shape_srcs", shape_srcs)):
        if not isinstance(files, Sequence) or isinstance(files, str) or not files:
            raise BadSources(parameter=parameter, given=repr(files))
        for file in files:
            if not Path(file).is_file():
                raise MissingSource(file=file, directory=os.getcwd())
            sources.append(Path(file).resolve())
    for parameter, argument in (("extra_cflags", extra_cflags), ("extra_include_paths", extra_include_paths)):
        if isinstance(argument, str | Path):
            raise BadFlags(parameter=parameter, given=repr(argument), wanted=[str(argument)])
    for flag in extra_cflags:
        size = re.fullmatch(r"-DSTACK_SIZE=(.*)", flag)
        if size and not (size[1].isdecimal() and 0 < int(size[1]) <= STACK_MAX):
            raise BadStackSize(given=size[1], limit=STACK_MAX)
    flags = (*extra_cflags, *(f"-I{Path(p).resolve()}" for p in extra_include_paths))
    return Recipe(name, tuple(dict.fromkeys(sources)), Path(build_directory or ".").resolve(), bool(multicore),
                  bool(checked), flags, verbose)


def build_library(recipe: Recipe, examine: Callable[[Path], object]) -> Path:
    """Build the library if it is not up to date, and return its path. ``examine(path)`` checks a new library before it
    replaces the old one."""
    compiler = find_compiler()
    try:
        recipe.directory.mkdir(parents=True, exist_ok=True)
        with locked(recipe.directory / f".lib{recipe.name}.lock"):
            if up_to_date(recipe, compiler):
                if recipe.verbose:
                    print(f"{shown(recipe.library)} is up to date", flush=True)
                return recipe.library
            with tempfile.TemporaryDirectory(dir=recipe.directory, prefix=f".lib{recipe.name}.") as folder:
                library, read = compile_all(recipe, compiler, Path(folder))
                examine(library)
                write_file(recipe.library, library.read_bytes(), 0o777)
            hashes = {str(f): digest(f) for f in sorted(read)}
            write_file(recipe.inputs, json.dumps({"settings": settings(recipe, compiler), "files": hashes,
                                                  "library": identity(recipe.library)}, indent=1))
    except OSError as error:
        if isinstance(error, NkiMlirError):
            raise
        raise UnwritableDirectory(directory=shown(recipe.directory), reason=error.strerror or error) from None
    return recipe.library


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a file's lock for the ``with`` block; other processes and threads wait."""
    with file.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# -- compiling ---------------------------------------------------------------------------------------------------------
def compile_all(recipe: Recipe, compiler: Compiler, folder: Path) -> tuple[Path, set[Path]]:
    """Compile the library into the folder. Return its path and every file of the user that the compiler read."""
    flags = [*compiler.kernel_flags(recipe.checked), *recipe.definitions(), *recipe.flags]
    objects = [folder / f"{k}.o" for k in range(len(recipe.sources))]
    processes = LimitedProcesses()

    def compile_one(source: Path, object_file: Path) -> None:
        try:
            compiler.run([*flags, "-MMD", "-MF", f"{object_file}.d", "-c", str(source), "-o", str(object_file)],
                         f"{shown(source)} does not compile", processes, recipe.verbose)
        except (CompilationTime, CompilationMemory) as error:
            raise error.located(Location(shown(source), 1, 0)) from None
    entries = cached_objects(recipe, compiler)
    engine = engine_objects(entries, folder)
    missing = [number for number, object_file in enumerate(engine) if not object_file.is_file()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        longer = [pool.submit(compile_engine, recipe, compiler, ENGINE_PARTS[number], engine[number],
                              entries[number] if entries else None, processes)
                  for number in missing]                # first: takes longer
        try:
            for job in [*(pool.submit(compile_one, s, o) for s, o in zip(recipe.sources, objects)), *longer]:
                job.result()
        except (KeyboardInterrupt, SystemExit):         # the pool waits for its jobs
            pool.shutdown(wait=False, cancel_futures=True)
            processes.end()
            raise
    library = folder / f"lib{recipe.name}.so"
    compiler.run([*map(str, objects), *map(str, engine), *compiler.link_flags(recipe.checked), "-o",
                  str(library)], f"lib{recipe.name}.so cannot be linked", processes, recipe.verbose)
    dependencies = [Path(f"{object_file}.d").read_text(encoding="utf-8") for object_file in objects]
    return library, {Path(f) for text in dependencies for f in files_in(text)}


def files_in(rule: str) -> list[str]:
    """Return the prerequisites of a rule that a compiler wrote for make."""
    text = rule.partition(":")[2].replace("\\\n", " ")
    return [re.sub(r"\\([ #])", r"\1", f).replace("$$", "$") for f in re.findall(r"(?:\\ |\S)+", text)]


def engine_objects(entries: Sequence[Path], folder: Path) -> list[Path]:
    """Return the paths of the emulated engine's objects in the folder of a build. Those that the cache has exist."""
    objects = [folder / f"{part[0]}.o" for part in ENGINE_PARTS]
    for object_file, entry in zip(objects, entries):
        if (content := read_entry(entry, MOST_BYTES)) is not None:
            object_file.write_bytes(content)
    return objects


def cached_objects(recipe: Recipe, compiler: Compiler) -> list[Path]:
    """Return the entries of the cache for the engine's objects, of this compiler and kind of build; [] without a
    cache."""
    content = hashlib.sha256(repr((compiler, ENGINE_FLAGS, recipe.checked)).encode())
    for file in sorted([*ENGINE_FILES, *INCLUDE.rglob("*.h"), *INCLUDE.rglob("*.hpp")]):
        content.update(file.read_bytes())
    folder = owned_folder("gpsimd")
    return [] if folder is None else [folder / f"{content.hexdigest()}-{part[0]}.object" for part in ENGINE_PARTS]


def compile_engine(recipe: Recipe, compiler: Compiler, part: Sequence[str], object_file: Path, entry: Path | None,
                   processes: LimitedProcesses) -> None:
    """Compile a part of the engine, and write the object to its entry of the cache, if there is one."""
    sources = [word for name in part for word in ("-include", str(HERE / "engine" / f"{name}.cpp"))]
    compiler.run([*ENGINE_FLAGS, *recipe.definitions(), *sources, "-x", "c++", "-c", os.devnull, "-o",
                  str(object_file)], "the emulated engine does not compile", processes, recipe.verbose)
    if entry is not None:
        write_entry(entry, object_file.read_bytes())


# -- inputs of a built library -----------------------------------------------------------------------------------------
def settings(recipe: Recipe, compiler: Compiler) -> str:
    """Return everything on which a library depends, except the contents of the user's files and of our headers."""
    engine = [digest(f) for f in ENGINE_FILES]
    return repr((ABI, compiler, recipe.multicore, recipe.checked, recipe.flags, [str(s) for s in recipe.sources],
                 engine))


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def identity(library: Path) -> list[int]:
    status = library.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def up_to_date(recipe: Recipe, compiler: Compiler) -> bool:
    """Return whether the library exists as a new build would produce it."""
    try:
        recorded = json.loads(recipe.inputs.read_text(encoding="utf-8"))
        return (recorded["settings"] == settings(recipe, compiler) and recorded["library"] == identity(recipe.library)
                and all(digest(Path(f)) == expected for f, expected in recorded["files"].items()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):      # missing or damaged
        return False
