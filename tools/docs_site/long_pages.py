# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Split long pages of the reference into several.

Parts begin at headings of the second level. The first part has the name of the page and links to the others.
"""

import re
from math import ceil

MOST_HEIGHT = 13_000            # pixels of a part, in a window 1,280 wide
LINE, ROW = 21, 48              # pixels of a line of text or code, of a row of a table
# A heading, with the target of links in front of it.
BEFORE_SECTION = re.compile(r"^(?=\([\w-]+\)=\n## )|(?<!\)=\n)^(?=## )", re.MULTILINE)


def height(text: str) -> int:
    """Estimate the height of a text on the page."""
    return sum(ROW if line.startswith("|") else LINE for line in text.splitlines())


def in_parts(name: str, text: str) -> dict[str, str]:
    """Return the parts of a page by name, or the page itself if it is short."""
    if height(text) <= MOST_HEIGHT:
        return {name: text}
    head, *sections = BEFORE_SECTION.split(text)
    count = ceil(height(text) / MOST_HEIGHT)
    parts: list[list[str]] = [[]]
    for section in sections:
        if parts[-1] and height("".join(parts[-1])) + height(section) / 2 > (height(text) - height(head)) / count:
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


def _heading(section: str) -> str:
    match = re.search(r"^## (.+)$", section, re.MULTILINE)
    assert match is not None
    return match[1]
