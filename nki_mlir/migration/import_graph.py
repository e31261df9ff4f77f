# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds in a text the files of a package that it imports: by relative and absolute imports, and by ``__init__.py``."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DynamicImport:
    """A call that imports a module whose name the text may not show."""

    file: Path
    line: int
    text: str


def reachable_files(file: Path, outermost: Path) -> tuple[list[Path], list[DynamicImport]]:
    """Return the files of a package that a file imports, directly or indirectly, including itself, and the calls that
    import a module by a name. Files that do not parse import nothing."""
    reached: dict[Path, None] = {}
    calls: list[DynamicImport] = []
    pending = [file.resolve()]
    while pending:
        current = pending.pop()
        if current in reached or not current.is_file():
            continue
        reached[current] = None
        pending += [folder / "__init__.py" for folder in folders_within(current, outermost)]
        try:
            tree = ast.parse(current.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    pending += (p for item in names for p in absolute(item.name.split("."), outermost))
                case ast.ImportFrom(level=0, module=str(module), names=names):
                    pending += (p for item in names for p in absolute([*module.split("."), item.name], outermost))
                case ast.ImportFrom(level=level, module=module, names=names):
                    folder = current.parent.joinpath(*[".."] * (level - 1)).resolve()
                    parts = module.split(".") if module else []
                    if folder == outermost or outermost in folder.parents:
                        pending += (p for item in names for p in modules(folder, [*parts, item.name]))
                case ast.Call(func=function) if ast.unparse(function) in ("importlib.import_module", "import_module",
                                                                           "__import__"):
                    calls.append(DynamicImport(current, node.lineno, ast.unparse(node)))
    return list(reached), calls


def files_of_packages_beside(file: Path, text: str) -> list[Path]:
    """Return the files of the packages in a file's folder that the file imports by their absolute names, directly or
    indirectly."""
    reached: dict[Path, None] = {}
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                paths = [item.name.split(".") for item in names]
            case ast.ImportFrom(level=0, module=str(module), names=names):
                paths = [[*module.split("."), item.name] for item in names]
            case _:
                continue
        for first, *parts in paths:
            package = file.resolve().parent / first
            if package.is_dir():
                for path in modules(package, parts):
                    reached |= dict.fromkeys(reachable_files(path, package)[0])
    return list(reached)


def folders_within(file: Path, outermost: Path) -> list[Path]:
    """Return the folders from a package to a file in it."""
    return [folder for folder in file.parents if folder == outermost or outermost in folder.parents]


def absolute(parts: Sequence[str], outermost: Path) -> Iterator[Path]:
    """Yield the files that ``package.part.part`` may be in a package."""
    if parts[0] == outermost.name:
        yield from modules(outermost, parts[1:])


def modules(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files to which names below a folder may refer: each is a module, a package, or a name in the one
    before."""
    for part in parts:
        yield folder / "__init__.py"
        yield (folder / part).with_suffix(".py")
        folder /= part
    yield folder / "__init__.py"


def with_package_renamed(text: str, old: str, new: str) -> str:
    """Return a text whose absolute imports from a package are from the package's copy of another name."""
    lines = text.splitlines(keepends=True)
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom)]
    for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset), reverse=True):
        match node:
            case ast.ImportFrom(level=0, module=str(module)) if module.split(".")[0] == old:
                node.module = new + module[len(old):]
            case ast.Import(names=names) if any(item.name.split(".")[0] == old for item in names):
                node.names = [_renamed(item, old, new) for item in names]
                if any(item.name.split(".")[0] == old and item.asname is None for item in names):
                    node.names.append(ast.alias(new, old))
            case _:
                continue
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = lines[first].encode()[:node.col_offset].decode()
        after = lines[last].encode()[node.end_col_offset:].decode()
        lines[first:last + 1] = [before + ast.unparse(node) + after]
    return "".join(lines)


def _renamed(item: ast.alias, old: str, new: str) -> ast.alias:
    return ast.alias(new + item.name[len(old):], item.asname) if item.name.split(".")[0] == old else item


def module_of(path: str, importer: Path, files: Mapping[str, Sequence[Path]]) -> Path | None:
    """Return the file that a dotted path names. Among files with the same last name, it is the one in the folders that
    the path names, or the nearest to the file that imports it."""
    parts = path.split(".")
    candidates = files.get(parts[-1], [])

    def agreement(file: Path) -> tuple[int, int, int]:
        names = [*(file.parent if file.stem == "__init__" else file.with_suffix("")).parts]
        equal = next((k for k, (a, b) in enumerate(zip(reversed(parts), reversed(names))) if a != b), len(parts))
        near = next((k for k, (a, b) in enumerate(zip(importer.parts, file.parts)) if a != b), len(file.parts))
        return equal, near, -len(names)
    return max(candidates, key=agreement, default=None)
