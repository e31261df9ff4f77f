# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.benchmark``, ``nki.baremetal`` and ``nki.profile`` around kernels."""

import json

import numpy as np
import pytest

import nki_mlir.language.beta.language as nl
from nki_mlir.cli import run
from nki_mlir.cli.standins import neuron_profile
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import nki
from nki_mlir.language.measuring import FileOfCall
from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.format.artifacts import digest_of, unpack_kernel, unpack_trace


def exponential(x):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.exp(nl.load(x)))
    return result


DATA = np.linspace(-1, 1, 128 * 64, dtype=np.float32).reshape(128, 64)


def test_a_kernel_that_is_not_measured__has_no_result():
    kernel = nki.jit(exponential)
    with pytest.raises(AttributeError) as raised:
        kernel.benchmark_result  # noqa: B018
    assert str(raised.value) == ("exponential is not measured: call measured = nki.benchmark(exponential), then read "
                                 "measured.benchmark_result")
    with pytest.raises(AttributeError, match=r"^'Kernel' object has no attribute 'latency'$"):
        kernel.latency  # noqa: B018


def test_benchmark_gives_the_result_and_a_latency():
    kernel = nki.benchmark(warmup=2, iters=5)(exponential)
    assert not hasattr(kernel, "benchmark_result")
    with pytest.raises(AttributeError, match=r"^exponential has not been called yet: call it, then read benchmark_result$"):
        kernel.benchmark_result  # noqa: B018
    np.testing.assert_allclose(kernel(DATA), np.exp(DATA), rtol=1e-5)
    latency = kernel.benchmark_result.nc_latency
    assert latency.get_latency_percentile(50) == latency.get_latency_percentile(99)
    assert 1 < latency.get_latency_percentile(50) < 100      # two transfers of 32 KiB and one activation


def test_benchmark_takes_arguments_by_keyword():
    kernel = nki.benchmark(exponential)
    np.testing.assert_allclose(kernel(x=DATA), np.exp(DATA), rtol=1e-5)
    figures = kernel.benchmark_result.full_results
    assert list(figures["latency"]) == ["0", "1", "10", "25", "50", "90", "99", "100"]


def test_benchmark_grows_with_the_work():
    kernel = nki.benchmark(exponential)
    kernel(DATA)
    launch = machine_named("trn2").costs.control.launch_ns / 1e3
    small = kernel.benchmark_result.nc_latency.get_latency_percentile(50) - launch
    kernel(np.zeros((128, 8192), np.float32))
    assert kernel.benchmark_result.nc_latency.get_latency_percentile(50) - launch > 4 * small


def test_one_answer_everywhere(tmp_path, capsys):
    """What a benchmark says, a profile and the command do."""
    file = tmp_path / "kernels.py"
    file.write_text("import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n\n\n@nki.jit\ndef exponential(x):\n"
                    "    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
                    "    nl.store(result, nl.exp(nl.load(x)))\n    return result\n")
    assert run.main([f"{file}:exponential", "--arg", "128x64xf32", "--time", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    kernel = nki.benchmark(exponential)
    kernel(DATA)
    result = kernel.benchmark_result
    assert "all percentiles are equal" in result.source
    assert {result.nc_latency.get_latency_percentile(p) for p in (0, 50, 99, 100)} == {figures["total_ns"] / 1e3}
    profiled = nki.profile(working_directory=tmp_path / "profile")(exponential)
    profiled(DATA)
    summary = json.loads((tmp_path / "profile" / "json_reports" / "profile.json").read_text())
    assert summary["total_time"] == figures["total_ns"] / 1e9
    assert summary["busy_ns"] == figures["busy_ns"] and summary["hbm_bytes"] == figures["hbm_bytes"]


@pytest.mark.parametrize("decorator", [nki.benchmark, nki.baremetal])
@pytest.mark.parametrize("option", ["save_neff_name", "save_trace_name", "artifacts_dir"])
def test_a_file_that_cannot_be_written__is_named(decorator, option, tmp_path):
    (tmp_path / "file").write_text("")
    name = str(tmp_path / "file" / "inside")
    with pytest.raises(FileOfCall) as raised:
        decorator(exponential, **{option: name})(DATA)
    assert raised.value.headline == f"a call of exponential cannot write {name}: Not a directory"
    assert "fix: create the folder first" in str(raised.value)
    assert raised.value.at.file == __file__ and (tmp_path / "file").read_text() == ""


def test_baremetal_runs_the_kernel():
    np.testing.assert_allclose(nki.baremetal(exponential)(DATA), np.exp(DATA), rtol=1e-5)


def test_profile_writes_the_program_and_its_summary(tmp_path):
    kernel = nki.profile(working_directory=tmp_path, save_neff_name="kernel.neff", save_trace_name="kernel.ntff",
                         profile_nth=2)(exponential)
    np.testing.assert_allclose(kernel(DATA), np.exp(DATA), rtol=1e-5)
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        "json_reports", "kernel.neff", "kernel_exec_2.ntff", "profile.html", "profile.json", "trace.json.gz"]
    assert json.loads((tmp_path / "profile.json").read_text())["timing"]["hbm_bytes"] == 2 * DATA.nbytes
    summary = json.loads((tmp_path / "json_reports" / "kernel_exec_2.json").read_text())
    assert summary["hbm_bytes"] == 2 * DATA.nbytes
    assert summary["total_time"] > 0


@pytest.mark.parametrize("executions, every, traced", [
    (None, 1, [1]), (None, 3, [3]), (1, 2, [2]), (2, 2, [2]), (5, 2, [2, 4]), (3, 1, [1, 2, 3])])
def test_every_nth_execution_has_a_trace(tmp_path, executions, every, traced):
    """If there are fewer executions, the nth has one nevertheless."""
    kernel = nki.profile(working_directory=tmp_path, save_trace_name="t.ntff", profile_nth=every, num_execs=executions)(
        exponential)
    assert kernel.traces() == {n: "t.ntff" if n == 1 else f"t_exec_{n}.ntff" for n in traced}


@pytest.mark.parametrize("decorator", [nki.benchmark, nki.baremetal])
def test_a_profile_of_a_call(tmp_path, decorator):
    decorator(profile=tmp_path)(exponential)(DATA)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["profile.html", "profile.json", "trace.json.gz"]
    assert json.loads((tmp_path / "profile.json").read_text())["timing"]["kernel"] == "exponential"


def test_a_profile_that_cannot_be_written_fails_before_the_call(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NkiMlirError, match=r"a profile cannot be written into .*file: Not a directory"):
        nki.benchmark(profile=tmp_path / "file")(never_captured)(DATA)


def never_captured(x):
    pytest.fail("the kernel was captured")


def test_a_measured_kernel_may_be_a_jit_kernel():
    kernel = nki.benchmark(nki.jit(exponential))
    np.testing.assert_allclose(kernel(DATA), np.exp(DATA), rtol=1e-5)
    assert kernel.benchmark_result.nc_latency.get_latency_percentile(50) > 0


def doubled(x):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    row = nl.program_id(0) * 64
    nl.store(result[row:row + 64, 0:64], nl.load(x[row:row + 64, 0:64]) * 2)
    return result


@pytest.mark.parametrize("decorated", [nki.baremetal, nki.benchmark, lambda **k: nki.jit(mode="benchmark", **k),
                                       lambda **k: nki.jit(mode="baremetal", **k)])
def test_names_of_files_that_calls_leave(decorated, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kernel = decorated(save_neff_name="file.neff", save_trace_name="profile.ntff", artifacts_dir="made",
                       additional_compile_opt="--anything")(doubled)[2]
    for _ in range(2):
        np.testing.assert_array_equal(kernel(DATA), 2 * DATA)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["file.neff", "made", "profile.ntff"]
    assert unpack_kernel((tmp_path / "file.neff").read_bytes(), "file.neff").kernel == "doubled"
    assert [f.name for f in (tmp_path / "made").iterdir()] == ["doubled.mlir"]
    trace = unpack_trace((tmp_path / "profile.ntff").read_bytes(), "profile.ntff")
    assert trace.summary["total_time"] > 0 and trace.summary["source"] == "model"
    assert trace.digest == digest_of((tmp_path / "file.neff").read_bytes())


def test_without_names_no_file_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nki.benchmark(exponential)(DATA)
    nki.baremetal(exponential)(DATA)
    assert not list(tmp_path.iterdir())


def test_any_names_are_taken_and_files_written_over(tmp_path):
    (tmp_path / "other").write_text("kept")
    for _ in range(2):
        nki.benchmark(exponential, save_neff_name=tmp_path / "pool.neff", save_trace_name=tmp_path / "x_1.ntff",
                      artifacts_dir=tmp_path)(DATA)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["exponential.mlir", "other", "pool.neff", "x_1.ntff"]
    assert (tmp_path / "other").read_text() == "kept"


def test_the_compiled_kernel_is_there_before_it_runs(tmp_path, monkeypatch):
    kernel = nki.baremetal(exponential, save_neff_name=tmp_path / "kernel.neff")
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", "isa")

    def fails(*_):
        raise ArithmeticError("the execution fails")
    monkeypatch.setattr(type(kernel), "run", fails)
    with pytest.raises(ArithmeticError, match="the execution fails"):
        kernel(DATA)
    assert unpack_kernel((tmp_path / "kernel.neff").read_bytes(), "kernel.neff").kernel == "exponential"


@pytest.mark.parametrize(("options", "dynamic"), [({}, True), ({"additional_compile_opt": "--disable-dge --x=1"}, False)])
def test_an_option_has_the_compiler_write_descriptors(tmp_path, monkeypatch, options, dynamic):
    """Then a trace counts no generated ones, nor does that of a later capture."""
    monkeypatch.chdir(tmp_path)
    nki.baremetal(exponential, save_neff_name="a.neff", save_trace_name="a.ntff", **options)(DATA)
    nki.profile(exponential, working_directory=str(tmp_path / "profile"), **options)(DATA)
    neuron_profile.main(["capture", "-n", "a.neff", "-s", "b.ntff"])
    first, *others = [unpack_trace((tmp_path / name).read_bytes(), name) for name in (
        "a.ntff", "b.ntff", "profile/profile.ntff")]
    summary = first.summary
    assert all(other.summary == summary and other.digest == first.digest for other in others)
    generated = summary["hardware_dynamic_dma_packet_count"] + summary["software_dynamic_dma_packet_count"]
    assert (generated > 0, summary["static_dma_packet_count"] > 0) == (dynamic, not dynamic)
    assert summary["hbm_read_bytes"] == DATA.nbytes
    kernel = nki.benchmark(exponential, **options)
    kernel(DATA)
    assert kernel.latest[0].optimized.streams[0].static_descriptors is not dynamic


def test_the_result_of_a_grid_is_on_the_kernel_without_one_too():
    kernel = nki.benchmark(warmup=5, iters=10)(doubled)
    launched = kernel[2]
    launched(DATA)
    assert kernel.benchmark_result.full_results == launched.benchmark_result.full_results
    assert kernel.benchmark_result.latency.get_latency_percentile(7) == kernel.benchmark_result.full_results[
        "nc_latency"]["50"]


def test_the_result_of_a_launch_grid_is_on_the_launched_kernel():
    launched = nki.benchmark(warmup=5, iters=10)(doubled)[2]
    launched(DATA)
    assert launched.benchmark_result.nc_latency.get_latency_percentile(99) > 0


def test_a_measured_kernel_is_simulated_and_is_part_of_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kernel = nki.baremetal(nki.jit(doubled), save_neff_name="file.neff")
    np.testing.assert_array_equal(nki.simulate_kernel(kernel[2], DATA), 2 * DATA)
    inner = nki.benchmark(lambda tile: nl.exp(tile))

    def outer(x):
        result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(result, inner(nl.load(x)))
        return result
    np.testing.assert_allclose(nki.jit(outer)(DATA), np.exp(DATA), rtol=1e-5)
