# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the commands read: MLIR from a file or standard input, or a kernel ``FILE.py:FUNCTION``; and their diagnostics.

Every error is ``FILE:LINE:COL: error: ...`` on standard error and exit status 1.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nki_mlir.diagnostics import NkiMlirError


class SourceError(NkiMlirError):
    code = ""
    message = "{text}"


class NoKernel(NkiMlirError):
    code = "NKI-KERNEL-NAME"
    message = "{file} has no kernel '{name}'"
    fix = "it has: {found}"


def load_libraries(files: list[str]) -> None:
    """Load libraries of custom operators: what a module names is not loaded by itself."""
    if files:
        from nki_mlir import customop
        for file in files:
            customop.load_library(file)


@dataclass
class Diagnostic:
    """One message of the bindings, with the place it points at."""

    file: str
    line: int
    column: int
    severity: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message}"


class MalformedInput(NkiMlirError):
    """Text that is not a valid module: carries the diagnostics."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__("the input is not a valid module")
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics))


def is_kernel(source: str) -> bool:
    """Whether the argument names a function of a Python file."""
    return ".py:" in source or source.endswith(".py")


def read_text(source: str) -> str:
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read {source}: {error}") from None


def display_name(source: str) -> str:
    return "<stdin>" if source == "-" else source


def parse_module(text: str, context: Any, name: str) -> Any:
    """The module, verified; raises ``MalformedInput``. Its locations name the file where the text is all of it."""
    from nki_mlir.bindings import ir
    with context:
        try:
            # Only parsing a file gives locations its name.
            whole = Path(name).is_file() and Path(name).read_bytes() == text.encode()
            module = ir.Module.parseFile(name) if whole else ir.Module.parse(text)
        except ir.MLIRError as error:
            found = [diagnostic(d, name) for d in error.error_diagnostics]
            raise MalformedInput([d for d in found if d.message] or [
                Diagnostic(name, 1, 1, "error", str(error).splitlines()[0])]) from None
        except ValueError as error:
            raise MalformedInput([Diagnostic(name, 1, 1, "error", str(error))]) from None
    return module


def diagnostic(raw: Any, name: str) -> Diagnostic:
    """A diagnostic of the bindings as ours."""
    match = re.search(r'"(.*?)":(\d+):(\d+)', str(raw.location))
    file, line, column = (match[1], int(match[2]), int(match[3])) if match else (name, 1, 1)
    return Diagnostic(name if file in ("-", "") else file, line, column, "error", raw.message.replace("\0", ""))


def load_kernel(source: str) -> Any:
    """The kernel that ``FILE.py:FUNCTION`` names, with the vendor's module names made importable."""
    import importlib.util

    from nki_mlir.compat import install
    from nki_mlir.language.kernel import Kernel, unwrap
    file, _, name = source.rpartition(":") if not source.endswith(".py") else (source, "", "")
    path = Path(file)
    if not path.is_file():
        raise SourceError(f"cannot read {file}: no such file")
    install()
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except NkiMlirError:
        raise
    except Exception as error:
        raise SourceError(f"{file} cannot be imported: {type(error).__name__}: {error}") from None
    kernels = {n: v for n, v in vars(module).items() if isinstance(v, Kernel)}
    if not name and len(kernels) == 1:
        return next(iter(kernels.values()))
    found = getattr(module, name, None) if name else None
    if found is None or not callable(found):
        raise NoKernel(file=file, name=name or "?", found=", ".join(kernels) or "no kernels")
    return unwrap(found)


def fail(error: NkiMlirError) -> int:
    """Print an error as commands do; the exit status."""
    print(error, file=sys.stderr)
    return 1
