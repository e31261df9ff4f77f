# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs that stop: at lines, where values change or stop being finite, and at each operation, on every executor."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.cli import run as command
from nki_mlir.stepping.commands import TextFront
from nki_mlir.stepping.debugger import Breakpoint, Debugger, Quit, Stops
from nki_mlir.stepping.run import step_kernel
from nki_mlir.stepping.source_names import written_variable

from .kernels import X, beta_logs, bound_to, current_logs, line_of

KERNELS = {"current": current_logs, "beta": beta_logs}
EXECUTORS = ("eager", "interpreter", "isa")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def session(generation: str, on: str, commands: str, stops: Stops, step: bool = False, level: str = "nki") -> str:
    """What a session with these commands prints."""
    out, kernel = io.StringIO(), KERNELS[generation]
    debugger = Debugger(TextFront(io.StringIO(commands), out, echo=True), stops, step)
    (_, result), = step_kernel(kernel, bound_to(kernel), on, debugger, level)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(result, np.log(X - 3), rtol=1e-6)
    return out.getvalue()


@pytest.mark.parametrize("on", EXECUTORS)
@pytest.mark.parametrize("generation", KERNELS)
def test_breakpoint__stops_before_the_line(generation: str, on: str) -> None:
    stops = Stops([Breakpoint("stepping/kernels.py", line_of(f"LOG {generation}"))])
    text = session(generation, on, "where\ncontinue\n", stops)
    assert f"kernels.py:{line_of(f'LOG {generation}')}: " in text and "[breakpoint]" in text
    assert f"> {line_of(f'LOG {generation}'):4} " in text


def test_stop__below_the_current_directory_has_a_relative_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    first = session("current", "eager", "continue\n", Stops(watched=["shifted"])).partition(":")[0]
    assert first == "kernels.py"


@pytest.mark.parametrize("on", EXECUTORS)
@pytest.mark.parametrize("generation", KERNELS)
def test_watch__stops_where_the_variable_is_written(generation: str, on: str) -> None:
    text = session(generation, on, "print shifted[0].tolist()\nprint shifted.max()\n", Stops(watched=["shifted"]))
    first, _, rest = text.partition("\n")
    assert f"kernels.py:{line_of(f'SHIFT {generation}')}: " in first and "shifted " in first.partition("[")[2]
    assert "[-3.0, -2.0, -1.0, 0.0]\n" in rest and "(step) print shifted.max()\n4.0\n" in rest


@pytest.mark.parametrize("on", EXECUTORS)
@pytest.mark.parametrize("generation", KERNELS)
def test_break_on_nan__stops_where_the_first_is_written(generation: str, on: str) -> None:
    text = session(generation, on, "", Stops(values=["nan"]))
    assert f"kernels.py:{line_of(f'LOG {generation}')}: " in text.partition("\n")[0]
    assert "nan in 3 elements of result, the first at [0, 0]" in text
    inf = session(generation, on, "", Stops(values=["inf"]))
    assert "inf in 1 element of result, the first at [0, 3]" in inf


@pytest.mark.parametrize("level", ["nki", "waist", "nisa"])
@pytest.mark.parametrize("generation", KERNELS)
def test_interpreter__stops_at_every_level(generation: str, level: str) -> None:
    text = session(generation, "interpreter", "tiles\n", Stops(watched=["shifted"], values=["nan"]), level=level)
    assert {"nki": "[shifted", "waist": "linalg.generic (subtract)", "nisa": "nisa.tensor_scalar (subtract)"}[level] in text
    assert "shifted[2, 4] float32 in sbuf\n" in text and "nan in 3 elements of result" in text


@pytest.mark.parametrize("on", EXECUTORS)
def test_step__stops_at_each_operation(on: str) -> None:
    text = session("current", on, "step\nnext\nstep 1\ncontinue\n", Stops(), step=True)
    assert text.count("[step]") == 3 and text.count("[line]") == 1


def test_streams__show_the_machine() -> None:
    stops = Stops([Breakpoint("kernels.py", line_of("LOG current"))], watched=["shifted"])
    text = session("current", "isa", "continue\nengines\nsemaphores\nqueues\nrows sbuf 0 0 32\ntiles\n", stops)
    assert "dve     1/1  ended" in text and "waits: S[" in text
    assert "number  name" in text and "qSyncIO0" in text
    assert "sbuf 0      0: 00000000 0000803f 00000040 00004040\n" in text           # 0 1 2 3
    assert "shifted[2, 4] float32 in sbuf, partition 0, byte 16\n" in text


def test_commands__say_what_is_wrong_and_go_on() -> None:
    text = session("current", "eager", "jump\nprint tile +\nprint nothing\nstep x\nbreak y\nwatch\nbreak-on 3\nengines\n"
                   "rows sbuf\nhelp\n\nclear\ncontinue\n", Stops(), step=True)
    for wanted in ("there is no command 'jump'", "SyntaxError", "NameError: name 'nothing' is not defined",
                   "'x' is not a number of operations", "'y' is not a FILE:LINE", "'3' is none of nan, inf",
                   "eager has no engines: run with --on=isa", "rows MEMORY PARTITION", "break [FILE:]LINE"):
        assert wanted in text
    assert text.count("[step]") == 1


def test_quit__ends_the_run() -> None:
    debugger = Debugger(TextFront(io.StringIO("quit\n"), io.StringIO(), echo=False), Stops(), step=True)
    with pytest.raises(Quit, match="ended at a stop"):
        step_kernel(current_logs, bound_to(current_logs), "eager", debugger)


def test_source_names__of_statements(tmp_path: Path) -> None:
    from nki_mlir.diagnostics import Location
    file = tmp_path / "names.py"
    file.write_text("a = f(x)\nb[0:2] = g(a)\nc += 1\nnisa.copy(dst=d[0].view(1), src=a)\nnl.store(e[i], a)\nprint(a)\n"
                    "h: int = (\n    k(1))\n")
    names = [written_variable(Location(str(file), line, 0)) for line in range(1, 9)]
    assert names == ["a", "b", "c", "d", "e", "", "h", "h"]
    module = tmp_path / "names.mlir"
    module.write_text('%left = memref.alloc() : memref<1x1xf32, "sbuf">\n"nki.load"(%left, %x)\n')
    assert [written_variable(Location(str(module), line, 0)) for line in (1, 2)] == ["left", ""]
    assert written_variable(None) == written_variable(Location("<nowhere>", 1, 0)) == ""


# -- the command -------------------------------------------------------------------------------------------------------
KERNEL = f"{Path(__file__).with_name('examples_of_steps.py')}:logs"


def ran(*options: str, commands: str = "") -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "nki_mlir.cli.run", *options], input=commands, capture_output=True,
                          text=True)


def test_command__takes_scripts_and_prints_results(tmp_path: Path) -> None:
    script = tmp_path / "commands"
    script.write_text("continue\nprint shifted.min()\ncontinue\n")
    done = ran(KERNEL, "--arg", "2x4xf32=arange", "--watch", "shifted", "--script", str(script))
    assert done.returncode == 0, done.stderr
    assert "(step) print shifted.min()\n-3.0\n" in done.stdout
    assert "result 0: float32[2, 4]" in done.stdout


def test_command__prints_each_operation_after_the_end_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "commands"
    script.write_text("step 2\n")
    logs = [ran(KERNEL, "--arg", "2x4xf32=arange", "--step", "--quiet", "--script", str(name)).stdout.splitlines()
            for name in (os.devnull, script)]
    assert len(logs[0]) == 3 and all(line.endswith("[step]") for line in logs[0])
    assert logs[1] == [logs[0][0], *logs[1][1:2], "(step) step 2", *logs[0][2:]]


def test_command__tells_of_stops_that_the_run_never_meets() -> None:
    shown = ["--watch", "shifted", "--watch", "shiftde", "--break", "nofile.py:3", "--break", "examples_of_steps.py:12"]
    done = ran(KERNEL, "--arg", "2x4xf32=arange", *shown, "--script", os.devnull)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "warning: the run never came to nofile.py:3",
        "warning: the run never came to examples_of_steps.py:12; the nearest operations are at examples_of_steps.py:13",
        "warning: the run has no tile shiftde"]


@pytest.mark.parametrize("options, wanted", [
    (["--step", "--time"], "--step, --break, --watch and --break-on exclude --time"),
    (["--script", "x"], "--script and --at-level need a run that stops"),
    (["--break", "nowhere"], "--break: 'nowhere' is not a FILE:LINE"),
    (["--step", "--on=jit"], "cannot run on jit"),
    (["--step", "--script", "/does/not/exist"], "/does/not/exist: No such file or directory"),
], ids=lambda v: v if isinstance(v, str) else " ".join(v))
def test_command__refuses_what_does_not_go_together(options: list[str], wanted: str, capsys) -> None:
    try:
        status = command.main([KERNEL, "--arg", "2x4xf32", *options])
    except SystemExit as ended:
        status = ended.code
    assert status in (1, 2) and wanted in capsys.readouterr().err
