# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Split long pages into several.

Parts begin at headings of the second level, or of the third level in a section that is too long itself. The first part
has the name of the page and links to the others.
"""

import re
from collections.abc import Mapping
from math import ceil

MOST_HEIGHT = 11_500            # estimated pixels of a part, in a window 1,280 wide; it may have a quarter more
LINE, ROW, CODE, EMPTY, HEADING = 26, 48, 21, 12, 62        # pixels of a line of text, of a row of a table, ...
WIDTH, CELLS = 95, 85           # characters of a line of text, and of a row of a table that has one line
# A heading, with the target of links before it.
BEFORE_SECTION = re.compile(r"^(?=\([\w-]+\)=\n## )|(?<!\)=\n)^(?=## )", re.MULTILINE)


def height(text: str) -> int:
    """Estimate the height of a text on the page."""
    total, in_code = 0.0, False
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        total += (CODE if in_code else EMPTY if not line.strip() else max(ROW, ROW / 2 * ceil(len(line) / CELLS))
                  if line.startswith("|") else HEADING if line.startswith("#") else LINE * max(1, len(line) / WIDTH))
    return round(total)


def in_parts(name: str, text: str) -> dict[str, str]:
    """Return the parts of a page by name, or the page itself if it is short."""
    if height(text) <= MOST_HEIGHT:
        return {name: text}
    head, *sections = BEFORE_SECTION.split(text)
    sections = [part for section in sections for part in _divided(section)]
    count = ceil(height(text) / MOST_HEIGHT)
    parts: list[list[str]] = [[]]
    for section in sections:
        before, added = height("".join(parts[-1])), height(section)
        if parts[-1] and (before + added / 2 > (height(text) - height(head)) / count
                          or before + added > 1.25 * MOST_HEIGHT):
            parts.append([])
        parts[-1].append(section)
    title, _, introduction = head.partition("\n")
    stem = name.rpartition("/")[2]
    names = [f"{stem}-{number}" for number in range(2, len(parts) + 1)]
    titles = [f"{title[2:]}: {_heading(part[0])} to {_heading(part[-1])}" if len(part) > 1 else
              f"{title[2:]}: {_heading(part[0])}" for part in parts]
    links = "\n".join(f"- [{of_part}]({part_name}.md)" for of_part, part_name in zip(titles[1:], names))
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *names, "```"])
    first_part = f"{title}\n{introduction.rstrip()}\n\nMore of them:\n\n{links}\n\n{toctree}\n\n{''.join(parts[0])}"
    pages = {name: first_part}
    for part_name, of_part, part in zip(names, titles[1:], parts[1:]):
        pages[name.removesuffix(stem) + part_name] = f"# {of_part}\n\n{''.join(part)}"
    return pages


def with_links_to_parts(pages: Mapping[str, str]) -> dict[str, str]:
    """Return pages whose links to sections lead to the part of a page that has the section now."""
    sections = {(re.sub(r"-\d+$", "", name), anchor): name for name, text in pages.items()
                for heading in re.findall(r"^##+ (.+)$", text, re.MULTILINE) if (anchor := _anchor(heading))}

    def moved(match: re.Match[str]) -> str:
        name, anchor = match[1], match[2]
        return f"]({sections.get((name, anchor), name)}.md#{anchor})"
    return {name: re.sub(r"\]\(([\w-]+)\.md#([\w-]+)\)", moved, text) for name, text in pages.items()}


def _anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _divided(section: str) -> list[str]:
    """Return the sections at the third level of a section that is too long, at the second level."""
    if height(section) <= MOST_HEIGHT:
        return [section]
    first, *others = re.split(r"^(?=### )", section, flags=re.MULTILINE)
    parts = [first + others[0], *others[1:]] if others and height(first) < HEADING * 3 else [first, *others]
    raised = (re.sub(r"^#(##+ )", r"\1", part, flags=re.MULTILINE) for part in parts[1:])
    return [parts[0], *(part.replace("## ", f"## {_heading(section)}: ", 1) for part in raised)]


def _heading(section: str) -> str:
    match = re.search(r"^## (.+)$", section, re.MULTILINE)
    assert match is not None
    return match[1]
