# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-lsp`` as an editor talks to it."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nki_mlir.cli import text_errors
from nki_mlir.cli.language_server import Server, errors_of
from nki_mlir.version import __version__

FILE = Path(__file__).parent.parent.parent / "examples" / "mlir" / "tensor_add.mlir"
TEXT = FILE.read_text()
URI = FILE.as_uri()


def framed(*messages: dict) -> bytes:
    data = [json.dumps({"jsonrpc": "2.0", **m}).encode() for m in messages]
    return b"".join(b"Content-Length: %d\r\nContent-Type: x\r\n\r\n%s" % (len(d), d) for d in data)


def talk(*messages: dict) -> tuple[int, list[dict]]:
    """The exit status, and what the server says."""
    return answered(framed(*messages))


def answered(received: bytes) -> tuple[int, list[dict]]:
    sink = io.BytesIO()
    status = Server(io.BytesIO(received), sink).serve()
    messages, data = [], io.BytesIO(sink.getvalue())
    while line := data.readline():
        assert data.readline() == b"\r\n"
        messages.append(json.loads(data.read(int(line.partition(b":")[2]))))
    return status, messages


def opened(text: str, version: int = 0) -> dict:
    return {"method": "textDocument/didOpen", "params": {"textDocument": {"uri": URI, "text": text}}}


def query(method: str, text: str, word: str, count: int = 0) -> dict:
    """A request at the count-th occurrence of a word."""
    at = -1
    for _ in range(count + 1):
        at = text.index(word, at + 1)
    line = text.count("\n", 0, at)
    before = text[text.rfind("\n", 0, at) + 1:at]
    return {"id": 7, "method": f"textDocument/{method}", "params": {
        "textDocument": {"uri": URI}, "position": {"line": line, "character": len(before.encode("utf-16-le")) // 2 + 1}}}


def test_a_session__begins_and_ends():
    status, messages = talk({"id": 1, "method": "initialize", "params": {}}, {"method": "initialized", "params": {}},
                            {"id": 2, "method": "nothing"}, {"id": 3, "method": "shutdown"}, {"method": "exit"})
    assert status == 0 and [m["id"] for m in messages] == [1, 2, 3]
    assert messages[0]["result"]["serverInfo"] == {"name": "nki-lsp", "version": __version__}
    assert messages[0]["result"]["capabilities"]["hoverProvider"] is True
    assert messages[1]["error"]["code"] == -32601 and messages[2]["result"] is None
    assert talk()[0] == 1                               # it ended without a word


def test_a_session__outlives_a_failure_of_the_server(capsys, monkeypatch):
    def fails(server, parameters):
        raise KeyError("symbol")
    monkeypatch.setattr(Server, "hover", fails)
    status, messages = talk({"id": 1, "method": "textDocument/hover", "params": {
        "textDocument": {"uri": "file:///x"}, "position": {"line": 0, "character": 0}}},
        {"id": 2, "method": "shutdown"}, {"method": "exit"})
    assert status == 0 and [m["id"] for m in messages] == [1, 2]
    assert messages[0]["error"] == {"code": -32603, "message": "KeyError: 'symbol'"}
    assert "KeyError" in capsys.readouterr().err


END = framed({"id": 2, "method": "shutdown"}, {"method": "exit"})


@pytest.mark.parametrize("received, code, words", [
    (b"Content-Length: many\r\n\r\n", -32700, "Content-Length is many, which must be a number of up to 9 digits"),
    (b"Content-Length: -1\r\n\r\n", -32700, "Content-Length is -1"),
    (b"Content-Length: 9999999999\r\n\r\n", -32700, "Content-Length is 9999999999"),
    (b"Content-Length: \r\n\r\n", -32700, "Content-Length is ,"),
    (b"Content-Length: x\r\n\r\n{\"id\": 1}", -32700, "Content-Length is x"),
    (b"Content-Type: x\r\n\r\n", -32700, "a message begins with Content-Length"),
    (b"Content-Length: 0\r\n\r\n", -32700, "a message is not JSON: Expecting value"),
    (b"Content-Length: 4\r\n\r\n{\"id", -32700, "a message is not JSON"),
    (b"Content-Length: 2\r\n\r\n\xff\xfe", -32700, "a message is not JSON"),
    (b"Content-Length: 100000\r\n\r\n" + b"[" * 100000, -32700, "a message is not JSON"),
    (b"Content-Length: 2\r\n\r\n[]", -32600, "a message must be an object, got list"),
    (b"Content-Length: 4\r\n\r\nnull", -32600, "a message must be an object, got NoneType"),
    (b"Content-Length: 23\r\n\r\n{\"id\":null,\"method\":[]}", -32600, "a message must name its method"),
    (b"Content-Length: 11\r\n\r\n{\"id\":null}", -32600, "a message must name its method"),
    (b"Content-Length: 10\r\n\r\n{\"id\":NaN}", -32700, "a message is not JSON: NaN is not a number of JSON"),
    (b"Content-Length: 12\r\n\r\n{\"id\":1e400}", -32700, "a message is not JSON: 1e400 is not a number of JSON"),
], ids=range(16))
def test_what_is_no_message__is_an_error_and_the_session_goes_on(received, code, words):
    status, (wrong, last) = answered(received + END)
    assert wrong["id"] is None and wrong["error"]["code"] == code and words in wrong["error"]["message"]
    assert status == 0 and last["id"] == 2 and last["result"] is None


@pytest.mark.parametrize("method, parameters, words", [
    ("didOpen", None, "textDocument.uri must be a string"), ("hover", [1], "textDocument.uri must be a string"),
    ("didClose", {"textDocument": {"uri": 5}}, "textDocument.uri must be a string"),
    ("didOpen", {"textDocument": {"uri": "file://[x", "text": ""}}, "textDocument.uri is not a URI"),
    ("didOpen", {"textDocument": {"uri": "file:///x", "text": None}}, "textDocument.text must be a string"),
    ("didChange", {"textDocument": {"uri": "file:///x"}, "contentChanges": [{}]}, "each of contentChanges must have"),
    ("didChange", {"textDocument": {"uri": "file:///x"}, "contentChanges": [{"text": "", "range": [0, 1]}]},
     "each of contentChanges must have a text, and a range with a start and an end if it has one"),
    ("didChange", {"textDocument": {"uri": "file:///x"}, "contentChanges": 5}, "each of contentChanges must have"),
    ("hover", {"textDocument": {"uri": "file:///x"}, "position": {"line": -1, "character": 0}}, "position must have"),
    ("definition", {"textDocument": {"uri": "file:///x"}, "position": {"line": 0, "character": "0"}}, "position must have"),
    ("references", {"textDocument": {"uri": "file:///x"}}, "position must have a line and a character")])
def test_parameters_that_lack_something__are_an_error_without_a_traceback(method, parameters, words, capsys):
    message = {"id": 1, "method": f"textDocument/{method}", "params": parameters}
    status, (wrong, last) = answered(framed(message) + END)
    assert wrong["error"]["code"] == -32602 and words in wrong["error"]["message"]
    assert status == 0 and last["id"] == 2 and not capsys.readouterr().err


@pytest.mark.parametrize("received, where", [
    (b"Content-Length: 50\r\n\r\n{", "within a message of 50 bytes, of which 1 came"),
    (b"Content-Length: 5", "within a message of 5 bytes, of which 0 came"), (b"{}", "within the header of a message"),
    (b"\xff\xfe", "within the header of a message"), (b"", "without shutdown and exit"),
    (framed({"method": "initialized", "params": {}}), "without shutdown and exit"),
    (framed({"method": "exit"}), "with exit, without shutdown")])
def test_an_input_that_breaks_off__is_an_error(received, where, capsys):
    assert answered(received) == (1, [])
    assert capsys.readouterr().err == (f"error: the input ended {where} [NKI-LSP-SESSION]\n"
                                       "  fix: send shutdown and exit to end a session\n")


def test_errors__come_as_the_text_changes():
    wrong = TEXT.replace('"nki.store"', '"nki.stroe"', 1)
    assert wrong != TEXT
    change = {"method": "textDocument/didChange", "params": {
        "textDocument": {"uri": URI}, "contentChanges": [{"text": wrong}]}}
    close = {"method": "textDocument/didClose", "params": {"textDocument": {"uri": URI}}}
    _, messages = talk(opened(TEXT), change, close)
    assert [m["method"] for m in messages] == ["textDocument/publishDiagnostics"] * 3
    first, second, third = (m["params"]["diagnostics"] for m in messages)
    assert first == third == []
    line = wrong[:wrong.index("nki.stroe")].count("\n")
    one, = second
    assert one["range"]["start"]["line"] == line and one["severity"] == 1
    assert "nki.stroe" in one["message"]


def test_errors__of_rules_and_of_parts_have_their_lines():
    two = f"{TEXT}// -----\n{TEXT}"
    assert errors_of(two, "x.mlir") == []
    broken = two[:len(TEXT)] + two[len(TEXT):].replace("[1, 128]", "[1, 999]", 1)
    (line, _, message), *others = errors_of(broken, "x.mlir")
    assert len(others) == 2                             # the pattern is used three times
    assert line == TEXT.count("\n") + 1 + TEXT[:TEXT.index('"nki.load"')].count("\n")
    assert "999" in message
    assert errors_of("\n  func.func @f() { %0 = ", "x.mlir") == [(1, 23, "expected operation name in quotes")]


HALF_TYPED = """func.func @kernel(%x: memref<16x8xf32, "hbm"> {nki.name = "x"}) attributes {nki.grid = [], nki.results = []} {
  %a = memref.alloc() : memref<16x8xf32, "sbuf">
  OPERATION
  "nki.nothing"(%a) : (memref<16x8xf32, "sbuf">) -> ()
  %b = memref.alloc() : memref<16xq, "sbuf">
  return
}
"""
NOTHING = "unregistered operation 'nki.nothing' found in dialect ('nki') that does not allow unknown operations"


@pytest.mark.parametrize(("operation", "column", "message"), [
    ("nki.", 2, "custom op 'nki.' is unknown (tried 'func.nki.' as well)"),
    ("%c = nki.", 7, "custom op 'nki.' is unknown (tried 'func.nki.' as well)"),
    ("nki.me", 2, "'nki.me' is not an operation; 'nki.memset' is one"),
    ("nki.memset", 12, "'nki.memset' op expected operand 'dst', found '\"'"),
    ("nki.memset %a", 2, "'nki.memset' op needs attribute 'value'")])
def test_errors__of_an_operation_that_is_half_typed_stand_beside_others(operation, column, message):
    assert errors_of(HALF_TYPED.replace("OPERATION", operation), "x.mlir") == [
        (2, column, message), (3, 2, NOTHING), (4, 34, "expected non-function type")]


def test_errors__of_aliases_are_told_once():
    lines = """!x = memref<8x16xf32, "hbm">
!tile = memref<8x16qf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8] [1, 16]]>
#x = #nki.access<f32, affine_map<() -> (0)>, [[16, 8], [1, 16]]>
#x = #nki.access<f32, affine_map<() -> (0)>, [[16, 8], [1, 16]]>

func.func @copied(%x: !x {nki.name = "x"}) {
  %part = memref.alloc() : !tile
  "nki.load"(%part, %x) {access = [#tile, #x], mask = #all} : (!tile, !x) -> ()
  return
}""".split("\n")
    assert errors_of("\n".join(lines), "x.mlir") == [
        (1, 19, "expected 'x' in dimension list"), (3, 58, "expected ',' or ']'"),
        (5, 0, "redefinition of attribute alias id 'x'")]
    right = [line.replace("qf32", "xf32").replace("8] [1", "8], [1") for line in lines[:5] + lines[6:]]
    assert errors_of("\n".join(right), "x.mlir") == []


def test_hover__says_what_an_operation_is():
    text = TEXT
    _, messages = talk(opened(text), query("hover", text, "nki.load"), query("hover", text, "module"))
    value = messages[1]["result"]["contents"]["value"]
    assert value.startswith("### nki.load\n\n") and "- `dst`: a tile that is written" in value
    assert "- `src`: a tile that is read" in value
    assert messages[2]["result"] is None
    unit = '// \U0001f600 "nisa.activation"\n'
    _, messages = talk(opened(unit), query("hover", unit, "nisa.activation"))
    value = messages[1]["result"]["contents"]["value"]
    assert "On scalar; assembly `ACTIVATE`, opcode `0x13`." in value and "- `fn`: str" in value


def test_hover__describes_operations_without_tiles():
    text = '  %0 = scalar.alu add %a, %b\n  "isa.semaphore"() {label = "Sync"} : () -> ()\n  %t = nki.buffer : !t\n'
    _, messages = talk(opened(text), *(query("hover", text, word) for word in ("scalar.alu", "isa.semaphore", "nki.buffer")))
    values = [message["result"]["contents"]["value"] for message in messages[1:]]
    assert values == ["### scalar.alu\n\nAn ALU operation `fn` on operands of one type.\n\n- `fn`",
                      "### isa.semaphore\n\nA semaphore. Its number is its index among the program's.\n\n- `label`",
                      "### nki.buffer\n\nA buffer that has the name of its value."]


def test_errors_name_undeclared_values_and_the_operation_that_is_meant():
    text = """func.func @f(%x: memref<64x8xf32, "hbm">, %t: memref<64x8xf32, "sbuf">) {
  nki.load %t = %y
  return
}
// -----
module {
  "isa.semafore"() {label = "Sync"} : () -> ()
}
"""
    assert [(line, message) for line, _, message in errors_of(text, "<text>")] == [
        (1, "'nki.load' op the text above does not define %y"),
        (6, "unregistered operation 'isa.semafore' found in dialect ('isa') that does not allow unknown operations; "
            "'isa.semaphore' is one")]


def test_symbols__are_functions_of_the_native_code():
    text = "module {\n  llvm.func internal @copy_64(%arg0: !llvm.ptr) -> i64 {\n    llvm.return %arg0 : i64\n  }\n}\n"
    request = {"id": 7, "method": "textDocument/documentSymbol", "params": {"textDocument": {"uri": URI}}}
    _, messages = talk(opened(text), request)
    assert [(s["name"], s["range"]["start"]["line"], s["range"]["end"]["line"]) for s in messages[1]["result"]] == [
        ("@copy_64", 1, 3)]


def test_values__are_found_where_they_are_made():
    text = """func.func @f(%a: index, %b: index) {
  %x, %y = "some.op"() : () -> (index, index)
  scf.for %i = %a to %b step %y {
    %c = arith.addi %i, %x : index
    %d = arith.addi %c, %c : index
  }
  return
}
"""
    for word, count, line in (("%c, ", 0, 3), ("%y {", 0, 1), ("%x : ", 0, 1), ("%i, ", 0, 2), ("%b step", 0, 0)):
        _, messages = talk(opened(text), query("definition", text, word, count), query("hover", text, word, count))
        assert messages[1]["result"]["range"]["start"]["line"] == line, word
        assert text.split("\n")[line].strip() in messages[2]["result"]["contents"]["value"]
    _, messages = talk(opened(text), query("definition", text, "return"))
    assert messages[1]["result"] is None


def test_the_command__speaks_on_its_streams():
    done = subprocess.run([sys.executable, "-m", "nki_mlir.cli.language_server", "--stdio"], capture_output=True,
                          input=framed({"id": 1, "method": "initialize", "params": {}}, opened(TEXT),
                                       {"id": 2, "method": "shutdown"}, {"method": "exit"}))
    assert done.returncode == 0 and done.stderr == b""
    assert done.stdout.count(b"Content-Length: ") == 3 and b'"diagnostics": []' in done.stdout


def test_the_command__ends_with_an_editor_that_has_closed_its_streams():
    start = [sys.executable, "-m", "nki_mlir.cli.language_server"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(start, stdout=writer, stderr=subprocess.PIPE,
                              input=framed({"id": 1, "method": "initialize", "params": {}}))
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
    done = subprocess.run(["sh", "-c", '"$0" "$@" <&-', *start], capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: the input ended before it began: standard input is closed [NKI-LSP-SESSION]\n")


@pytest.mark.parametrize("text", ["", "// nothing\n", "// -----\n"])
def test_empty_texts__have_no_errors(text):
    assert errors_of(text, "x.mlir") == []


# -- texts in the custom form, and what editors ask about a place -------------------------------------------------------
CUSTOM = """!tile = memref<128x64xf32, "sbuf">
func.func @f(%x: memref<256x64xf32, "hbm">, %t: !tile) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %c1 step %c1 {
    %rows = nki.buffer : !tile
    nki.load %rows = %x[%i * 128 + 0:128, 0:64]
    nki.unary exp %t = %rows {engine = scalar}
  }
  scf.for %i = %c0 to %c1 step %c1 {
    %rows = nki.buffer : !tile
    nki.load %rows = %x[%i * 128 + 0:128, 0:64]
  }
  return
}
"""
VALID = CUSTOM.replace(" {engine = scalar}", "")


def lines_of(answer: dict) -> list[int]:
    return [one["range"]["start"]["line"] for one in answer["result"]]


def test_errors__are_all_of_a_text():
    assert errors_of(VALID, "x.mlir") == []
    text = VALID.replace("nki.load %rows", "nki.laod %rows", 1)
    text = text.replace("  return", "  %z = arith.constnat 1 : i64\n  return")
    text = text.replace("nki.load %rows = %x[%i * 128 + 0:128, 0:64]", "nki.load %rows = %x[%i * 128 + 0:128, 9000:9064]")
    errors = errors_of(f"{text}// -----\n{VALID}// -----\nfunc.func @g() {{", "x.mlir")
    assert [(line, column) for line, column, _ in errors] == [(6, 4), (11, 4), (13, 7), (33, 16)]
    assert errors[0][2] == "'nki.laod' is not an operation; 'nki.load' is one"
    assert "exceed dimension size of 16384" in errors[1][2] and "arith.constnat" in errors[2][2]


def test_errors__that_follow_from_others_are_not_told():
    text = VALID.replace("%c0 = arith.constant 0 : index", "%c0 = arith.constant zero : index")
    assert [line for line, _, _ in errors_of(text, "x.mlir")] == [2]


def test_errors__of_a_text_that_ends_early_are_one():
    lines = VALID.split("\n")
    for count in range(2, len(lines) - 1):
        assert errors_of("\n".join(lines[:count]), "x.mlir") == [
            (count - 1, len(lines[count - 1]), "expected operation name in quotes")]


@pytest.mark.parametrize("right, wrong, message", [
    ("%rows = %x[", "%rows = %x[[", "'nki.load' op expected a number, a value or an axis, found '['"),
    ("%rows = %x[", "%rows = %x]", "expected operation name in quotes"),
    ("%rows = %x[", "%rows = (%x[", "'nki.load' op expected ':' and the type of the value, found '['")])
def test_errors__of_brackets_stand_beside_others(right, wrong, message):
    """The operation ends where the next one begins, not where a bracket of another one closes."""
    text = VALID.replace(right, wrong, 1).replace("  return", "  nki.laod\n  return")
    errors = errors_of(text, "x.mlir")
    assert [(line, text) for line, _, text in errors] == [
        (6, message), (13, "'nki.laod' is not an operation; 'nki.load' is one")]


def test_a_byte_order_mark__moves_only_the_first_line():
    assert errors_of("\ufeff" + VALID, "x.mlir") == []
    assert errors_of("\ufeff!tile = memreff\n", "x.mlir")[0][:2] == (0, 8)


def change(*changes: tuple) -> dict:
    """A change of the open text: each item is a text, or (line, character, line, character, text)."""
    return {"method": "textDocument/didChange", "params": {"textDocument": {"uri": URI}, "contentChanges": [
        {"text": one[4], "range": {"start": {"line": one[0], "character": one[1]},
                                   "end": {"line": one[2], "character": one[3]}}} if len(one) == 5 else {"text": one[0]}
        for one in changes]}}


def test_changes__are_applied_in_their_order():
    """Columns are UTF-16 units: U+1F600 has two. Positions beyond a line or the text are its end."""
    text = 'module attributes {a.a = "\U0001F600", a.b = 1 : i64} {\n}\n'
    request = {"id": 7, "method": "textDocument/documentSymbol", "params": {"textDocument": {"uri": URI}}}
    _, messages = talk(opened(text), change((0, 37, 0, 38, "x")), change((0, 37, 0, 38, "2"), (1, 0, 1, 0, "  foo.bar\n")),
                       change((1, 0, 2, 0, "func.func @f() { return }\n")), change((2, 99, 9, 9, "\n// end")), request,
                       change((text,)), request)
    errors = [message["params"]["diagnostics"] for message in messages if "params" in message]
    assert [len(one) for one in errors] == [0, 1, 1, 0, 0, 0]
    assert errors[1][0]["range"]["start"] == {"line": 0, "character": 39}
    assert errors[2][0]["range"]["start"] == {"line": 1, "character": 2}
    first, second = (message["result"] for message in messages if "result" in message)
    assert [symbol["name"] for symbol in first] == ["@f"] and second == []


def test_references__are_those_of_the_scope():
    for word, count, lines in (("%rows", 0, [5, 6, 7]), ("%rows", 4, [10, 11]), ("%i ", 1, [4, 6]), ("@f", 0, [1]),
                               ("%c1", 2, [3, 4, 4, 9, 9]), ("%x", 1, [1, 6, 11]), ("!tile", 1, [0, 1, 5, 10])):
        _, messages = talk(opened(CUSTOM), query("references", CUSTOM, word, count))
        assert lines_of(messages[1]) == lines, word
    request = query("references", CUSTOM, "%rows", 1)
    request["params"]["context"] = {"includeDeclaration": False}
    assert lines_of(talk(opened(CUSTOM), request)[1][1]) == [6, 7]
    assert talk(opened(CUSTOM), query("references", CUSTOM, "return"))[1][1]["result"] == []


def test_symbols__are_functions_and_aliases():
    request = {"id": 7, "method": "textDocument/documentSymbol", "params": {"textDocument": {"uri": URI}}}
    _, messages = talk(opened(CUSTOM), request)
    assert [(s["name"], s["range"]["start"]["line"], s["range"]["end"]["line"]) for s in messages[1]["result"]] == [
        ("!tile", 0, 0), ("@f", 1, 14)]


def completed(text: str, begin: str) -> list[str]:
    """What may stand behind a part of a text."""
    at = text.index(begin) + len(begin)
    position = {"line": text.count("\n", 0, at), "character": at - text.rfind("\n", 0, at) - 1}
    _, messages = talk(opened(text), {"id": 7, "method": "textDocument/completion", "params": {
        "textDocument": {"uri": URI}, "position": position}})
    return [item["textEdit"]["newText"] for item in messages[1]["result"]]


def test_completion__has_operations_attributes_and_names():
    text = CUSTOM.replace("  return", "  nki.l\n  %v = \n  return")
    assert completed(text, "  nki.l\n"[:-1]) == ["nki.load"]
    suggestions = completed(text, "%v = ")
    assert {"nki.view", "nki.buffer", "nisa.activation", "scalar.alu"} <= set(suggestions)
    assert completed(CUSTOM, "%rows {") == ["fn"]
    assert completed(CUSTOM.replace("nki.unary", "nisa.activation"), "%rows {") == ["engine", "fn", "imm"]
    generic = completed('"nki.unary"(%a, %b) {a', '"nki.unary"(%a, %b) {')
    assert generic == ["access", "mask", "nki.limits", "fn"]
    assert completed(CUSTOM, "nki.unary exp %t = %r") == ["%rows"]
    assert completed(CUSTOM, "%rows = nki.buffer : !") == ["!tile"]
    assert completed(CUSTOM, "arith.con") == []


def test_a_text_beyond_a_limit__is_read_once(monkeypatch):
    """Without the line of its error it would be refused again, for 20 times as long."""
    reads = []
    read = text_errors.read_module
    monkeypatch.setattr(text_errors, "read_module", lambda text, name: reads.append(len(text)) or read(text, name))
    chain = "!t0 = i32\n" + "".join(f"!t{k + 1} = tuple<!t{k}>\n" for k in range(300)) + "module {}"
    assert [(line, message) for line, _, message in errors_of(chain, "x.mlir")] == [
        (251, "nesting of 251 levels by aliases exceeds the limit of 250")]
    assert reads == [len(chain)]


def test_errors_of_a_large_text__are_those_of_few_parses(monkeypatch):
    text = "".join(f'"a.b{k}"() : () -> ()\n' for k in range(30))
    assert len(errors_of(text, "x.mlir")) == text_errors.MOST
    monkeypatch.setattr(text_errors, "CHARACTERS", 3 * len(text))
    assert len(errors_of(text, "x.mlir")) == 4
    monkeypatch.setattr(text_errors, "CHARACTERS", 0)
    assert len(errors_of(text, "x.mlir")) == 1
