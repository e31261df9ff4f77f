# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-opt`` where it has the options of ``mlir-opt``, and shell completion."""

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nki_mlir.bindings import ir
from nki_mlir.cli import opt, run, translate
from nki_mlir.cli.expected_diagnostics import check_expected
from nki_mlir.dialects.mlir_ops import new_context
from nki_mlir.passes.pipeline_text import split_pipeline
from nki_mlir.targets.cpu.pipeline import NAMES

FILE = str(Path(__file__).parent.parent.parent / "examples/mlir/tensor_add.mlir")
ABOVE = ["split-masked-loops", "nki-to-linalg", "linalg-to-nisa", "verify-target"]
INSTRUCTIONS = ["unread-results", "static-indices", "fold-addresses", "fold-conversions", "forward-transfers",
                "sink-constants", "fuse-instructions", "coalesce-copies", "transpose-loads", "fill-partitions",
                "interleave-rows", "block-loops", "unroll-loops", "split-blocks", "sink-constants", "coalesce-copies",
                "forward-stores", "reuse-loads", "move-psum-results", "schedule-instructions", "allocate-on-chip",
                "synchronize-engines"]
TWICE = """func.func @twice(%a: index) -> index {
  %0 = arith.addi %a, %a : index
  %1 = arith.addi %a, %a : index
  %2 = arith.muli %0, %1 : index
  return %2 : index
}
"""


def dumps(text: str) -> dict[str, str]:
    """What was printed, by its heading."""
    parts = re.split(r"^// -----// IR Dump (.*) //----- //\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def opted(capsys, *arguments: str) -> tuple[str, str]:
    assert opt.main([*arguments, FILE]) == 0
    done = capsys.readouterr()
    return done.out, done.err


def test_dumps__are_of_all_passes_to_the_streams(capsys):
    texts = dumps(opted(capsys, "--lower-to-isa", "--mlir-print-ir-before-all", "--mlir-print-ir-after-all")[1])
    assert list(texts) == [f"{when} {name}" for name in dict.fromkeys([*ABOVE, *INSTRUCTIONS]) for when in ("Before", "After")]
    assert "scf.for" in texts["Before unroll-loops"] or "nki.grid" in texts["Before unroll-loops"]
    assert "scf.for" not in texts["After unroll-loops"]
    assert "nki.address" in texts["After allocate-on-chip"] and "nki.address" not in texts["Before allocate-on-chip"]
    assert '"isa.program"' in texts["After synchronize-engines"]
    assert texts["After split-blocks"] == texts["Before sink-constants"]


def test_dumps__are_read_back_by_the_next_pass(capsys, tmp_path):
    """Printed before the last pass and given to it, instructions become the same streams."""
    streams, text = opted(capsys, "--lower-to-isa", "--emit=mlir", "--mlir-print-ir-before=synchronize-engines")
    file = tmp_path / "allocated.mlir"
    file.write_text(dumps(text)["Before synchronize-engines"])
    assert opt.main(["--synchronize-engines", str(file)]) == 0
    again = re.findall(r'"isa\.\w+"', capsys.readouterr().out)
    assert again == re.findall(r'"isa\.\w+"', streams)
    assert len(again) > 10


def test_dumps__of_named_passes_and_of_changes(capsys):
    texts = dumps(opted(capsys, "--lower-to-nisa", "--mlir-print-ir-after=nki-to-linalg,verify-target",
                        "--mlir-print-ir-before=linalg-to-nisa")[1])
    assert list(texts) == ["After nki-to-linalg", "Before linalg-to-nisa", "After verify-target"]
    texts = dumps(opted(capsys, "--lower-to-nisa", "--mlir-print-ir-after-change")[1])
    assert list(texts) == ["After nki-to-linalg", "After linalg-to-nisa"]


def test_dumps__of_passes_of_mlir(capsys):
    texts = dumps(opted(capsys, "--pass-pipeline=func.func(canonicalize,cse)", "--mlir-print-ir-after=cse")[1])
    assert list(texts) == ["After func.func(canonicalize,cse)"]
    assert opt.main(["--lower-to-nisa", "--mlir-print-ir-after=nki-to-linlag", FILE]) == 1
    error = capsys.readouterr().err
    assert "there is no pass named 'nki-to-linlag'" in error and "fix: write nki-to-linalg, or" in error


@pytest.mark.parametrize("level, more", [("vector", ()), ("llvm", ("align-stack", "convert-scf-to-cf", "convert-to-llvm",
                                         "convert-math-to-libm", "convert-to-llvm", "reconcile-unrealized-casts"))])
def test_code_of_the_cpu__has_its_passes_shown(capsys, level, more):
    lines = opted(capsys, f"--lower-to-{level}", "--mlir-pass-statistics")[1].splitlines()
    names = ["roll-repeats", "split-masked-loops", "nki-to-linalg", "nisa-to-linalg", "arith-to-scalar", "fuse-tiles"]
    assert [line.split()[0] for line in lines] == [*names, *NAMES, *more]
    texts = dumps(opted(capsys, f"--lower-to-{level}", "--mlir-print-ir-before-all", "--mlir-print-ir-after-all")[1])
    assert all("func.func @tensor_add(" in texts[f"{when} {name}"] and "native.function" in texts[f"{when} {name}"]
               for name in NAMES for when in ("Before", "After"))
    texts = dumps(opted(capsys, f"--lower-to-{level}", "--mlir-print-ir-after=nisa-to-linalg")[1])
    assert "linalg.generic" in texts["After nisa-to-linalg"]


def test_pipeline__has_passes_of_the_cpu_and_of_mlir(capsys, tmp_path):
    passes = "parallelize{worth=1},cse,chunk-rows{least=1}"
    out, text = opted(capsys, f"--pass-pipeline={passes}", "--mlir-print-ir-before-all", "--mlir-print-ir-after=chunk-rows")
    names = ("split-masked-loops", "nki-to-linalg", "nisa-to-linalg", "arith-to-scalar", "parallelize", "cse", "chunk-rows")
    assert [*dumps(text)] == [f"Before {name}" for name in names] + ["After chunk-rows"]
    assert "native.function" in out and dumps(text)["After chunk-rows"].strip() == out.strip()
    # Each pass reads what the one before wrote.
    file = tmp_path / "passed.mlir"
    for one in passes.split(","):
        opt.main([f"--pass-pipeline={one}", str(file) if file.exists() else FILE, "-o", str(file)])
    assert file.read_text() == out


def test_passes_of_the_cpu__on_modules_and_on_records_give_one_program(capsys):
    on_records = opted(capsys, "--lower-to-vector", "--cpu-passes=parallelize{worth=1},chunk-rows{least=1}")[0]
    assert on_records == opted(capsys, "--cpu-passes=parallelize{worth=1},chunk-rows{least=1}")[0]
    on_modules = opted(capsys, "--split-masked-loops", "--nki-to-linalg", "--fuse-tiles=least=4096", "--zero-unwritten",
                       "--parallelize=worth=1", "--chunk-rows=least=1", "--lower-to-vector")[0]
    assert on_modules == on_records


def test_passes_of_the_cpu__on_records_are_for_its_program(capsys):
    with pytest.raises(SystemExit) as ended:
        opt.main(["--cpu-passes=chunk-rows", "--lower-to-isa", FILE])
    assert ended.value.code == 2 and "--cpu-passes works on a program of the CPU" in capsys.readouterr().err


def test_generic_form(capsys):
    out, _ = opted(capsys, "--mlir-print-op-generic")
    assert '"func.func"() <{' in out and "func.func @" not in out


def test_timing_and_statistics__have_a_line_for_each_pass(capsys):
    _, text = opted(capsys, "--lower-to-isa", "--mlir-timing")
    lines = [re.fullmatch(r"(\S+) +(\d+\.\d\d) ms", line) for line in text.splitlines()]
    assert [line[1] for line in lines] == [*ABOVE, *INSTRUCTIONS, "total"]
    assert float(lines[-1][2]) == pytest.approx(sum(float(line[2]) for line in lines[:-1]), abs=0.06)   # as printed
    _, text = opted(capsys, "--lower-to-nisa", "--mlir-pass-statistics")
    counts = [re.fullmatch(r"(\S+) +(\d+) -> (\d+) operations", line) for line in text.splitlines()]
    assert [line[1] for line in counts] == ABOVE
    assert all(a[3] == b[2] for a, b in itertools.pairwise(counts))
    assert counts[0][2] == "9" and int(counts[1][3]) > 9


@pytest.mark.parametrize("passes", [["--cse"], ["--pass-pipeline=builtin.module(func.func(cse))"],
                                    ["--pass-pipeline=canonicalize{max-iterations=2},cse"], ["--canonicalize", "--cse"]])
def test_passes_of_mlir__run_by_name(capsys, tmp_path, passes):
    file = tmp_path / "twice.mlir"
    file.write_text(TWICE)
    assert opt.main([*passes, str(file)]) == 0
    text = capsys.readouterr().out
    assert text.count("arith.addi") == 1 and "arith.muli %0, %0" in text


LOOP = """func.func @f(%m: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    %x = affine.load %m[%i] : memref<8xf32>
    affine.store %x, %m[%i] : memref<8xf32>
  }
  return
}
"""


@pytest.mark.parametrize("flag, operation, count", [
    ("--affine-loop-unroll=unroll-factor=4", "affine.load", 4),     # of any function
    ("--affine-loop-tile=tile-size=2", "affine.for", 2)])           # of func.func
def test_passes_of_functions__are_flags_too(capsys, tmp_path, flag, operation, count):
    file = tmp_path / "loop.mlir"
    file.write_text(LOOP)
    assert opt.main([flag, "--dump-pass-pipeline", str(file)]) == 0
    text, pipeline = capsys.readouterr()
    assert text.count(operation) == count
    assert opt.main([f"--pass-pipeline={pipeline.splitlines()[1]}", str(file)]) == 0
    assert capsys.readouterr().out == text
    assert opt.main([f"{flag} no-option=1", str(file)]) == 1
    assert "no such option no-option" in capsys.readouterr().err


def test_passes_of_mlir__that_fail_give_their_reason(capsys):
    assert opt.main(["--pass-pipeline=func.func(inline)", FILE]) == 1
    error = capsys.readouterr().err
    assert "pass 'func.func(inline)' failed: " in error and "does not define a symbol table [NKI-PASS-FAILED]" in error


def test_passes_of_mlir__mix_with_ours(capsys):
    plain, _ = opted(capsys, "--lower-to-nisa")
    mixed, text = opted(capsys, "--canonicalize", "--lower-to-nisa", "--mlir-timing")
    assert text.startswith("canonicalize ")
    assert re.findall(r'"nisa\.\w+"', mixed) == re.findall(r'"nisa\.\w+"', plain)


@pytest.mark.parametrize("text, message", [
    ("nosuch", "there is no pass named 'nosuch'"),
    ("canonicalize{x=1}", "error: canonicalize{x=1}: "),
    ("func.func(nosuch)", "error: there is no pass named 'nosuch' [NKI-PASS]\n  fix: use a pass that nki-opt --help lists\n"),
    ("func.func(cse,canonicalizes)", "'canonicalizes' [NKI-PASS]\n  fix: write canonicalize, or use a pass that nki-opt --help lists"),
    ("symbol-cde", "there is no pass named 'symbol-cde' [NKI-PASS]\n  fix: write symbol-dce, or use a pass that nki-opt --help lists"),
])
def test_passes_of_mlir__mistakes(capsys, text, message):
    assert opt.main([f"--pass-pipeline={text}", FILE]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name, fix", [
    ("fuse-tiles", "run it on the module before, as the option --fuse-tiles, or use a pass"),
    ("paralelize", "write parallelize, or use a pass"),
    ("nosuch", "use a pass"),
])
def test_passes_of_the_cpu__mistakes(capsys, name, fix):
    assert opt.main([f"--cpu-passes={name}", FILE]) == 1
    assert capsys.readouterr().err == (f"error: '{name}' is not a pass of the CPU [NKI-CPU-PASS]\n"
                                       f"  fix: {fix} that nki-opt --help lists at --cpu-passes\n")


def test_pipeline__texts():
    assert split_pipeline("a, b{x=1 y={2,3}}") == [("a", ""), ("b", "x=1 y={2,3}")]
    assert split_pipeline("builtin.module(func.func(a,b),c)") == [("func.func(a,b)", ""), ("c", "")]
    for wrong in ("a b", "a{", "a)", "a,,b", "", "a{)}"):
        with pytest.raises(ValueError, match="is not a list of passes such as A,B"):
            split_pipeline(wrong)


def test_compare__takes_the_file_as_the_file(capsys):
    assert run.main(["--quiet", "--compare", FILE]) == 0
    text = capsys.readouterr().out
    assert "interpreter: " in text and "isa: " in text
    assert run.main(["--quiet", "--compare", "isa", FILE]) == 0
    text = capsys.readouterr().out
    assert "interpreter: " not in text and "isa: " in text
    assert run.main(["--quiet", FILE, "--compare=interpreter"]) == 0
    assert "interpreter: " in capsys.readouterr().out


@pytest.mark.parametrize("command", [opt, run, translate])
def test_completion__knows_the_options(capsys, command):
    for shell in ("bash", "zsh", "fish"):
        with pytest.raises(SystemExit) as ended:
            command.main(["--completion", shell])
        assert ended.value.code == 0
        assert re.search(r"(--|-l )version\b", capsys.readouterr().out)


def test_completion__of_fish_has_the_words_of_options(capsys):
    with pytest.raises(SystemExit) as ended:
        opt.main(["--completion=fish"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert "complete -c nki-opt -l emit -x -a 'asm mlir bin'" in lines and "complete -c nki-opt -l lower-to-isa" in lines
    assert "complete -c nki-opt -s h -l help" in lines and "complete -c nki-opt -s o" in lines


def test_completion__completes(capsys, tmp_path):
    bash = shutil.which("bash")
    assert bash is not None
    with pytest.raises(SystemExit) as ended:
        opt.main(["--completion=bash"])
    assert ended.value.code == 0
    (tmp_path / "c.sh").write_text(capsys.readouterr().out)

    def completed(line: str) -> list[str]:
        done = subprocess.run([bash, "-c", f'. {tmp_path}/c.sh; COMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}; _nki_opt; '
                               'printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True)
        return done.stdout.split()
    assert completed("nki-opt --lower-to-i") == ["--lower-to-isa"]
    assert completed("nki-opt --nki-to") == ["--nki-to-linalg"]
    assert completed("nki-opt --emit=m") == ["mlir"]


# -- options of mlir-opt that say what is printed ----------------------------------------------------------------------
def test_local_scope__prints_what_is_referred_to(capsys):
    text = opted(capsys, "--mlir-print-local-scope")[0]
    assert "#map" not in text and "#nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>" in text


def test_pass_pipeline__is_dumped_as_it_can_be_given(capsys):
    out, err = opted(capsys, "--canonicalize=max-iterations=2", "--lower-to-nisa", "--dump-pass-pipeline")
    heading, text = err.splitlines()
    names = ["canonicalize{max-iterations=2}", *ABOVE]
    assert heading == f"Pass Manager with {len(names)} passes:" and text == f"builtin.module({','.join(names)})"
    assert opted(capsys, f"--pass-pipeline={text}")[0] == out


def test_dumps__go_into_files(capsys, tmp_path):
    err = opted(capsys, "--lower-to-nisa", "--mlir-print-ir-after-all", f"--mlir-print-ir-tree-dir={tmp_path}/dumps")[1]
    assert err == ""
    files = sorted((tmp_path / "dumps").iterdir())
    assert [file.name for file in files] == [f"{k}_after_{name}.mlir" for k, name in enumerate(ABOVE)]
    assert opt.main(["--linalg-to-nisa", str(files[1])]) == 0
    assert opt.main([f"--mlir-print-ir-tree-dir={files[0]}/x", "--cse", "--mlir-print-ir-after-all", FILE]) == 1
    assert f"error: cannot write {files[0]}/x/0_after_cse.mlir: " in capsys.readouterr().err


def test_bytecode__has_the_module(tmp_path, capsys):
    plain = opted(capsys)[0]
    assert opt.main(["--emit-bytecode", "-o", str(tmp_path / "module.mlirbc"), FILE]) == 0
    data = (tmp_path / "module.mlirbc").read_bytes()
    assert data.startswith(b"ML\xefR")
    with new_context():
        assert str(ir.Module.parse(data)) + "\n" == plain


def test_bytecode__of_streams_has_their_module(tmp_path, capsys):
    file, streams = tmp_path / "module.mlirbc", ("--lower-to-isa", "--emit=mlir", "-O0")
    plain = opted(capsys, *streams)[0]
    assert opt.main([*streams, "--emit-bytecode", "-o", str(file), FILE]) == 0
    with new_context() as context:
        context.allow_unregistered_dialects = True
        assert str(ir.Module.parse(file.read_bytes())) == plain


@pytest.mark.parametrize("option, writes", [
    ("--lower-to-isa", "assembly: add --emit=mlir"), ("--lower-to-llvm", "a text of several")])
def test_bytecode__is_that_of_a_module(capsys, option, writes):
    with pytest.raises(SystemExit) as ended:
        opt.main([option, "--emit-bytecode", FILE])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(
        f"error: --emit-bytecode writes one module, and {option} writes {writes}\n")


def test_dialects__are_shown(capsys):
    assert opt.main(["--show-dialects"]) == 0
    assert capsys.readouterr().out.startswith("Available Dialects: affine, arith, ")


def test_passes_of_mlir__are_options(tmp_path, capsys):
    file = tmp_path / "loop.mlir"
    file.write_text("""func.func @loop(%m: memref<4xf32, "hbm">, %x: f32) {
  affine.for %i = 0 to 4 {
    affine.store %x, %m[%i] : memref<4xf32, "hbm">
  }
  return
}
""")
    assert opt.main(["--lower-affine", "--convert-scf-to-cf=allow-pattern-rollback=false", str(file)]) == 0
    text = capsys.readouterr().out
    assert "memref.store" in text and "cf.cond_br" in text and "affine.for" not in text
    with pytest.raises(SystemExit) as ended:
        opt.main(["--affine-loop-enroll", str(file)])
    assert ended.value.code == 2


@pytest.mark.parametrize("comment, status, problem", [
    ("expected-error@+1 {{use of undeclared}}", 0, ""),
    ("expected-error-re@+1 {{use of {{un[a-z]+}} SSA}}", 0, ""),
    ("expected-error-re@+1 {{{{^}}use of {{.*}} name}}", 0, ""),
    ("expected-error-re@+1 {{use of {{[0-9]+}} SSA}}", 1, 'expected error "use of {{[0-9]+}} SSA" was not produced'),
    ("expected-error-re@+1 {{use {{(}} SSA}}", 1, "is not a regular expression"),
    ("expected-warning@+1 {{use of undeclared}}", 1, 'expected warning "use of undeclared" was not produced'),
])
def test_expected_diagnostics(tmp_path, capsys, comment, status, problem):
    file = tmp_path / "wrong.mlir"
    file.write_text(f"func.func @f() {{\n  // {comment}\n  return %nothing : index\n}}\n")
    assert opt.main(["--verify-diagnostics", str(file)]) == status
    assert problem in capsys.readouterr().err


def test_expected_warnings__are_those_that_come(capsys):
    def process(part, met):
        met("warning", 2, "a shape is not known")
    part = "\n// expected-warning {{shape}}"
    assert check_expected([part], "x", process) == 0
    assert check_expected(["", part], "x", process) == 1
    assert capsys.readouterr().err == "x:2:1: error: unexpected warning: a shape is not known\n"


def test_instructions_that_become_loops_are_printed_before_and_after(tmp_path, capsys):
    file = tmp_path / "k.py"
    file.write_text("""
import nki, nki.language as nl
@nki.jit
def k(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in range(x.shape[0] // 128):
        nl.store(out[i * 128:(i + 1) * 128], nl.exp(nl.load(x[i * 128:(i + 1) * 128])))
    return out
""")
    options = ["--mlir-print-ir-before=roll-instructions", "--mlir-print-ir-after=roll-instructions"]
    assert opt.main([f"{file}:k", "--arg=32768x64xf32", "--lower-to-isa", *options]) == 0
    texts = dumps(capsys.readouterr().err)
    before, after = texts["Before roll-instructions"], texts["After roll-instructions"]
    assert (before.count("nisa.activation"), before.count("scf.for")) == (256, 0)
    assert (after.count("nisa.activation"), after.count("scf.for")) == (1, 1)
