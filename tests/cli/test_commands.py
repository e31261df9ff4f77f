# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands as a user calls them, those of the README among them."""

import argparse
import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nki_mlir
from nki_mlir.cli import command, opt, run

ROOT = Path(__file__).parent.parent.parent
MODULES = {"nki-opt": "nki_mlir.cli.opt", "nki-run": "nki_mlir.cli.run", "nki-translate": "nki_mlir.cli.translate",
           "nki-migrate": "nki_mlir.cli.migrate", "nki-calibrate": "nki_mlir.cli.calibrate",
           "nki-score": "nki_mlir.cli.score",
           "nki-tune": "nki_mlir.cli.tune", "nki-grade": "nki_mlir.cli.grade"}


def shell(line: str) -> subprocess.CompletedProcess:
    """Run a command line with our commands and python replaced by this interpreter's."""
    for name, module in MODULES.items():
        line = re.sub(rf"(?<![\w/-]){name}(?![\w.])", f"{shlex.quote(sys.executable)} -m {module}", line)
    line = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", line)
    return subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=300)


def readme_commands() -> list[str]:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    plain = [line for kind, block in blocks if not kind for line in block.splitlines()]
    lines = [re.sub(r"\s{2,}#.*", "", line).strip() for line in plain]
    return [line for line in lines if line.split(" ")[0] in (*MODULES, "python") and "your_" not in line]


@pytest.mark.parametrize("line", readme_commands())
def test_readme_command(line):
    done = shell(line)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_readme_error():
    """The README shows what the command prints, with the file's name as it was given."""
    command, shown = re.search(r"```console\n\$ (.*?)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).groups()
    done = shell(command)
    assert done.returncode == 1 and done.stderr.replace(f"{ROOT}/", "") == shown


def test_readme_kernel(tmp_path):
    """The kernel of the README prints twice its input, three times."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    file = tmp_path / "readme.py"
    file.write_text(code)
    done = subprocess.run([sys.executable, str(file)], cwd=ROOT, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT), "PATH": ""})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[[2. 2. 2.") == 3


def test_text_goes_round():
    """What nki-opt prints it reads, and prints the same."""
    first = shell("nki-opt examples/giou.py:giou --arg 128x64xf32 --arg 128x64xf32 --arg 128x16xf32")
    assert first.returncode == 0, first.stderr
    again = subprocess.run([sys.executable, "-m", MODULES["nki-opt"], "-"], cwd=ROOT, input=first.stdout,
                           capture_output=True, text=True)
    assert again.returncode == 0 and again.stdout == first.stdout


def test_output_file_appears_whole(tmp_path):
    target = tmp_path / "out.mlir"
    assert shell(f"nki-opt examples/mlir/tensor_add.mlir -o {target}").returncode == 0
    assert target.read_text().startswith("#map") and list(tmp_path.iterdir()) == [target]
    before = target.read_text()
    assert shell(f"nki-opt /nonexistent.mlir -o {target}").returncode == 1
    assert target.read_text() == before


def test_run_saves_results(tmp_path):
    target = tmp_path / "r.npz"
    done = shell(f"nki-run examples/average_pool2d.py:average_pool2d --arg 2x6x6xf32=arange --arg window=2 --quiet "
                 f"--on=interpreter --save {target}")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(target)["result_0"][0, 0], [3.5, 5.5, 7.5])


def test_run_saves_results_of_any_names(tmp_path):
    """Two results of one name, and one named like a parameter of ``numpy.savez``."""
    target = tmp_path / "r.npz"
    (tmp_path / "k.py").write_text("""
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out

@nki.jit
def kernel(x):
    tile = nl.load(x)
    file = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(file, nl.add(tile, 2.0))
    return stored(tile), stored(nl.add(tile, 1.0)), file
""")
    lowered, x = tmp_path / "k.mlir", "--arg 4x8xf32=ones"
    assert shell(f"nki-opt {tmp_path}/k.py:kernel {x} -o {lowered}").returncode == 0
    assert shell(f"nki-run {lowered} {x} --quiet --on=interpreter --save {target}").returncode == 0
    saved = np.load(target)
    assert {name: saved[name][0, 0] for name in saved.files} == {"out": 1, "out_2": 2, "file": 3}


STREAMS = {"asm": "nkiasm", "bin": "nkibin", "mlir": "mlir"}


@pytest.mark.parametrize("form", STREAMS)
def test_streams_in_each_form_run_and_are_read(form, tmp_path):
    """What --lower-to-isa writes is simulated, with the results of the module, and written in the other forms."""
    file, ours, theirs = tmp_path / f"streams.{STREAMS[form]}", tmp_path / "a.npz", tmp_path / "b.npz"
    module = "examples/mlir/tensor_add.mlir"
    assert shell(f"nki-opt --lower-to-isa --emit={form} {module} -o {file}").returncode == 0
    options = "--quiet --arg 256x1024xf32=arange --arg b=256x1024xf32=ones"
    for source, saved in ((f"{file}", ours), (f"{module} --on=isa", theirs)):
        done = shell(f"nki-run {source} {options} --save {saved}")
        assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(ours)["c"], np.load(theirs)["c"])
    done = shell(f"nki-run {file} --on=jit")
    assert done.returncode == 1 and "cannot run on jit" in done.stderr
    if form == "mlir":
        again = shell(f"nki-opt {file}")
        assert again.returncode == 0 and again.stdout == file.read_text() + "\n"
        assert shell(f"nki-translate --mlir-to-asm {file}").stdout.startswith(".nki_isa 1\n")


@pytest.mark.parametrize("form", ["asm", "mlir"])
def test_streams_of_two_cores_run(form, tmp_path):
    file = tmp_path / "cores"
    assert shell(f"nki-opt --lower-to-isa --emit={form} lit_tests/isa/cores.mlir -o {file}").returncode == 0
    done = shell(f"nki-run {file} --on=isa --arg 2x4xf32=arange")
    assert done.returncode == 0, done.stderr
    assert "out: float32[2, 4]" in done.stdout


UPDATED = """
import nki, nki.language as nl

@nki.jit
def doubled(x):
    nl.store(x, nl.multiply(nl.load(x), 2.0))
    return x
"""


@pytest.mark.parametrize("is_module", [False, True])
def test_runs_of_what_updates_its_input__have_equal_inputs(is_module, tmp_path, capsys):
    source = tmp_path / "doubled.py"
    source.write_text(UPDATED)
    if is_module:
        module = tmp_path / "doubled.mlir"
        assert opt.main([str(source), "--arg", "4x4xf32", "-o", str(module)]) == 0
        source = module
    for compared in ([], ["--compare", "jit,isa"]):
        assert run.main([str(source), "--arg", "4x4xf32=ones", "--on=interpreter", *compared]) == 0
        printed = capsys.readouterr().out
        assert "[2. 2. 2. 2.]" in printed and printed.count("error against interpreter 0: agrees") == len(compared)


def test_split_input_file_keeps_line_numbers(tmp_path):
    file = tmp_path / "two.mlir"
    file.write_text("func.func @a() {\n  return\n}\n// -----\nfunc.func @b() {\n  oops\n}\n")
    done = shell(f"nki-opt --split-input-file {file}")
    assert done.returncode == 1 and f"{file}:6:3: error: " in done.stderr
    assert "@a" in done.stdout


def test_verify_diagnostics(tmp_path):
    file = tmp_path / "e.mlir"
    file.write_text("func.func @b() {\n  // expected-error@+1 {{custom op 'oops' is unknown}}\n  oops\n}\n")
    assert shell(f"nki-opt --verify-diagnostics {file}").returncode == 0
    file.write_text("func.func @b() {\n  oops\n}\n")
    done = shell(f"nki-opt --verify-diagnostics {file}")
    assert done.returncode == 1 and "unexpected error" in done.stderr


def test_a_kernel_that_is_not_there():
    done = shell("nki-opt examples/giou.py:gio")
    assert done.returncode == 1 and "has no kernel 'gio'" in done.stderr and "giou" in done.stderr


@pytest.mark.parametrize("script", ["average_pool2d", "tensor_add", "giou"])
def test_scripts_with_vendor_names(script):
    done = shell(f"python -m nki_mlir examples/{script}.py")
    assert done.returncode == 0, done.stderr


def test_help_is_quick_and_lists_passes():
    done = shell("nki-opt --help")
    assert done.returncode == 0
    assert "--nki-to-linalg" in done.stdout and "--split-masked-loops" in done.stdout
    assert "[limit=50_000: most instructions" in done.stdout


@pytest.mark.parametrize("name", MODULES)
def test_version__is_the_packages(name: str) -> None:
    assert shell(f"{name} --version").stdout == f"{name} {nki_mlir.__version__}\n"


@pytest.mark.parametrize(("arguments", "frozen"), [("", True), ("['--help']", False)], ids=["command", "function"])
def test_end__without_a_search_for_garbage_where_the_process_is_the_command(arguments: str, frozen: bool) -> None:
    code = ("import atexit, gc, sys; atexit.register(lambda: print('frozen', gc.get_freeze_count() > 0)); "
            "from nki_mlir.cli.opt import main; sys.argv = ['nki-opt', '--help']; "
            f"main({arguments})")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"frozen {frozen}"


LOGS = """
import neuronxcc.nki as nki, neuronxcc.nki.language as nl
class Log:
    def __init__(self):
        self.file, self.itself = open("log.txt", "w"), self
held = Log()
held.file.write("kept")
@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out
"""


def test_end__writes_what_files_of_a_kernels_python_hold(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(LOGS)
    subprocess.run([sys.executable, "-m", "nki_mlir.cli.opt", "kernel.py:double", "--arg", "8x8xf32"], cwd=tmp_path,
                   env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
    assert (tmp_path / "log.txt").read_text() == "kept"


# -- values of --arg ---------------------------------------------------------------------------------------------------
VALUES = """
import neuronxcc.nki as nki, neuronxcc.nki.language as nl, numpy as np

@nki.jit
def scaled(x, scale, pair=(1, 2), other=None, tables=()):
    assert type(scale) is float and pair == (3, (4, "s")) and other is None
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x) * scale
    for table in tables["both"]:
        tile = tile + nl.load(table)
    nl.store(out, tile)
    return out
"""
GRAPH = """
func.func @main(%x: tensor<2x2xf32>, %s: tensor<f32>, %v: tensor<2xi32>) -> (tensor<2x2xf32>, tensor<2xi32>) {
  %0 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
  %1 = stablehlo.multiply %x, %0 : tensor<2x2xf32>
  %2 = stablehlo.add %v, %v : tensor<2xi32>
  return %1, %2 : tensor<2x2xf32>, tensor<2xi32>
}
"""


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
def test_values_for_a_kernel_s_parameters(on, tmp_path):
    (tmp_path / "scaled.py").write_text(VALUES)
    run.main([f"{tmp_path}/scaled.py:scaled", "--arg", "2x3xf32=ones", "--arg", "0.5", "--arg", "(3, (4, 's'))",
              "--arg", "None", "--arg", "tables={'both': [2x3xf32=arange, 2x3xf32=ones]}", "--on", on, "--quiet",
              "--save", f"{tmp_path}/{on}.npz"])
    np.testing.assert_array_equal(np.load(f"{tmp_path}/{on}.npz")["result_0"], np.arange(6).reshape(2, 3) + 1.5)


@pytest.mark.parametrize("scale, vector", [("0.5", "[1, 2]"), ("2", "(3, 4)")])
@pytest.mark.parametrize("on", ["jit", "isa"])
def test_values_for_a_graph_s_parameters(on, scale, vector, tmp_path):
    (tmp_path / "graph.mlir").write_text(GRAPH)
    run.main([f"{tmp_path}/graph.mlir", "--arg", "2x2xf32=ones", "--arg", scale, "--arg", vector, "--on", on, "--quiet",
              "--save", f"{tmp_path}/{on}.npz"])
    saved = np.load(f"{tmp_path}/{on}.npz")
    np.testing.assert_array_equal(saved["result_0"], np.full((2, 2), float(scale)))
    np.testing.assert_array_equal(saved["result_1"], 2 * np.array(ast.literal_eval(vector)))


def test_values_that_a_graph_does_not_take(tmp_path, capsys):
    (tmp_path / "graph.mlir").write_text(GRAPH)
    for scale, vector, message in (("None", "[1, 2]", "argument 1 is () object"), ("0.5", "[1.5, 2]", "argument 2 is (2,) float64"),
                                   ("0.5", "[1e400, 1]", "argument 2 is (2,) float64"), ("0.5", "[1]", "argument 2 is (1,) int64"),
                                   ("(1, 2)", "[1, 2]", "argument 1 is (2,) int64")):
        assert run.main([f"{tmp_path}/graph.mlir", "--arg", "2x2xf32=ones", "--arg", scale, "--arg", vector]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("argument, text, dtype", [
    ("arg1=1e308", "1e+308", "float32"), ("arg2=[2147483648, 1]", "[2147483648, 1]", "int32"),
    ("arg2=[1, 9223372036854775807]", "[1, 9223372036854775807]", "int32")])
def test_numbers_beyond_a_parameter_s_dtype(argument, text, dtype, tmp_path, capsys):
    """They would wrap around, or become infinite."""
    (tmp_path / "graph.mlir").write_text(GRAPH)
    assert run.main([f"{tmp_path}/graph.mlir", "--arg", argument]) == 2
    assert f"--arg {text}: a number is outside of the range of {dtype} [NKI-ARG]\n" in capsys.readouterr().err
    assert run.main([f"{tmp_path}/graph.mlir", "--arg", "arg1=inf", "--arg", "arg2=[2147483647, -2147483648]", "--quiet"]) == 0


def test_inputs_of_a_graph_that_no_argument_gives(tmp_path, capsys):
    (tmp_path / "graph.mlir").write_text(GRAPH)
    graph = f"{tmp_path}/graph.mlir"
    for on in ("jit", "isa"):
        assert run.main([graph, "--arg", "arg1=0.5", "--on", on, "--quiet", "--save", f"{tmp_path}/{on}.npz"]) == 0
    native, streams = np.load(f"{tmp_path}/jit.npz"), np.load(f"{tmp_path}/isa.npz")
    assert np.ptp(native["result_0"]) > 0.01
    np.testing.assert_array_equal(native["result_0"], streams["result_0"])
    for more, message in ((["b=3"], "there is no input 'b'"), (["1"] * 4, "got 4 values for 3 inputs")):
        assert run.main([graph, *(text for value in more for text in ("--arg", value))]) == 1
        assert message in capsys.readouterr().err


def test_the_target_of_a_graph(tmp_path, capsys, monkeypatch):
    (tmp_path / "graph.mlir").write_text(GRAPH)
    assert run.main([f"{tmp_path}/graph.mlir", "--time", "--target", "trn1"]) == 0
    assert "(trn1)" in capsys.readouterr().out.splitlines()[0]
    assert run.main([f"{tmp_path}/graph.mlir", "--on=isa", "--target", "trn9"]) == 1
    assert "there is no target named 'trn9'" in capsys.readouterr().err
    for of_environment, options, target in (("trn3", [], "trn3"), ("trn1", ["--target", "trn2"], "trn2")):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", of_environment)
        assert run.main([f"{tmp_path}/graph.mlir", "--time", *options]) == 0
        assert f"({target})" in capsys.readouterr().out.splitlines()[0]


NARROW_FUNCTIONS = """
#id = affine_map<(d0) -> (d0)>
func.func @f(%x: memref<4096xbf16, "hbm"> {nki.name = "x"},
             %y: memref<4096xbf16, "hbm"> {nki.name = "y", nki.shared = 0 : i64}) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : memref<4096xbf16, "hbm">) outs(%y : memref<4096xbf16, "hbm">) {
  ^bb0(%in: bf16, %out: bf16):
    %0 = "scalar.activation"(%in) {fn = "gelu"} : (bf16) -> bf16
    %1 = "scalar.alu"(%0, %in) {fn = "multiply"} : (bf16, bf16) -> bf16
    linalg.yield %1 : bf16
  }
  return
}"""


def test_functions_of_narrow_floats__agree_on_all_executors(tmp_path: Path) -> None:
    (tmp_path / "narrow.mlir").write_text(NARROW_FUNCTIONS)
    done = shell(f"nki-run {tmp_path / 'narrow.mlir'} --compare --tolerance 0")
    assert done.returncode == 0 and done.stdout.count("against jit 0: agrees") == 2, done.stdout + done.stderr


CALLS = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

def scaled(tile, rows, depth):
    return scaled(tile, rows, depth - 1) if depth else nl.multiply(tile, rows)

def summed(tile):
    return sum(tile.missing for _ in range(2))

@nki.jit
def deep(x):
    return scaled(nl.load(x), nl.load(x[:, 0:7]), 5)

@nki.jit
def generator(x):
    return summed(nl.load(x))

@nki.jit
def direct(x):
    return nl.load(x[:, 0:100])
"""


@pytest.mark.parametrize("kernel, callers", [
    ("deep", f"  called by: {', '.join(['scaled (calls.py:5:12)'] * 4)}, 2 more"),
    ("generator", "  called by: generator (calls.py:16:12)"),
    ("direct", None)])
def test_errors_of_helpers__say_who_called_them_with_relative_paths(kernel, callers, tmp_path, capsys, monkeypatch):
    (tmp_path / "calls.py").write_text(CALLS)
    monkeypatch.chdir(tmp_path)
    assert run.main([f"calls.py:{kernel}", "--arg", "128x64xf32"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("calls.py:") and f"{tmp_path}" not in "".join(lines)
    assert [line for line in lines if line.startswith("  called by")] == [callers] * (callers is not None)


@pytest.mark.parametrize("add", [command.add_common, command.add_plugins, command.add_check])
def test_options_of_several_commands__have_help(add):
    parser = argparse.ArgumentParser(add_help=False)
    add(parser)
    assert parser._actions and all(len(action.help or "") > 20 for action in parser._actions)
