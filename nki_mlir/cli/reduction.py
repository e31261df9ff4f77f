# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-opt --reduce --test=COMMAND``: reduce a module, kernel or program to a smallest text that a command still
accepts.

The reduction does not parse the text, so it also reduces texts that crash a parser. It first removes statements,
from the outermost inwards: lines that brackets or indentation keep together. Then it removes loops and regions
around their bodies, elements of lists, and digits of numbers. Each step halves the size of the parts it removes,
down to single parts (delta debugging), and all steps repeat until none removes anything.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from nki_mlir.cli.source import SourceError
from nki_mlir.diagnostics import with_singulars
from nki_mlir.plain_text import plain_text

OPENING, CLOSING = "([{", ")]}"
NUMBER = re.compile(r"(?<![\w.%@#!^$])\d+(?![\w.]*\.)")
Test = Callable[[str], bool]


class Statement(NamedTuple):
    """A statement: its lines ``first`` up to ``end``, and the lines ``inner`` of its body, between its first and last
    line."""

    first: int
    end: int
    inner: tuple[int, int]
    depth: int


def reduce_file(source: str, text: str, command: str) -> str:
    """Reduce the text of a file and print the sizes. Raise ``SourceError`` if the command does not accept the complete
    text."""
    suffix = Path(source).suffix or ".mlir"
    verdicts: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as folder:
        candidate = Path(folder, f"candidate{suffix}")

        def accepted(changed: str) -> bool:
            if changed not in verdicts:
                candidate.write_text(changed, encoding="utf-8")
                verdicts[changed] = subprocess.run(with_file(command, candidate), shell=True, stdin=subprocess.DEVNULL,
                                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                                   check=False).returncode == 0
            return verdicts[changed]
        if not accepted(text):
            raise SourceError(f"--test does not end with status 0 on {source} as it is: the command must accept a "
                              "file that shows the mistake; '! COMMAND' accepts the files on which COMMAND fails")
        smaller = reduced(text, accepted, suffix == ".py")
    print(with_singulars(f"{len(text.splitlines())} lines, {len(text)} characters: {len(smaller.splitlines())} lines, "
                         f"{len(smaller)} characters after {len(verdicts)} tests"), file=sys.stderr)
    return smaller


def with_file(command: str, file: Path) -> str:
    """Return the shell command with the file in place of ``{}``, or at its end."""
    name = shlex.quote(str(file))
    return command.replace("{}", name) if "{}" in command else f"{command} {name}"


def reduced(text: str, accepted: Test, by_indentation: bool) -> str:
    """Remove all parts of the text that the test does not need."""
    steps: tuple[Callable[[str], str], ...] = (
        lambda text_before: without_statements(text_before, accepted, by_indentation),
        lambda text_before: unwrapped(text_before, accepted, by_indentation),
        lambda text_before: without_elements(text_before, accepted), lambda text_before: smaller_numbers(text_before,
                                                                                                         accepted))
    while True:
        before = text
        for step in steps:
            text = step(text)
        if text == before:
            return text


def fewer(parts: list[int], accepted: Callable[[list[int]], bool]) -> list[int]:
    """Remove parts while ``accepted`` holds: half of the parts, then a quarter, down to single parts. Return the
    remaining ones."""
    size = len(parts)
    while size:
        start = 0
        while start < len(parts):
            candidate = parts[:start] + parts[start + size:]
            if accepted(candidate):
                parts = candidate
            else:
                start += size
        size //= 2
    return parts


# -- statements --------------------------------------------------------------------------------------------------------
def statements(text: str, by_indentation: bool) -> list[Statement]:
    """Return all statements, in the order of their first lines."""
    lines = text.splitlines(keepends=True)
    depths, continues = (indented if by_indentation else bracketed)(text, lines)
    result = []
    for first, depth in enumerate(depths):
        if continues[first]:
            continue
        end = first + 1
        while end < len(lines) and (depths[end] > depth or (continues[end] and depths[end] >= depth)):
            end += 1
        last = end
        if by_indentation:                      # up to `else`, which belongs to the first line
            last = next((k for k in range(first + 1, end) if depths[k] == depth and lines[k].strip()), end)
        elif continues[end - 1] and end - 1 > first:
            last = end - 1
        result.append(Statement(first, end, (first + 1, last), depth))
    return result


def bracketed(text: str, lines: list[str]) -> tuple[list[int], list[bool]]:
    """Return for each line the number of brackets that are open at its start, after any closing brackets that it begins
    with, and whether it begins with any."""
    plain, level, at = plain_text(text), 0, 0
    depths, closes = [], []
    for line in lines:
        part = plain[at:at + len(line)]
        at += len(line)
        leading = re.match(r"[\s)\]}]*", part)
        closed = sum(letter in CLOSING for letter in leading[0]) if leading else 0
        depths.append(level - closed)
        closes.append(closed > 0)
        level = max(0, level + sum((c in OPENING) - (c in CLOSING) for c in part))
    return depths, closes


def indented(text: str, lines: list[str]) -> tuple[list[int], list[bool]]:
    """Return the indentation of each line, and whether it continues the statement above: it is blank, starts with
    ``else``, or is in brackets."""
    depths: list[int] = []
    continues, level = [], 0
    for line in lines:
        blank = not line.strip()
        depths.append(depths[-1] if blank and depths else len(line) - len(line.lstrip(" ")))
        goes_on = level > 0 or (blank and len(depths) > 1) or re.match(r"\s*(else|elif|except|finally)\b", line)
        continues.append(bool(goes_on))
        if continues[-1] and level > 0:
            depths[-1] = depths[-2]
        code = re.sub(r"#.*|'[^']*'|\"[^\"]*\"", "", line)
        level = max(0, level + sum((c in OPENING) - (c in CLOSING) for c in code))
    return depths, continues


def without_statements(text: str, accepted: Test, by_indentation: bool) -> str:
    depth = 0
    while True:
        all_statements = statements(text, by_indentation)
        depths = sorted({statement.depth for statement in all_statements if statement.depth >= depth})
        if not depths:
            return text
        lines, these = text.splitlines(keepends=True), [statement for statement in all_statements
                                                        if statement.depth == depths[0]]

        def joined(stay: list[int], lines: list[str] = lines, these: list[Statement] = these) -> str:
            removed = {line for k in set(range(len(these))) - set(stay) for line in range(these[k].first, these[k].end)}
            return "".join(line for number, line in enumerate(lines) if number not in removed)
        text = joined(fewer(list(range(len(these))), lambda stay: accepted(joined(stay))))
        depth = depths[0] + 1


def unwrapped(text: str, accepted: Test, by_indentation: bool) -> str:
    """Remove the lines around the bodies of statements: a loop becomes its body."""
    while True:
        for candidate in bodies(text, by_indentation):
            if accepted(candidate):
                text = candidate
                break
        else:
            return text


def bodies(text: str, by_indentation: bool) -> Iterator[str]:
    lines = text.splitlines(keepends=True)
    for statement in statements(text, by_indentation):
        first, last = statement.inner
        if first < last:
            inner = lines[first:last]
            if by_indentation:
                removed_indent = len(inner[0]) - len(inner[0].lstrip(" ")) - statement.depth
                inner = [line[removed_indent:] if line[:removed_indent].isspace() else line for line in inner]
            yield "".join([*lines[:statement.first], *inner, *lines[statement.end:]])


# -- elements and numbers ----------------------------------------------------------------------------------------------
def elements(text: str) -> list[tuple[int, int]]:
    """Return the spans of elements between commas in brackets. Each includes the comma before it, the first the comma
    after it."""
    spans, opened = [], list[list[int]]()
    for at, letter in enumerate(plain_text(text)):
        if letter in OPENING + "<":
            opened.append([at])
        elif letter == "," and opened:
            opened[-1].append(at)
        elif letter in CLOSING + ">" and opened:
            commas = [*opened.pop(), at]
            spans += [(start if k else start + 1, end + (not k and end < at)) for k, (start, end) in
                      enumerate(pairwise(commas)) if end - start > 1]
    return sorted(spans, key=lambda span: span[0] - span[1])


def without_elements(text: str, accepted: Test) -> str:
    number = 0
    while number < len(spans := elements(text)):
        start, end = spans[number]
        candidate = text[:start] + text[end:]
        if accepted(candidate):
            text = candidate
        else:
            number += 1
    return text


def smaller_numbers(text: str, accepted: Test) -> str:
    at = 0
    while (match := NUMBER.search(text, at)) is not None:
        at = match.end()
        value = int(match[0]) if len(match[0]) < 20 else 10 ** 19
        for smaller in sorted({0, 1, value // 2, value - 1}):
            if 0 <= smaller < value and accepted(candidate := text[:match.start()] + str(smaller) + text[match.end():]):
                text, at = candidate, match.start() + len(str(smaller))
                break
    return text
