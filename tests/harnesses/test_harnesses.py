# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs written as public harnesses are run unmodified, with the stand-ins on PATH and importable."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nki_mlir.compat.executables import write_executables
from tests.harnesses.forked import run_forked

HERE = Path(__file__).parent
# What each prints at its end.
PROGRAMS = {"optimizer_loop": '"correct": true', "contract": "all operators passed", "candidate_search": "Test passed",
            "lazy_tensors": "Latency: ", "library_tests": "all tests passed", "course": "all tests passed",
            "agent_labs": "all layers passed", "compile_gate": "all kernels compiled", "array_backend": "all ops passed",
            "trace_reader": "all traces read", "runtime_users": "all runtime tests passed", "autotuner": "best: 64",
            "translations": "all translations judged"}
NEEDS = {"lazy_tensors": "torch", "translations": "torch", "trace_reader": "pyarrow", "library_tests": "pyarrow"}
LISTS_A_DEVICE = {"library_tests", "runtime_users", "autotuner"}        # by neuron-ls, which nki-env alone has
INSTALL = ("import runpy, sys; from nki_mlir.compat import install; install(torch_xla={lazy}); "
           "runpy.run_path(sys.argv[1], run_name='__main__')")
WAYS = ("env", "module", "install")


def options_of(name):
    return ["--torch-xla"] if name == "lazy_tensors" else []


def command(way, name):
    """How a program is started."""
    options, file = options_of(name), str(HERE / f"{name}.py")
    return {"env": ["-m", "nki_mlir.cli.env", *options, sys.executable, file], "module": ["-m", "nki_mlir", *options, file],
            "install": ["-c", INSTALL.format(lazy=bool(options)), file]}[way]


STARTS_PYTHON = {"autotuner"}           # in child processes, which look for their program
EVERY_WAY = "NKI_EVERY_WAY" in os.environ       # of `make harnesses`: each program in each way, as processes


def cases():
    """Each program once, or in every way."""
    for name in PROGRAMS:
        marks = [pytest.mark.torch] if NEEDS.get(name) == "torch" else []
        for way in (WAYS[:1] if name in LISTS_A_DEVICE else WAYS) if EVERY_WAY else [
                "env" if name in STARTS_PYTHON else "forked"]:
            yield pytest.param(name, way, marks=marks, id=f"{name}-{way}")


@pytest.fixture(scope="module")
def executables(tmp_path_factory):
    """A directory with those of ``nki-env``."""
    folder = tmp_path_factory.mktemp("executables") / "bin"
    write_executables(folder)
    return str(folder)


@pytest.mark.parametrize(("name", "way"), cases())
def test_program_runs_unmodified(name, way, tmp_path, executables):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NKI_", "NEURON_"))}
    environment["PYTHONPATH"] = str(HERE.parents[1])
    if way == "forked":
        if name in LISTS_A_DEVICE:
            environment["PATH"] = os.pathsep.join([executables, environment["PATH"]])
        status, printed = run_forked([*options_of(name), str(HERE / f"{name}.py")], tmp_path, environment)
    else:
        done = subprocess.run([sys.executable, *command(way, name)], cwd=tmp_path, capture_output=True, text=True,
                              timeout=600, env=environment)
        status, printed = done.returncode, done.stdout + done.stderr
    assert status == 0 and PROGRAMS[name] in printed, printed


def test_installed_names__find_executables_behind_others(tmp_path):
    """They are on PATH of the process that installs them and of what it starts, until the end; no device is listed."""
    program = ("import os, shutil, subprocess\nfrom nki_mlir.compat import install, uninstall\nbefore = os.environ['PATH']\n"
               "install()\ninstall()\nfound = shutil.which('neuron-profile')\nassert os.environ['PATH'].startswith(before)\n"
               "print(subprocess.run(['neuron-profile', '--version'], capture_output=True, text=True).stdout.strip())\n"
               "assert shutil.which('neuron-explorer') and not shutil.which('neuron-ls')\nuninstall()\n"
               "assert os.environ['PATH'] == before\ninstall(executables=False)\n"
               "assert os.environ['PATH'] == before")
    done = subprocess.run([sys.executable, "-c", program], cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.stdout.startswith("neuron-profile of nki_mlir "), done.stderr


@pytest.mark.parametrize("cache, kept", [("", 1), ("off", 0)])
def test_installed_names__leave_nothing_behind_but_in_the_cache(tmp_path, cache, kept):
    """Also where a process ends without its exit handlers."""
    (tmp_path / "temporary").mkdir()
    program = ("import os, shutil\nfrom nki_mlir.compat import install\ninstall()\nassert shutil.which('neuronx-cc')\n"
               + ("os._exit(0)" if kept else ""))
    environment = {**os.environ, "NKI_MLIR_CACHE": cache, "NKI_MLIR_CACHE_DIR": str(tmp_path / "cache"),
                   "TMPDIR": str(tmp_path / "temporary")}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], cwd=HERE.parents[1], env=environment, check=True)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert len(list(tmp_path.glob("cache/executables/*"))) == kept
