# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs written as public harnesses are run unmodified, with the stand-ins on PATH and importable."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# What each prints at its end.
PROGRAMS = {"optimizer_loop": '"correct": true', "contract": "all operators passed", "candidate_search": "Test passed",
            "lazy_tensors": "Latency: ", "library_tests": "all tests passed", "course": "all tests passed",
            "agent_labs": "all layers passed", "compile_gate": "all kernels compiled", "array_backend": "all ops passed",
            "trace_reader": "all traces read", "runtime_users": "all runtime tests passed", "autotuner": "best: 64",
            "translations": "all translations judged"}
NEEDS = {"lazy_tensors": "torch", "translations": "torch", "trace_reader": "pyarrow", "library_tests": "pyarrow"}
LISTS_A_DEVICE = {"library_tests", "runtime_users", "autotuner"}        # which nki-env alone has
INSTALL = ("import runpy, sys; from nki_mlir.compat import install; install(torch_xla={lazy}); "
           "runpy.run_path(sys.argv[1], run_name='__main__')")
WAYS = ("env", "module", "install")


def command(way, name):
    """How a program is started."""
    lazy, file = name == "lazy_tensors", str(HERE / f"{name}.py")
    options = ["--torch-xla"] * lazy
    return {"env": ["-m", "nki_mlir.cli.env", *options, sys.executable, file], "module": ["-m", "nki_mlir", *options, file],
            "install": ["-c", INSTALL.format(lazy=lazy), file]}[way]


def cases():
    """Each program in one way; in every one with `make harnesses`."""
    for number, name in enumerate(PROGRAMS):
        ways = WAYS[:1] if name in LISTS_A_DEVICE else WAYS
        for way in ways if "NKI_EVERY_WAY" in os.environ else ways[number % len(ways):][:1]:
            marks = [pytest.mark.torch] if NEEDS.get(name) == "torch" else []
            yield pytest.param(name, way, marks=marks, id=f"{name}-{way}")


@pytest.mark.parametrize(("name", "way"), cases())
def test_program_runs_unmodified(name, way, tmp_path):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NKI_", "NEURON_"))}
    done = subprocess.run([sys.executable, *command(way, name)], cwd=tmp_path, capture_output=True, text=True, timeout=600,
                          env=environment | {"PYTHONPATH": str(HERE.parents[1])})
    assert done.returncode == 0 and PROGRAMS[name] in done.stdout, done.stdout + done.stderr


def test_installed_names__find_executables_behind_others(tmp_path):
    """They are on PATH of the process that installs them and of what it starts, until the end; no device is listed."""
    program = ("import os, shutil, subprocess\nfrom nki_mlir.compat import install, uninstall\nbefore = os.environ['PATH']\n"
               "install()\ninstall()\nfound = shutil.which('neuron-profile')\nassert os.environ['PATH'].startswith(before)\n"
               "print(subprocess.run(['neuron-profile', '--version'], capture_output=True, text=True).stdout.strip())\n"
               "assert shutil.which('neuron-explorer') and not shutil.which('neuron-ls')\nuninstall()\n"
               "assert os.environ['PATH'] == before and not os.path.exists(found)\ninstall(executables=False)\n"
               "assert os.environ['PATH'] == before")
    done = subprocess.run([sys.executable, "-c", program], cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.stdout.startswith("neuron-profile of nki_mlir "), done.stderr
