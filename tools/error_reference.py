# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write ``docs/errors.md``: every error code with its message, reason and fix, from the sources of the classes.

python tools/error_reference.py [--output FILE]
"""

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("code", "message", "why", "fix")
HEAD = """# Errors

This page lists every error by its code, with its message, reason and fix. Codes do not change; those that begin with
`err_` are the names that the language's documents give. Values replace the words in braces. Where a message is a single
word in braces, the code that raises the error writes it. The name in parentheses is the module with the error's class.

`tools/error_reference.py` (`make docs`) writes the page from these classes.
"""


class Template(NamedTuple):
    """An error class: its templates, and its module."""

    code: str
    message: str
    why: str
    fix: str
    module: str


def text_of(node: ast.ClassDef, name: str) -> str | None:
    """Return the text that a class assigns to a part, or None."""
    for statement in node.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            try:
                value = ast.literal_eval(statement.value)
            except ValueError:
                return None
            return value if isinstance(value, str) else None
    return None


def classes() -> dict[str, tuple[ast.ClassDef, str]]:
    """Return the classes of the package with a code or a message, by name."""
    class_of = {}
    for file in sorted((ROOT / "nki_mlir").rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and any(text_of(node, part) is not None for part in ("code", "message")):
                class_of[node.name] = node, module
    return class_of


def templates() -> Iterator[Template]:
    """Yield every class with a code and a message, including inherited ones."""
    class_of = classes()

    def part(name: str, field: str) -> str:
        if name not in class_of:
            return ""
        node, _ = class_of[name]
        text = text_of(node, field)
        return text if text is not None else next(
            (inherited for base in node.bases if (inherited := part(ast.unparse(base).rpartition(".")[2], field))), "")
    for name, (_, module) in class_of.items():
        values = [part(name, field) for field in PARTS]
        if values[0] and values[1]:
            yield Template(*values, module)


def page() -> str:
    """Return the document."""
    by_code: dict[str, list[Template]] = defaultdict(list)
    for template in templates():
        by_code[template.code].append(template)
    ordered = sorted(by_code, key=lambda c: (c.startswith("err_"), c))
    return "\n".join([HEAD, *page_of({code: by_code[code] for code in ordered})])


def page_of(by_code: dict[str, list[Template]]) -> list[str]:
    """Return the lines of a section for each code."""
    lines = []
    for code, of_code in by_code.items():
        lines.append(f"## `{code}`\n")
        for template in dict.fromkeys(of_code):
            lines += [f"- {plain(template.message)} (`{template.module.removeprefix('nki_mlir.')}`)",
                      *(f"  - {name}: {plain(text)}" for name, text in (("why", template.why), ("fix", template.fix))
                        if text)]
        lines.append("")
    return lines


def plain(text: str) -> str:
    """Convert a template to prose: doubled braces become single ones, the others enclose names of values."""
    escaped = re.sub(r"([*<>|])", r"\\\1", text.replace("{{", "\0").replace("}}", "\1"))
    return re.sub(r"\s+", " ", escaped.replace("\0", "{").replace("\1", "}"))


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the list of errors.")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/errors.md", metavar="FILE",
                        help="the page (docs/errors.md)")
    options = parser.parse_args()
    options.output.write_text(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
