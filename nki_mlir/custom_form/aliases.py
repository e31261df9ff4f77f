# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Drops the unused aliases of a text, and gives repeated long types and attributes an alias."""

import re
from collections import Counter
from collections.abc import Callable

from nki_mlir.custom_form.lexing import STRING, closing

DEFINITION = re.compile(r"^([#!][A-Za-z_][\w$.]*) = ", re.MULTILINE)
USE = re.compile(STRING + r"|//[^\n]*|[#!][A-Za-z_][\w$.]*")
LOCATION = re.compile(r"#loc\d*")
MEMREF = re.compile(STRING + r"|//[^\n]*|\bmemref<")
ACCESS = re.compile(STRING + r"|//[^\n]*|#nki\.access<")
TRAIT = re.compile(STRING + r"|//[^\n]*|(?<=linalg\.generic )\{")
TYPE_PARTS = re.compile(r'memref<((?:[\d?]+x)*)(\w+)(?:, (strided<.*>))?(?:, "(\w+)")?>')
LEAST = 20                              # characters: shorter ones are no longer than an alias


def shortened(text: str) -> str:
    """Return the text with aliases for repeated parts, and without aliases that save nothing."""
    definitions: list[str] = []
    used_names = {m[1] for m in DEFINITION.finditer(text)}
    text = renumbered(text)
    for pattern, name in ((ACCESS, lambda _: "#access"), (TRAIT, trait_name), (MEMREF, type_name)):
        text = _with_aliases(text, pattern, name, definitions, used_names)
    start = 0                           # after the existing definitions, which new ones may use
    for definition in DEFINITION.finditer(text):
        if not LOCATION.fullmatch(definition[1]) or definition.start() == start:
            if definition.start() != start:
                break
            start = text.find("\n", definition.end()) + 1
    return renumbered(text[:start] + "".join(f"{line}\n" for line in definitions) + text[start:])


def _with_aliases(text: str, pattern: "re.Pattern[str]", name: Callable[[str], str], definitions: list[str],
                  used_names: set[str]
                  ) -> str:
    """Return the text in which each repeated match of the pattern has an alias."""
    spans = [(m.start(), closing(text, m.end()) + 1) for m in pattern.finditer(text) if m[0][0] not in '"/']
    counts = Counter(text[start:end] for start, end in spans)
    aliases: dict[str, str] = {}
    parts, at = [], 0
    for start, end in spans:
        part = text[start:end]
        if start < at or counts[part] < 2 or len(part) < LEAST:
            continue
        if part not in aliases:
            aliases[part] = _unique(name(part), used_names)
        parts += [text[at:start], aliases[part]]
        at = end
    definitions += [f"{alias} = {part}" for part, alias in aliases.items()]
    return "".join([*parts, text[at:]])


def _unique(name: str, used_names: set[str]) -> str:
    count, candidate = 0, name
    while candidate in used_names:
        count += 1
        candidate = f"{name}_{count}" if name[-1].isdigit() or name[0] == "!" else f"{name}{count}"
    used_names.add(candidate)
    return candidate


def type_name(kind: str) -> str:
    """Return the alias of a buffer's type, such as ``!sbuf_128x512xf32``."""
    parts = TYPE_PARTS.fullmatch(kind)
    if parts is None:
        return "!buffer"
    return f"!{parts[4] or 'memref'}_{parts[1].replace('?', 'n')}{parts[2]}{'_view' if parts[3] else ''}"


def trait_name(trait: str) -> str:
    """Return the alias for the header of a loop nest."""
    return "#fold" if '"reduction"' in trait else "#elementwise" if '"parallel"' in trait else "#nest"


def renumbered(text: str) -> str:
    """Return the text without unused definitions, and count the others from 0: #map, #map1, ..."""
    while True:
        uses = Counter(m[0] for m in USE.finditer(text))
        unused = [m for m in DEFINITION.finditer(text) if uses[m[1]] == 1]
        if not unused:
            break
        parts, at = [], 0
        for definition in unused:
            parts.append(text[at:definition.start()])
            at = text.find("\n", definition.end()) + 1
        text = "".join([*parts, text[at:]])
    counts: Counter[str] = Counter()
    names: dict[str, str] = {}
    for definition in DEFINITION.finditer(text):
        base = re.fullmatch(r"(#(?:map|set))\d*", definition[1])
        if base is not None:
            names[definition[1]] = base[1] + (str(counts[base[1]]) if counts[base[1]] else "")
            counts[base[1]] += 1
    return USE.sub(lambda m: names.get(m[0], m[0]), text)
