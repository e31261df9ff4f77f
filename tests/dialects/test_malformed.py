# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text that is not a valid module gives FILE:LINE:COL diagnostics and exit status 1: no traceback, no crash."""

import re
from math import prod
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from nki_mlir.cli import lowering, opt
from nki_mlir.cli.source import MalformedInput, read_module
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.targets.interpreter.module import compile_function, run_grid

from .samples import SAMPLES, module_text

VALID = """func.func @kernel(%src: memref<4x64xf32, "hbm">, %dst: memref<4x8xf32, "sbuf">,
    %id: index {nki.program_id = 1}) attributes {nki.grid = [2, 4]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  scf.for %i = %c0 to %c2 step %c1 {
    "nki.load"(%dst, %src, %i, %id) {access = [
        #nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>, [[1, 4], [1, 8]]>,
        #nki.access<f32, affine_map<()[s0, s1] -> (s0 * 8 + s1 * 8)>, [[64, 4], [1, 8]]>],
      mask = affine_set<(d0, d1)[s0, s1] : (-d1 - s0 + 7 >= 0)>,
      nki.limits = affine_set<(d0, d1)[s0, s1] : (d0 >= 0)>}
      : (memref<4x8xf32, "sbuf">, memref<4x64xf32, "hbm">, index, index) -> ()
    "nki.binary_scalar"(%dst, %dst) {access = [
        #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>,
        #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>],
      mask = affine_set<() : (0 == 0)>, op = "add", scalar = 1.0 : f64, reverse = false}
      : (memref<4x8xf32, "sbuf">, memref<4x8xf32, "sbuf">) -> ()
    "nisa.tensor_scalar"(%dst, %dst) {access = [
        #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>,
        #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>],
      mask = affine_set<() : (0 == 0)>, engine = "vector", op0 = "add", imm0 = 1.0 : f64, reverse0 = false,
      op1 = "bypass", imm1 = 0.0 : f64, reverse1 = false, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>}
      : (memref<4x8xf32, "sbuf">, memref<4x8xf32, "sbuf">) -> ()
    "nisa.tensor_reduce"(%dst, %dst) {access = [
        #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 1]]>,
        #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>],
      mask = affine_set<() : (0 == 0)>, engine = "unknown", op = "add", axes = [1], negate = false}
      : (memref<4x8xf32, "sbuf">, memref<4x8xf32, "sbuf">) -> ()
  }
  return
}
"""
LOAD, SCALAR = "'nki.load' op ", "'nki.binary_scalar' op "
SEGMENTS, REDUCE = "'nisa.tensor_scalar' op ", "'nisa.tensor_reduce' op "
FIRST = "#nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>, [[1, 4], [1, 8]]>"

# What is replaced in the valid module, by what, and what is said of it.
CHANGES: dict[str, tuple[str, str, str]] = {
    # -- missing
    "no access": ("access = [\n        " + FIRST, "other = [\n        " + FIRST,
                  "attribute \"access\" is expected but not provided"),
    "no mask": ("mask = affine_set<(d0", "other = affine_set<(d0", "attribute \"mask\" is expected but not provided"),
    "no scalar": ("scalar = 1.0 : f64, ", "", "attribute \"scalar\" is expected but not provided"),
    "no segments": (", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>", "",
                    SEGMENTS + "needs an attribute operandSegmentSizes = array<i32: ...>"),
    # -- of the wrong kind
    "access is a string": ("access = [\n        " + FIRST + ",\n        #nki.access<f32, affine_map<()[s0, s1] -> "
                           "(s0 * 8 + s1 * 8)>, [[64, 4], [1, 8]]>]", 'access = "all"',
                           LOAD + 'needs one access pattern per tile (2), has "all"'),
    "pattern is a number": (FIRST, "7 : i64", LOAD + "7 : i64 is not an access pattern '#nki.access<...>'"),
    "pattern of an unknown type": ("#nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>",
                                   "#nki.access<f64, affine_map<()[s0, s1] -> (0, 0)>",
                                   LOAD + "'f64' is not an element type of the language"),
    "pattern of no type": ("#nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>",
                           "#nki.access<1, affine_map<()[s0, s1] -> (0, 0)>",
                           "expected base attribute 'builtin.type' but got 'builtin.integer'"),
    "pattern with dims": ("affine_map<()[s0, s1] -> (0, 0)>", "affine_map<(d0)[s0, s1] -> (d0, 0)>",
                          LOAD + "starts affine_map<(d0)[s0, s1] -> (d0, 0)> are not (offset) or (partition, offset) "
                                 "of symbols"),
    "pattern with three starts": ("-> (0, 0)>, [[1, 4], [1, 8]]>,\n        #nki.access<f32, affine_map<()[s0",
                                  "-> (0, 0, 0)>, [[1, 4], [1, 8]]>,\n        #nki.access<f32, affine_map<()[s0",
                                  LOAD + "starts affine_map<()[s0, s1] -> (0, 0, 0)> are not (offset) or "
                                         "(partition, offset) of symbols"),
    "pattern of HBM on chip": ("affine_map<()[s0, s1] -> (0, 0)>", "affine_map<()[s0, s1] -> (0)>",
                               LOAD + "access of 'dst' needs (partition, offset) starts in sbuf"),
    "pattern of on chip in HBM": ("(s0 * 8 + s1 * 8)", "(0, s0 * 8 + s1 * 8)",
                                  LOAD + "access of 'src' needs (offset) starts in hbm"),
    "pattern that is not linear": ("(s0 * 8 + s1 * 8)", "(s0 * s1)", LOAD + "'s0 * s1' is not linear"),
    "pattern that divides": ("(s0 * 8 + s1 * 8)", "(s0 floordiv 2)", LOAD + "'s0 floordiv 2' is not linear"),
    "dims that are not pairs": ("[[64, 4], [1, 8]]", "[[64, 4], [1]]",
                               LOAD + "dims [[64, 4], [1]] are not [step, count] pairs"),
    "dims of triples": ("[[64, 4], [1, 8]]", "[[64, 4, 1], [1, 8]]",
                        LOAD + "dims [[64, 4, 1], [1, 8]] are not [step, count] pairs"),
    "dims of floats": ("[[64, 4], [1, 8]]", "[[64, 4.0], [1, 8]]",
                       LOAD + "dims [[64, 4.000000e+00], [1, 8]] are not [step, count] pairs"),
    "dims of bools": ("[[64, 4], [1, 8]]", "[[64, true], [1, 8]]",
                      LOAD + "dims [[64, true], [1, 8]] are not [step, count] pairs"),
    "dims of strings": ("[[64, 4], [1, 8]]", '[["x", 4], [1, 8]]',
                        LOAD + 'dims [["x", 4], [1, 8]] are not [step, count] pairs'),
    "no dims": ("[[64, 4], [1, 8]]", "[]", LOAD + "dims [] have an extent below 1"),
    "an extent of 0": ("[[64, 4], [1, 8]]", "[[64, 4], [1, 0]]",
                       LOAD + "dims [[64, 4], [1, 0]] have an extent below 1"),
    "a negative extent": ("[[64, 4], [1, 8]]", "[[64, -4], [1, 8]]",
                          LOAD + "dims [[64, -4], [1, 8]] have an extent below 1"),
    "a step beyond addresses": ("[[64, 4], [1, 8]]", "[[64, 4], [1099511627777, 8]]",
                                LOAD + "dims [[64, 4], [1099511627777, 8]] have a step or an extent of more than "
                                "1,099,511,627,776"),
    "mask is a string": ("affine_set<(d0, d1)[s0, s1] : (-d1 - s0 + 7 >= 0)>", '"all"',
                         LOAD + "\"all\" is not a mask 'affine_set<...>'"),
    "mask is a map": ("affine_set<(d0, d1)[s0, s1] : (-d1 - s0 + 7 >= 0)>", "affine_map<(d0) -> (d0)>",
                      LOAD + "affine_map<(d0) -> (d0)> is not a mask 'affine_set<...>'"),
    "mask with mod": ("-d1 - s0 + 7 >= 0", "d1 mod 2 == 0", LOAD + "'d1 mod 2' is not linear"),
    "limits are a number": ("nki.limits = affine_set<(d0, d1)[s0, s1] : (d0 >= 0)>", "nki.limits = 5",
                            LOAD + "5 : i64 is not a mask 'affine_set<...>'"),
    "op is a number": ('op = "add", scalar', "op = 1.5 : f64, scalar",
                       SCALAR + "attribute 'op' is 1.500000e+00 : f64, which must be a string"),
    "scalar is a string": ("scalar = 1.0 : f64", 'scalar = "one"',
                           SCALAR + "attribute 'scalar' is \"one\", which must be a float"),
    "scalar is an integer": ("scalar = 1.0 : f64", "scalar = 1 : i64",
                             SCALAR + "attribute 'scalar' is 1 : i64, which must be a float"),
    "reverse is an integer": ("reverse = false", "reverse = 0 : i64",
                              SCALAR + "attribute 'reverse' is 0 : i64, which must be a bool"),
    "axes are floats": ("axes = [1]", "axes = [1.0]",
                        REDUCE + "attribute 'axes' is [1.000000e+00], which must be an array of integers"),
    "axes are one number": ("axes = [1]", "axes = 1",
                            REDUCE + "attribute 'axes' is 1 : i64, which must be an array of integers"),
    "axes are a dense array": ("axes = [1]", "axes = array<i64: 1>",
                               REDUCE + "attribute 'axes' is array<i64: 1>, which must be an array of integers"),
    "a location": ("scalar = 1.0 : f64", "scalar = loc(unknown)", SCALAR + "has an attribute that is a location"),
    "a location among the patterns": (FIRST, "loc(unknown)", LOAD + "[loc(unknown), #nki.access<f32, "
                                      "affine_map<()[s0, s1] -> (s0 * 8 + s1 * 8)>, [[64, 4], [1, 8]]>] has an element "
                                      "that is a location"),
    "a location among the dims": ("[[64, 4], [1, 8]]", "[[64, 4], loc(unknown)]",
                                  LOAD + "[[64, 4], loc(unknown)] has an element that is a location"),
    "a location among the axes": ("axes = [1]", "axes = [loc(unknown)]",
                                  REDUCE + "[loc(unknown)] has an element that is a location"),
    # -- counts
    "one pattern too few": (FIRST + ",\n", "\n", LOAD + "needs one access pattern per tile (2), has 1"),
    "one pattern too many": (FIRST + ",\n", FIRST + ",\n" + FIRST + ",\n",
                             LOAD + "needs one access pattern per tile (2), has 3"),
    "one tile": ('"nki.binary_scalar"(%dst, %dst)', '"nki.binary_scalar"(%dst)', "expected 1 operand type but had 2"),
    "symbols beyond the operation's": ("s0 * 8 + s1 * 8)>, [[64", "s0 * 8)>, [[64", ""),
    "pattern uses a symbol that is not there": ("affine_map<()[s0, s1] -> (s0 * 8 + s1 * 8)>",
                                                "affine_map<()[s0, s1, s2] -> (s2)>",
                                                LOAD + "access of 'src' uses more symbols than the operation has (2)"),
    "mask uses a symbol that is not there": (
        "affine_set<(d0, d1)[s0, s1] : (-d1 - s0 + 7 >= 0)>", "affine_set<(d0, d1)[s0, s1, s2] : (s2 >= 0)>",
        LOAD + "attribute 'mask' uses a symbol beyond the operation's 2"),
    "mask uses an axis that is not there": (
        "affine_set<(d0, d1)[s0, s1] : (-d1 - s0 + 7 >= 0)>", "affine_set<(d0, d1, d2) : (d2 >= 0)>",
        LOAD + "attribute 'mask' uses an axis beyond the operation's 2"),
    "limits use an axis that is not there": (
        "affine_set<(d0, d1)[s0, s1] : (d0 >= 0)>", "affine_set<(d0, d1, d2) : (d2 >= 0)>",
        LOAD + "attribute 'nki.limits' uses an axis beyond the operation's 2"),
    "segments of another length": ("array<i32: 1, 1, 0, 0, 0>", "array<i32: 1, 1, 0, 0>",
                                   SEGMENTS + "operandSegmentSizes [1, 1, 0, 0] do not divide 2 operands into "
                                   "dst, src, operand0 (0 or 1), operand1 (0 or 1) and symbols"),
    "segments that do not add up": ("array<i32: 1, 1, 0, 0, 0>", "array<i32: 1, 1, 1, 0, 0>",
                                    SEGMENTS + "operandSegmentSizes [1, 1, 1, 0, 0] do not divide 2 operands into "
                                    "dst, src, operand0 (0 or 1), operand1 (0 or 1) and symbols"),
    "negative segments": ("array<i32: 1, 1, 0, 0, 0>", "array<i32: 1, 1, -1, 0, 1>",
                          SEGMENTS + "operandSegmentSizes [1, 1, -1, 0, 1] do not divide 2 operands into "
                          "dst, src, operand0 (0 or 1), operand1 (0 or 1) and symbols"),
    "segments without the destination": ("array<i32: 1, 1, 0, 0, 0>", "array<i32: 0, 1, 1, 0, 0>",
                                         SEGMENTS + "operandSegmentSizes [0, 1, 1, 0, 0] do not divide 2 operands into "
                                         "dst, src, operand0 (0 or 1), operand1 (0 or 1) and symbols"),
    "segments are a string": ("array<i32: 1, 1, 0, 0, 0>", '"none"',
                              SEGMENTS + "needs an attribute operandSegmentSizes = array<i32: ...>"),
    "segments are 64 bits wide": ("array<i32: 1, 1, 0, 0, 0>", "array<i64: 1, 1, 0, 0, 0>",
                                  SEGMENTS + "needs an attribute operandSegmentSizes = array<i32: ...>"),
    # -- operands
    "symbol is not known": ("%i, %id) {access", "%id, %c) {access", "use of undeclared SSA value name"),
    "tile is an index": ('(%dst, %src, %i, %id)', '(%dst, %c0, %i, %id)', "use of value '%c0' expects different type"),
    # -- text
    "cut off": ("affine_set<(d0, d1)[s0, s1] : (-d1 - s0 + 7 >= 0)>", "affine_set<(d0, d1)[s0", "expected"),
    "no such attribute": ("#nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>",
                          "#nki.excess<f32, affine_map<()[s0, s1] -> (0, 0)>", "expected dynamic attribute"),
    "no such operation": ("nki.binary_scalar", "nki.binary_scaler", "unregistered operation 'nki.binary_scaler'"),
}


def status_and_errors(text: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> tuple[int, list[str], str]:
    file = tmp_path / "module.mlir"
    file.write_text(text)
    status = opt.main([str(file)])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err and "internal error" not in printed.err
    return status, printed.err.splitlines(), str(file)


def test_valid_module__is_valid(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert status_and_errors(VALID, tmp_path, capsys)[:2] == (0, [])


@pytest.mark.parametrize("name", CHANGES)
def test_change__is_diagnosed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    old, new, message = CHANGES[name]
    text = VALID.replace(old, new, 1)
    assert text != VALID
    status, lines, file = status_and_errors(text, tmp_path, capsys)
    if not message:
        assert (status, lines) == (0, [])
        return
    assert status == 1
    first = re.fullmatch(rf"{re.escape(file)}:(\d+):(\d+): error: (.*)", lines[0])
    assert first, lines[0]
    assert message in first[3]
    if message.startswith("'"):         # at the operation
        operation = f'"{message.split()[0].strip(chr(39))}"('
        before, _, _ = text.partition(operation)
        assert (int(first[1]), int(first[2])) == (before.count("\n") + 1, 5)
    assert 1 <= int(first[1]) <= text.count("\n") + 1


SPACES = 'whose memory space is not "hbm", "sbuf" or "psum"'
OPERAND_TYPES = {
    "a dynamic shape": ("memref<4x?xf32, \"sbuf\">",
                        "operand 'src' has type memref<4x?xf32, \"sbuf\">, "
                        "which is not a complete buffer of static shape"),
    "a strided layout": ("memref<4x8xf32, strided<[16, 1]>, \"sbuf\">",
                         "operand 'src' has type memref<4x8xf32, strided<[16, 1]>, \"sbuf\">, "
                         "which is not a complete buffer of static shape"),
    "no memory space": ("memref<4x8xf32>", f"operand 'src' has type memref<4x8xf32>, {SPACES}"),
    "another memory space": ("memref<4x8xf32, \"dram\">",
                             f"operand 'src' has type memref<4x8xf32, \"dram\">, {SPACES}"),
    "a numbered memory space": ("memref<4x8xf32, 1>",
                                f"operand 'src' has type memref<4x8xf32, 1>, {SPACES}"),
    "no axes": ("memref<f32, \"sbuf\">", "operand 'src' has type memref<f32, \"sbuf\">, which has no partitions"),
    "a foreign element type": ("memref<4x8xf64, \"sbuf\">",
                               "operand 'src' has element type f64, which the language does not have"),
    "no memref": ("tensor<4x8xf32>", "operand 'src' is a tensor<4x8xf32>, not a memref"),
    "129 partitions": ("memref<129x8xf32, \"sbuf\">",
                       "number of partitions 129 exceed architecture limitation of 128."),
    "too few bytes": ("memref<4x7xf32, \"sbuf\">", "Out-of-bound access for tensor `src` on dimension 1 (free): "
                      "index range [0, 7] exceed dimension size of 7"),
}


@pytest.mark.parametrize("name", OPERAND_TYPES)
def test_operand_type__is_diagnosed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    kind, message = OPERAND_TYPES[name]
    text = f"""func.func @kernel(%dst: memref<4x8xf32, "sbuf">, %src: {kind}) {{
  "nki.copy"(%dst, %src) {{access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>,
    #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>], mask = affine_set<() : (0 == 0)>}}
    : (memref<4x8xf32, "sbuf">, {kind}) -> ()
  return
}}"""
    status, lines, file = status_and_errors(text, tmp_path, capsys)
    assert status == 1
    assert lines[0].startswith(f"{file}:2:3: error: 'nki.copy' op {message}")


UNKNOWN = ("a symbol operand of 'nki.memset' is neither a loop variable with constant bounds nor a program id nor a loaded number "
           "[NKI-SYMBOL]")
SYMBOLS = {
    "an argument": ("", "%n"),
    "a sum": ("%s = arith.addi %c1, %n : index", "%s"),
    "a loop of unknown length": ("scf.for %s = %c0 to %n step %c1 {", "%s"),
    "a loop without steps": ("scf.for %s = %c1 to %c4 step %c0 {", "%s"),
    "an unknown argument's affine": ("%s = affine.apply affine_map<(d0) -> (d0 + 1)>(%n)", "%s"),
    "a division by zero": ("%s = affine.apply affine_map<(d0) -> (d0 floordiv 0)>(%id)", "%s"),
    "a remainder by zero": ("%s = affine.apply affine_map<(d0) -> (d0 mod 0)>(%id)", "%s"),
    "a remainder by a symbol": ("%s = affine.apply affine_map<(d0)[s0] -> (d0 mod s0)>(%id)[%id]", "%s"),
    "a value made from itself": (
        '%s = "affine.apply"(%s) {map = affine_map<(d0) -> (d0 + 1)>} : (index) -> index', "%s"),
    "a program id outside of the grid": ("", "%far"),
    "a program id that is a string": ("", "%odd"),
}


@pytest.mark.parametrize("name", SYMBOLS)
def test_symbol__is_diagnosed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    body, symbol = SYMBOLS[name]
    text = f"""func.func @kernel(%dst: memref<4x8xf32, "sbuf">, %n: index, %id: index {{nki.program_id = 0}},
    %far: index {{nki.program_id = -1}}, %odd: index {{nki.program_id = "x"}}) attributes {{nki.grid = [4]}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  {body}
  "nki.memset"(%dst, {symbol}) {{access = [#nki.access<f32, affine_map<()[s0] -> (0, s0)>, [[1, 4], [1, 4]]>],
    mask = affine_set<() : (0 == 0)>, value = 0.0 : f64}} : (memref<4x8xf32, "sbuf">, index) -> ()
  {"}" if "{" in body and "scf" in body else ""}
  return
}}"""
    status, lines, file = status_and_errors(text, tmp_path, capsys)
    assert status == 1
    assert lines[0] == f"{file}:7:3: error: 'nki.memset' op {UNKNOWN}"


def test_cycles__in_conditions_and_sums_end(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Verifiers see IR before dominance is checked."""
    text = """func.func @kernel(%dst: memref<4x8xf32, "sbuf">, %id: index {nki.program_id = 0})
    attributes {nki.grid = [8]} {
  %a = "arith.addi"(%b, %id) : (index, index) -> index
  %b = "arith.muli"(%a, %a) : (index, index) -> index
  %c = "arith.cmpi"(%a, %b) {predicate = 5 : i64} : (index, index) -> i1
  %d = "arith.andi"(%d, %c) : (i1, i1) -> i1
  scf.if %d {
    "nki.memset"(%dst, %id) {access = [#nki.access<f32, affine_map<()[s0] -> (0, s0)>, [[1, 4], [1, 4]]>],
      mask = affine_set<() : (0 == 0)>, value = 0.0 : f64} : (memref<4x8xf32, "sbuf">, index) -> ()
  }
  return
}"""
    status, lines, _ = status_and_errors(text, tmp_path, capsys)
    assert status == 1 and ": error: " in lines[0]


@pytest.mark.parametrize("end", range(0, len(VALID), 97))
def test_truncated_text__is_diagnosed(end: int, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    status, lines, file = status_and_errors(VALID[:end], tmp_path, capsys)
    assert (status, lines) == (0, []) if not VALID[:end].strip() else status == 1 and lines[0].startswith(f"{file}:")


# -- any change of the text --------------------------------------------------------------------------------------------
MODULES = [VALID, *(module_text(s.make()) for s in SAMPLES.values())]
PIECES = ["-1", "0", "99999999999999999999", "1.5", '"x"', "[", "]", "(", ")", "<", ">", "{", "}", "%i", "d0", "s0",
          "s9", "mod 2", "floordiv 0", "* s0", "affine_map<() -> (0)>", "affine_set<() : (1 == 0)>", "i1", "f64", "?x",
          "true", "array<i32: 1>", "#nki.access", "unit", ",", "==", ">=", "\0", "é", "loc(unknown)", "!x.y", "nisa."]
WORD = re.compile(r"-?\w+|[^\w\s]")


def changed(text: str, edits: list[tuple[int, int, int]]) -> str:
    """``text`` with words replaced, dropped, doubled or exchanged."""
    for at, what, other in edits:
        words = list(WORD.finditer(text))
        word, second = words[at % len(words)], words[other % len(words)]
        match what % 4:
            case 0:
                new = PIECES[other % len(PIECES)]
            case 1:
                new = ""
            case 2:
                new = word[0] + " " + word[0]
            case _:
                new = second[0]
        text = text[:word.start()] + new + text[word.end():]
    return text


EDITS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3), st.integers(0, 10_000)), min_size=1, max_size=3)


@pytest.mark.fuzz
@given(st.sampled_from(MODULES), EDITS)
def test_changed_text__parses_or_is_diagnosed(module: str, edits: list[tuple[int, int, int]]) -> None:
    text = changed(module, edits)
    try:
        lowering.process(read_module(text, "module.mlir"), OPTIONS)
    except MalformedInput as error:
        assert all(d.message and "internal error" not in d.message for d in error.diagnostics), str(error)
        assert re.match(r"module\.mlir:\d+:\d+: error: ", str(error))
    except NkiMlirError as error:
        assert error.headline and error.code != "NKI-INTERNAL"


OPTIONS = opt.parse_options(["module.mlir"])


# -- any change of a number, all the way down --------------------------------------------------------------------------
KERNEL = (Path(__file__).resolve().parents[2] / "examples" / "mlir" / "tensor_add.mlir").read_text()
NUMBER = re.compile(r"(?<![\w#%.])\d+(?![\w.])")
CHANGED = st.tuples(st.integers(0, 10_000), st.sampled_from([-1, 0, 1, 2, 3, 127, 129, 4096]))


@pytest.mark.fuzz
@given(st.lists(CHANGED, min_size=1, max_size=2),
       st.sampled_from(["--lower-to-linalg", "--lower-to-nisa", "--lower-to-isa", "--on=interpreter"]))
def test_changed_numbers__run_or_are_diagnosed(edits: list[tuple[int, int]], what: str) -> None:
    text = KERNEL
    for at, number in edits:
        numbers = list(NUMBER.finditer(text))
        match = numbers[at % len(numbers)]
        text = text[:match.start()] + str(number) + text[match.end():]
    options = opt.parse_options([what, "module.mlir"] if what.startswith("--lower") else ["module.mlir"])
    try:
        module = read_module(text, "module.mlir")
        if what.startswith("--lower"):
            lowering.process(module, options)
            return
        kernel = the_kernel(module)
        arrays = {k: [np.zeros(a.shape, a.dtype.numpy) for a in specs if a.dtype is not None]
                  for k, specs in (("input", kernel.inputs), ("shared", kernel.shared))}
        if prod(kernel.grid) <= 64:
            run_grid(lambda point, program=compile_function(kernel): program, kernel.grid, arrays["input"],
                     arrays["shared"])
    except NkiMlirError as error:
        assert error.code != "NKI-INTERNAL" and "internal error" not in str(error)
