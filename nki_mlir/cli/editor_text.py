# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Editor queries on a text of MLIR: the word at a position, its definition and uses, completions, and an outline.

The queries read only the text, so they work while the text is not valid. Lines and columns are Python's: they
start at 0.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nki_mlir.custom_form.lexing import STRING, STRUCTURE, closing

OPERATION = re.compile(r"\b(?:nki|nisa|scalar|isa)\.\w+")
WORD = re.compile(r"%[\w$.-]+|[@#!][A-Za-z_][\w$.]*")
TOKENS = re.compile(STRING + r"|//[^\n]*|" + WORD.pattern)
HEADER = re.compile(r"\s*(?:%[\w$.:, %-]+=\s*)?(?:func\.func|scf\.for|scf\.parallel|affine\.for)\b")
FUNCTION = re.compile(r"^[ \t]*(?:func|llvm)\.func\s+(?:(?:private|public|internal|external)\s+)?@([\w$.-]+)",
                      re.MULTILINE)
ALIAS = re.compile(r"^([#!][A-Za-z_][\w$.]*)\s*=", re.MULTILINE)
REACH = 5_000                           # characters of the longest operation
SEPARATOR = re.compile(r"^// -----.*$", re.MULTILINE)


class TextSpan(NamedTuple):
    """A range of characters of the text."""

    start: int
    end: int


class Completion(NamedTuple):
    """A completion: its text, its kind (operation, attribute, alias, value, function), and a detail to show."""

    text: str
    kind: str
    detail: str


def word_at(text: str, at: int, pattern: re.Pattern[str] = WORD) -> re.Match[str] | None:
    """Return the match of a pattern that contains or touches a character, within its line, or None."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return next((m for m in pattern.finditer(text, start, end if end >= 0 else len(text)) if m.end() >= at
                 and m.start() <= at), None)


def part_around(text: str, at: int) -> TextSpan:
    """Return the part between ``// -----`` lines that contains a character."""
    bounds = [0, *(m.end() for m in SEPARATOR.finditer(text))]
    start = max(b for b in bounds if b <= at)
    following = SEPARATOR.search(text, at)
    return TextSpan(start, following.start() if following else len(text))


def definition_of(text: str, word: str, at: int) -> TextSpan | None:
    """Return the name in the definition of a value, function or alias, or None. For a value this is the nearest
    definition above."""
    part = part_around(text, at)
    if word[0] == "%":
        name = re.escape(word)
        binder = re.compile(rf"^\s*(?:%[\w$.:-]+, *)*{name}(?::\d+)?\s*(?:,[^=\n]*)?=|(?<![\w$.-]){name}:(?!:)|"
                            rf"scf\.\w+ \(?{name}(?![\w$.-])", re.MULTILINE)
        end = text.find("\n", at)
        matches = list(binder.finditer(text, part.start, end if end >= 0 else len(text)))
        if not matches:
            return None
        start = text.index(word, matches[-1].start())
    else:
        name = re.escape(word)
        pattern = rf"(?:func|llvm)\.func\s[^@\n]*({name})\b" if word[0] == "@" else rf"^({name})\s*="
        match = re.compile(pattern, re.MULTILINE).search(text, part.start, part.end)
        if match is None:
            return None
        start = match.start(1)
    return TextSpan(start, start + len(word))


def references_of(text: str, word: str, at: int) -> list[TextSpan]:
    """Return the definition and all uses of a name; for a value only those in its scope, since names repeat elsewhere.
    """
    defined = definition_of(text, word, at)
    if defined is None:
        return []
    scope = scope_of(text, defined.start) if word[0] == "%" else part_around(text, at)
    return [TextSpan(m.start(), m.end()) for m in TOKENS.finditer(text, scope.start, scope.end) if m[0] == word]


def scope_of(text: str, at: int) -> TextSpan:
    """Return the scope of a definition: to the end of its region, or of the loop or function if it is an argument in
    the header."""
    line = text[text.rfind("\n", 0, at) + 1:at]
    inside = 1 if HEADER.match(line) else 0
    depth, opened = 0, False
    for token in STRUCTURE.finditer(text, at):
        if token[0] == "{":
            depth += 1
            opened = opened or text[token.end():token.end() + 1] in ("\n", "")
        elif token[0] == "}":
            depth -= 1
            if depth < 0 or (inside and opened and depth == 0):
                return TextSpan(at, token.end())
    return TextSpan(at, len(text))


def outline(text: str) -> Iterator[tuple[str, str, TextSpan, TextSpan]]:
    """Yield (name, kind, complete span, span of the name) of each function and alias."""
    for match in ALIAS.finditer(text):
        end = text.find("\n", match.end())
        yield match[1], "alias", TextSpan(match.start(), end if end >= 0 else len(text)), TextSpan(*match.span(1))
    for match in FUNCTION.finditer(text):
        body = re.compile(r"\{[ \t]*$", re.MULTILINE).search(text, match.end())
        end = closing(text, body.end()) + 1 if body else match.end()
        label = TextSpan(match.start(1) - 1, match.end(1))
        yield "@" + match[1], "function", TextSpan(match.start(), min(end, len(text))), label


# -- completion --------------------------------------------------------------------------------------------------------
def completions(text: str, at: int) -> tuple[TextSpan, list[Completion]]:
    """Return the completions at a position, and the span that they replace."""
    line = text[text.rfind("\n", 0, at) + 1:at]
    begun = re.search(r"[%#!@][\w$.-]*$", line)
    if begun is not None:
        return TextSpan(at - len(begun[0]), at), _defined(text, begun[0], at)
    word = re.search(r"[\w.]*$", line)
    begin = word[0] if word is not None else ""
    span = TextSpan(at - len(begin), at)
    holder = _braces_of(text, at)
    if holder is not None:
        return span, [c for c in attributes_of(*holder) if c.text.startswith(begin)]
    before = line[:len(line) - len(begin)]
    if re.fullmatch(r'\s*(?:%[\w$.:, %-]+=\s*)?"?', before) or before.rstrip().endswith(("{", "|")):
        return span, [c for c in operations() if c.text.startswith(begin)]
    return span, []


def _defined(text: str, begin: str, at: int) -> list[Completion]:
    """Return the names that start with ``begin``: values defined above the line, aliases, and functions of the part."""
    part = part_around(text, at)
    start = text.rfind("\n", 0, at) + 1
    names = dict.fromkeys(m[0] for m in TOKENS.finditer(text, part.start, start if begin[0] == "%" else part.end)
                          if m[0].startswith(begin) and m[0] != text[at - len(begin):at])
    items = []
    for name in names:
        defined = definition_of(text, name, start if name[0] != "%" else max(start - 1, 0))
        if defined is not None:
            first = text.rfind("\n", 0, defined.start) + 1
            end = text.find("\n", defined.end)
            items.append(Completion(name, "value" if name[0] == "%" else "function" if name[0] == "@" else "alias",
                                    text[first:end if end >= 0 else len(text)].strip()))
    return items


def _braces_of(text: str, at: int) -> tuple[str, bool] | None:
    """Return the name of the operation whose attribute dictionary contains a position, and whether it is in generic
    form; or None."""
    from nki_mlir.custom_form.operation_fields import form_of  # start-up: loads MLIR
    part = part_around(text, at)
    # An attribute such as nki.name is spelled like an operation.
    matches = [m for m in OPERATION.finditer(text, max(part.start, at - REACH), at) if form_of(m[0]) is not None]
    if not matches:
        return None
    depth = sum({"{": 1, "}": -1}.get(token[0], 0) for token in STRUCTURE.finditer(text, matches[-1].end(), at))
    return (matches[-1][0], text.startswith('"', matches[-1].end())) if depth == 1 else None


def operations() -> list[Completion]:
    """Return the operations of this project's dialects, with the first line of each description."""
    from nki_mlir.custom_form.operation_fields import BUFFER, operation_names  # start-up: loads MLIR
    return [Completion(BUFFER, "operation", ABOUT_BUFFERS),
            *(Completion(name, "operation", _about(name)) for name in operation_names())]


def _about(name: str) -> str:
    """Return the first paragraph of an operation's description."""
    from nki_mlir.custom_form.operation_fields import PlainForm, TileForm, first_paragraph, form_of  # start-up
    match form_of(name):
        case TileForm() as form:
            return first_paragraph(form.cls)
        case PlainForm() as plain:
            return plain.about
    return ""


ABOUT_BUFFERS = "A buffer that has the name of its value."
# The attributes that the custom form prints as subscripts, after ``where`` and after ``limits``.
OF_TILES = tuple([Completion(field, "attribute", about) for field, about in (
    ("access", "the pattern of each tile"), ("mask", "an integer set"), ("nki.limits", "an integer set"))])


def attributes_of(name: str, is_generic: bool) -> list[Completion]:
    """Return the attributes of an operation, in the order of its class; in generic form first those of its tiles."""
    from nki_mlir.custom_form.operation_fields import PlainForm, TileForm, form_of  # start-up: loads MLIR
    match form_of(name):
        case TileForm() as form:
            default = form.cls.defaults if is_generic else form.defaults
            fields = [Completion(field, "attribute", kind.__name__ + (f", {default[field]!r} by default"
                      if field in default else "")) for field, kind in form.cls.attributes.items()]
            return [*OF_TILES, *fields] if is_generic else fields
        case PlainForm() as plain:
            return [Completion(field, "attribute", "") for field in plain.attributes]
    return []


def described(name: str) -> str | None:
    """Return a description of an operation: its purpose, tiles and attributes, engines and encoding. None for unknown
    names."""
    from nki_mlir.custom_form.operation_fields import BUFFER, TileForm, form_of  # start-up: loads MLIR
    form = form_of(name)
    if form is None:
        return f"### {name}\n\n{ABOUT_BUFFERS}" if name == BUFFER else None
    head = [f"### {name}", "", _about(name), ""]
    if not isinstance(form, TileForm):
        return "\n".join([*head, *(f"- `{field}`" for field in form.attributes)]).rstrip()
    cls = form.cls
    roles = {"In": "read", "Out": "written", "InOut": "read and written"}
    lines = [*head, *(f"- `{tile.name}`: a tile that is {roles[tile.role.__name__]}"
                      f"{', or left out' if tile.optional else ''}" for tile in cls.tiles)]
    lines += [f"- `{field}`: {kind.__name__}" + (f", `{cls.defaults[field]!r}` by default"
              if field in cls.defaults else "") for field, kind in cls.attributes.items()]
    if cls.mnemonic:
        engines = " or ".join(engine.value for engine in cls.engines)
        lines += ["", f"On {engines}; assembly `{cls.mnemonic}`, opcode `{cls.opcode:#04x}`."]
    return "\n".join(lines)
