# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files and texts that options name, of any content: each is one error of the command, and none is run as code."""

import ast
import io
import json
import os
import sqlite3
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.cli import calibrate, grade, migrate, opt, run, score, translate, tune
from nki_mlir.cli.arguments import BadArgumentText, parse_argument, parse_arguments
from nki_mlir.cli.standins import neuron_bench, neuron_profile
from nki_mlir.compat.executables import write_executables
from nki_mlir.grading.assignment import parsed
from nki_mlir.input_limits import InputTooLarge
from nki_mlir.migration import nesting
from nki_mlir.scoring.store import TABLE

KERNEL = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n@nki.jit\ndef f(x):\n" \
         "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n    nl.store(out, nl.load(x))\n    return out\n"


def array_file(header):
    text = header.encode().ljust(118 - len(header) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0" * 64


def archive(size):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.npy", b"\0" * size)
    return file.getvalue()


FILES = {
    "empty": (b"", "cannot be read: No data left in file"),
    "cut off": (b"\x93NUMPY", "cannot be read: EOF"),
    "an archive": (archive(50_000_000), "the file is not an array, but an archive of arrays"),
    "objects": (array_file("{'descr': '|O', 'fortran_order': False, 'shape': (4,), }"), "it is not an array of numbers in the format of numpy.save"),
    "code": (array_file("__import__('os').abort()"), "cannot be read: malformed node or string"),
    "a header of gigabytes": (b"\x93NUMPY\x02\x00" + struct.pack("<I", 4_000_000_000), "expected 4000000000 bytes got 0"),
    "a shape of terabytes": (array_file("{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000000,), }"),
                             "cannot be read"),
    "a size of 20 digits": (array_file("{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616, 2), }"),
                            "cannot be read: Python int too large"),
    "a size that is a bool": (array_file("{'descr': '<f4', 'fortran_order': False, 'shape': (True, 4), }"),
                              "cannot be read: an integer is required"),
    "negative sizes": (array_file("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -4), }"), "cannot be read"),
    "brackets": (array_file("[" * 9000), "cannot be read: "),
    "nested tuples": (array_file("(" * 3000 + ")" * 3000), "cannot be read: "),
    "half an archive": (archive(100)[:60], "cannot be read: File is not a zip file"),
    "text": (array_file("{'descr': '<U1', 'fortran_order': False, 'shape': (4, 4), }"),
             "the file cannot be used: <U1 is not an element type"),
    "complex numbers": (array_file("{'descr': '<c8', 'fortran_order': False, 'shape': (4, 2), }"),
                        "the file has shape (4, 2)"),
    "another shape": (array_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"),
                      "the file has shape (2, 2)"),
}


@pytest.fixture
def kernel(tmp_path):
    (tmp_path / "k.py").write_text(KERNEL)
    return f"{tmp_path}/k.py:f"


@pytest.mark.parametrize("kind", FILES)
def test_files_of_arguments(kind, kernel, tmp_path, capsys):
    content, text = FILES[kind]
    (tmp_path / "x.npy").write_bytes(content)
    assert run.main([kernel, "--arg", f"4x4xf32={tmp_path}/x.npy"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: --arg 4x4xf32={tmp_path}/x.npy: ") and text in printed and "[NKI-ARG]" in printed
    assert printed.count("\n") == 2 and len(printed) < 600


@pytest.mark.parametrize("shape", ["", "4x4xf32="])
def test_an_archive_of_arrays_is_no_argument(shape, kernel, tmp_path, capsys):
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 4), np.float32))
    assert run.main([kernel, "--arg", f"{shape}{tmp_path}/x.npz"]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: --arg {shape}{tmp_path}/x.npz: the file is not an array, but an archive of arrays; write one of them with "
        "numpy.save [NKI-ARG]\n")


@pytest.mark.parametrize("shape", ["99999999999x99999999xf32", "1x" * 33 + "f32", "1x" * 5000 + "f32",
                                   "1073741824x1073741824xi8"])
@pytest.mark.parametrize("command", [opt, run])
def test_shapes_that_no_array_has(command, shape, kernel, capsys):
    assert command.main([kernel, "--arg", shape]) == 2
    assert "a tensor has at most 32 dimensions and 1,152,921,504,606,846,975 elements [NKI-ARG]" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["9" * 5000, "-1", "1e308", "nan", "１２"])
def test_seeds_that_are_none(seed, kernel, capsys):
    assert run.main([kernel, "--arg", f"4x4xf32=random:{seed}"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: --arg 4x4xf32=random:{seed[:40]}")
    assert "does not describe the contents of a tensor [NKI-ARG]" in printed


def test_a_shape_of_as_many_dimensions_as_there_may_be_is_an_array(kernel, capsys):
    assert run.main([kernel, "--arg", "1x" * 32 + "f32", "--on=eager"]) in (0, 1)
    assert "NKI-ARG]" not in capsys.readouterr().err


@pytest.mark.parametrize("line", ["9" * 13, "9" * 5000, "0x1", "-1", ""])
def test_a_line_to_stop_at_is_a_number(line, kernel, capsys):
    assert run.main([kernel, "--arg", "4x4xf32", "--on=eager", "--script=/dev/null", "--break", f"k.py:{line}"]) == 1
    assert "is not a FILE:LINE" in capsys.readouterr().err


def test_scripts_of_the_debugger_are_read_whatever_their_bytes(kernel, tmp_path, capsys):
    (tmp_path / "script").write_bytes(b"\xff\x00 what\n" + b"x" * 100_000 + b"\n")
    assert run.main([kernel, "--arg", "4x4xf32=ones", "--on=eager", "--step", f"--script={tmp_path}/script"]) == 0
    printed = capsys.readouterr().out
    assert "there is no command" in printed or "unknown" in printed


@pytest.mark.parametrize("command, arguments", [
    (run, ["/dev/zero"]), (opt, ["/dev/zero"]), (calibrate, ["/dev/zero"]), (grade, ["/dev/zero", "k.py"]),
    (score, ["/dev/zero", "-r", "k.py"]),
    (tune, ["/dev/zero", "-r", "k.py", "--space", "A=1,2"]),
    (run, ["k.py:f", "--arg", "4x4xf32", "--on=eager", "--step", "--script=/dev/zero"])],
    ids=lambda value: value.__name__ if hasattr(value, "__name__") else " ".join(value)[:30])
def test_files_without_an_end(command, arguments, kernel, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NKI_MLIR_INPUT_TEXT", "100000")
    assert command.main(arguments) == 1
    assert "takes 100,001 bytes, more than the limit of 100,000" in capsys.readouterr().err


@pytest.mark.parametrize("command, arguments", [
    (neuron_bench, ["exec", "/dev/zero"]), (neuron_profile, ["capture", "-n", "/dev/zero"])])
def test_a_compiled_kernel__is_a_regular_file(command, arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main(arguments) == 1
    assert "cannot read /dev/zero: it is not a regular file" in capsys.readouterr().err


def test_a_reference_without_an_end__is_no_file(kernel, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert score.main(["k.py", "-r", "/dev/zero"]) == 1
    assert "/dev/zero: error: the reference cannot be read: it is not a regular file" in capsys.readouterr().err


def test_a_text_with_the_name_of_a_binary_is_no_module(tmp_path, capsys):
    (tmp_path / "a.neff").write_text("module {}")
    assert run.main([str(tmp_path / "a.neff")]) == 1
    assert capsys.readouterr().err.startswith(f"{tmp_path}/a.neff: error: the binary is not valid: ")


@pytest.mark.parametrize("library", ["", "text.so", "fifo.so", "circle.so", "x" * 300])
def test_what_is_no_library_is_an_error(library, kernel, tmp_path, capsys):
    (tmp_path / "text.so").write_text("no library")
    (tmp_path / "circle.so").symlink_to("circle.so")
    os.mkfifo(tmp_path / "fifo.so")
    assert run.main([kernel, "--arg", "4x4xf32", "--load-library", str(tmp_path / library)]) == 1
    assert f"{tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("command, arguments, message", [
    (run, ["{name}.py:f"], "no such file"), (opt, ["{name}.py:f"], "no such file"),
    (migrate, ["{name}.py"], "no such file or directory"), (grade, ["a.toml", "{name}.py"], "does not exist [NKI-GRADE"),
    (grade, ["long.toml", "a.py"], "does not exist [NKI-GRADE")], ids=lambda value: str(value)[:30])
def test_names_that_no_file_can_have(command, arguments, message, tmp_path, monkeypatch, capsys):
    """Path's methods raise an error if a name is too long."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("def inputs(rng): ...\ndef reference(): ...\n")
    assignment = '[[part]]\nname = "one"\npoints = 1\n'
    (tmp_path / "a.toml").write_text('reference = "a.py"\n' + assignment)
    (tmp_path / "long.toml").write_text(f'reference = "{"x" * 300}.py"\n' + assignment)
    assert command.main([argument.format(name="x" * 300) for argument in arguments]) == 1
    printed = capsys.readouterr().err
    assert message in printed and len([line for line in printed.splitlines() if "error" in line]) == 1, printed


def test_sources_larger_than_the_limit_are_not_read(kernel, tmp_path, monkeypatch, capsys):
    file = kernel.removesuffix(":f")
    os.truncate(file, 1 << 34)
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "k.py").write_text(KERNEL)
    (tmp_path / "beside" / "large.py").touch()
    os.truncate(tmp_path / "beside" / "large.py", 1 << 34)
    for command, source in ((run, kernel), (opt, kernel), (migrate, file)):
        assert command.main([source]) == 1
        assert "error: the file takes 17,179,869,184 bytes, more than the limit" in capsys.readouterr().err
    assert migrate.main([str(tmp_path / "beside" / "k.py")]) == 0


def test_values_of_a_file_are_those_of_the_tensor(kernel, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.arange(16, dtype=np.float32).reshape(4, 4))
    assert run.main([kernel, "--arg", f"4x4xf32={tmp_path}/x.npy", "--on=eager"]) == 0
    assert "15" in capsys.readouterr().out


def test_a_file_alone_is_its_tensor(kernel, tmp_path, capsys):
    path, x = str(tmp_path / "x.npy"), np.arange(16, dtype=np.int32).reshape(4, 4)
    np.save(path, x)
    for values, expected in ((True, x), (False, np.zeros_like(x))):
        positional, keywords = parse_arguments([path, f"y={path}"], values)
        for array in (*positional, keywords["y"]):
            np.testing.assert_array_equal(array, expected, strict=True)
    assert run.main([kernel, "--arg", path, "--on=eager"]) == 0
    assert "15" in capsys.readouterr().out


def test_a_file_in_another_byte_order_is_read(tmp_path):
    x = np.arange(6, dtype=">f4").reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    np.testing.assert_array_equal(parse_argument(f"{tmp_path}/x.npy", 0), x.astype(np.float32), strict=True)


def test_files_of_other_dtypes_need_one(kernel, tmp_path, capsys):
    path = f"{tmp_path}/x.npy"
    for values, text in ((np.ones((4, 4)), f"the file holds float64; choose one, as in --arg 4x4xf32={path}"),
                         (np.ones((4, 4), ml_dtypes.bfloat16),
                          f"the file does not name its dtype; choose one, as in --arg 4x4xbf16={path}")):
        np.save(path, values)
        assert run.main([kernel, "--arg", path]) == 2
        assert capsys.readouterr().err.startswith(f"error: --arg {path}: {text} [NKI-ARG]")


def test_bfloat16_of_a_file(tmp_path):
    """NumPy writes the elements of such arrays, but not the name of their dtype."""
    x = np.linspace(-3, 3, 16).reshape(4, 4).astype(ml_dtypes.bfloat16)
    path = f"{tmp_path}/x.npy"
    np.save(path, x)
    np.testing.assert_array_equal(parse_argument(f"4x4xbf16={path}", 0), x, strict=True)
    with pytest.raises(BadArgumentText, match="the elements of the file have 2 bytes"):
        parse_argument(f"4x4xf32={path}", 0)


SOURCES = {"brackets": "(" * 100_000, "signs": "x = " + "-" * 100_000 + "1", "lambdas": "lambda: " * 20_000 + "1",
           "attributes": "x" + ".a" * 100_000, "sums": "x = " + "1 + " * 100_000 + "1", "an integer": "x = " + "9" * 100_000,
           "a NUL byte": "x = 1\0", "blocks": "".join(" " * k + "if 1:\n" for k in range(300))}


def test_sources_that_nest_too_deeply_are_not_migrated(tmp_path):
    """Run in a child process: the readers of arguments have no limits, and a crash would end the tests."""
    for kind, text in SOURCES.items():
        (tmp_path / f"{kind}.py").write_text(text)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "beside.py").write_text(SOURCES["brackets"])
    (tmp_path / "deep" / "k.py").write_text("x = 1\n")
    script = ("import sys; from nki_mlir.cli import migrate\n"
              "for file in sys.argv[1:]: print(migrate.main([file]), file=sys.stderr)")
    files = [str(tmp_path / f"{kind}.py") for kind in SOURCES]
    ended = subprocess.run([sys.executable, "-c", script, *files, str(tmp_path / "deep" / "k.py")], capture_output=True,
                           text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr[-2000:]
    errors = [line for line in ended.stderr.splitlines() if "error: " in line]
    for file, line in zip(files, errors, strict=True):
        what = "does not parse: " if file.endswith(("integer.py", "byte.py")) else "nests more deeply than Python reads"
        assert line.startswith(f"{file}:") and what in line and "[NKI-MIGRATE]" in line
    assert [line for line in ended.stderr.splitlines() if line in "01"] == ["1"] * len(SOURCES) + ["0"]
    assert max(map(len, ended.stderr.splitlines())) < 2_500


def test_judging_imports_no_module_of_the_current_directory(tmp_path):
    for module in ("json", "argparse", "runpy", "numpy"):
        (tmp_path / f"{module}.py").write_text("open('was_run', 'w')\n")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "k.py").write_text(KERNEL)
    (tmp_path / "files" / "ref.py").write_text("import numpy as np\ndef inputs(rng): return (np.ones((4, 4), np.float32),)\n"
                                               "def reference(x): return x\n")
    script = ("import sys; sys.path[:] = filter(None, sys.path); from nki_mlir.cli import score; "
              "sys.exit(score.main(sys.argv[1:]))")
    ended = subprocess.run([sys.executable, "-c", script, "files/k.py", "-r", "files/ref.py"], cwd=tmp_path,
                           capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and not (tmp_path / "was_run").exists(), ended.stderr


def test_formatters_and_stand_ins_import_no_module_of_the_current_directory(tmp_path):
    for module in ("json", "argparse", "ruff", "runpy", "re"):
        (tmp_path / f"{module}.py").write_text("open('was_run', 'w')\n")
    (tmp_path / "k.py").write_text("import neuronxcc.nki as nki\nx = {  'a':1 }\n")
    write_executables(tmp_path / "bin", ["neuron-ls"])
    script = ("import sys; sys.path[:] = filter(None, sys.path); from nki_mlir.cli import migrate; "
              "sys.exit(migrate.main(['k.py', '-o', 'new.py']))")
    for command in ([sys.executable, "-c", script], [str(tmp_path / "bin" / "neuron-ls"), "--help"]):
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0 and not (tmp_path / "was_run").exists(), ended.stderr
    assert 'x = {"a": 1}' in (tmp_path / "new.py").read_text()


def test_an_assignment_without_an_end(tmp_path, capsys):
    assert grade.main(["/dev/zero", str(tmp_path)]) == 1
    assert "error: the assignment takes 16,777,217 bytes, more than the limit" in capsys.readouterr().err


@pytest.mark.parametrize("text, line", [("x" * 200_000, 1), ("kernel,reps,elements,ns\n" + "1" * 200_000, 2)])
def test_a_field_of_a_csv_that_is_too_long(text, line, tmp_path, capsys):
    (tmp_path / "a.csv").write_text(text)
    assert calibrate.main([str(tmp_path / "a.csv")]) == 1
    assert f"a.csv:{line}" in (errors := capsys.readouterr().err) and "the line is not CSV, field larger than" in errors


def test_an_assignment_that_nests_too_deeply(tmp_path, capsys):
    (tmp_path / "a.toml").write_text("a = " + "[" * 50_000)
    assert grade.main([str(tmp_path / "a.toml"), str(tmp_path)]) == 1
    assert "its values nest too deeply" in capsys.readouterr().err


@pytest.mark.parametrize("text, line", [("a." * 20_000 + "b = 1\n", 1), ("a = 1\n[" + "b . " * 101 + "c]\n", 2),
                                        ("a = 1\nb.c = {" + "'a'.\"b\"." * 60 + "c = 1}\n", 2)])
def test_a_key_of_too_many_parts(text, line, tmp_path, capsys):
    (tmp_path / "a.toml").write_text(text)
    assert grade.main([str(tmp_path / "a.toml"), str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(
        f"{tmp_path}/a.toml:{line}:1: error: the assignment is not TOML: the line has more than 100 dots in keys [")


def test_dots_that_are_in_no_key_are_not_counted():
    text = f"# {'.' * 200}\nname = '{'. ' * 200}'\n{'.'.join('a' * 100)} = 1\n"
    assert parsed(text)["name"] == ". " * 200


def test_requests_that_are_no_text_have_an_answer(tmp_path):
    script = "import sys; from nki_mlir.cli import score; sys.exit(score.main(['--serve']))"
    ended = subprocess.run([sys.executable, "-c", script], input=b"\xff\xfe\n[\n" + b"[" * 100_000 + b"\n",
                           capture_output=True, timeout=60)
    assert ended.returncode == 0 and not ended.stderr
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(answers) == 3 and all("error" in json.dumps(answer) for answer in answers)


@pytest.mark.parametrize(("text", "line"), [
    ("class E(BaseException): pass\nraise E('stop')\n", 2),
    (KERNEL.replace("    out =", "    class E(BaseException): pass\n    raise E('stop')\n    out ="), 6)],
    ids=["at import", "in the kernel"])
def test_exception_of_no_usual_class_is_an_error_at_its_line(text, line, tmp_path, capsys):
    file = tmp_path / "kernel.py"
    file.write_text(text)
    assert run.main([f"{file}:f", "--arg", "4x8xf32"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"{file}:{line}:") and "E: stop" in error.splitlines()[0] and "Traceback" not in error


def test_exception_without_a_text_is_an_error_at_its_line(tmp_path, capsys):
    file = tmp_path / "kernel.py"
    kind = "class E(Exception):\n    def __str__(self): raise ValueError\n"
    for text, line in ((kind + "raise E()\n", 3), (kind + KERNEL.replace("    out =", "    raise E()\n    out ="), 7)):
        file.write_text(text)
        assert run.main([f"{file}:f", "--arg", "4x8xf32"]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"{file}:{line}:") and "E: (no text: its __str__ raises ValueError)" in error


def test_a_warning_that_a_filter_makes_an_error_is_one_at_its_line(tmp_path, capsys):
    file = tmp_path / "kernel.py"
    file.write_text("import warnings\n" + KERNEL.replace("nl.load(x)", "nl.log(nl.load(x))")
                    .replace("    out =", "    warnings.simplefilter('error')\n    out ="))
    with warnings.catch_warnings():
        assert run.main([f"{file}:f", "--arg", "4x8xf32=zeros", "--on=eager"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"{file}:8:19: error: DeviceRuleWarning: log of 0, which is outside of its domain") \
        and "Traceback" not in error


@pytest.mark.parametrize("command, options", [(run, []), (run, ["--on=isa"]), (opt, ["--lower-to-nisa"]),
                                              (translate, ["--to-nki-python"])])
def test_an_empty_name_is_no_target(command, options, kernel, capsys):
    arguments = ["--arg", "4x8xf32", "--target", "", *options]
    assert command.main([kernel, *arguments]) == 1
    assert "error: there is no target named '' [NKI-TARGET]" in capsys.readouterr().err


def test_parts_that_are_long_together_are_refused(tmp_path, capsys):
    file = tmp_path / "many.mlir"
    file.write_text("// -----\n" * 20_000)
    assert opt.main(["--split-input-file", str(file)]) == 1
    assert "the text of all parts, each after as many blank lines as precede it, takes" in capsys.readouterr().err


@pytest.mark.parametrize("text, said", [
    ("x = [" + "1," * 50_000 + "]", "the syntax tree of the file takes 50,0"),
    ("#" * 1_000_040, "the file, with a node for 20 bytes, takes 50,002 nodes, more than the limit of 50,000")])
def test_sources_with_large_syntax_trees_are_not_migrated(text, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NKI_MLIR_INPUT_NODES", "50000")
    (tmp_path / "k.py").write_text("import neuronxcc.nki as nki\n")
    (tmp_path / "large.py").write_text(text + "\n")
    assert migrate.main([str(tmp_path / "large.py")]) == 1
    assert f"large.py:1:1: error: {said}" in capsys.readouterr().err
    assert migrate.main([str(tmp_path / "k.py"), "--quiet"]) == 0


def test_least_number_of_nodes_is_not_above_the_number(monkeypatch):
    for file in sorted(Path(nesting.__file__).parent.glob("*.py")):
        assert nesting.least_nodes(file.read_text()) <= sum(1 for _ in ast.walk(ast.parse(file.read_text())))
    assert nesting.least_nodes("x = [\n" + "1, " * 1_000 + "]\n") == 1_000
    assert nesting.least_nodes("s = 'a, b, c'  # a, b, c\n" + 't = """' + "a, b\n" * 100 + '"""\n') == 1
    assert nesting.least_nodes("f;" * 50) == 50 and nesting.least_nodes("f\n" * 50) == 25
    monkeypatch.setenv("NKI_MLIR_INPUT_NODES", "100")
    monkeypatch.setattr(ast, "parse", None)                     # refused without a tree
    with pytest.raises(InputTooLarge, match="the syntax tree of the file takes 200 nodes, more than the limit of 100"):
        nesting.check_syntax("x = [" + "1," * 200 + "]", "large.py")


@pytest.mark.parametrize("command, options, message", [
    (run, ["--compare", "--tolerance=nan"], "--tolerance is an error of at least 0, got nan"),
    (run, ["--compare", "--tolerance=-1"], "--tolerance is an error of at least 0, got -1"),
    (run, ["--time", "--check"], "--time times instruction streams and computes no values: leave out --check"),
    (grade, ["k.py", "--at-least=nan"], "--at-least is a number of points, got nan"),
    (grade, ["k.py", "--at-least=-inf"], "--at-least is a number of points, got -inf"),
    (score, [], "--reference is missing: add -r REF.py"),
    (score, ["-r", "r.py", "--jobs=0"], "--jobs must be at least 1, got 0"),
    (score, ["-r", "r.py", "--page=p.html"], "--page writes a page of a store: add --store FILE.db"),
    (tune, ["-r", "r.py", "--space=A=1,2", "--trials=0"], "--trials must be at least 1, got 0")])
def test_numbers_and_options_that_say_nothing(command, options, message, kernel, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main([kernel, *options])
    assert ended.value.code == 2 and capsys.readouterr().err.endswith(f"error: {message}\n")


def test_paths_that_name_no_file(tmp_path, capsys):
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "loop.py").symlink_to("loop.py")
    os.mkfifo(tmp_path / "pipe.py")
    for name, reason in (("folder", "it is a directory"), ("loop", "Too many levels of symbolic links"),
                         ("pipe", "it is not a regular file"), ("gone", "no such file"), ("x" * 300, "no such file")):
        assert run.main([f"{tmp_path}/{name}.py:f"]) == 1
        assert capsys.readouterr().err.endswith(f".py: {reason}\n")


@pytest.mark.parametrize("content, error", [
    (b"x = 1\n\x80", "k.py:2:1: error: the file has no kernel to tune: byte 0x80 is not UTF-8"),
    (b"x = 1\0", "k.py:1:1: error: the file has no kernel to tune: source code string cannot contain null bytes"),
    (b"x = (\n", "k.py:1:5: error: the file has no kernel to tune: '(' was never closed")])
def test_files_that_cannot_be_tuned(content, error, kernel, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_bytes(content)
    assert tune.main(["k.py", "-r", "ref.py", "--space", "A=1,2"]) == 1
    assert capsys.readouterr().err.startswith(error + " [NKI-TUNE-SOURCE]\n")


ROWS_WITHOUT_END = ("CREATE VIEW verdicts AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
                    "SELECT x AS number, x AS key, x AS document FROM c")


@pytest.mark.parametrize("statements", [
    ["CREATE TABLE verdicts (key)"], [ROWS_WITHOUT_END],
    [TABLE, "CREATE TRIGGER t BEFORE INSERT ON verdicts BEGIN DELETE FROM verdicts; END"]])
def test_stores_of_other_tables(statements, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("x.db") as connection:
        for statement in statements:
            connection.execute(statement)
    assert score.main(["--store", "x.db", "--page", "x.html"]) == 1
    assert capsys.readouterr().err == (
        "error: x.db cannot be used for verdicts: its tables are not those of a store of verdicts [NKI-SCORE-STORE]\n"
        "  fix: name an SQLite file that nki-score wrote, or one that does not exist yet\n")
    assert not Path("x.html").exists()


@pytest.mark.parametrize("codec", ["rot13", "utf-16", "punycode", "undefined", "no-such-codec"])
def test_a_source_in_a_codec_that_is_not_its_encoding(codec, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text(f"# coding: {codec}\n" + KERNEL)
    assert run.main(["k.py:f", "--arg", "4x4xf32"]) == 1
    assert capsys.readouterr().err.startswith("k.py:1:1: error: SyntaxError: ")


@pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="without a file that opens and cannot be read")
@pytest.mark.parametrize("command, arguments, error", [
    (run, ["k.py:f", "--arg", "4x4xf32"], "error: cannot read k.py: Input/output error\n"),
    (opt, ["k.py:f", "--arg", "4x4xf32"], "error: cannot read k.py: Input/output error\n"),
    (migrate, ["k.py"], "error: cannot read k.py: Input/output error [NKI-MIGRATE]\n  fix: make it readable first\n"),
    (opt, ["k.mlir"], "error: cannot read k.mlir: Input/output error\n")],
    ids=["run", "opt", "migrate", "opt of a module"])
def test_a_source_whose_read_fails(command, arguments, error, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("k.py", "k.mlir"):
        Path(name).symlink_to("/proc/self/mem")
    assert command.main(arguments) == 1
    assert capsys.readouterr().err == error


def test_an_assignment_of_too_many_parts(tmp_path, capsys):
    (tmp_path / "ref.py").write_text("")
    (tmp_path / "a.toml").write_text('reference = "ref.py"\n' + "[[part]]\npoints = 1\n" * 1001)
    assert grade.main([f"{tmp_path}/a.toml", f"{tmp_path}/k.py"]) == 1
    assert "has more than 1,000 parts" in capsys.readouterr().err.splitlines()[0]
