# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs written as public harnesses are run unmodified, with the stand-ins on PATH and importable."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = {"optimizer_loop": '"correct": true', "candidate_search": "Test passed", "course": "all tests passed",
            "agent_labs": "all layers passed", "library_tests": "all tests passed", "autotuner": "best: 64"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_runs_unmodified(name, tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NKI_", "NEURON_"))}
    done = subprocess.run([sys.executable, "-m", "nki_mlir.cli.env", sys.executable, str(HERE / f"{name}.py")],
                          cwd=tmp_path, capture_output=True, text=True, timeout=300,
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
