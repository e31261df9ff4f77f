# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the types of values from the text of their definitions.

The generic form of an operation needs the types of its operands; its custom form leaves them out. The definition of an
argument, an allocation, a constant or a result of our operations contains the type. For any other value the printer
writes the type where it is used, ``(%v : f32)``. Printer and reader both use this module to decide.
"""

import re

from nki_mlir.custom_form.lexing import STRING, Cursor, MalformedForm, end_of_item, structure

# The tokens that may define a value or an alias; the scan goes from one to the next.
TOKEN = re.compile(r"(?P<comment>//[^\n]*)"
                   r"|(?P<generic>" + STRING + r")"
                   r"|(?P<alias>^[!#](?P<alias_name>[A-Za-z_][\w$.]*)\s*=\s*)"
                   r"|(?P<function>(?<![\w.\"])func\.func\b)"
                   r"|(?P<block>\^[A-Za-z_0-9$.-]+\()"
                   r"|(?P<body>\{\s*\|)"
                   r"|(?P<result>(?P<result_name>%[\w$.-]+)\s*=\s*)"
                   r"|(?P<operation>(?<![\w.#!@$\"-])(?:nki|nisa|scalar|isa)\.[A-Za-z_]\w*)", re.MULTILINE)
ARGUMENT = re.compile(r"\s*(%[\w$.-]+)\s*:\s*")
# In these operations the last type is the result's. If there are two types, "to" or "->" precedes it.
TYPED = re.compile(r"(?:memref\.alloc|memref\.alloca|memref\.get_global|memref\.reinterpret_cast|memref\.subview|"
                   r"memref\.cast|arith\.constant|arith\.index_cast|arith\.addi|arith\.muli|linalg\.index)\b")
INDEX = re.compile(r"affine\.apply\b")
TO = re.compile(r"\s*(?:to\b|->)")


LONGEST = 1_000                         # characters of a type, or of a function's name


class ValueTypes:
    """The types of the values of a text, which is read from its beginning to its end. The last definition of a name
    counts."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.attributes: dict[str, str] = {}
        self.unclear: set[str] = set()          # values of operations that could not be read

    def of(self, name: str) -> str | None:
        """Return the type of a value with aliases replaced, or None if the text does not state it."""
        type_text = self.types.get(name)
        return None if type_text is None else self.resolved(type_text)

    def resolved(self, kind: str) -> str:
        """Return a type without aliases."""
        for _ in self.aliases:
            if len(kind) > LONGEST:             # aliases of aliases may double it at each step
                break
            kind, changed = re.subn(r"!([A-Za-z_][\w$.]*)", lambda m: self.aliases.get(m[1], m[0]), kind)
            if not changed:
                break
        return kind

    def attribute(self, text: str) -> str:
        """Return the text of an attribute with its alias replaced."""
        return self.attributes.get(text[1:], text) if text.startswith("#") else text

    def define(self, name: str, kind: str | None) -> None:
        if kind is None:
            self.types.pop(name, None)
        else:
            self.types[name] = kind

    def define_token(self, text: str, token: "re.Match[str]") -> None:
        """Record the value or alias that a token defines."""
        match token.lastgroup:
            case "alias":
                cursor = Cursor(text, token.end())
                if token[0].startswith("!"):
                    kind = cursor.type()
                    if len(kind) <= LONGEST:
                        self.aliases[token["alias_name"]] = kind
                else:
                    self.attributes[token["alias_name"]] = cursor.raw_line()
            case "function":
                start = text.find("(", token.end(), token.end() + LONGEST)
                if start >= 0:
                    self.arguments(text, start + 1)
            case "block" | "body":
                self.arguments(text, token.end())
            case "result":
                self.define(token["result_name"], self.result(text, token.end()))

    def arguments(self, text: str, at: int) -> int:
        """Record the arguments of a list, ``%a: f32, %b: f32``. Returns where the list ends."""
        while (match := ARGUMENT.match(text, at)) is not None:
            cursor = Cursor(text, match.end())
            self.define(match[1], cursor.type())
            at = end_of_item(text, cursor.at)
            if not text.startswith(",", at):
                break
            at += 1
        return at

    def result(self, text: str, at: int) -> str | None:
        """Return the result type that an operation's text states, or None."""
        if INDEX.match(text, at):
            return "index"
        generic = text.startswith('"', at)
        if not generic and not TYPED.match(text, at):
            return None
        ends = (":", "=") if generic else (":", "\n")
        start = next((p for token, p in structure(text, at) if token in ends), -1)
        if start < 0 or text[start] != ":":
            return None
        cursor = Cursor(text, start + 1)
        try:
            kind = cursor.type()
            if TO.match(text, cursor.at):
                cursor.at = TO.match(text, cursor.at).end()     # type: ignore[union-attr]
                kind = cursor.type()
        except MalformedForm:
            return None
        return None if kind.startswith("(") else kind
