# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters written into the text of a kernel's file: constants of the module, and defaults of its functions."""

import ast

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.tuning.space import GRID, LEVEL, Choice


class NoParameter(NkiMlirError):
    code = "NKI-TUNE-NAME"
    message = "{file} has no parameter {name}"
    fix = "write {name} = VALUE at the top of the module, or give a function a parameter {name} with a default"


def with_parameters(text: str, choice: Choice, file: str) -> str:
    """The text with each parameter's value in place of the one that is there. Raises ``NoParameter``."""
    tree = ast.parse(text)
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    edits: list[tuple[int, int, str]] = []
    for name, value in choice.items():
        if name in (GRID, LEVEL):
            continue
        places = constants(tree, name) or defaults(tree, name)
        if not places:
            raise NoParameter(file=file, name=name)
        for place in places:
            assert place.end_lineno is not None and place.end_col_offset is not None
            edits.append((starts[place.lineno - 1] + place.col_offset,
                          starts[place.end_lineno - 1] + place.end_col_offset, repr(value)))
    data = text.encode()
    for begin, end, new in sorted(edits, reverse=True):
        data = data[:begin] + new.encode() + data[end:]
    return data.decode()


def constants(tree: ast.Module, name: str) -> list[ast.expr]:
    """The values that the module gives a name."""
    found = []
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                found.append(value)
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                found.append(value)
    return found


def defaults(tree: ast.Module, name: str) -> list[ast.expr]:
    """The defaults of parameters of that name."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            positional = [*node.args.posonlyargs, *node.args.args]
            pairs = list(zip(positional[len(positional) - len(node.args.defaults):], node.args.defaults))
            pairs += [(a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults) if d is not None]
            found += [default for argument, default in pairs if argument.arg == name]
    return found
