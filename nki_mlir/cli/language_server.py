# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-lsp``: a language server for modules of every level: errors as they are typed, and what an operation is.

MLIR's own server cannot have dialects that Python declares. This one asks the same bindings as the commands: a text is
parsed and verified whole whenever it changes, and its errors are shown at their lines. It speaks the Language Server
Protocol on standard input and output, with positions in UTF-16 units, as editors expect.
"""

import json
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO
from urllib.parse import unquote, urlparse

from nki_mlir.cli.command import CommandParser, add_common, add_plugins, command_line, load_plugins
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.version import __version__

OPERATION = re.compile(r"\b(?:nki|nisa|scalar|isa)\.\w+")
VALUE = re.compile(r"%[\w$.-]+")
LENGTH = re.compile(rb"Content-Length:[ \t]*(.*?)\s*$", re.IGNORECASE)
DIGITS = 9                              # of a length: no text of an editor has a gigabyte
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INTERNAL_ERROR = -32700, -32600, -32601, -32603       # of JSON-RPC


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    load_plugins(command_line(arguments))
    p = CommandParser(prog="nki-lsp", description="Serve an editor: errors and descriptions of operations in "
                                "files of MLIR, over the Language Server Protocol on standard input and output.")
    p.add_argument("--stdio", action="store_true", help="the only way, which some editors ask for")
    add_common(p)
    add_plugins(p)
    p.parse_args(arguments)
    output, sys.stdout = sys.stdout.buffer, sys.stderr       # nothing else may write among the messages
    return Server(sys.stdin.buffer, output).serve()


class Unreadable(Exception):
    """A message that is none, with the error's code; what comes behind it can be read."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Server:
    """One editor's session."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self.source, self.sink = source, sink
        self.texts: dict[str, str] = {}
        self.ending = self.ended = False
        self.handlers: dict[str, Callable[[Any], object]] = {
            "initialize": self.initialize, "shutdown": self.shutdown, "exit": self.exit,
            "textDocument/didOpen": lambda p: self.changed(p["textDocument"]["uri"], p["textDocument"]["text"]),
            "textDocument/didChange": lambda p: self.changed(p["textDocument"]["uri"], p["contentChanges"][-1]["text"]),
            "textDocument/didClose": self.closed, "textDocument/hover": self.hover,
            "textDocument/definition": self.definition}

    def serve(self) -> int:
        """Answer until the editor leaves; 0 where it said so before."""
        while not self.ended:
            try:
                message = self.read()
            except Unreadable as wrong:
                self.send({"id": None, "error": {"code": wrong.code, "message": str(wrong)}})
                continue
            if message is None:
                break
            answer = self.answer(message)
            if "id" in message:
                self.send({"id": message["id"], **answer})
        return 0 if self.ending else 1

    def answer(self, message: dict[str, object]) -> dict[str, object]:
        """The result of a message, or an error: what goes wrong with one does not end the session."""
        method = message.get("method")
        if not isinstance(method, str):
            return {"error": {"code": INVALID_REQUEST, "message": "a message names its method"}}
        handler = self.handlers.get(method)
        if handler is None:
            return {"error": {"code": METHOD_NOT_FOUND, "message": "no such method"}}
        try:
            return {"result": handler(message.get("params"))}
        except Exception as error:
            traceback.print_exc()
            return {"error": {"code": INTERNAL_ERROR, "message": f"{type(error).__name__}: {error}"}}

    def read(self) -> dict[str, object] | None:
        """The next message; None at the end of the input."""
        length: bytes | None = None
        while (line := self.source.readline()).strip():
            header = LENGTH.search(line)        # also behind the rest of a message that could not be read
            length = header[1] if header else length
        if length is None:
            if not line:
                return None
            raise Unreadable(PARSE_ERROR, "a message begins with Content-Length")
        if not length.isdigit() or len(length) > DIGITS:
            raise Unreadable(PARSE_ERROR, f"Content-Length is {length[:40].decode(errors='replace')}, which must be a "
                                          f"number of up to {DIGITS} digits")
        data = self.source.read(int(length))
        if len(data) < int(length):
            return None                                 # the editor is gone
        try:
            message = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Unreadable(PARSE_ERROR, f"a message is no JSON: {error}") from None
        if not isinstance(message, dict):
            raise Unreadable(INVALID_REQUEST, f"a message is an object, got {type(message).__name__}")
        return message

    def send(self, message: dict[str, object]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.sink.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.sink.flush()

    # -- the session ---------------------------------------------------------------------------------------------------
    def initialize(self, _: object) -> dict[str, object]:
        return {"capabilities": {"textDocumentSync": 1, "hoverProvider": True, "definitionProvider": True},
                "serverInfo": {"name": "nki-lsp", "version": __version__}}

    def shutdown(self, _: object) -> None:
        self.ending = True

    def exit(self, _: object) -> None:
        self.ended = True

    def changed(self, uri: str, text: str) -> None:
        self.texts[uri] = text
        self.publish(uri, [shown(text, *one) for one in errors_of(text, unquote(urlparse(uri).path))])

    def closed(self, params: Any) -> None:
        uri = params["textDocument"]["uri"]
        self.texts.pop(uri, None)
        self.publish(uri, [])

    def publish(self, uri: str, diagnostics: list[dict[str, object]]) -> None:
        self.send({"method": "textDocument/publishDiagnostics", "params": {"uri": uri, "diagnostics": diagnostics}})

    # -- what is at a place --------------------------------------------------------------------------------------------
    def hover(self, params: object) -> dict[str, object] | None:
        """What the operation is; of a value the line that makes it."""
        text, line, column = self.position(params)
        found = word_at(text, line, column, OPERATION)
        if found is not None:
            description = described(found)
            return {"contents": {"kind": "markdown", "value": description}} if description else None
        where = self.definition(params)
        if where is None:
            return None
        made = text.split("\n")[where["range"]["start"]["line"]].strip()
        return {"contents": {"kind": "markdown", "value": f"```mlir\n{made}\n```"}}

    def definition(self, params: Any) -> dict[str, Any] | None:
        """Where a value is made: the nearest line above that has it in front of ``=``, or as a block's argument."""
        text, line, column = self.position(params)
        value = word_at(text, line, column, VALUE)
        if value is None:
            return None
        lines = text.split("\n")
        made = re.compile(rf"^\s*(?:%[\w$.:-]+, *)*{re.escape(value)}(?::\d+)?\s*(?:,[^=]*)?=|"
                          rf"{re.escape(value)}:(?!:)|scf\.\w+ (?:\()?{re.escape(value)}\b")
        for number in range(line, -1, -1):
            found = made.search(lines[number])
            if found:
                at = lines[number].index(value, found.start())
                return {"uri": params["textDocument"]["uri"], "range": span(lines[number], number, at, at + len(value))}
        return None

    def position(self, params: Any) -> tuple[str, int, int]:
        """The text, and line and column (of Python) in it."""
        text, at = self.texts.get(params["textDocument"]["uri"], ""), params["position"]
        lines = text.split("\n")
        if at["line"] >= len(lines):
            return text, 0, 0
        before = lines[at["line"]].encode("utf-16-le")[:2 * at["character"]]
        return text, at["line"], len(before.decode("utf-16-le", "ignore"))


def errors_of(text: str, name: str) -> list[tuple[int, int, str]]:
    """(line, column, message) of what is wrong with a text, from 0 on; parts between ``// -----`` by themselves."""
    from nki_mlir.cli.lowering import split_input  # start-up: loads MLIR
    from nki_mlir.cli.source import MalformedInput, read_module
    found = []
    for part in split_input(text):
        if not part.strip():
            continue
        try:
            read_module(part, name)
        except MalformedInput as error:
            found += [(d.line - 1, d.column - 1, d.message) for d in error.diagnostics]
        except NkiMlirError as error:
            place = (error.at.line - 1, error.at.column) if error.at is not None else (0, 0)
            found.append((*place, error.headline))
    return found


def shown(text: str, line: int, column: int, message: str) -> dict[str, object]:
    """An error as the protocol has it, from its place to the end of the word."""
    lines = text.split("\n")
    line = min(max(line, 0), len(lines) - 1)
    column = min(max(column, 0), len(lines[line]))
    word = re.compile(r"[\w%.\"@#$-]+").match(lines[line], column)
    return {"range": span(lines[line], line, column, word.end() if word else column + 1), "severity": 1,
            "source": "nki_mlir", "message": message}


def span(line: str, number: int, start: int, end: int) -> dict[str, object]:
    """A range within a line, in UTF-16 units."""
    first, last = (len(line[:column].encode("utf-16-le")) // 2 for column in (start, end))
    return {"start": {"line": number, "character": first}, "end": {"line": number, "character": last}}


def word_at(text: str, line: int, column: int, pattern: re.Pattern[str]) -> str | None:
    """What the pattern finds at a place."""
    found = (m for m in pattern.finditer(text.split("\n")[line]) if m.start() <= column <= m.end())
    return next((m[0] for m in found), None)


def described(name: str) -> str | None:
    """An operation in words: what it does, its tiles and attributes, engines and encoding."""
    from nki_mlir.dialects import catalogue  # start-up: imported on first use
    from nki_mlir.dialects.op import REGISTRY
    catalogue.load()
    cls = REGISTRY.get(name)
    if cls is None:
        return None
    roles = {"In": "read", "Out": "written", "InOut": "read and written"}
    lines = [f"### {name}", "", (cls.__doc__ or "").strip().split("\n\n")[0].replace("``", "`"), ""]
    lines += [f"- `{tile.name}`: a tile that is {roles[tile.role.__name__]}{', or left out' if tile.optional else ''}"
              for tile in cls.tiles]
    lines += [f"- `{field}`: {kind.__name__}" + (f", `{cls.defaults[field]!r}` where nothing is said"
              if field in cls.defaults else "") for field, kind in cls.attributes.items()]
    if cls.mnemonic:
        engines = " or ".join(engine.value for engine in cls.engines)
        lines += ["", f"On {engines}; assembly `{cls.mnemonic}`, opcode `{cls.opcode:#04x}`."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
