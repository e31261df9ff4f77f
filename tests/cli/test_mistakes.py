# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mistakes in a module's text and in a kernel: each is FILE:LINE:COL, the rule, and exit status 1."""

import re
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.cli import opt, translate
from nki_mlir.cli import run as run_command
from nki_mlir.diagnostics import KernelError
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import tensor

ROOT = Path(__file__).parent.parent.parent
MODULE = (ROOT / "examples/mlir/tensor_add.mlir").read_text()

PRODUCT = """
#l = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>
#r = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 600]]>
#all = affine_set<() : (0 == 0)>
func.func @f(%a: memref<128x512xf32, "hbm">) {
  %x = memref.alloc() : memref<128x128xf32, "sbuf">
  %y = memref.alloc() : memref<128x600xf32, "sbuf">
  %z = memref.alloc() : memref<128x600xf32, "psum">
  "nki.matmul"(%z, %x, %y) {access = [#r, #l, #r], mask = #all, accumulate = false}
    : (memref<128x600xf32, "psum">, memref<128x128xf32, "sbuf">, memref<128x600xf32, "sbuf">) -> ()
  return
}
"""

# what is replaced, by what, part of the message, the text of the line it points at
EDITS = {
    "129 partitions": ("memref<128x512xf32, \"sbuf\">", "memref<129x512xf32, \"sbuf\">", None, None),
    "129 partitions accessed": ("[[1, 128], [1, 512]]>\n#block", "[[1, 129], [1, 512]]>\n#block",
                                "number of partitions 129 exceed", "nki.load"),
    "past the end": ("s0 * 131072 + s1 * 512", "s0 * 131072 + s1 * 512 + 1", "Out-of-bound access", "nki.load"),
    "wrong dtype": ("#local = #nki.access<f32", "#local = #nki.access<f99", "", None),
    "operand dtype": ('op = "add"', 'op = "bitwise_and"', "must be an integer type", "nki.binary"),
    "missing attribute": (', op = "add"', "", '"op" is expected', "nki.binary"),
    "unknown operation": ('"nki.binary"', '"nki.bynary"', "nki.bynary", "nki.bynary"),
    "wrong memory": ('%left = memref.alloc() : memref<128x512xf32, "sbuf">',
                     '%left = memref.alloc() : memref<128x512xf32, "dram">', "", None),
    "truncated": (None, None, "", None),
}


def run(path, *options):
    return opt.main([*options, str(path)])


@pytest.mark.parametrize("edit", [e for e in EDITS if e != "129 partitions"])
def test_an_illegal_edit_of_a_module(edit, tmp_path, capsys):
    old, new, message, line_has = EDITS[edit]
    text = MODULE[:len(MODULE) * 3 // 4] if old is None else MODULE.replace(old, new)
    assert text != MODULE
    file = tmp_path / "edited.mlir"
    file.write_text(text)
    assert run(file) == 1
    errors = capsys.readouterr().err
    match = re.match(rf"{re.escape(str(file))}:(\d+):(\d+): error: ", errors)
    assert match, errors
    assert message in errors
    if line_has:
        assert line_has in text.splitlines()[int(match[1]) - 1]
    assert "Traceback" not in errors


def test_a_product_over_a_psum_bank(tmp_path, capsys):
    file = tmp_path / "product.mlir"
    file.write_text(PRODUCT)
    assert run(file) == 1
    errors = capsys.readouterr().err
    assert f"{file}:9:3: error: 'nki.matmul'" in errors
    assert "600" in errors or "2048" in errors


@pytest.mark.parametrize("text", ["", "func.func @f(", "func.func private @puts(memref<1xi8>)\n",
                                  "llvm.func @f()\n", "module {", "\0\1\2", "#nki.access<"])
def test_text_that_is_no_kernel(text, tmp_path, capsys):
    file = tmp_path / "odd.mlir"
    file.write_text(text)
    status = run(file)
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    if text:
        assert status == 1 and errors.startswith(f"{file}:"), errors


ISA_HEADER = """\
.nki_isa 1
.kernel f
.target trn2
.sbuf 0 of 212984
.psum 0 of 16384
.output out fp32[65536,4096] 0
"""
# a file's name and content; options of nki-run; the first line of the error behind the file's name
NAMED = {
    "no function": ("m.mlir", "\nmodule {}\n", [],
                    ":2:1: error: the module has no function [NKI-SIGNATURE]"),
    "nothing": ("m.mlir", "", [], ": error: the module has no function [NKI-SIGNATURE]"),
    "two functions": ("m.mlir", "func.func @a() { return }\n  func.func @b() { return }\n", [],
                      ":2:3: error: the module has 2 functions (a, b); say which one to use [NKI-SIGNATURE]"),
    "large input": ("m.mlir", 'module {\n  func.func @f(%x: memref<65536x4096xf32, "hbm">) { return }\n}\n', [],
                    ":2:3: error: the file declares 1,073,741,824 bytes (arg0), more than the limit of 134,217,728 "
                    "[NKI-INPUT-MEMORY]"),
    "large output of streams": ("m.nkiasm", ISA_HEADER, [],
                                ": error: the file declares 1,073,741,824 bytes (out), more than the limit of 134,217,728 "
                                "[NKI-INPUT-MEMORY]"),
    "an input of another name": ("m.nkiasm", ISA_HEADER.replace("65536", "1"), ["--arg", "y=4x4xf32"],
                                 ": error: there is no input 'y' [NKI-ARG]"),
}


@pytest.mark.parametrize("case", NAMED)
def test_what_is_wrong_with_a_file__names_the_file(case, tmp_path, capsys):
    name, text, options, message = NAMED[case]
    file = tmp_path / name
    file.write_text(text)
    assert run_command.main([*options, str(file)]) == 1
    assert capsys.readouterr().err.splitlines()[0] == f"{file}{message}"


def test_assembly_is_no_module__says_which_commands_read_it(tmp_path, capsys):
    file = tmp_path / "m.nkiasm"
    file.write_text(ISA_HEADER)
    assert opt.main([str(file)]) == 1
    assert capsys.readouterr().err == (
        f"{file}:1:1: error: the file has instruction streams as assembly, not a module [NKI-SOURCE-STREAMS]\n"
        "    1 | .nki_isa 1\n      | ^\n"
        "  fix: run them with nki-run --on=isa, or write a binary with nki-translate --assemble\n")


def test_a_binary_that_is_not_valid__names_the_file(tmp_path, capsys):
    file = tmp_path / "m.nkibin"
    file.write_bytes(bytes(64))
    assert translate.main(["--disassemble", str(file)]) == 1
    assert capsys.readouterr().err.startswith(
        f"{file}: error: the binary is not valid: it does not start with the container's magic number [NKI-BINARY]\n")


def test_missing_file(capsys):
    assert opt.main(["/nonexistent/x.mlir"]) == 1
    assert "cannot read /nonexistent/x.mlir" in capsys.readouterr().err


def test_unknown_pass_and_option(tmp_path, capsys):
    file = tmp_path / "m.mlir"
    file.write_text(MODULE)
    assert run(file, "--pass-pipeline=no-such-pass") == 1
    assert "there is no pass named 'no-such-pass'" in capsys.readouterr().err
    assert run(file, "--split-masked-loops=nonsense=1") == 1
    assert "has no option 'nonsense'" in capsys.readouterr().err


@pytest.mark.parametrize("options, message", [
    (["--no-such-pass"], "unrecognized arguments: --no-such-pass"), (["-x"], "unrecognized arguments: -x"),
    (["--emit=elf"], "argument --emit: invalid choice: 'elf'"),
    (["--pass-pipeline=((("], "--pass-pipeline: '(((' is not a list of passes such as A,B{x=1 y=2}"),
    (["--lower-to-isa", "--lower-to-llvm"], "not allowed with argument --lower-to-isa"),
    (["a.mlir"], "unrecognized arguments")])
def test_a_command_line_that_cannot_be_understood(options, message, tmp_path, capsys):
    file = tmp_path / "m.mlir"
    file.write_text(MODULE)
    with pytest.raises(SystemExit) as ended:
        run(file, *options)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


KERNEL_FILE = "examples/average_pool2d.py:average_pool2d"
SECOND_VALUE = "--arg window=4: window has a value already"
OF_THE_COMMAND_LINE = ("--grid 2,x: a grid must have positive numbers", "--arg 8x8x8xf32=random:x: 'random:x' does not describe the contents of a tensor",
                       "--arg 64x32xf33: there is no dtype 'f33'", "--arg 64x32: is neither a tensor nor a Python constant: a tensor has a dtype, such as 64x32xf32",
                       "--arg 4x4xf64: there is no dtype 'f64'; did you mean f32?",
               "--arg 4x4xF32: there is no dtype 'F32'; did you mean f32?",
                       "--arg x.npy: cannot be read: No such file or directory",
                       "--arg [4xf32, 2: is neither a tensor nor a Python constant")


@pytest.mark.parametrize("command, arguments, message", [
    (opt, [KERNEL_FILE, "--arg", "word", "--arg", "2"], "error: parameter image is 'word', and the kernel reads its shape"),
    (opt, [KERNEL_FILE, "--arg", "f32", "--arg", "2"], "fix: pass a tensor, for example --arg 128x512xf32"),
    (opt, [KERNEL_FILE, "--grid", "2,x", "--arg", "8x8x8xf32", "--arg", "2"], "--grid 2,x: a grid must have positive numbers"),
    (opt, [KERNEL_FILE, "--target=trn9", "--arg", "8x8x8xf32", "--arg", "2"], "there is no target named 'trn9'"),
    (opt, [KERNEL_FILE, "--arg", "8x8x8xf32=random:x"], OF_THE_COMMAND_LINE[1]),
    *((command, [source, "--arg", text.split(": ")[0].removeprefix("--arg ")], text)
      for text in OF_THE_COMMAND_LINE[2:] for command, source in ((opt, KERNEL_FILE), (run_command, KERNEL_FILE),
                                                                  (run_command, "examples/mlir/tensor_add.mlir"))),
    *((opt, [f"--cpu-passes={text}", "--lower-to-vector", "examples/mlir/tensor_add.mlir"],
       f"error: '{text}' is not a list of passes such as A,B{{x=1 y=2}} [NKI-PASS-LIST]")
      for text in ("", "chunk-rows{", "a)", "a b")),
    (opt, [KERNEL_FILE], "error: average_pool2d(image, window): missing a required argument: 'image'"),
    (opt, ["examples/softmax.py"], "examples/softmax.py has several kernels: choose one with examples/softmax.py:FUNCTION"),
    (run_command, ["nki_mlir/version.py"], "error: nki_mlir/version.py has no kernel [NKI-KERNEL-NAME]\n"
     "  fix: decorate a function of the file with nki.jit"),
    *((command, [source], f"cannot read {source}: No such file or directory; did you mean {KERNEL_FILE}?")
      for command in (opt, run_command) for source in (KERNEL_FILE.replace(".py", ""), KERNEL_FILE.replace(".py:", "."))),
    (run_command, ["examples/mlir/tensor_add.mlir", "--on=eager"], "cannot run on eager"),
    (run_command, ["examples/mlir/tensor_add.mlir", "--compare=jit,native"], "cannot run on native"),
    (run_command, ["examples/mlir/tensor_add.mlir", "--target=trn9"], "there is no target named 'trn9'"),
    (run_command, ["examples/mlir/tensor_add.mlir", "--grid=2"], "a module has a grid already"),
    (run_command, ["examples/mlir/tensor_add.mlir", "--arg", "z=256x1024xf32"], "there is no input 'z'"),
    (run_command, ["examples/mlir/tensor_add.mlir", *["--arg", "256x1024xf32"] * 3], "got 3 values for 2 inputs"),
    (run_command, [KERNEL_FILE, "--arg", "window=2", "--arg", "window=4"], SECOND_VALUE),
    (translate, ["--import-python", "examples/mlir/tensor_add.mlir"], "tensor_add.mlir is not a Python file"),
    (translate, ["--disassemble", "no-such-file.neff"], "cannot read no-such-file.neff: No such file or directory")])
def test_arguments_that_do_not_fit(command, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert command.main(arguments) == (2 if message in (*OF_THE_COMMAND_LINE, SECOND_VALUE) else 1)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("text, line, message", [
    ("import os\n\nx = os.nope\n", 3, "cannot be imported: AttributeError: module 'os' has no"),
    ("def (:\n", 1, "error: SyntaxError: invalid syntax")])
def test_a_file_that_cannot_be_imported(text, line, message, tmp_path, capsys):
    file = tmp_path / "broken.py"
    file.write_text(text)
    assert run(f"{file}:kernel") == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"{file}:{line}:") and message in errors


# -- the same mistakes in a kernel -------------------------------------------------------------------------------------
def too_many_partitions(x):
    out = nl.ndarray((256, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros((256, 64), dtype=x.dtype, buffer=nl.sbuf)          # here
    nl.store(out, tile)
    return out


def past_the_end(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x[200:328, :]))                              # here
    return out


def over_a_bank(x):
    out = nl.ndarray((64, 600), dtype=x.dtype, buffer=nl.shared_hbm)
    left, right = nl.load(x[0:128, :]), nl.zeros((128, 600), nl.float32, buffer=nl.sbuf)
    nl.store(out, nl.copy(nl.matmul(left, right, transpose_x=True)))   # here
    return out


def wrong_dtype(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:128, :])
    nl.store(out, nl.bitwise_and(tile, tile))                          # here
    return out


def wrong_annotation(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile: tensor[128, 32] = nl.load(x[0:128, :])                       # here
    nl.store(out, tile)
    return out


def wrong_memory(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.exp(x[0:128, :]))                                 # here
    return out


def partitions_differ(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x[0:128, :]), nl.load(x[0:1, :])
    nl.store(out, nisa.tensor_tensor(a, b, np.add))                    # here
    return out


KERNELS = [too_many_partitions, past_the_end, over_a_bank, wrong_dtype, wrong_annotation, wrong_memory,
           partitions_differ]


@pytest.mark.parametrize("on", ["interpreter", "jit"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_a_mistake_in_a_kernel_points_at_its_line(kernel, on):
    lines = Path(__file__).read_text().splitlines()
    first = kernel.__code__.co_firstlineno
    here = next(n for n in range(first, first + 10) if "# here" in lines[n - 1])
    with pytest.raises(KernelError) as caught:
        nki.jit(kernel).on(on)(np.ones((256, 64), np.float32))
    assert caught.value.at.line == here, caught.value
    assert str(caught.value).startswith(f"{__file__}:{here}:")
    assert "fix: " in str(caught.value)
