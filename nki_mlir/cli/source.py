# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Read the inputs of commands, MLIR from a file or standard input or a kernel, and write their outputs."""

import errno
import importlib.util
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nki_mlir.alone import keep_last_collection
from nki_mlir.cli.command import raised_at
from nki_mlir.cli.packages import module_name, package_folders
from nki_mlir.cli.python_state import keep_python_state
from nki_mlir.diagnostics import Location, NkiMlirError, printable, shortened, text_of
from nki_mlir.files import name_source, write_file
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.similar_names import nearest

if TYPE_CHECKING:
    from nki_mlir.bindings import Context, Module
    from nki_mlir.custom_form.reader import SourceMap
    from nki_mlir.language.kernel import Kernel


class SourceError(NkiMlirError):
    code = ""
    message = "{text}"


class NoKernel(NkiMlirError):
    code = "NKI-KERNEL-NAME"
    message = "{file} has no kernel '{name}'"
    fix = "{choice}"

    @classmethod
    def of(cls, file: str, name: str, kernels: Iterable[str]) -> "NoKernel":
        """Return the error for a name that a file with these kernels lacks, or for none."""
        listed = ", ".join(kernels)
        return cls(file=file, name=name, choice=f"choose one of its kernels: {listed}" if listed else
                   "decorate a function of the file with nki.jit")


class NoKernels(NoKernel):
    message = "{file} has no kernel"


class WhichKernel(NoKernel):
    message = "{file} has several kernels: choose one with {file}:FUNCTION"


def load_libraries(files: list[str]) -> None:
    """Load libraries of custom operators. Modules never load libraries that they name."""
    if files:
        from nki_mlir import customop  # start-up: imported on first use
        for file in files:
            customop.load_library(file)


@dataclass
class Diagnostic:
    """An error of the bindings with its location."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return printable(f"{self.file}:{self.line}:{self.column}: error: {shortened(self.message)}")


class StreamsAreNoModule(NkiMlirError):
    code = "NKI-SOURCE-STREAMS"
    message = "the file has instruction streams as assembly, not a module"
    fix = "run them with nki-run --on=isa, or write a binary with nki-translate --assemble"


class MalformedInput(NkiMlirError):
    """The error of a text that is not a valid module, with its diagnostics."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__("the input is not a valid module")
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics))


def read_bytes(source: str) -> bytes:
    """Read a file, or standard input for ``-``. Raise ``SourceError``, or the error of an input that exceeds the
    limit."""
    try:
        if source == "-":
            if sys.stdin is None:
                raise SourceError("cannot read -: standard input is closed")
            data = sys.stdin.buffer.read(TEXT_BYTES.value() + 1)
            TEXT_BYTES.check(len(data), "the input", display_name(source))
        else:
            data = TEXT_BYTES.read(source)
    except (OSError, ValueError) as error:
        hint = kernel_hint(source) if isinstance(error, FileNotFoundError) else ""
        raise SourceError(f"cannot read {source}: {getattr(error, 'strerror', error)}{hint}") from None
    name_source(source)
    return data


def kernel_hint(source: str) -> str:
    """Return a hint for ``FILE:FUNCTION`` or ``FILE.FUNCTION`` without the ending ``.py`` of a file that exists."""
    file, separator, name = source.rpartition(":") if ":" in source else source.rpartition(".")
    is_kernel = separator and name.isidentifier() and os.path.isfile(f"{file}.py")
    return f"; did you mean {file}.py:{name}?" if is_kernel else ""


def read_text(source: str) -> str:
    """Read a file, or standard input for ``-``, as text."""
    return decoded(read_bytes(source), source)


def decoded(data: bytes, name: str) -> str:
    """Decode the text of a file, without a byte-order mark. Raise ``SourceError`` if it is not UTF-8."""
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[:error.start]
        line = before.rpartition(b"\n")[2].decode()
        why = "it is MLIR bytecode, and the commands read text" if data.startswith(b"ML\xefR") else (
            f"byte {data[error.start]:#04x} is not UTF-8")
        raise SourceError(f"cannot read {display_name(name)}: {why}").located(
            Location(display_name(name), before.count(b"\n") + 1, len(line))) from None


def display_name(source: str) -> str:
    """Return the name of a source in messages."""
    return "<stdin>" if source == "-" else source


def is_graph_text(text: str) -> bool:
    """Return whether the text of a module has operations of StableHLO."""
    return any(name in text for name in ("stablehlo.", "chlo.", "vhlo."))


def read_module(text: str, name: str, report: Callable[[str, int, str], None] | None = None,
                neighbor: "Module | None" = None) -> "Module":
    """Parse a module in a new context, or in the context of the module ``neighbor``, and check that it is safe. Errors
    name the file.

    ``report`` is called with the kind, line and text of each warning and remark. Without it MLIR prints them.
    """
    from nki_mlir.dialects.isa.module import load_isa  # start-up: loads MLIR
    from nki_mlir.dialects.mlir_ops import new_context
    from nki_mlir.passes.safety import check_safe
    if text.startswith(".nki_isa"):
        raise StreamsAreNoModule().located(Location(name, 1, 0))
    if is_graph_text(text):
        from nki_mlir.graph.upstream import graph_context  # start-up: loads MLIR
        context = graph_context()
    elif neighbor is not None:
        context = neighbor.context
    else:
        context = new_context()
    if "isa." in text:
        load_isa(context)
    if report is not None:
        report_diagnostics(context, report)
    try:
        module = parse_module(text, context, name)
        check_safe(module)
    except NkiMlirError as error:
        raise renamed(error, name) from None
    return module


def report_diagnostics(context: "Context", report: Callable[[str, int, str], None]) -> None:
    """Call ``report`` with the kind, line and text of each warning and remark of MLIR."""
    def handle(diagnostic: Any) -> bool:
        kind = str(diagnostic.severity).rpartition(".")[2].lower()
        if kind not in ("warning", "remark"):
            return False
        line = re.search(r'":(\d+):', str(diagnostic.location))
        report(kind, int(line[1]) if line else 1, diagnostic.message)
        return True
    context.attach_diagnostic_handler(handle)


@contextmanager
def errors_of_file(name: str) -> Iterator[None]:
    """Give errors that are raised inside the ``with`` block the file's name, if they have no location."""
    try:
        yield
    except NkiMlirError as error:
        raise renamed(error.located(Location(name, 0, 0)), name) from None


def renamed(error: NkiMlirError, name: str) -> NkiMlirError:
    """Return the error with the input's name in its location, if the location is in a text without a file name."""
    if error.at is not None and error.at.file in ("-", "<stdin>", "<text>"):
        error.at = error.at._replace(file=name)
    return error


def parse_module(text: str, context: "Context", name: str) -> "Module":
    """Parse and verify a module whose operations are in their custom or in the generic form. Raise ``MalformedInput``.

    Its locations name the file if the text is the complete file or, in the custom form, a part of it.
    """
    from nki_mlir.bindings import ir  # start-up: loads MLIR
    from nki_mlir.text_limits import check_text  # start-up: a kernel has no such text
    check_text(text, name)
    source_map = custom_text(text, name)
    with context:
        try:
            # Only parsing a file gives locations its name.
            data = Path(name).read_bytes() if name.isprintable() and os.path.isfile(name) else b""
            is_complete_file = data == text.encode() != b""
            if source_map is not None:
                module = ir.Module.parse(source_map.text)
            else:
                module = ir.Module.parseFile(name) if is_complete_file else ir.Module.parse(with_line_break(text))
        except ir.MLIRError as error:
            raise mapped(malformed(error, name), source_map) from None
        except ValueError as error:
            raise MalformedInput([Diagnostic(name, 1, 1, str(error))]) from None
        if source_map is not None:
            source_map.relocate(module, name if text.strip("\n").encode() in data else "-")
    return module


def with_line_break(text: str) -> str:
    """Return the text with a line break at its end: without it MLIR locates an error there before the last word."""
    return text if text.endswith("\n") else f"{text}\n"


def read_modules(parts: list[str], name: str) -> list["Module"]:
    """Parse the modules of a launch's cores in one context, so that passes can compare their operations."""
    from nki_mlir.dialects.kernel_function import the_kernel  # start-up: loads MLIR
    modules: list[Module] = []
    for part in parts:
        modules.append(read_module(part, name, neighbor=modules[0] if modules else None))
    kernels = {(kernel.name, kernel.grid) for kernel in map(the_kernel, modules[1:] and modules)}
    if len(kernels) > 1 or any(not grid for _, grid in kernels):
        raise SourceError("the text has several kernels, not the modules of one kernel's cores").located(
            Location(name, 1, 0))
    return modules


def custom_text(text: str, name: str) -> "SourceMap | None":
    """Rewrite custom forms of operations to the generic form. Return None if the text has none. Raise
    ``MalformedInput``."""
    from nki_mlir.custom_form.reader import MalformedText, expanded, has_custom_form  # start-up: loads MLIR
    if not has_custom_form(text):
        return None
    try:
        return expanded(with_line_break(text))
    except MalformedText as error:
        raise MalformedInput([Diagnostic(name, *location, message) for location, message in error.messages()]) from None


def mapped(error: MalformedInput, source_map: "SourceMap | None") -> MalformedInput:
    """Map the locations of an error to the text that the user wrote."""
    for diagnostic in error.diagnostics if source_map is not None else ():
        diagnostic.line, diagnostic.column = source_map.source_of(diagnostic.line, diagnostic.column)        # type: ignore[union-attr]
    return error


def verify_result(module: "Module") -> None:
    """Raise ``MalformedInput`` if passes left a module that does not verify, for example a tile that leaves its
    tensor."""
    from nki_mlir.bindings import ir  # start-up: loads MLIR
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise malformed(error, "<result>") from None


def malformed(error: Any, name: str) -> MalformedInput:
    """Convert an error of the bindings. ``name`` is the file of diagnostics without one."""
    diagnostics = [diagnostic(raw, name) for raw in error.error_diagnostics]
    return MalformedInput([d for d in diagnostics if d.message] or [Diagnostic(name, 1, 1, str(error).splitlines()[0])])


def diagnostic(raw: Any, name: str) -> Diagnostic:
    """Convert a diagnostic of the bindings."""
    match = re.search(r'"(.*?)":(\d+):(\d+)', str(raw.location))
    file, line, column = (match[1], int(match[2]), int(match[3])) if match else (name, 1, 1)
    message = raw.message.replace("\0", "")
    if (unregistered := re.match(r"unregistered operation '([\w.]+)' found", message)) is not None:
        from nki_mlir.custom_form.operation_fields import operation_names  # start-up: loads MLIR
        suggestion = nearest(unregistered[1], operation_names())
        message += f"; '{suggestion}' is one" if suggestion else ""
    return Diagnostic(name if file in ("-", "") else file, line, column, message)


def load_kernel(source: str, target: str | None = None, grid: tuple[object, ...] = ()) -> "Kernel":
    """Load the kernel that ``FILE.py:FUNCTION`` names, for a target and a launch grid.

    The vendor's module names can be imported by its file.
    """
    from nki_mlir.language.kernel import Kernel, unwrap  # start-up: imported on first use
    from nki_mlir.machine import machine_named
    file, _, name = source.rpartition(":") if not source.endswith(".py") else (source, "", "")
    names = run_file(Path(file or source))
    kernels = {n: v for n, v in names.items() if isinstance(v, Kernel)}
    if not name and len(kernels) != 1:
        raise (WhichKernel if kernels else NoKernels).of(file, name, kernels)
    function = names.get(name) if name else next(iter(kernels.values()))
    if function is None or not callable(function):
        raise NoKernel.of(file, name, kernels)
    kernel = unwrap(function)
    if target is not None:
        machine_named(target)
        kernel = kernel.with_changes(target=target)
    return kernel[grid] if grid else kernel


def reason_against(file: Path) -> str:
    """Say why a path names no regular file."""
    try:
        return "it is a directory" if stat.S_ISDIR(os.stat(file).st_mode) else "it is not a regular file"
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT, errno.ENAMETOOLONG):
            return str(error.strerror)
        return "no such file"


def run_file(file: Path) -> dict[str, object]:
    """Run a Python file as a module of its name, in its package if it has relative imports. Return the names that it
    defines."""
    from nki_mlir.compat import install  # start-up: imported on first use
    if not os.path.isfile(file):                        # Path's methods raise errors for names that are too long
        raise SourceError(f"cannot read {shortened(str(file))}: {reason_against(file)}")
    TEXT_BYTES.check(file.stat().st_size, "the file", str(file))
    name_source(file)
    install(executables=False)
    try:
        folders = package_folders(file)
    except OSError as error:                            # the first read: no permission, a disk that fails
        raise SourceError(f"cannot read {shortened(str(file))}: {error.strerror}") from None
    sys.path.insert(0, str(folders[0].parent) if folders else os.path.dirname(os.path.realpath(file)))
    keep_last_collection()
    keep_python_state(file)
    try:
        name = module_name(file, folders)
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise SourceError(f"{file} is not a Python file")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (NkiMlirError, KeyboardInterrupt, SystemExit):
        raise
    except SyntaxError as error:
        at = Location(error.filename or str(file), error.lineno or 1, max(0, (error.offset or 1) - 1))
        raise SourceError(f"{type(error).__name__}: {error.msg}").located(at) from None
    except BaseException as error:                      # the file may define exceptions of this class
        raise SourceError(f"{file} cannot be imported: {type(error).__name__}: {text_of(error)}").located(
            raised_at(error)) from None
    return vars(module)


def write_output(file: str, data: str | bytes) -> None:
    """Write a result to a file, or to standard output for ``-``."""
    sys.stdout.flush()                                  # flush first: the write below goes to the underlying buffer
    if file == "-":
        sys.stdout.buffer.write(data.encode() if isinstance(data, str) else data)
        sys.stdout.buffer.flush()
        return
    try:
        write_file(file, data)
    except OSError as error:
        raise SourceError(f"cannot write {file}: {error.strerror}") from None
