# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of ``benchmark``, ``baremetal``, ``profile`` and ``simulate_kernel`` outside of kernels, in each of their forms."""

import linecache

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

HEAD = '''import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
from neuronxcc.nki import baremetal, benchmark


def body(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


'''


def migrated(line: str) -> tuple[list[str], str]:
    """Return what is left for a person of a line, and the line's new text."""
    report = MigrationReport("f.py")
    text = rewritten(f"{HEAD}{line}\n", report)
    return [entry.text for entry in report.entries if entry.left], text.splitlines()[-1]


@pytest.mark.parametrize(("line", "new"), [
    ("a = nki.benchmark(body, warmup=2, iters=5)", "a = body"),
    ("a = nki.benchmark(warmup=2, iters=5)(body)", "a = body"),
    ("a = benchmark(warmup=2)(body)(x)", "a = body(x)"),
    ("a = nki.profile(working_directory='d')(body)", "a = body"),
    ("a = nki.baremetal()(body)(x)", "a = body(x)"),
    ("a = baremetal(body, save_neff_name='file.neff')(x)", "a = body(x)"),
    ("a = nki.simulate_kernel(nki.baremetal(body), x)", "a = nki.simulate(body)(x)"),
    ("a = nki.jit(mode='simulation')(body)", "a = nki.simulate(body)")])
def test_wrapped_kernel__is_the_kernel(line, new):
    left, text = migrated(line)
    assert left == [] and text == new


@pytest.mark.parametrize(("decorator", "why"), [
    ("nki.jit", []), ("nki.jit()", []), ("nki.jit(mode='trace')", ["nki.jit has no options"]),
    ("nki.trace", ["nki.trace becomes nki.jit"]), ("baremetal", ["nki.baremetal becomes nki.jit"]),
    ("nki.baremetal(save_neff_name='f')", ["nki.baremetal becomes nki.jit"]),
    ("nki.profile(working_directory='d')", ["nki.profile is removed: measure kernels with a profiler"])])
def test_the_report_has_the_decorators_that_are_replaced(decorator, why):
    report = MigrationReport("f.py")
    text = rewritten(HEAD.replace("def body", f"@{decorator}\ndef body"), report)
    assert "@nki.jit\ndef body" in text and [entry.text for entry in report.entries if entry.line == 6] == why


@pytest.mark.parametrize("line", ["bench = nki.benchmark(warmup=2)", "bench = benchmark(iters=3)"])
def test_wrapper_without_a_kernel__is_left(line):
    left, text = migrated(line)
    assert left == ["nki.benchmark without a kernel: decorate kernels with nki.jit, which has no options"]
    assert text == line


@pytest.mark.parametrize(("options", "rest", "written"), [
    ("save_neff_name='k.neff'", "run(['neuron-profile', 'capture', '-n', 'k.neff'])", "save_neff_name='k.neff'"),
    ("save_neff_name='k.neff', save_trace_name='k.ntff'", "show('k.ntff')", "save_trace_name='k.ntff'"),
    ("artifacts_dir=str(folder), save_neff_name='k.neff'", "folder = mkdtemp()\nprint(os.listdir(folder))",
     "artifacts_dir=str(folder)"),
    ("save_neff_name='k.neff', save_trace_name='k.ntff'", "show('k.neff', 'k.ntff')",
     "save_neff_name='k.neff' and save_trace_name='k.ntff'"),
    ("save_neff_name='k.neff'", "baremetal(body, save_neff_name='k.neff')(x)", ""),
    ("artifacts_dir=os.getcwd()", "print(os.environ)", ""),
    ("save_neff_name=f'{n}.neff'", "n = 3\nprint(n)", "")])
def test_file_that_other_code_reads__is_left(options, rest, written):
    report = MigrationReport("f.py")
    text = rewritten(HEAD.replace("def body", f"@baremetal({options})\ndef body") + f"{rest}\n", report)
    left = [(entry.line, entry.text.partition(", which other code reads")[0]) for entry in report.entries if entry.left]
    assert left == ([(6, f"nki.baremetal writes {written}")] if written else []) and "@nki.jit\ndef body" in text


def test_measurements__write_the_files_that_other_code_reads():
    measuring = HEAD + (
        "measured = nki.benchmark(body, warmup=1, iters=2, save_neff_name='k.neff')\n"
        "measured(x)\nprint(measured.benchmark_result)\nrun(['neuron-profile', 'capture', '-n', 'k.neff'])\n")
    report = MigrationReport("f.py")
    new = rewritten(measuring, report)
    assert report.is_complete and "measured = Benchmark(body, warmup=1, iters=2, save_neff_name='k.neff')" in new
    assert "import shutil\n" in new and "shutil.copy(model.neff_path, self.save_neff_name)" in new
    unread = rewritten(measuring.replace("'-n', 'k.neff'", ""), MigrationReport("f.py"))
    assert "measured = Benchmark(body, warmup=1, iters=2)" in unread and "shutil" not in unread
    left = MigrationReport("f.py")
    rewritten(measuring.replace("save_neff_name", "artifacts_dir"), left)
    assert not left.is_complete


MEASURED = '''import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


@nki.benchmark(warmup=5, iters=20, save_neff_name="file.neff")
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2.0)
    return out


@nki.jit
def on_grid(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.program_id(0) * 16 + nl.arange(16)[:, None]
    columns = nl.program_id(1) * 8 + nl.arange(8)[None, :]
    nl.store(out[rows, columns], nl.load(x[rows, columns]) * 2.0)
    return out


measured = nki.benchmark(iters=4)


def latencies(x):
    doubled(x)
    bench = nki.benchmark(warmup=1, iters=2)(on_grid)
    gridded = bench[2, 2]
    gridded(x)
    launched = measured(on_grid)
    launched[1, 2](x)
    halves = launched
    halves = halves[1, 1]
    first = launched.benchmark_result.nc_latency.get_latency_percentile(99)
    halves(x)
    return [first, halves.benchmark_result.latency.get_latency_percentile(99),
            doubled.benchmark_result.nc_latency.get_latency_percentile(99),
            gridded.benchmark_result.latency.get_latency_percentile(50)]
'''


MEASURED_WITHIN = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


def with_tile(columns):
    @nki.benchmark(warmup=1, iters=2)
    def doubled(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for j in nl.affine_range(x.shape[1] // columns):
            nl.store(out[:, nl.ds(j * columns, columns)], nl.load(x[:, nl.ds(j * columns, columns)]) * 2.0)
        return out
    return doubled


def latency(x):
    kernel = with_tile(8)
    assert (kernel(x) == 2 * x).all()
    return kernel.benchmark_result.nc_latency.get_latency_percentile(99)
"""


def test_a_kernel_that_a_function_measures_and_returns():
    report = MigrationReport("f.py")
    install()
    new = rewritten(MEASURED_WITHIN, report)
    assert [entry.text for entry in report.entries if entry.left] == []
    assert "    doubled_benchmark = Benchmark(doubled, warmup=1, iters=2)\n    return doubled_benchmark\n" in new
    linecache.cache["within"] = (len(new), None, new.splitlines(keepends=True), "within")
    scope: dict[str, object] = {}
    exec(compile(new, "within", "exec"), scope)
    assert scope["latency"](np.ones((32, 16), np.float32)) > 0


def test_benchmark_results_are_measured_by_a_class(tmp_path, monkeypatch):
    report, vendor = MigrationReport("f.py"), {}
    monkeypatch.chdir(tmp_path)                 # where the beta generation writes file.neff
    install()
    new = rewritten(MEASURED, report)
    assert [entry.text for entry in report.entries if entry.left] == []
    assert "doubled_benchmark = Benchmark(doubled, warmup=5, iters=20)" in new
    assert "gridded = bench[2, 2]" in new and "measured = functools.partial(Benchmark, iters=4)" in new and "neuronxcc" not in new
    for name, text in (("old", MEASURED), ("new", new)):
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        scope: dict[str, object] = {}
        exec(compile(text, name, "exec"), scope)
        vendor[name] = scope["latencies"](np.ones((32, 16), np.float32))
    assert vendor["new"] == pytest.approx(vendor["old"], rel=1e-12) and min(vendor["old"]) > 0
