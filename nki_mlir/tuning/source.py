# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write parameters into the text of a kernel's file: constants of the module, and defaults of its functions."""

import ast

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.tuning.space import GRID, LEVEL, Choice


class NoParameter(NkiMlirError):
    code = "NKI-TUNE-NAME"
    message = "{file} has no parameter {name}"
    fix = "write {name} = VALUE at the top of the module, or give a function a parameter {name} with a default"


class UnreadableKernel(NkiMlirError):
    code = "NKI-TUNE-SOURCE"
    message = "the file has no kernel to tune: {reason}"
    fix = "name a Python file in UTF-8 with the kernel"


def read_kernel(file: str) -> str:
    """Return the text of a kernel's file. Raise ``OSError``, ``InputTooLarge`` or ``UnreadableKernel``."""
    try:
        return TEXT_BYTES.read_text(file)
    except UnicodeDecodeError as error:
        before = error.object[:error.start]
        at = Location(file, before.count(b"\n") + 1, error.start - before.rfind(b"\n") - 1)
        raise UnreadableKernel(reason=f"byte {error.object[error.start]:#04x} is not UTF-8").located(at) from None


def with_parameters(text: str, choice: Choice, file: str) -> str:
    """Replace each parameter's value in the text. Raise ``NoParameter`` or ``UnreadableKernel``."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:     # the last two for deep nesting
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1
        reason = getattr(error, "msg", None) or str(error) or "it nests too deeply"
        raise UnreadableKernel(reason=reason).located(Location(file, line, column - 1)) from None
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    edits: list[tuple[int, int, str]] = []
    for name, value in choice.items():
        if name in (GRID, LEVEL):
            continue
        expressions = constants(tree, name) or defaults(tree, name)
        if not expressions:
            raise NoParameter(file=file, name=name)
        for expression in expressions:
            assert expression.end_lineno is not None and expression.end_col_offset is not None
            edits.append((starts[expression.lineno - 1] + expression.col_offset,
                          starts[expression.end_lineno - 1] + expression.end_col_offset, repr(value)))
    data = text.encode()
    for begin, end, new in sorted(edits, reverse=True):
        data = data[:begin] + new.encode() + data[end:]
    return data.decode()


def constants(tree: ast.Module, name: str) -> list[ast.expr]:
    """Return the values that the module assigns to a name."""
    values = []
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                values.append(value)
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                values.append(value)
    return values


def defaults(tree: ast.Module, name: str) -> list[ast.expr]:
    """Return the defaults of parameters of that name."""
    values = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            positional = [*node.args.posonlyargs, *node.args.args]
            pairs = list(zip(positional[len(positional) - len(node.args.defaults):], node.args.defaults))
            pairs += [(a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults) if d is not None]
            values += [default for argument, default in pairs if argument.arg == name]
    return values
