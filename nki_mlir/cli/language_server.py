# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-lsp``: a language server for modules of every level, in the generic and in the custom form.

MLIR's server does not support dialects that Python declares. This one uses the bindings of the commands: it parses and
verifies a text whenever it changes (``text_errors``), and finds definitions, references, completions and the outline in
the text (``editor_text``). It speaks the Language Server Protocol on standard input and output, with positions in
UTF-16 units, as editors expect.
"""

import json
import math
import os
import re
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO
from urllib.parse import unquote, urlparse

from nki_mlir.cli import editor_text
from nki_mlir.cli.command import (
    CommandParser,
    OutputFailed,
    add_common,
    add_plugins,
    command_line,
    fail,
    load_plugins,
)
from nki_mlir.cli.editor_document import Document
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.version import __version__

SYMBOLS = {"function": 12, "alias": 14}                          # numbers of the protocol: function, constant
COMPLETIONS = {"operation": 3, "function": 3, "attribute": 10, "alias": 21, "value": 6}
LENGTH = re.compile(rb"Content-Length:[ \t]*(.*?)\s*$", re.IGNORECASE)
DIGITS = 9                              # most digits of a length: no text of an editor has a gigabyte
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601         # codes of JSON-RPC
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
INCREMENTAL = 2                         # the editor sends what changes in a text, not the complete text


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    load_plugins(command_line(arguments))
    p = CommandParser(prog="nki-lsp", description="Serve an editor: errors and descriptions of operations in "
                                "files of MLIR, over the Language Server Protocol on standard input and output.")
    p.add_argument("--stdio", action="store_true",
                   help="use standard input and output; has no effect, because there is no other transport")
    add_common(p)
    add_plugins(p)
    p.parse_args(arguments)
    if sys.stdin is None:                                    # the editor has closed it
        return fail(SessionBroken(where="before it began: standard input is closed"))
    output, sys.stdout = sys.stdout.buffer, sys.stderr       # only messages may go to the output
    server = Server(sys.stdin.buffer, output)
    try:
        return server.serve()
    except OSError as error:
        with suppress(OSError):                                         # a stream that is closed has no descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # Python flushes the buffer when it exits
        return 1 if isinstance(error, BrokenPipeError) else fail(OutputFailed(reason=error.strerror))


class SessionBroken(NkiMlirError):
    code = "NKI-LSP-SESSION"
    message = "the input ended {where}"
    fix = "send shutdown and exit to end a session"


class Unreadable(Exception):
    """An unreadable message, with the error's code. The server can read the messages that follow it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def parameter_mistake(method: str, parameters: object) -> str:
    """Return the mistake in the parameters of a message about a document, or an empty text."""
    if not method.startswith("textDocument/"):
        return ""
    match parameters:
        case {"textDocument": {"uri": str(uri)}}:
            try:
                urlparse(uri)
            except ValueError as error:
                return f"textDocument.uri is not a URI: {error}"
        case _:
            return "textDocument.uri must be a string"
    match method.rpartition("/")[2], parameters:
        case ("didClose" | "documentSymbol"), _:
            return ""
        case "didOpen", {"textDocument": {"text": str()}}:
            return ""
        case "didOpen", _:
            return "textDocument.text must be a string"
        case "didChange", {"contentChanges": [*changes]} if all(map(is_change, changes)):
            return ""
        case "didChange", _:
            return "each of contentChanges must have a text, and a range with a start and an end if it has one"
        case _, {"position": position} if is_position(position):
            return ""
    return "position must have a line and a character"


def is_change(change: object) -> bool:
    """Return whether a change of a text has the members that the server reads."""
    match change:
        case {"text": str(), "range": {"start": start, "end": end}}:
            return is_position(start) and is_position(end)
        case {"text": str(), "range": limits}:
            return limits is None
        case {"text": str()}:
            return True
    return False


def is_position(position: object) -> bool:
    """Return whether a position has a line and a character."""
    match position:
        case {"line": int(line), "character": int(character)}:
            return line >= 0 and character >= 0
    return False


def no_json_number(text: str) -> float:
    """Reject NaN and infinity, which Python reads and an editor cannot."""
    raise ValueError(f"{text} is not a number of JSON")


def finite_number(text: str) -> float:
    """Parse a number of JSON. Reject one beyond the floats, which the answer would repeat as infinity."""
    number = float(text)
    return number if math.isfinite(number) else no_json_number(text[:40])


class Server:
    """The session of an editor."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self.source, self.sink = source, sink
        self.documents: dict[str, Document] = {}
        self.ending = self.ended = False
        self.lacks = ""                     # the bytes that a message lacks if the input ends within it
        self.handlers: dict[str, Callable[[Any], object]] = {
            "initialize": self.initialize, "shutdown": self.shutdown, "exit": self.exit,
            "textDocument/didOpen": lambda p: self.update(p, [p["textDocument"]]),
            "textDocument/didChange": lambda p: self.update(p, p["contentChanges"]),
            "textDocument/didClose": self.closed, "textDocument/hover": self.hover,
            "textDocument/definition": self.definition, "textDocument/references": self.references,
            "textDocument/documentSymbol": self.symbols, "textDocument/completion": self.completion}

    def serve(self) -> int:
        """Answer until the editor leaves; return 0 if it announced that, else print an error and return 1."""
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
        if self.ending:
            return 0
        return fail(SessionBroken(where=self.lacks or ("with exit, without shutdown" if self.ended else
                                                       "without shutdown and exit")))

    def answer(self, message: dict[str, object]) -> dict[str, object]:
        """Handle a message and return its result or an error. No failure ends the session."""
        method = message.get("method")
        if not isinstance(method, str):
            return {"error": {"code": INVALID_REQUEST, "message": "a message must name its method"}}
        handler = self.handlers.get(method)
        if handler is None:
            return {"error": {"code": METHOD_NOT_FOUND, "message": "no such method"}}
        if lack := parameter_mistake(method, message.get("params")):
            return {"error": {"code": INVALID_PARAMS, "message": lack}}
        try:
            return {"result": handler(message.get("params"))}
        except Exception as error:
            traceback.print_exc()
            return {"error": {"code": INTERNAL_ERROR, "message": f"{type(error).__name__}: {error}"}}

    def read(self) -> dict[str, object] | None:
        """Read the next message; return None at the end of the input. Raise ``Unreadable``."""
        length, begun = None, False
        while (line := self.source.readline()).strip():
            begun = True
            header = LENGTH.search(line)        # also after the rest of a message that could not be read
            length = header[1] if header else length
        if length is None:
            if not line:
                self.lacks = "within the header of a message" if begun else ""
                return None
            raise Unreadable(PARSE_ERROR, "a message begins with Content-Length")
        if not length.isdigit() or len(length) > DIGITS:
            raise Unreadable(PARSE_ERROR, f"Content-Length is {length[:40].decode(errors='replace')}, which must be a "
                                          f"number of up to {DIGITS} digits")
        if int(length) > 2 * TEXT_BYTES.value():            # a text in JSON, most of whose characters are as they are
            remaining = int(length)
            while remaining and (skipped := self.source.read(min(remaining, 1 << 20))):
                remaining -= len(skipped)
            raise Unreadable(INVALID_REQUEST, f"a message has {int(length):,} bytes; {TEXT_BYTES.variable} allows more")
        data = self.source.read(int(length))
        if len(data) < int(length):
            self.lacks = f"within a message of {int(length):,} bytes, of which {len(data):,} came"
            return None                                 # the editor has ended
        try:
            message = json.loads(data, parse_constant=no_json_number, parse_float=finite_number)
        except (ValueError, RecursionError) as error:
            raise Unreadable(PARSE_ERROR, f"a message is not JSON: {error}") from None
        if not isinstance(message, dict):
            raise Unreadable(INVALID_REQUEST, f"a message must be an object, got {type(message).__name__}")
        return message

    def send(self, message: dict[str, object]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.sink.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.sink.flush()

    # -- the session ---------------------------------------------------------------------------------------------------
    def initialize(self, _: object) -> dict[str, object]:
        return {"capabilities": {"textDocumentSync": INCREMENTAL, "hoverProvider": True, "definitionProvider": True,
                                 "referencesProvider": True, "documentSymbolProvider": True,
                                 "completionProvider": {"triggerCharacters": list('.%#!@{"')}},
                "serverInfo": {"name": "nki-lsp", "version": __version__}}

    def shutdown(self, _: object) -> None:
        self.ending = True

    def exit(self, _: object) -> None:
        self.ended = True

    def update(self, params: Any, changes: list[dict[str, Any]]) -> None:
        """Apply the changes of a text, and publish the errors of the result."""
        uri = params["textDocument"]["uri"]
        document = self.documents[uri] = self.document(params).changed(changes)
        self.publish(uri, [{"range": document.range_of_word(line, column), "severity": 1, "source": "nki_mlir",
                            "message": message}
                           for line, column, message in errors_of(document.text, unquote(urlparse(uri).path))])

    def closed(self, params: Any) -> None:
        uri = params["textDocument"]["uri"]
        self.documents.pop(uri, None)
        self.publish(uri, [])

    def publish(self, uri: str, diagnostics: list[dict[str, object]]) -> None:
        self.send({"method": "textDocument/publishDiagnostics", "params": {"uri": uri, "diagnostics": diagnostics}})

    def document(self, params: Any) -> Document:
        """Return the document that a message names; an empty one if it is not open."""
        return self.documents.get(params["textDocument"]["uri"]) or Document()

    # -- queries at a position -----------------------------------------------------------------------------------------
    def hover(self, params: object) -> dict[str, object] | None:
        """Describe the operation at a position, or show the line that defines a value, function or alias."""
        document, at = self.query(params)
        text = document.text
        operation = editor_text.word_at(text, at, editor_text.OPERATION)
        if operation is not None:
            description = editor_text.described(operation[0])
            return {"contents": {"kind": "markdown", "value": description}} if description else None
        word = editor_text.word_at(text, at)
        defined = None if word is None else editor_text.definition_of(text, word[0], at)
        if defined is None:
            return None
        line = text[text.rfind("\n", 0, defined.start) + 1:].partition("\n")[0].strip()
        return {"contents": {"kind": "markdown", "value": f"```mlir\n{line}\n```"}}

    def definition(self, params: Any) -> dict[str, Any] | None:
        """Locate the definition of a value, function or alias."""
        document, at = self.query(params)
        text = document.text
        word = editor_text.word_at(text, at)
        defined = None if word is None else editor_text.definition_of(text, word[0], at)
        if defined is None:
            return None
        return {"uri": params["textDocument"]["uri"], "range": document.range_of(*defined)}

    def references(self, params: Any) -> list[dict[str, object]]:
        """Locate the uses of a value, function or alias, with its definition if the editor requests it."""
        document, at = self.query(params)
        text = document.text
        word = editor_text.word_at(text, at)
        if word is None:
            return []
        defined = editor_text.definition_of(text, word[0], at)
        spans = editor_text.references_of(text, word[0], at)
        if not params.get("context", {}).get("includeDeclaration", True):
            spans = [span for span in spans if span != defined]
        return [{"uri": params["textDocument"]["uri"], "range": document.range_of(*span)} for span in spans]

    def symbols(self, params: Any) -> list[dict[str, object]]:
        """List the functions and aliases of a text."""
        document = self.document(params)
        return [{"name": name, "kind": SYMBOLS[kind], "range": document.range_of(*span),
                 "selectionRange": document.range_of(*label)}
                for name, kind, span, label in editor_text.outline(document.text)]

    def completion(self, params: Any) -> list[dict[str, object]]:
        """List the completions at a position."""
        document, at = self.query(params)
        text = document.text
        span, items = editor_text.completions(text, at)
        return [{"label": item.text, "kind": COMPLETIONS[item.kind], "detail": item.detail, "filterText": item.text,
                 "textEdit": {"range": document.range_of(*span), "newText": item.text}} for item in items]

    def query(self, params: Any) -> tuple[Document, int]:
        """Return the document of a request and the index of its position in the text."""
        document = self.document(params)
        return document, document.index_of(params["position"])


def errors_of(text: str, name: str) -> list[tuple[int, int, str]]:
    """Return (line, column, message) of every error of a text; lines and columns start at 0."""
    from nki_mlir.cli import text_errors  # start-up: loads MLIR
    return text_errors.errors_of(text, name)


if __name__ == "__main__":
    sys.exit(main())
