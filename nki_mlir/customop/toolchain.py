# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The host's C++ compiler: finding it, running it, and reading where its messages point."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nki_mlir.customop.errors import CompilationFailed, NoCompiler
from nki_mlir.diagnostics import Location
from nki_mlir.files import shown

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
WRAPPED = ("printf", "vprintf", "puts", "putchar", "putc")                 # what kernels print goes to a ring buffer
CLANG_CALLS = ("instrumentation-with-call-threshold=0", "stack=0", "globals=0")
WRAPPED_CHECKED = ("memcpy", "memmove", "memset")

# file:line:column: error: text, and the linker's file:line: undefined reference to ...
MESSAGE = re.compile(r"^(?:.*?\s)?(?P<file>/[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)?\s*"
                     r"(?P<kind>fatal error|error|required from|note: (?=in instantiation)|undefined reference)",
                     re.MULTILINE)


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command and what it says of its version."""

    command: tuple[str, ...]
    version: str

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version

    def kernel_flags(self, checked: bool) -> list[str]:
        """Flags for the user's sources. Where a function ends without its result a call of ours is, and in the
        checked build before loads, stores and divisions."""
        flags = ["-std=c++14", "-fPIC", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-g1", "-O1" if checked else "-O3",
                 "-fsanitize=return"]
        if self.is_clang:                       # as GCC does: sizes in braces may be of type size_t
            flags.append("-Wno-error=c++11-narrowing")
        if checked:
            flags += ["-fsanitize=kernel-address", "-fsanitize=integer-divide-by-zero"]
            if self.is_clang:                   # what GCC does for a kernel: calls, never shadow memory
                flags += ["-gdwarf-4", *(word for option in CLANG_CALLS for word in ("-mllvm", f"-asan-{option}"))]
        return flags

    def link_flags(self, checked: bool) -> list[str]:
        """``-Bsymbolic``: names of the library are its own, also where the process has PyTorch's of the same name."""
        wrapped = WRAPPED + (WRAPPED_CHECKED if checked else ())
        return ["-shared", "-Wl,-Bsymbolic", "-Wl,--no-undefined", *(f"-Wl,--wrap={name}" for name in wrapped),
                "-pthread"]

    def run(self, arguments: Sequence[str], what: str, verbose: bool = False) -> None:
        """Run it; raises ``CompilationFailed`` with its message, at the user's line that it names."""
        command = [*self.command, *arguments]
        if verbose:
            print(shlex.join(command), flush=True)
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except FileNotFoundError:
            raise NoCompiler(tried=self.command[0]) from None
        if done.returncode:
            raise CompilationFailed(what=what, output=readable(done.stderr)).located(blamed(done.stderr))
        if verbose and done.stderr.strip():
            print(readable(done.stderr), flush=True)


def readable(output: str) -> str:
    """A compiler's message with file names as the user writes them."""
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:                         # the directory is gone
        return output.rstrip()
    return re.sub(rf"(?<![^\s:]){re.escape(here)}", "", output.rstrip())


def blamed(output: str) -> Location | None:
    """The first line of the user's own file that a message names; errors inside our headers were caused there."""
    found = [m for m in MESSAGE.finditer(output)
             if not Path(m["file"]).is_relative_to(HERE) and Path(m["file"]).is_file()]
    first = next((m for m in found if m["kind"].endswith("error")), found[0] if found else None)
    if first is None:
        return None
    column = int(first["column"] or 1) - 1
    return Location(shown(first["file"]), int(first["line"]), column)


def find_compiler() -> Compiler:
    """``CXX``, or the first of g++, c++ and clang++; raises ``NoCompiler``."""
    return _find(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@cache
def _find(wanted: str, path: str) -> Compiler:
    choices = [tuple(shlex.split(wanted))] if wanted.strip() else [("g++",), ("c++",), ("clang++",)]
    for command in choices:
        if shutil.which(command[0], path=path or None):
            done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
            return Compiler(command, done.stdout.split("\n")[0])
    raise NoCompiler(tried=" or ".join(c[0] for c in choices))
