# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convert docstrings to Markdown for the site."""

import inspect
import re
import textwrap
from typing import Any

PARTS = ("Arguments", "Result", "Errors", "Engine", "Cost", "Example", "Source")


def prose(text: str) -> str:
    """Convert plain text to Markdown: text in double backticks becomes code, other special characters are escaped."""
    pieces = re.split(r"(``.+?``)", text, flags=re.DOTALL)
    return "".join(f"`{p[2:-2]}`" if p.startswith("``") and len(p) > 4 else re.sub(r"([\\*_<>|\[\]`$])", r"\\\1", p)
                   for p in pieces)


def signature(function: Any, name: str) -> str:
    """Return a function's signature; defaults that are classes and enumerations appear by name."""
    text = re.sub(r"<(?:class|function) '?(?:\w+\.)*(\w+)'?(?: at \w+)?>", r"\1", str(inspect.signature(function)))
    text = name + re.sub(r"<([\w.]+): [^>]*>", r"\1", text).replace("(self, ", "(").replace("(self)", "()")
    text = re.sub(r"((?:: |-> ))'([^']+)'", r"\1\2", text)             # annotations that are written as texts
    if len(text) <= 88:
        return text
    parameters = textwrap.fill(text[len(name) + 1:], 84, break_on_hyphens=False)
    return f"{name}(\n{textwrap.indent(parameters, '    ')}"


def code(text: str, language: str = "python") -> list[str]:
    """Return a block of code with a fence longer than any in it."""
    fence = "`" * max(3, *(len(f) + 1 for f in ["``", *re.findall(r"`{3,}", text)]))
    return [f"{fence}{language}", text.rstrip("\n"), fence, ""]


def sections(docstring: str) -> dict[str, str]:
    """Return the parts of a docstring by their titles; the text before them has the title ''."""
    pieces = re.split(rf"(?:^|\n)({'|'.join(PARTS)})::?\n", docstring)
    return {"": pieces[0].strip(), **{k: textwrap.dedent(v).strip("\n") for k, v in zip(pieces[1::2], pieces[2::2])}}


def arguments(text: str) -> list[str]:
    """Return the arguments of a docstring as a table; indented lines continue the previous one."""
    entries: list[list[str]] = []
    for line in text.splitlines():
        name, colon, description = line.partition(": ")
        if line.startswith(" ") or not colon:
            if entries:
                entries[-1][1] += " " + line.strip()
            continue
        entries.append([name, description])
    rows = [f"| `{name}` | {prose(description)} |" for name, description in entries]
    return ["| argument | |", "|---|---|", *rows, ""] if rows else []


def entry(title: str, signature: str, docstring: str, output: str = "", level: int = 2) -> list[str]:
    """Return the section of a function, class or method: its docstring, with the results of its example."""
    parts = sections(docstring)
    lines = [f"{'#' * level} `{title}`", ""]
    if signature:
        lines += code(signature)
    lines += [prose(parts[""]), "", *arguments(parts.get("Arguments", ""))]
    for part in ("Result", "Errors"):
        if content := parts.get(part, ""):
            lines += [f"**{part}.** {prose(' '.join(content.split()))}", ""]
    if content := parts.get("Engine", ""):
        lines += [f"**Engine.** {prose('; '.join(content.splitlines()))}", ""]
    if content := parts.get("Cost", ""):
        lines += ["**Cost.**", "", *code("\n".join(content.splitlines()[:-1]), "text")]
    if content := parts.get("Example", ""):
        lines += ["**Example.**", "", *code(content), *(code(output, "text") if output else [])]
    if content := parts.get("Source", ""):
        lines += [f"<small>{prose(content)}</small>", ""]
    return lines
