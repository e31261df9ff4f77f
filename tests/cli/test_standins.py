# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stand-ins of the vendor's executables do what public programs call them for, on files that kernels left."""

import importlib
import io
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import nki_mlir.language.beta.language as nl
from nki_mlir.cli import env, run
from nki_mlir.cli.standins import EXECUTABLES, neuron_bench, neuron_ls, neuron_profile, neuronx_cc
from nki_mlir.input_limits import InputTooLarge
from nki_mlir.language.beta import nki
from nki_mlir.targets.neuron.format import artifacts
from nki_mlir.targets.neuron.format.artifacts import ForeignFile, NtffContent, pack_trace, unpack_kernel, unpack_trace


def product(a, b):
    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.exp(nl.matmul(nl.load(a), nl.load(b), transpose_x=True)))
    return out


A = np.linspace(-0.1, 0.1, 128 * 128, dtype=np.float32).reshape(128, 128)
B = np.linspace(-0.2, 0.1, 128 * 256, dtype=np.float32).reshape(128, 256)


@pytest.fixture
def neff(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nki.baremetal(product, save_neff_name="file.neff")(A, B)
    os.rename("file.neff", "renamed.neff")
    return tmp_path / "renamed.neff"


def test_capture_and_view_give_the_summary_on_one_line(neff, capsys):
    assert neuron_profile.main(["capture", "-n", str(neff), "-s", "x.ntff", "--profile-nth-exec=2"]) == 0
    assert capsys.readouterr().out == ""
    assert neuron_profile.main(["view", "-n", str(neff), "-s", "x_exec_2.ntff", "--output-format", "summary-json",
                                "--disable-ui"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    (summary,) = json.loads(printed).values()
    kernel = nki.benchmark(product)
    kernel(A, B)
    assert summary["total_time"] == pytest.approx(kernel.benchmark_result.nc_latency.microseconds / 1e6, rel=1e-12)
    assert summary["source"] == "model"
    assert summary["hbm_read_bytes"] == A.nbytes + B.nbytes and summary["hbm_write_bytes"] == 128 * 256 * 4
    assert summary["hardware_flops"] == 2 * 128 * 128 * 256 and summary["transpose_flops"] == 0
    assert summary["mm_arithmetic_intensity"] == 2 * 128 * 128 * 256 / (A.nbytes + B.nbytes + 128 * 256 * 4)
    assert summary["matmul_instruction_count"] == 1 and summary["activate_instruction_count"] == 1
    assert summary["psum_write_bytes"] == 128 * 256 * 4 and summary["psum_read_bytes"] == 128 * 256 * 4
    assert 0 < summary["mbu_estimated_percent"] < 1 and 0 < summary["hfu_estimated_percent"] < 1
    assert summary["model_flops"] is None and summary["adjusted_hardware_flops"] > 0


@pytest.mark.parametrize(("options", "names"), [
    ([], ["t.ntff"]),
    (["--num-exec", "3"], ["t.ntff", "t_exec_2.ntff", "t_exec_3.ntff"]),
    (["--num-exec", "20", "--profile-nth-exec", "10"], ["t_exec_10.ntff", "t_exec_20.ntff"]),
    (["--profile-nth-exec=2"], ["t_exec_2.ntff"]), (["--profile-nth-exec=0"], []), (["--disable-profile"], []),
    (["-r", "2", "-i", "1"], ["t_rank_1.ntff"]),
    (["-r", "2", "--num-exec", "2", "--profile-nth-exec", "2"], ["t_rank_0_exec_2.ntff", "t_rank_1_exec_2.ntff"])])
def test_names_of_traces(neff, options, names):
    assert neuron_profile.main(["capture", "-n", "renamed.neff", "-s", "t.ntff", *options]) == 0
    assert sorted(f.name for f in neff.parent.glob("*.ntff")) == names


def test_capture_saves_outputs_of_inputs_from_files(neff, capsys):
    np.save("a.npy", np.asfortranarray(A.astype(">f4")))        # another order of bytes and of elements
    B.tofile("b.bin")
    assert neuron_profile.main(["capture", "-n", "renamed.neff", "--save-output", "--num-exec=2", "a", "a.npy", "b",
                                "b.bin"]) == 0
    lines = capsys.readouterr().out.splitlines()
    name = lines[0].split('"')[1]
    assert lines == [f'saved output "{name}" as "{name}"', f'saved output "{name}" as "{name}.2"']
    np.testing.assert_allclose(np.fromfile(name + ".2", np.float32).reshape(128, 256), np.exp(A.T @ B), rtol=1e-5)
    assert neuron_profile.main(["capture", "-n", "renamed.neff", "--save-output"]) == 0
    np.testing.assert_array_equal(np.fromfile(name, np.float32), np.ones(128 * 256, np.float32))


def test_inputs_have_the_limit_of_tensors(neff, capsys, monkeypatch):
    np.save("a.npy", A)
    B.tofile("b.bin")
    arguments = ["capture", "-n", "renamed.neff", "a", "a.npy", "b", "b.bin"]
    monkeypatch.setenv("NKI_MLIR_INPUT_TEXT", "1000")
    assert neuron_profile.main(arguments) == 0
    monkeypatch.setenv("NKI_MLIR_INPUT_BYTES", str(B.nbytes - 1))
    assert neuron_profile.main(arguments) == 1
    assert f"b.bin:1:1: error: the file takes {B.nbytes:,} bytes, more than the limit of {B.nbytes - 1:,} " in (
        capsys.readouterr().err)


@pytest.mark.parametrize(("arguments", "says"), [
    (["capture", "-n", "missing.neff"], "cannot read missing.neff: No such file"),
    (["capture", "-n", "fifo.neff"], "cannot read fifo.neff: it is not a regular file"),
    (["capture", "-n", "renamed.neff", "c", "a.npy"], "the kernel has no input 'c'"),
    (["capture", "-n", "renamed.neff", "a"], "input a has no file"),
    (["capture", "-n", "renamed.neff", "a", "short.bin"], "short.bin has 3 bytes, input a takes 65536"),
    (["capture", "-n", "renamed.neff", "-s", "no/such/t.ntff"], "cannot write no/such/t.ntff"),
    (["capture", "-n", "short.bin"], "short.bin is not a compiled kernel of nki_mlir: it cannot be unpacked"),
    (["view", "-s", "renamed.neff", "--output-format", "summary-json"], "renamed.neff is not a trace of nki_mlir"),
    (["view", "-s", "missing.ntff", "--output-format", "summary-json"], "cannot read missing.ntff"),
    (["view", "-d", ".", "--output-format", "summary-json"], "there is no trace below ."),
    (["view", "--output-format", "summary-json"], "--session-file is missing")])
def test_failures_leave_standard_output_empty(neff, capsys, arguments, says):
    (neff.parent / "short.bin").write_bytes(b"PK\x03")
    os.mkfifo(neff.parent / "fifo.neff")
    assert neuron_profile.main(arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and says in printed.err
    assert not list(neff.parent.glob("*.ntff"))


@pytest.mark.parametrize("arguments", [["view", "--output-format=json"], ["view", "--output-format=perfetto"], ["view"],
                                       ["show-session"], ["show-session", "--show-trace"]])
@pytest.mark.parametrize("profile", [{}, {"timing": 3}, {"slices": [], "tracks": None, "instructions": {"name": 1}}])
def test_a_profile_that_no_capture_wrote_is_an_error(tmp_path, capsys, profile, arguments):
    (tmp_path / "t.ntff").write_bytes(pack_trace(NtffContent("k", "0", 1, 0, {"source": "model"}, profile)))
    assert neuron_profile.main([*arguments, "-s", str(tmp_path / "t.ntff")]) == 1
    assert f"{tmp_path}/t.ntff is not a trace of nki_mlir: its profile is malformed (" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["t.ntff"]


def test_a_manifest_is_quoted_in_one_line(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "k.neff", "w") as archive:
        archive.writestr("manifest.json", json.dumps({"format": "\x1b[2J\n\n" + "x" * 100}))
    assert neuron_profile.main(["capture", "-n", str(tmp_path / "k.neff")]) == 1
    assert capsys.readouterr().err.splitlines()[0] == (
        f"error: {tmp_path}/k.neff is not a compiled kernel of nki_mlir: it is a \\x1b[2J " + "x" * 74 + " [NKI-ARTIFACT]")


def test_a_file_that_cannot_be_written_is_an_error(neff, capsys):
    neuron_profile.main(["capture", "-n", "renamed.neff", "-s", "t.ntff"])
    capsys.readouterr()
    assert neuron_profile.main(["view", "-s", "t.ntff", "--output-format=json", "--output-file=no/such/x.json"]) == 1
    assert "error: cannot write" in (printed := capsys.readouterr().err) and "No such file" in printed
    assert "Traceback" not in printed


def test_other_forms_of_a_trace(neff, capsys, monkeypatch):
    neuron_profile.main(["capture", "-n", "renamed.neff", "-s", "t.ntff"])
    assert neuron_profile.main(["view", "-s", "t.ntff", "--output-format=json"]) == 0
    document = json.loads((neff.parent / "ntff.json").read_text())
    assert {"MATMUL", "ACTIVATE"} <= {record["opcode"] for record in document["instruction"]}
    assert all(record["duration"] >= 0 for record in document["instruction"] + document["dma"])
    assert any("test_standins.py:" in record["nki_source_location"] for record in document["instruction"])
    assert neuron_profile.main(["view", "-s", "t.ntff", "--output-format=summary-text"]) == 0
    assert "total_time" in capsys.readouterr().out
    assert neuron_profile.main(["show-session", "-s", "t.ntff", "-j"]) == 0
    session = json.loads(capsys.readouterr().out)
    (graph,) = session["NeffNodes"][0]["NodeInfo"]["Graphs"]
    assert session["Source"] == "model"
    assert graph["NC"] == 0 and graph["ErrorCount"] == 0
    assert graph["CycleCount"] == round(document["summary"][0]["total_time"] * 1e9)
    with pytest.raises(ForeignFile, match="it is a nki_mlir trace"):
        unpack_kernel((neff.parent / "t.ntff").read_bytes(), "t.ntff")
    packed = (neff.parent / "t.ntff").read_bytes()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        size = sum(member.file_size for member in archive.infolist())
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    monkeypatch.setenv("NKI_MLIR_INPUT_ARCHIVE", str(size))
    assert unpack_trace(packed, "t.ntff").kernel == "product"
    monkeypatch.setenv("NKI_MLIR_INPUT_ARCHIVE", str(size - 1))
    with pytest.raises(InputTooLarge, match=f"the content of the archive takes {size:,} bytes"):
        unpack_trace(packed, "t.ntff")
    monkeypatch.delenv("NKI_MLIR_INPUT_ARCHIVE")
    endless = {artifacts.MANIFEST: members[artifacts.MANIFEST].replace(b'"execution":1', b'"execution":1e999')}
    with pytest.raises(ForeignFile, match="cannot convert float infinity to integer"):
        unpack_trace(artifacts._packed(members | endless), "t.ntff")


def test_a_trace_without_a_format_is_a_page(neff, capsys):
    """Where the vendor's tool shows one in a browser; databases and their servers are refused."""
    neuron_profile.main(["capture", "-n", "renamed.neff", "-s", "t.ntff"])
    assert neuron_profile.main(["view", "-n", "renamed.neff", "-s", "t.ntff"]) == 0
    assert capsys.readouterr().out == ""
    page = (neff.parent / "t.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "product" in page
    for options in (["--ingest-only"], ["--disable-ui"], ["--output-format", "db"]):
        assert neuron_profile.main(["view", "-n", "renamed.neff", "-s", "t.ntff", *options]) == 1
        assert "needs the vendor's server" in capsys.readouterr().err


def test_the_compiler_has_a_version_and_refuses_graphs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        neuronx_cc.main(["--version"])
    assert capsys.readouterr().out.startswith("neuronx-cc of nki_mlir ")
    with pytest.raises(SystemExit, match="2"):
        neuronx_cc.main([])
    assert "arguments are required: COMMAND" in capsys.readouterr().err
    assert neuronx_cc.main(["compile", "--framework", "XLA", "hlo_module.pb", "--target", "trn2", "--output=a.neff"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and "does not read its form of HLO" in printed.err
    assert "does not read its form of HLO" in (tmp_path / "log-neuron-cc.txt").read_text() and not (tmp_path / "a.neff").exists()


def test_a_command_is_inspected(tmp_path, capfd):
    program = "import os; print([os.environ['NEURON_RT_INSPECT_' + n] for n in ('ENABLE', 'OUTPUT_DIR')])"
    assert neuron_profile.main(["inspect", "-o", str(tmp_path), sys.executable, "-c", program]) == 0
    assert capfd.readouterr().out == f"['1', '{tmp_path}']\n"
    assert neuron_profile.main(["inspect", "-o", str(tmp_path), "--", sys.executable, "-c", program]) == 0
    assert neuron_profile.main(["inspect", "--"]) == 1 and "there is no command to run" in capfd.readouterr().err
    assert neuron_profile.main(["inspect"]) == 1 and "there is no command to run" in capfd.readouterr().err
    assert neuron_profile.main(["inspect", "no-such-program"]) == 1 and "cannot be started" in capfd.readouterr().err


def test_a_damaged_file_is_an_error(neff):
    data = neff.read_bytes()
    for at in range(0, len(data), 37):
        broken = bytearray(data)
        broken[at] ^= 0x55
        try:
            kernel = unpack_kernel(bytes(broken), "broken.neff")
        except Exception as error:
            assert type(error).__module__.startswith("nki_mlir."), (at, error)
        else:
            assert kernel.kernel == "product"


def test_nki_run_takes_a_compiled_kernel(neff, capsys):
    assert run.main(["renamed.neff", "--on=isa"]) == 0
    assert "float32[128, 256]" in capsys.readouterr().out


def test_the_bench_tool_writes_info(neff):
    for _ in range(2):                                      # also into a directory that exists
        assert neuron_bench.main(["exec", "--warmup=20", "--work=200", "--enable-only-latency", "--fixed-nc-count=1",
                                  "--output-directory=bench", "renamed.neff"]) == 0
    info = json.loads((neff.parent / "bench" / "info.json").read_text())
    assert info["nc_latency"]["50"] == info["latency"]["99"] == pytest.approx(1e6 / info["throughput"]) and info["latency"]["0"] > 1


@pytest.mark.parametrize(("variables", "cores", "instance"), [
    ({}, [0], "trn2.3xlarge"), ({"NEURON_RT_VISIBLE_CORES": "0-2,5"}, [0, 1, 2, 5], "trn2.3xlarge"),
    ({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn1"}, [0], "trn1.2xlarge")])
def test_the_device_that_is_listed(monkeypatch, capsys, variables, cores, instance):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert neuron_ls.main(["--json-output"]) == 0
    (device,) = json.loads(capsys.readouterr().out)
    assert device["neuroncore_ids"] == cores and device["nc_count"] == len(cores) and device["neuron_processes"] == []
    assert neuron_ls.main([]) == 0
    printed = capsys.readouterr().out
    assert f"instance-type: {instance}" in printed and "NEURON" in printed


@pytest.mark.parametrize("executable", EXECUTABLES)
def test_help_has_the_name_of_the_executable(capsys, executable):
    name = "neuron-profile" if executable == "neuron-explorer" else executable
    with pytest.raises(SystemExit, match=r"^0$"):
        importlib.import_module(EXECUTABLES[executable]).main(["--help"])
    assert capsys.readouterr().out.startswith(f"usage: {name} ")


def test_cores_that_are_none(monkeypatch, capsys):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "all")
    assert neuron_ls.main([]) == 1
    assert "NEURON_RT_VISIBLE_CORES=all names no cores" in capsys.readouterr().err


HARNESS = """
import json, subprocess
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out

bench = nki.benchmark(double, save_neff_name="file.neff", save_trace_name="profile.ntff")
bench(np.ones((128, 64), np.float32))
out = subprocess.run(["neuron-profile", "view", "-n", "file.neff", "-s", "profile.ntff", "--output-format",
                      "summary-json"], capture_output=True, text=True, check=True).stdout
total = next(iter(json.loads(out).values()))["total_time"]
print(total * 1e6 == bench.benchmark_result.nc_latency.get_latency_percentile(50))
print(subprocess.run(["neuron-ls", "-j"], capture_output=True, text=True, check=True).stdout[:18])
"""


def test_a_command_finds_executables_and_modules(tmp_path):
    """A program that imports the vendor's package and starts its tools, unmodified."""
    (tmp_path / "harness.py").write_text(HARNESS)
    words = ["-c", "import sys; from nki_mlir.cli.env import main; sys.exit(main())", sys.executable, "harness.py"]
    ended = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False,
                           env=dict(os.environ, PYTHONPATH=env.package_path()))
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["True", '[{"neuron_device":']), ended.stderr
    assert "sitecustomize" not in ended.stderr


def test_python_is_the_interpreter_of_the_command(capfd, monkeypatch, tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\necho another python\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert env.main(["python", "-c", "import sys, nki.language as nl; print(sys.prefix, nl.bfloat16)"]) == 0
    assert capfd.readouterr().out == f"{sys.prefix} bfloat16\n"


def test_the_environment_is_that_of_the_command_alone(capfd):
    names = ["neuron-profile", "neuron-explorer", "neuron-bench", "neuron-ls", "neuronx-cc"]
    assert env.main(["--", "sh", "-c", f"for tool in {' '.join(names)}; do command -v $tool; done; exit 3"]) == 3
    paths = capfd.readouterr().out.split()
    assert [os.path.basename(path) for path in paths] == names
    assert set(EXECUTABLES) == {os.path.basename(path) for path in paths}
    assert not any(os.path.exists(path) for path in paths)
    assert env.main(["no-such-program"]) == 1
    assert "no-such-program cannot be started: No such file" in capfd.readouterr().err
