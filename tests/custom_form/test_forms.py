# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each part of the custom form says, and the errors of a text that is wrong."""

import sys

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.bindings import load
from nki_mlir.cli import opt
from nki_mlir.cli.source import MalformedInput, read_module
from nki_mlir.custom_form.attribute_values import float_text, plain_value
from nki_mlir.custom_form.lexing import Cursor
from nki_mlir.custom_form.operation_printer import OperationPrinter
from nki_mlir.custom_form.printer import custom_text
from nki_mlir.custom_form.subscripts import buffer_of, read_subscripts, subscripts
from nki_mlir.custom_form.value_types import ValueTypes
from nki_mlir.dialects.access import Access, Linear
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.text_limits import TextTooDeep

F32, BF16 = BY_MLIR["f32"], BY_MLIR["bf16"]
CHIP, HBM = 'memref<128x4x512xf32, "sbuf">', 'memref<300x512xf32, "hbm">'


def chip(*dims, partition=Linear(), free=Linear(), dtype=F32) -> Access:
    return Access(dtype, partition, free, dims)


@pytest.mark.parametrize("kind, access, text", [
    (CHIP, chip((1, 128), (512, 4), (1, 512)), ""),
    (CHIP, chip((1, 44), (512, 4), (1, 512)), "[0:44, 0:4, 0:512]"),
    (CHIP, chip((1, 128), (1, 512), free=Linear(1024)), "[0:128, 2, 0:512]"),
    (CHIP, chip((1, 128), (2, 256), free=Linear(1025)), "[0:128, 2, 0:256 * 2 + 1]"),
    (CHIP, chip((1, 32), (-1, 512), partition=Linear(64), free=Linear(511)), "[64:96, 0, 0:512 * -1 + 511]"),
    (CHIP, chip((1, 32), (1, 7), partition=Linear(0, ((0, 32),)), free=Linear(3, ((1, 512),))),
     "[%i * 32 + 0:32, %j, 3:10]"),
    (CHIP, chip((1, 128), (0, 9), (1, 512)), "[0:128, 0, x 9, 0:512]"),
    (CHIP, chip((0, 128), (1, 512), partition=Linear(5)), "[5, 0, x 128, 0:512]"),
    (CHIP, chip((1, 128), (64, 4), (1, 16)), "[0:128, 0, 0:4 * 64 + 0:16]"),
    (CHIP, chip((1, 128), (1024, 4), (1, 1024), dtype=BF16), "[0:128, 0:4, 0:1024] as bf16"),
    (HBM, Access(F32, None, Linear(131072), ((512, 44), (1, 512))), "[256:300, 0:512]"),
    (HBM, Access(F32, None, Linear(-2), ((512, 3), (1, 4))), "[0:3, -2:2]"),
    (HBM, Access(F32, None, Linear(0), ((1, 512), (512, 300))), "[0, 0:512 + 0:300 * 512]"),      # transposed
], ids=lambda part: part if isinstance(part, str) else "")
def test_patterns_as_subscripts(kind, access, text):
    buffer = buffer_of(kind)
    assert subscripts(access, buffer, ["%i", "%j"]) == text
    assert not text or read_subscripts(Cursor(text)).access(buffer, ["%i", "%j"]) == access


@pytest.mark.parametrize("value, text", [
    (0.3, "0.3"), (float(np.float32(0.3)), "0.3f"), (0.5, "0.5"), (-float(np.float32(1e-5)), "-1e-05f"),
    (1 / 3, repr(1 / 3)), (1e300, "1e+300"), (float("inf"), "inf"), (float("-inf"), "-inf"), (0.0, "0.0"), (-0.0, "-0.0"),
    (float(np.float32(3.4e38)), "3.4e+38f")])
def test_numbers_of_float32_are_as_short_as_they_are_there(value, text):
    assert float_text(value) == text
    assert plain_value(text, float) == value


HEAD = """func.func @f(%x: memref<300x512xf32, "hbm">, %t: memref<128x512xf32, "sbuf">, %p: memref<128x8xf32, "psum">) {
"""


@pytest.mark.parametrize("line, column, message", [
    ("nki.load %t = %x[0:128]", 19, "'nki.load' op needs a subscript for each axis of the buffer: 2, not 1"),
    ("nki.load %t = %x[0:128, 0:512", 32, "'nki.load' op expected ',' or ']' after a subscript, found 'return'"),
    ("nki.load %t = %x[5:5, 0:512]", 20, "'nki.load' op the range 5:5 is empty"),
    ("nki.load %t, %x", 16, "'nki.load' op has too many operands: dst"),
    ("nki.load %t", 14, "'nki.load' op expected '=' after the destinations, found 'return'"),
    ("nki.load %t = %y", 17, "'nki.load' op the text above does not define %y"),
    ("%tile = nki.buffer : memref<8xf32, \"sbuf\">  nki.load %t = %tiles", 61,
     "'nki.load' op the text above does not define %tiles; did you mean %tile?"),
    ("%y = test.make  nki.load %t = %y", 33,
     "'nki.load' op cannot tell the type of %y from the text above: write (%y : type)"),
    ("nki.laod %t = %x", 3, "'nki.laod' is not an operation; 'nki.load' is one"),
    ("nki.binary %t = %t, %t", 14, "'nki.binary' op expected attribute 'op', a name, found '%t'"),
    ("nki.load %t = %x where d2 <= 4", 3, "'nki.load' op d2 is not an axis of the operation, which has 2"),
    ("nki.load %t = %x[0:128, 0:512] {mask = 1, mask = 2}", 45, "'nki.load' op has attribute 'mask' twice"),
    ("nisa.activation exp %t = %t, gain: %t", 32, "'nisa.activation' op has no optional operand 'gain' here; optional are: "
                                                  "bias, scale"),
    # Found when the operation is verified, at the same place.
    ("nki.load %t = %x[200:328, 0:512]", 3, "'nki.load' op Out-of-bound access for tensor `src` on dimension 0 (flat): "
                                            "index range [102400, 167935] exceed dimension size of 153600"),
    ("nki.load %t = %x[%z * 128 + 0:128, 0:512]", 20, "use of undeclared SSA value name"),
])
def test_errors_name_place_and_rule(line, column, message):
    with pytest.raises(MalformedInput) as caught:
        read_module(f"{HEAD}  {line}\n  return\n}}\n", "kernel.mlir")
    diagnostic = caught.value.diagnostics[0]
    at = 3 if "found 'return'" in message else 2
    assert (diagnostic.file, diagnostic.line, diagnostic.column) == ("kernel.mlir", at, column if at == 2 else 3)
    assert message in diagnostic.message


def test_all_errors_of_a_text_are_told():
    with pytest.raises(MalformedInput) as caught:
        read_module(f"{HEAD}  nki.load %t = %x[1]\n  nki.memset %t\n  nki.laod %t = %x\n  return\n}}\n", "x")
    assert [(d.line, d.column) for d in caught.value.diagnostics] == [(2, 19), (3, 3), (4, 3)]


def test_text_that_a_person_writes():
    module = read_module(HEAD + """
  // An operation may go over lines, and its form may be mixed with the generic one.
  %c0 = arith.constant 0 : index  %c2 = arith.constant 2 : index  %c1 = arith.constant 1 : index
  %tile = nki.buffer : memref<128x512xf32, "sbuf">
  scf.for %i = %c0 to %c2 step %c1 {
    nki.load %tile =
        %x[%i * 128 + 0:128, 0:512]   // whole rows
    nki.unary exp %t = %tile
  }
  %v = nki.view %t[0:128, 0, x 8]
  %rows = nki.view %t[0:128, 3:4] {dims = [0]}
  linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
    outs(%v : memref<128x8xf32, strided<[512, 0]>, "sbuf">) { |%out: f32| scalar.activation exp %out }
  return
}
""", "<text>")
    text = custom_text(module)
    assert "    %tile = nki.buffer : !sbuf_128x512xf32\n" in text
    assert "      nki.load %tile = %x[%i * 128 + 0:128, 0:512]\n" in text
    assert "{ |%out: f32| scalar.activation exp %out }" in text
    assert "nki.view %arg1[0:128, 3:4] {dims = [0]}\n" in text
    assert 'nki.name = "tile"' in module.operation.get_asm() and "dims = array<i64: 0>" in module.operation.get_asm()


@pytest.mark.parametrize("kind, value, shown", [
    ("f32", np.float32(1), "diagonal<16xf32, 1.0>"), ("bf16", ml_dtypes.bfloat16(-0.5), "diagonal<16xbf16, -0.5>"),
    ("i32", np.int32(-7), "diagonal<16xi32, -7>"), ("f32", np.float32(0.1), "diagonal<16xf32, 0.1>")])
def test_a_constant_that_is_zero_beside_its_diagonal_is_one_word(kind, value, shown):
    matrix = np.zeros((16, 16), value.dtype)
    np.fill_diagonal(matrix, value)
    dense = f'dense<"0x{matrix.tobytes().hex().upper()}">'
    text = f'memref.global "private" constant @c : memref<16x16x{kind}, "hbm"> = {dense} {{alignment = 64 : i64}}\n'
    short = custom_text(read_module(f"{text}{HEAD}  nki.unary exp %t = %t\n  return\n}}\n", "<text>"))
    assert f'"hbm"> = {shown} {{alignment = 64 : i64}}\n' in short
    assert dense in read_module(short, "<text>").operation.get_asm()
    assert dense in custom_text(read_module(text, "<text>"))        # a text that other tools read, too


def test_other_constants_keep_the_form_of_mlir():
    matrix = np.eye(16, dtype=np.float32)
    matrix[3, 4] = 2
    text = ('memref.global "private" constant @c : memref<16x16xf32, "hbm"> = '
            f'dense<"0x{matrix.tobytes().hex().upper()}">\n')
    module = read_module(f"{text}{HEAD}  nki.unary exp %t = %t\n  return\n}}\n", "<text>")
    assert text in custom_text(module)
    wrong = 'memref.global "private" constant @c : memref<16x16xf32, "hbm"> = diagonal<16xf32, one>\n'
    with pytest.raises(MalformedInput, match="expected attribute value"):
        read_module(wrong, "<text>")


@pytest.mark.parametrize("kind, dims, shown", [
    ('memref<128x1xf32, "sbuf">', "[[1, 128], [0, 1]]", "[:]"), ('memref<128x1xf32, "sbuf">', "[[1, 128], [1, 1]]", ""),
    ('memref<1x1x8xf32, "sbuf">', "[[1, 1], [0, 1], [1, 8]]", "[:]"), ('memref<1x8xf32, "hbm">', "[[0, 1], [1, 8]]", "[:]"),
    ('memref<128x1xf32, "sbuf">', "[[1, 72], [0, 1]]", "[0:72, 0, x 1]")])
def test_all_of_a_buffer_whose_dims_of_one_element_do_not_step(kind, dims, shown):
    partition = "affine_map<() -> (0)>" if "hbm" in kind else "affine_map<() -> (0, 0)>"
    pattern = f"#nki.access<f32, {partition}, {dims}>"
    text = f"func.func @f(%t: {kind}) {{\n  nisa.dma_copy %t[{pattern}] = %t[{pattern}]\n  return\n}}\n"
    module = read_module(text, "<text>")
    short = custom_text(module)
    name = "%t" if "hbm" in kind else "%arg0"
    assert f"nisa.dma_copy {name}{shown} = {name}{shown}\n" in short
    assert read_module(short, "<text>").operation.get_asm() == module.operation.get_asm()


def test_views_have_the_name_of_their_buffer():
    """Also after the bindings have loaded the class of functions, whose ``name`` is the symbol."""
    load("dialects.func")
    module = read_module(HEAD + """
  %tile = nki.buffer : memref<128x512xf32, "sbuf">
  %part = nki.view %tile[0:128, 0:64]
  %row = nki.view %x[0:1, 0:512]
  return
}
""", "<text>")
    text = custom_text(module)
    assert "  %tile_0 = nki.view %tile[0:128, 0:64]\n" in text
    assert "  %x_1 = nki.view %x[0:1, 0:512]\n" in text


def test_views_whose_pattern_has_no_subscripts():
    """Between two ranges of one axis is a dim that repeats the elements: the pattern is an attribute, and the type
    follows."""
    view = ("nki.view %t[#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 1], [6, 2], [0, 1], [12, 2]]>] -> "
            'memref<1x2x1x2xf32, strided<[512, 6, 0, 12]>, "sbuf">')
    module = read_module(f"{HEAD}  %v = {view}\n  return\n}}\n", "<text>")
    assert f"%0 = {view.replace('%t', '%arg1')}\n" in custom_text(module)


def test_patterns_without_subscripts_do_not_affect_other_operands():
    pattern = "#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 512]]>"      # of more symbols than there are
    text = f"nki.binary_scalar add %arg1[{pattern}] = %arg1[0:128, 0, x 512] {{scalar = 2.0}}\n"
    module = read_module(f"{HEAD}  {text.replace('%arg1', '%t')}  return\n}}\n", "<text>")
    assert text in custom_text(module) and "reverse = false" in module.operation.get_asm()


def test_buffers_of_arguments_have_the_names_of_their_values():
    """``%x`` is the buffer x, if its attributes give no other name and MLIR did not choose this one."""
    module = read_module("""!hbm = memref<4x6xf32, "hbm">
func.func @f(%x: !hbm, %y: memref<4x6xf32, "hbm"> {nki.shared = 0 : i64}, %z: !hbm {nki.name = "w"}, %arg3: !hbm {
    nki.shared = 1 : i64, nki.name = "v"}, %arg4: !hbm, %u_1: !hbm {}, %t: memref<4x6xf32, "sbuf">, %i: index) {
  nki.load %t = %x
  return
}""", "<text>")
    function = module.body.operations[0]
    names = [str(mark["nki.name"]) if "nki.name" in mark else None for mark in function.attributes["arg_attrs"]]
    assert names == ['"x"', '"y"', '"w"', '"v"', None, None, None, None]
    assert ('func.func @f(%x: !hbm_4x6xf32, %y: !hbm_4x6xf32 {nki.shared = 0}, %w: !hbm_4x6xf32, %v: !hbm_4x6xf32 '
            '{nki.shared = 1}, %arg4: !hbm_4x6xf32, %arg5: !hbm_4x6xf32, %arg6: memref<4x6xf32, "sbuf">, '
            '%arg7: index)') in custom_text(module)


def test_integers_of_arguments_have_no_type():
    text = '''func.func @f(%x: memref<4x6xf32, "hbm"> {nki.shared = 0 : i64, nki.other = 1 : i32}, %t: memref<4x6xf32, "sbuf">)
    attributes {nki.count = -3 : i64, nki.text = "{nki.shared = 0 : i64}"} {
  nki.load %t = %x
  return
}'''
    module = read_module(text, "<text>")
    shown = custom_text(module)
    assert "{nki.other = 1 : i32, nki.shared = 0}" in shown and "nki.count = -3, " in shown
    assert str(read_module(shown, "<text>")) == str(module)


def test_text_without_our_operations_keeps_the_names_of_buffers():
    """MLIR alone reads such a text."""
    text = 'module {\n  func.func @f(%x: memref<4x6xf32, "hbm"> {nki.name = "x"}) { return }\n}\n'
    assert custom_text(read_module(text, "<text>")) == text


def test_locations_are_kept_where_they_are_printed(tmp_path, capsys):
    file = tmp_path / "kernel.mlir"
    file.write_text(f"{HEAD}  %v = nki.view %t\n  nki.load %t = %x[0:128, 0:512]\n  return\n}}\n")
    assert opt.main(["--mlir-print-debuginfo", str(file)]) == 0
    plain = capsys.readouterr().out
    assert f'loc("{file}":2:8)' in plain and f'loc("{file}":3:3)' in plain
    assert opt.main(["--mlir-print-debuginfo", "--print=pretty", str(file)]) == 0
    pretty = tmp_path / "pretty.mlir"
    pretty.write_text(capsys.readouterr().out)
    assert "nki.load %arg1 = %x[0:128, 0:512] loc(#loc" in pretty.read_text()
    assert opt.main(["--mlir-print-debuginfo", str(pretty)]) == 0
    assert capsys.readouterr().out == plain


def test_forms_that_are_printed(tmp_path, capsys):
    """Commands print the generic form for other tools, and the custom form with the option."""
    file = tmp_path / "kernel.mlir"
    file.write_text(f"{HEAD}  nki.load %t = %x[0:128, 0:512]\n  return\n}}\n")
    for options, part in [([], '"nki.load"(%arg1, %arg0)'), (["--print=mlir"], '"nki.load"(%arg1, %arg0)'),
                          (["--print=pretty"], "nki.load %arg1 = %x[0:128, 0:512]"),
                          (["--print=pretty", "--mlir-print-op-generic"], '"func.func"()')]:
        assert opt.main([*options, str(file)]) == 0
        assert part in capsys.readouterr().out


def test_aliases_of_aliases_do_not_multiply():
    aliases = "".join(f"!a{k} = tuple<!a{k + 1}, !a{k + 1}>\n" for k in range(60))
    with pytest.raises(TextTooDeep, match="what aliases stand for"):
        read_module(f"{aliases}!a60 = i1\nfunc.func @f(%x: !a0) {{\n  nki.load %x = %x\n  return\n}}\n", "<text>")


def test_a_terminal_gets_the_custom_form(tmp_path, capsys, monkeypatch):
    file = tmp_path / "kernel.mlir"
    file.write_text(f"{HEAD}  nki.load %t = %x[0:128, 0:512]\n  return\n}}\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for options, part in [([], "nki.load %arg1 = "), (["--print=mlir"], '"nki.load"(%arg1, '),
                          (["-o", str(tmp_path / "out.mlir")], "")]:
        assert opt.main([*options, str(file)]) == 0
        assert part in capsys.readouterr().out
    assert '"nki.load"(%arg1, ' in (tmp_path / "out.mlir").read_text()


def test_byte_order_mark_is_passed(tmp_path, capsys):
    file = tmp_path / "kernel.mlir"
    file.write_bytes(b"\xef\xbb\xbf" + f"{HEAD}  return\n}}\n".encode())
    assert opt.main([str(file)]) == 0
    assert "func.func @f(" in capsys.readouterr().out


def test_a_text_is_read_up_to_a_number_of_errors(tmp_path, capsys):
    file = tmp_path / "m.mlir"
    file.write_text("func.func @f() {\n" + "  %0 = nki.load %1\n" * 500 + "  return }\n")
    assert opt.main([str(file)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"{file}:{k}:17: error: 'nki.load' op the text above does not define %1"
                     for k in range(2, 102)]


STREAMS = """isa.program p {target = trn2, sbuf_bytes = 64, psum_bytes = 0} {
  isa.variable "x.1" {kind = input, index = 0, type = memref<8x4xf32, "hbm">}
  isa.semaphore A
  isa.semaphore B
  isa.semaphore B
  isa.queue Q {engine = pool, semaphore = A}
  isa.stream pool {
    isa.instruction DMA sbuf[0:8, 0:4] as f32 = "x.1" {queue = Q} wait A >= 1, 2 >= 3 signal A += 16
    isa.instruction ALU add %r2 = %r1, -4
    isa.instruction TENSOR_SCALAR sbuf[%r1 * 4 + 0:4, %r2 + 3:7] as f32 = sbuf[4:8, 0:4] as f32 {op0 = multiply}
    isa.end
  }
}
"""


def test_streams_that_a_person_writes():
    module = read_module(STREAMS, "<text>")
    text = custom_text(module)
    assert "\n".join(line.strip() for line in STREAMS.splitlines()) in "\n".join(
        line.strip() for line in text.splitlines())
    stream = module.body.operations[0].regions[0].blocks[0].operations[5].operation
    transfer, alu, scalar, _ = (op.operation.attributes for op in stream.regions[0].blocks[0].operations)
    assert str(transfer["waits"]) == "[[0, 1], [2, 3]]" and str(transfer["update"]) == "[0, 16]"
    assert str(transfer["queue"]) == "0 : i64" and str(transfer["tiles"]["src"][0]) == '"x.1"'
    assert str(alu["fields"]) == '{dst = "r2", lhs = "r1", op = "add", rhs = -4 : i64}'
    assert str(scalar["registers"]) == "[1, 2]"


@pytest.mark.parametrize("old, new, line, column, message", [
    ("wait A >= 1", "wait C >= 1", 8, 72, "'isa.instruction' op names no semaphore of the program: 'C'"),
    ("queue = Q", "queue = R", 8, 64, "'isa.instruction' op names no queue of the program: 'R'"),
    ('"x.1" {queue', "y {queue", 8, 49, "'isa.instruction' op the text above has no variable y"),
    ("ALU add", "AUL add", 9, 21, "'isa.instruction' op names no instruction: 'AUL'; did you mean 'ALU'?"),
    ("%r1, -4", "%z, -4", 9, 35, "'isa.instruction' op has no register %z: registers are %r0 to %r31"),
    ("%r1, -4", "%r1", 10, 5, "'isa.instruction' op expected ',' before 'rhs', found 'isa.instruction'"),
    ("{op0 = multiply}", "{op0 = multiply, op3 = add}", 10, 120, "'isa.instruction' op has no attribute 'op3'"),
    ("{op0 = multiply}", "where d0 >= 0 {op0 = multiply}", 10, 5, "'isa.instruction' op has no mask and no limits"),
    ("isa.stream pool {", "isa.stream pool", 8, 5, "'isa.stream' op expected '{' before the region, found 'isa.instruction'"),
    ("kind = input, ", "", 2, 3, "'isa.variable' op needs attribute 'kind'"),
    ("isa.end", "isa.ent 3", 11, 5, "'isa.ent' is not an operation; 'isa.end' is one"),
    ("isa.end", "isa.next", 12, 3, "'isa.next' op expected a block, found '}'"),
    ("isa.end", "isa.branch le %r0, 0, ^bb1", 12, 3, "'isa.branch' op expected ',' and another block, found '}'"),
])
def test_errors_of_streams(old, new, line, column, message):
    assert old in STREAMS
    with pytest.raises(MalformedInput) as caught:
        read_module(STREAMS.replace(old, new), "kernel.mlir")
    diagnostic = caught.value.diagnostics[0]
    assert (diagnostic.line, diagnostic.column, diagnostic.message) == (line, column, message)


def test_operation_whose_operands_have_other_names__stays_in_the_generic_form():
    module = read_module(HEAD + '  "nisa.dma_copy"(%t, %t) {access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>, '
                         '#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>], engine = "sync", '
                         'mask = affine_set<() : (0 == 0)>} : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "sbuf">) -> ()\n'
                         '  return\n}\n', "<text>")
    copy, end = module.body.operations[0].regions[0].blocks[0].operations
    types = ValueTypes()
    types.define("%t", 'memref<128x512xf32, "sbuf">')
    assert OperationPrinter().text(copy.operation, ["%t", "%t"], types) == "nisa.dma_copy %t = %t {engine = sync}"
    for names in ([], ["%t"], ["%t"] * 3):
        assert OperationPrinter().text(copy.operation, names, types) is None
    assert OperationPrinter().text(end.operation, [], types) is None
