# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts that would end the process in MLIR's parser are errors at their place, for every entry that reads one."""

import base64
import json
import re
import signal
import sys
import threading
import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir import plain_text as plain
from nki_mlir import text_limits
from nki_mlir.cli import language_server, opt, run
from nki_mlir.cli.source import read_module
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.recovery import configs_of_stablehlo
from nki_mlir.graph.custom_call import BadConfig, read_record
from nki_mlir.input_limits import InputTime, InputTooLarge, limited_time
from nki_mlir.passes.safety import IndexDivisor, LoopIterations, LoopStep
from nki_mlir.plain_text import plain_text
from nki_mlir.targets.neuron.format.assembly import parse_program
from nki_mlir.text_limits import (
    DEPTH,
    DIGITS,
    LARGE,
    OPERATORS,
    AliasCycle,
    StrayCharacter,
    TextTooDeep,
    _large_numbers,
    check_text,
)

from ..hostile_inputs.texts import CONVOLUTION, HOSTILE


@pytest.mark.parametrize("kind", HOSTILE)
def test_commands_refuse_the_text_at_its_place(kind, tmp_path, capsys):
    file = tmp_path / "hostile.mlir"
    file.write_text(HOSTILE[kind], newline="")
    assert opt.main([str(file)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"{file}:") and "exceeds the limit of" in printed and "[NKI-TEXT-LIMIT]" in printed
    assert max(map(len, printed.splitlines())) < 400


def test_the_error_says_where_what_and_the_limit():
    with pytest.raises(TextTooDeep) as error:
        check_text("module {\n  " + "[" * 300, "deep.mlir")
    assert str(error.value) == (
        f"deep.mlir:2:{DEPTH + 2}: error: nesting of 301 levels exceeds the limit of 250 [NKI-TEXT-LIMIT]\n"
        "  why: MLIR's parser recurses or allocates in proportion to this number, and a larger text could end "
        "the process\n"
        "  fix: nest regions, attributes, types and expressions less deeply")


@given(st.lists(st.tuples(st.sampled_from(["", "i", "x", ":", "f"]), st.integers(0, 10 ** 7)), max_size=6))
def test_numbers_are_found_with_what_is_before_them(numbers):
    """What finds the numbers of a text that have LARGE digits agrees with a regular expression."""
    text = " ".join(f"{before}{number}" for before, number in numbers)
    before, digits = _large_numbers(np.frombuffer(text.encode(), np.uint8))
    expected = [(text[m.start() - 1] if m.start() else "\0", len(m[0]))
                for m in re.finditer(r"[0-9]+", text) if len(m[0]) >= LARGE]
    assert [(chr(b), d) for b, d in zip(before.tolist(), digits.tolist())] == expected


@pytest.mark.parametrize("size, error", [(1_000, ""), (1_001, "a shape of many dimensions exceeds the limit of 1000")])
def test_the_largest_shape(size, error):
    text = f"func.func private @f(tensor<{'10x' * size}f32>)"
    if error:
        with pytest.raises(TextTooDeep, match=error):
            check_text(text)
    else:
        check_text(text)


@pytest.mark.parametrize("names, message", [
    (",".join(f"%t{k}.row" for k in range(20_000)), ""), (",".join(f"@t{k}.row" for k in range(20_000)), ""),
    (" ".join(f"{k}.5e3" for k in range(20_000)), ""), (" ".join(["func.func"] * 20_000), ""),
    ('"' + " ".join(f"t{k}.py" for k in range(20_000)) + '"', ""), (" ".join(f"d{k}.a" for k in range(10_001)), "10,001th")])
def test_names_that_are_no_dialects_do_not_count(names, message):
    if message:
        with pytest.raises(TextTooDeep, match="the 10,001th dialect exceeds the limit of 10000"):
            check_text(names)
    else:
        check_text(names)


def test_a_line_of_an_error_has_a_length(tmp_path, capsys):
    file = tmp_path / "name.mlir"
    file.write_text('func.func private @"' + "x" * 100_000 + 'y"()')
    assert opt.main([str(file)]) == 1
    line = capsys.readouterr().err.splitlines()[0]
    assert len(line) < 2_000 and "function @xxxx" in line and " ... xxxx" in line and line.endswith(
        "xy has no body [NKI-UNSAFE-INPUT]")


@given(st.integers(1, 2 * DEPTH), st.sampled_from(["[]", "()", "{}", "<>"]), st.lists(st.sampled_from(["a", " -> ", " >= ", " <= ", "\n", ",", "=", "-"])))
def test_depth_counts_brackets_outside_of_texts_and_comments(depth, pair, between):
    text = (pair[0] + "".join(between)) * depth + pair[1] * depth
    refused = depth > DEPTH
    for variant in (text, '"' + "[" * 999 + '"' + text, "// " + "(" * 999 + "\n" + text, '"\\"[' + "[" * 999 + '"' + text):
        try:
            check_text(variant)
            assert not refused
        except TextTooDeep:
            assert refused


@given(st.text('"a</>=-{\\\n ', max_size=20), st.integers(1, 21))
def test_plain_text__has_blanks_for_strings_and_arrows(text, chunk):
    marked = re.sub(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|->|<=|>=|==|=>', lambda match: " " * len(match[0]), text)
    with patch.object(plain, "CHUNK", chunk):
        assert plain_text(text) == marked


PARTS = ["a", "mod", "floordiv", "-", "->", "*", ":", "#", ";", "(", ")", "[", "]", "<", ">", "i32", "i1234", "%a:123456", "12",
         "12345", "1234567", '"', "\\\\", "//", "\n", " ", "=", "!b = ", "#a = ", "é"]


@given(st.lists(st.sampled_from(PARTS), max_size=30).map("".join), st.integers(1, 50))
def test_chunks_of_a_text_have_one_verdict(text, chunk):
    """Wherever the borders of chunks are, the error of a text is the same."""
    def verdict(size):
        with patch.multiple(text_limits, CHUNK=size, DEPTH=3, OPERATORS=4, DIGITS=6), patch.object(plain, "CHUNK", size), \
                patch.object(text_limits, "_LONG_INTEGER", re.compile("(?<![0-9])[0-9]{7,}")):
            try:
                check_text(text)
            except NkiMlirError as error:
                return str(error)
        return ""
    assert verdict(chunk) == verdict(1000)


@pytest.mark.parametrize("text, character, at", [
    ('module {\n  #x.y<\\"">, [[[ "', "backslash", "2:8"), ('module {\n  "a\rb"', "carriage return", "2:5")])
def test_characters_that_hide_the_end_of_a_string(text, character, at):
    with pytest.raises(StrayCharacter) as error:
        check_text(text, "stray.mlir")
    assert str(error.value).splitlines()[0] == (
        f"stray.mlir:{at}: error: a {character} makes the end of a string ambiguous [NKI-TEXT-CHARACTER]")


@pytest.mark.parametrize("text", ["module {} // \\\"", 'module attributes {a = "\\\\", b = "\\"[", c = "\\00"} {}\r\n', "// a \r\nmodule {}",
                                  '// "\rmodule {}'])
def test_backslashes_and_returns_of_valid_texts(text):
    check_text(text)


LARGE_TEXTS = {"comments": "// a\n", "strings": '"a" ', "escapes": '"\\00" ', "blanks": " ", "operators": "-", "brackets": "{}",
               "quotes of comments": '// "\n', "integers": "9" * DIGITS + " "}


@pytest.mark.parametrize("kind", LARGE_TEXTS)
def test_large_texts_take_few_calls_and_little_memory(kind):
    """Whatever a text repeats, it is not matched piece by piece, and takes some bytes for each character."""
    part = LARGE_TEXTS[kind]
    text = part * (4 * plain.CHUNK // len(part)) + "9" * (DIGITS + 1 if kind == "integers" else 0)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")
    tracemalloc.start()
    sys.setprofile(count)
    try:
        check_text(text)
    except TextTooDeep:
        assert kind in ("operators", "integers")
    finally:
        sys.setprofile(None)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert calls < 2_000 and peak < 6 * len(text) + 40 * plain.CHUNK


def test_an_error_of_mlir_has_a_length(tmp_path, capsys):
    file = tmp_path / "name.mlir"
    file.write_text("a" * 100_000)
    assert opt.main([str(file)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"{file}:1:1: error: custom op 'aaaa") and " ... aaaa" in printed and len(printed) < 3_000


def test_expressions_of_many_operators_are_bounded():
    check_text("#m = affine_map<(d0) -> (d0" + " + 1" * OPERATORS + ")>")
    check_text("#m = [" + "-1, " * 3 * OPERATORS + "0]")
    with pytest.raises(TextTooDeep, match="an expression of 2,001 operators"):
        check_text("#m = affine_map<(d0) -> (d0" + " + 1" * (OPERATORS + 1) + ")>")


def test_aliases_count_as_what_they_stand_for():
    many = "#a = [1]\n" + "".join(f"#b{k} = [{', '.join(['#a'] * 50)}]\n" for k in range(100))
    check_text(many + "module {\n" + "".join(f'  "x"() {{v = #b{k % 100}}} : () -> ()\n' for k in range(2000)) + "}")
    check_text("x = 1\n#a = [1]\nmodule attributes {b = #a} {}\ny = = #a")
    check_text("#a = [1]\nmodule attributes {b = #a} {}\n#c = [#a]\nmodule attributes {b = #c, d = #a} {}")
    with pytest.raises(AliasCycle, match=r"alias #l[01] refers to #l[01] again"):
        check_text('module {} loc(#l0)\n#l0 = loc("a"(#l1))\n#l1 = loc("b"(#l0))')


def test_a_resource_without_an_alignment_is_refused(tmp_path, capsys):
    """MLIR's parser would end the process."""
    file = tmp_path / "m.mlir"
    for alignment in ("00000000", "01000000"):
        file.write_text(f'module {{}}\n{{-# dialect_resources: {{ builtin: {{ a: "0x{alignment}01020304" }} }} #-}}\n')
        assert opt.main([str(file)]) == (alignment == "00000000")
    assert capsys.readouterr().err == (
        f"{file}:2:40: error: a resource is aligned to 0 bytes [NKI-TEXT-RESOURCE]\n"
        f'    2 | {{-# dialect_resources: {{ builtin: {{ a: "0x0000000001020304" }} }} #-}}\n'
        "      |                                        ^\n"
        "  why: the first 8 digits of a resource are its alignment, and MLIR ends the process if it is 0\n"
        "  fix: write an alignment of at least 1, as 0x01000000\n")


def test_the_number_of_aliases_and_of_their_uses_is_limited(monkeypatch):
    monkeypatch.setattr(text_limits, "ALIASES", 100)
    monkeypatch.setattr(text_limits, "USES", 200)
    aliases = "".join(f"#a{k} = {k}\n" for k in range(100))
    uses = "module attributes {b = [" + ", ".join(["#a7", "!t"] * 50)
    check_text(aliases + uses + "]} {}")
    with pytest.raises(TextTooDeep, match=r"^<text>:101:1: error: the 101st alias exceeds the limit of 100"):
        check_text(aliases + "#b = 1\n")
    with pytest.raises(TextTooDeep, match=r"^<text>:101:475: error: the 201st use of an alias exceeds the limit of 200"):
        check_text(aliases + uses + ", #a8]} {}")
    check_text(uses + ", #a8]} {}")                         # it defines none


@pytest.mark.parametrize("line", ['%0 = "a.b"() : () -> ()', '"a.b"(%0) : () -> ()', '  "a.b" (%0) {c = [', "module {", "d.e"])
def test_an_alias_ends_at_the_next_operation(line):
    """Brackets of operations do not count as those of an alias."""
    deep = "[" * 240 + "1" + "]" * 240
    check_text(f"#a = [[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]\n#b = [#a]\n{line}\n{deep}\n")
    with pytest.raises(TextTooDeep, match=r"nesting of 25[567] levels by aliases"):
        check_text(f"#a = [[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]\n#b = {deep.replace('1', '#a')}\n{line}\n")
    with pytest.raises(TextTooDeep, match=r"nesting of 25[567] levels by aliases"):
        check_text(f"#a = [[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]\n#b = [\n{line}\n {deep[1:].replace('1', '#a')}\n")


def test_texts_have_a_size(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NKI_MLIR_INPUT_TEXT", "100")
    file = tmp_path / "long.mlir"
    file.write_text("module {" + " " * 100 + "}")
    assert opt.main([str(file)]) == 1
    assert capsys.readouterr().err.splitlines()[0] == (
        f"{file}:1:1: error: the file takes 109 bytes, more than the limit of 100 [NKI-INPUT-SIZE]")
    with pytest.raises(InputTooLarge, match="the text takes 101 bytes, more than the limit of 100"):
        configs_of_stablehlo(" " * 101)
    errors = language_server.errors_of(" " * 101 + "module {}", "long.mlir")
    assert [message for _, _, message in errors] == ["the text takes 110 bytes, more than the limit of 100"]
    (_, _, message), = language_server.errors_of("\n" * 60 + "// -----\n" + "module {}", "long.mlir")
    assert message.endswith("takes 130 bytes, more than the limit of 100")


@pytest.mark.parametrize("text", ["none", "-1", "0", "1.5", "9" * 5000])
def test_limits_are_numbers(text, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NKI_MLIR_INPUT_SECONDS", text)
    assert opt.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(
        f"error: NKI_MLIR_INPUT_SECONDS is {text[:40]}, which must be a positive number of seconds [NKI-LIMIT-TEXT]")


LONG = """func.func @f(%a: memref<4x4xf32, "hbm">) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4000000000000 : index
  %t = memref.alloc() : memref<4x4xf32, "sbuf">
  scf.for %i = %c0 to %c4 step %c1 {
    "nki.load"(%t, %a) {access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 4]]>,
                                  #nki.access<f32, affine_map<() -> (0)>, [[4, 4], [1, 4]]>],
                        mask = affine_set<() : (0 == 0)>} : (memref<4x4xf32, "sbuf">, memref<4x4xf32, "hbm">) -> ()
  }
  return }"""


@pytest.mark.parametrize("on", ["interpreter", "jit"])
def test_inputs_that_take_too_long_end(on, monkeypatch, tmp_path, capsys):
    file = tmp_path / "long.mlir"
    file.write_text(LONG)
    monkeypatch.setenv("NKI_MLIR_INPUT_SECONDS", "1")
    monkeypatch.setenv("NKI_MLIR_ITERATIONS", "9" * 13)
    before = signal.getsignal(signal.SIGALRM)
    assert run.main([str(file), f"--on={on}"]) == 1
    assert "error: the input took more than 1 second [NKI-INPUT-TIME]\n" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.mark.parametrize("command,arguments,message", [
    (run, ["k.py:f", "--grid", "1000000000,1000000"], "a grid must have at most 16,777,216 programs"),
    (run, ["k.py:f", "--grid", "9" * 5000], "a grid must have positive numbers"),
    (run, ["k.py:f", "--arg", "9" * 5000 + "xf32"], "is neither a tensor nor a Python constant"),
    (opt, ["k.mlir", "--pass-pipeline=" + "any(" * 20_000 + ")" * 20_000], "a pipeline has at most 100 nests"),
    (run, ["k.py:f", "--arg", "(" * 100_000], "is neither a tensor nor a Python constant"),
])
def test_options_of_any_length_are_one_error(command, arguments, message, capsys):
    try:
        assert command.main(arguments) == 2
    except SystemExit as ended:                 # of the parser of options
        assert ended.code == 2
    printed = capsys.readouterr().err
    assert message in printed and len(printed) < 4000


def test_configs_and_graphs_refuse_it_too():
    brackets = base64.b64encode(b"[" * 100_000).decode()
    with pytest.raises(BadConfig, match="it is not base64 of JSON"):
        read_record(brackets)
    empty = {"func_name": "f", "grid": [], "output_names": [], "nki_mlir": {
        "version": 1, "modules": [], "operands": [], "results": [], "returned": [], "structure": "one", "key": ""}}
    with pytest.raises(BadConfig, match="it has no modules"):
        read_record(base64.b64encode(json.dumps(empty).encode()).decode())
    for changed, message in (({"grid": [float("inf")]}, "cannot convert float infinity"),
                             ({"nki_mlir": {**empty["nki_mlir"], "modules": [{"fixed": [], "text": HOSTILE["lists"]}]}},
                              "nesting of 20,001 levels"),
                             ({"nki_mlir": {**empty["nki_mlir"], "modules": [{"fixed": [], "text": "// \ud800"}]}},
                              "<backend_config>:1:4: error: the text has U[+]D800 alone")):
        with pytest.raises(NkiMlirError, match=message):
            read_record(base64.b64encode(json.dumps({**empty, **changed}).encode()).decode())
    with pytest.raises(TextTooDeep, match="nesting of 20,001 levels"):
        configs_of_stablehlo(HOSTILE["lists"])
    with pytest.raises(TextTooDeep, match="dimension number 4294967296"):
        configs_of_stablehlo(CONVOLUTION)


def test_the_language_server_shows_it_as_an_error():
    errors = language_server.errors_of(HOSTILE["regions"], "deep.mlir")
    assert len(errors) == 1 and "levels exceeds the limit" in json.dumps([str(part) for part in errors[0]])
    half = language_server.errors_of("module {\n  // \ud800\n}", "half.mlir")
    assert [(line, column) for line, column, _ in half] == [(1, 5)]
    assert "the text has U+D800 alone, which is half of a surrogate pair" in half[0][2]


@pytest.mark.parametrize("step, rule", [("%c0", "0"), ("%i", "known at run time only")])
def test_a_loop_that_may_never_end_is_refused(step, rule):
    text = f"""func.func @f(%a: memref<4x4xf32, "hbm">) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      scf.for %i = %c0 to %c1 step %c1 {{
        scf.for %j = %c0 to %c1 step {step} {{ }} }}
      return }}"""
    with pytest.raises(LoopStep) as error:
        read_module(text, "loop.mlir")
    assert str(error.value).splitlines()[0] == f"loop.mlir:5:9: error: the step of this loop is {rule} [NKI-LOOP-STEP]"


def loop_of(low, high, body=""):
    return f"""func.func @f(%a: memref<4x4xf32, "hbm">) {{
      %0 = arith.constant {low} : index
      %1 = arith.constant {high} : index
      %2 = arith.constant 1 : index
      scf.for %i = %0 to %1 step %2 {{ {body} }}
      return }}"""


def test_iterations_of_a_loop_are_counted_in_63_bits(tmp_path):
    with pytest.raises(LoopIterations) as error:
        read_module(loop_of(-2**63, 2**63 - 1), "loop.mlir")
    assert str(error.value).splitlines()[0] == (
        "loop.mlir:5:7: error: this loop has 18,446,744,073,709,551,615 iterations, more than the limit of "
        "9,223,372,036,854,775,807 [NKI-LOOP-ITERATIONS]")
    read_module(loop_of(0, 2**63 - 1), "loop.mlir")


@pytest.mark.parametrize("body", ["", "scf.for %j = %0 to %1 step %2 { }"])
def test_a_loop_that_does_nothing_is_not_written_out(body, tmp_path, capsys):
    file = tmp_path / "loop.mlir"
    file.write_text(loop_of(0, 2**63 - 1, body))
    assert opt.main([str(file), "--lower-to-isa"]) == 0
    assert ".kernel f" in capsys.readouterr().out
    assert run.main([str(file), "--on=interpreter", "--quiet"]) == 0            # nor counted


def test_time_limit__that_ends_in_a_callback_of_the_bindings(monkeypatch):
    """They replace what the handler of the alarm raises by an error that quotes it."""
    monkeypatch.setenv("NKI_MLIR_INPUT_SECONDS", "1")
    with pytest.raises(InputTime, match="the input took more than 1 second"), limited_time():
        try:
            threading.Event().wait(60)
        except InputTime as error:
            raise RuntimeError(f"Exception raised in callback: {error}") from None
    with pytest.raises(RuntimeError, match=r"^another$"), limited_time():
        raise RuntimeError("another")


def test_code_that_catches_errors_does_not_outlive_the_time_limit(monkeypatch):
    """A search that takes an error for the end of one attempt goes on with the next one."""
    monkeypatch.setenv("NKI_MLIR_INPUT_SECONDS", "1")
    attempts = 0
    with pytest.raises(InputTime, match="the input took more than 1 second"), limited_time():
        while True:
            try:
                attempts += 1
                threading.Event().wait(60)
            except NkiMlirError:
                if attempts > 2:
                    raise
    assert attempts == 3


def test_an_alarm_at_the_end_of_the_block_leaves_no_timer():
    """The handler runs between any two instructions, also of the code that enters and leaves the block."""
    before = signal.getsignal(signal.SIGALRM)

    def run(alarm):
        events = 0

        def trace(frame, event, value):
            nonlocal events
            if frame.f_globals["__name__"] not in ("contextlib", "nki_mlir.input_limits"):
                return None
            frame.f_trace_opcodes = True
            handler = signal.getsignal(signal.SIGALRM)
            if callable(handler) and handler is not before:
                events += 1
                if events == alarm:
                    handler(signal.SIGALRM, frame)
            return trace

        tracer = sys.gettrace()
        sys.settrace(trace)
        try:
            with limited_time():
                pass
        finally:
            sys.settrace(tracer)
        return events

    count = run(alarm=0)
    assert count > 30
    for alarm in range(1, count + 1):
        assert run(alarm) == count
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
        assert signal.getsignal(signal.SIGALRM) == before


@pytest.mark.parametrize("kind, formula, message", [
    ("apply", "d0 floordiv 0", "'d0 floordiv 0' divides by 0"),
    ("apply", "d0 + (d0 mod -3) * 2", "'d0 mod -3' divides by -3"),
    ("apply", "d0 ceildiv s0", "'d0 ceildiv s0' divides by s0"),
    ("min", "d0, d0 mod 0", "'d0 mod 0' divides by 0")])
def test_index_arithmetic_without_a_value_is_refused(kind, formula, message):
    text = f"""func.func @f(%a: memref<4x4xf32, "hbm">) {{
      %c0 = arith.constant 0 : index
      %n = affine.{kind} affine_map<(d0)[s0] -> ({formula})>(%c0)[%c0]
      return }}"""
    with pytest.raises(IndexDivisor) as error:
        read_module(text, "divided.mlir")
    assert str(error.value).splitlines()[0] == f"divided.mlir:3:12: error: {message} [NKI-INDEX-DIVISOR]"


@pytest.mark.parametrize("line", [".nki_isa {}", ".kernel f\n.target trn2\n.sbuf {} of 1", ".semaphore {} a"])
def test_assembly_refuses_long_integers_at_their_line(line):
    with pytest.raises(NkiMlirError, match="an integer has at most 40 digits, this has 60000"):
        parse_program(".nki_isa 1\n" + line.format("9" * 60_000) if "{}" in line else line)


@pytest.mark.parametrize("pattern", ["[1-1][4]", "[{}x][4]", "[1][{}x]", "[1][-4]"])
def test_assembly_refuses_access_patterns_at_their_line(pattern):
    """Forty digits with something behind them were tried in all ways to divide them."""
    text = (".nki_isa 1\n.kernel f\n.target trn2\n.sbuf 64 of 212984\n.stream pool\n"
            f"pool 0000: MEMSET dst=fp32@0x0{pattern.format('1' * 40)} value=0.0 channels=4\n")
    with pytest.raises(NkiMlirError, match=r"^f\.asm:6:\d+: error: expected (dtype@address|a step for each count)"):
        parse_program(text, "f.asm")


def test_files_that_are_not_text_are_one_line(tmp_path, capsys):
    file = tmp_path / "latin1.asm"
    file.write_bytes(b".nki_isa 1\n.kernel f\n.target trn2\n.note \xff\n")
    assert run.main([str(file), "--on=isa"]) == 1
    assert capsys.readouterr().err == f"{file}:4:7: error: cannot read {file}: byte 0xff is not UTF-8\n"


def test_tensors_that_a_file_declares_have_a_limit(tmp_path, capsys, monkeypatch):
    file = tmp_path / "large.mlir"
    file.write_text('func.func @f(%a: memref<64x69468320xf32, "hbm">) { return }')
    assert run.main([str(file), "--on=interpreter"]) == 1
    assert "declares 17,783,889,920 bytes (arg0), more than the limit of 134,217,728" in capsys.readouterr().err
    file.write_text('func.func @f(%a: memref<64x64xf32, "hbm">) { return }')
    assert run.main([str(file), "--on=interpreter"]) == 0
    declared = 'func.func @f(%a: memref<4x4xf32, "hbm">) {\n  %0 = memref.alloc() : memref<64x524289xf32, "hbm">\n  return }'
    file.write_text(declared)
    assert run.main([str(file), "--on=jit"]) == 1
    assert capsys.readouterr().err.startswith(
        f"{file}:2:8: error: 'memref.alloc' declares 134,217,984 bytes, more than the limit of 134,217,728")
    file.write_text("func.func @main() -> tensor<4x8388609xf32> {\n"
                    "  %0 = stablehlo.constant dense<1.0> : tensor<4x8388609xf32>\n"
                    "  return %0 : tensor<4x8388609xf32> }")
    assert run.main([str(file)]) == 1
    assert capsys.readouterr().err.startswith(f"{file}:2:8: error: 'stablehlo.constant' declares 134,217,744 bytes")
    file.write_text('func.func @f(%a: memref<64x64xf32, "hbm">) { return }')
    monkeypatch.setenv("NKI_MLIR_INPUT_BYTES", "100")
    assert run.main([str(file), "--on=interpreter"]) == 1
    assert "declares 16,384 bytes (arg0), more than the limit of 100" in capsys.readouterr().err


@pytest.mark.parametrize("part", [1, 7, 1 << 20])
@pytest.mark.parametrize(("count", "refused"), [(3, False), (4, True)])
def test_dialects_of_all_parts_of_a_text_count(part, count, refused, monkeypatch):
    monkeypatch.setattr(text_limits, "PART", part)
    monkeypatch.setattr(text_limits, "DIALECTS", 3)
    text = "\n".join(f"d{k % count}.a" for k in range(40)) + ' "d0.a"() d1.a'
    if not refused:
        return check_text(text)
    with pytest.raises(TextTooDeep, match=r"^<text>:4:1: error: the 4th dialect exceeds the limit of 3"):
        check_text(text)


@pytest.mark.parametrize(("width", "message"), [("i1024", None), ("i1025", "3:24"), ("ui2000", "3:25")])
def test_widest_integer_of_any_part_of_a_text_counts(width, message, monkeypatch):
    monkeypatch.setattr(text_limits, "PART", 4)
    text = f"module {{\n i1000, i1001\n func.func private @f({width}, i1024)\n}}"
    if message is None:
        return check_text(text)
    with pytest.raises(TextTooDeep, match=f"^<text>:{message}: error: integer width [0-9]+ exceeds the limit of 1024"):
        check_text(text)


def test_aliases_named_before_and_behind_their_definition_have_one_depth():
    """Sizes and depths do not depend on the order of definitions."""
    definitions = [f"#a{k} = [{'[' * 20}#a{k - 1}{']' * 20}]" if k else "#a0 = [1]" for k in range(13)]
    for lines in (definitions, definitions[::-1]):
        with pytest.raises(TextTooDeep, match="nesting of 253 levels by aliases exceeds the limit of 250"):
            check_text("\n".join(lines))
        check_text("\n".join(line for line in lines if not line.startswith("#a12")))
