# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Commands that the server of `tools/warm_commands.py` runs are like commands in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tools.warm_commands import warm_commands

from .examples import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
CLIENT = [sys.executable, "-S", "-E", str(ROOT / "tools" / "warm_client.py")]
WHERE = """\
import os, sys
sys.stdout.write(f"{os.getcwd()} {sys.argv[1:]} {sys.stdin.read()} {os.environ.get('NKI_MLIR_STRICT')} {os.environ['MINE']}")
print("forked" if "tools.warm_client" in sys.modules else "started", file=sys.stderr)
sys.exit(int(sys.argv[1]) or None)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with warm_commands(ENVIRONMENT, preloaded=()) as environment:
        yield environment


@pytest.mark.parametrize("strict", [None, "1"], ids=["in a fork", "in a new process"])
@pytest.mark.parametrize("status", [0, 3])
def test_command__has_streams_folder_environment_and_status_of_its_caller(server, tmp_path, strict, status):
    (tmp_path / "where.py").write_text(WHERE)
    environment = {**server, "MINE": "variable"}
    if strict:
        environment["NKI_MLIR_STRICT"] = strict         # modules read it when they are imported
    ended = subprocess.run([*CLIENT, "where", str(status)], input="text", capture_output=True, text=True, cwd=tmp_path,
                           env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (status, "started\n" if strict else "forked\n")
    assert ended.stdout == f"{tmp_path} ['{status}'] text {strict} variable"


def test_without_a_server__the_caller_runs_the_command(tmp_path):
    (tmp_path / "where.py").write_text(WHERE)
    environment = {**ENVIRONMENT, "MINE": "", "NKI_MLIR_WARM": str(tmp_path / "none")}
    ended = subprocess.run([*CLIENT, "where", "5"], input="", capture_output=True, text=True, cwd=tmp_path,
                           env=environment, check=False)
    assert (ended.returncode, ended.stdout) == (5, f"{tmp_path} ['5']  None ")


def test_command_that_crashes__has_the_status_of_a_crash(server, tmp_path):
    (tmp_path / "crash.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    ended = subprocess.run([*CLIENT, "crash"], cwd=tmp_path, env=server, check=False)
    assert ended.returncode == 134
