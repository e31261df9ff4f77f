# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How commands end where the system ends them: Ctrl-C, a full disk, too little memory."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nki_mlir.cli import command, entry, opt, run
from nki_mlir.targets.neuron import profile
from nki_mlir.targets.neuron.profile import vendor_tables

ROOT = Path(__file__).parent.parent.parent
MODULE = "examples/mlir/tensor_add.mlir"


def ends(error: BaseException) -> int:
    def run() -> int:
        raise error
    return command.exit_status(run)


def test_ctrl_c_is_one_line(capsys):
    assert ends(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_entry__loads_little_before_it_handles_ctrl_c():
    code = "import sys; import nki_mlir.cli.entry; print(*sorted(m for m in sys.modules if m.startswith('nki_mlir')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert loaded.split() == ["nki_mlir", "nki_mlir.cli", "nki_mlir.cli.entry", "nki_mlir.version"]


ENDS = """
import atexit, sys, threading, types
from nki_mlir.cli import entry

class Freed:
    def __del__(self):
        print("freed")

def main():
    atexit.register(print, "function of the command")
    threading.Timer(0.2, print, ["end of a thread"]).start()
    main.built = Freed()
    main.built.cycle = main.built
    return {status}

atexit.register(print, "function of the program")
entry.import_module = lambda name: types.SimpleNamespace(main=main)
sys.exit(entry.command("opt")())
"""


def ends_with(status: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", ENDS.format(status=status)], capture_output=True, text=True, cwd=ROOT)


def test_ctrl_c_frees_nothing_that_the_command_has_built():
    ended = ends_with(130)
    assert (ended.returncode, ended.stderr) == (130, "")
    assert ended.stdout == "end of a thread\nfunction of the command\nfunction of the program\n"


@pytest.mark.parametrize("status", [0, 1, 2])
def test_other_ends_are_those_of_python(status):
    ended = ends_with(status)
    assert (ended.returncode, ended.stderr) == (status, "")
    assert ended.stdout == "end of a thread\nfunction of the command\nfunction of the program\nfreed\n"


def test_a_closed_pipe_is_silent(capsys):
    """The reader of ``nki-calibrate --predict beta | head -1`` has its line."""
    assert ends(BrokenPipeError(errno.EPIPE, "Broken pipe")) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("ending", ["3", "'no device here'"])
def test_a_file_that_ends_the_process_is_an_error(tmp_path, capsys, ending):
    file = tmp_path / "kernel.py"
    file.write_text(f"raise SystemExit({ending})\n")
    assert opt.main([f"{file}:kernel"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"{file}:1:1: error: SystemExit: {ending.strip(chr(39))} [NKI-KERNEL-RAISED]")


@pytest.mark.parametrize("executor", ["jit", "eager"])
@pytest.mark.parametrize("statement, error", [
    ("open('/no-such-file')", "FileNotFoundError: [Errno 2] No such file or directory: '/no-such-file'"),
    ("numpy.load('/no-such-file')", "FileNotFoundError: [Errno 2] No such file or directory: '/no-such-file'"),
    ("raise PermissionError(13, 'locked')", "PermissionError: [Errno 13] locked"),
    ("raise OSError(28, 'full')", "OSError: [Errno 28] full"), ("raise OSError", "OSError: ")])
def test_an_error_of_files_in_a_kernel_is_at_its_line(tmp_path, capsys, executor, statement, error):
    file = tmp_path / "kernel.py"
    file.write_text("import numpy\nimport neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n@nki.jit\ndef f(x):\n"
                    f"    {statement}\n    return nl.load(x)\n")
    assert run.main([f"{file}:f", "--arg", "4x4xf32", f"--on={executor}"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"{file}:6:5: error: {error} [NKI-KERNEL-RAISED]\n    6 |     {statement}\n")
    assert "Traceback" not in printed


def test_a_directory_that_was_removed_is_an_error(tmp_path, capsys, monkeypatch):
    (tmp_path / "k.py").write_text("")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run.main(["../k.py:f", "--arg", "4x8xf32"]) == 1
    assert capsys.readouterr().err == (
        "error: the current directory no longer exists, and a relative file name starts from it [NKI-DIRECTORY]\n"
        "  fix: change to another directory\n")
    assert run.main([f"{tmp_path}/k.py:f", "--arg", "4x8xf32"]) == 1
    assert "has no kernel" in capsys.readouterr().err


def test_executor_of_the_environment(monkeypatch, capsys):
    arguments = ["examples/current_tensor_add.py:add", *["--arg", "256x1024xf32"] * 2, "--quiet"]
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", "interpreter")
    assert run.main(arguments) == 0 and capsys.readouterr().out.startswith("interpreter: ")
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", "gpu")
    assert run.main(arguments) == 1
    assert "error: there is no executor named 'gpu'" in capsys.readouterr().err
    assert run.main([MODULE, "--quiet", *["--arg", "256x1024xf32"] * 2]) == 0     # of kernels alone


def test_closed_standard_input__is_an_error(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert opt.main(["-"]) == 1
    assert capsys.readouterr().err == "error: cannot read -: standard input is closed\n"


def test_too_little_memory_is_an_error(capsys):
    assert ends(MemoryError("Unable to allocate 30.5 GiB for an array")) == 1
    assert capsys.readouterr().err == (
        "error: the machine has too little memory: Unable to allocate 30.5 GiB for an array [NKI-MEMORY]\n"
        "  fix: give smaller tensors, or raise the limit of the process (ulimit -v)\n")


def test_a_library_for_which_there_is_no_room_is_an_error(capsys, monkeypatch):
    def import_module(name):
        raise ImportError("numpy does not load:\nlib/_core.so: failed to map segment from shared object\nsee there")
    monkeypatch.setattr(entry, "import_module", import_module)
    assert entry.opt() == 1
    assert capsys.readouterr().err.startswith(
        "error: the machine has too little memory: a module does not load, lib/_core.so: failed to map segment from "
        "shared object [NKI-MEMORY]\n")
    monkeypatch.setattr(entry, "import_module", lambda name: exec("import a_module_that_is_missing"))
    with pytest.raises(ImportError, match="No module named 'a_module_that_is_missing'"):
        entry.opt()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
@pytest.mark.parametrize("arguments", [["opt", MODULE], ["run", MODULE, "--on=interpreter"],
                                       ["run", MODULE, "--on=isa", "--time"]])
def test_a_full_disk_is_an_error_of_one_rule(arguments):
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", f"from nki_mlir.cli.{arguments[0]} import main; raise SystemExit("
                                f"main({arguments[1:]}))"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr == ("error: the output cannot be written: No space left on device [NKI-OUTPUT]\n"
                            "  fix: free some space, or write to another file\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
@pytest.mark.parametrize("arguments", [["opt", "--help"], ["run", "--version"], ["opt", "--completion=bash"]])
def test_help_for_a_full_disk_is_an_error(arguments):
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", f"from nki_mlir.cli.{arguments[0]} import main; raise SystemExit("
                                f"main({arguments[1:]}))"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1 and ended.stderr.splitlines()[0] == (
        "error: the output cannot be written: No space left on device [NKI-OUTPUT]")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
def test_messages_to_an_editor_on_a_full_disk_end_in_an_error():
    body = '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}'
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", "from nki_mlir.cli import entry; raise SystemExit(entry.lsp())"],
                               cwd=ROOT, input=f"Content-Length: {len(body)}\r\n\r\n{body}", stdout=full,
                               stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr == ("error: the output cannot be written: No space left on device [NKI-OUTPUT]\n"
                            "  fix: free some space, or write to another file\n")


def test_messages_to_an_editor_that_has_closed_its_input_end_in_an_error():
    body = '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}'
    ended = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable,
                            "from nki_mlir.cli import entry; raise SystemExit(entry.lsp())"],
                           cwd=ROOT, input=f"Content-Length: {len(body)}\r\n\r\n{body}", stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr == ("error: the output cannot be written: it is closed [NKI-OUTPUT]\n"
                            "  fix: free some space, or write to another file\n")


@pytest.mark.parametrize("closed, message", [
    ("1", "error: the output cannot be written: it is closed [NKI-OUTPUT]\n  fix: free some space, or write to another file\n"),
    ("0", "error: cannot read -: standard input is closed\n"), ("2", "")])
def test_streams_that_the_caller_closed(closed, message, tmp_path):
    """Nothing is written to a file that takes the number of the closed stream."""
    source = "/nothing" if closed == "2" else "-" if closed == "0" else MODULE
    program = f"import sys; from nki_mlir.cli import entry; sys.argv = ['nki-opt', {source!r}]; sys.exit(entry.opt())"
    ended = subprocess.run(["sh", "-c", f'exec "$0" -c "$1" {closed}>&-', sys.executable, program], cwd=ROOT,
                           capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", message)


@pytest.mark.parametrize("write_files", [lambda folder: profile.write_profile({}, folder),
                                         lambda folder: vendor_tables.write_into({}, folder)])
def test_a_profile_is_written_whole_or_not_at_all(write_files, tmp_path, monkeypatch):
    def write(file, data):
        if file.suffix == ".html" or file.name == "Last.parquet":
            raise OSError(errno.ENOSPC, "No space left on device")
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
    monkeypatch.setattr(profile, "write_file", write)
    monkeypatch.setattr(profile, "page", lambda document: "page")
    monkeypatch.setattr(profile, "trace", lambda document: b"trace")
    monkeypatch.setattr(vendor_tables, "vendor_tables", lambda document: {"First": [{"id": 1}], "Last": [{"id": 2}]})
    (tmp_path / "there").mkdir()
    for folder in (tmp_path / "there", tmp_path / "there" / "new" / "inner"):
        with pytest.raises(profile.ProfileFolder, match=r"cannot be written into .*: No space left on device"):
            write_files(folder)
    assert [file.name for file in tmp_path.rglob("*")] == ["there"]


def test_a_limit_of_open_files_is_an_error_that_names_it(tmp_path):
    """The formatter is another process, for which no pipe can be opened."""
    (tmp_path / "k.py").write_text("import neuronxcc.nki as nki\n@nki.jit\ndef f(x):\n    return x\n")
    program = "import sys; from nki_mlir.cli import entry; sys.argv = ['nki-migrate', 'k.py']; sys.exit(entry.migrate())"
    ended = subprocess.run(["sh", "-c", 'ulimit -n 6; exec "$0" -c "$1"', sys.executable, program], cwd=tmp_path,
                           env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        1, "", "error: a limit of the process is reached: Too many open files [NKI-HOST-LIMIT]\n"
               "  fix: raise the limit, for example that of open files with ulimit -n, or end other programs\n")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM])
def test_limits_of_the_system_are_errors(number, capsys, monkeypatch):
    monkeypatch.setattr(command, "raised_at", lambda error: None)           # the toolchain raises it, no kernel
    assert ends(OSError(number, "the limit")) == 1
    assert capsys.readouterr().err.startswith("error: a limit of the process is reached: the limit [NKI-HOST-LIMIT]\n")
    with pytest.raises(OSError, match="another"):
        ends(OSError(errno.EXDEV, "another"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep to these limits")
@pytest.mark.parametrize("limit,size,text", [
    ("RLIMIT_AS", 200_000 << 10, r"the MLIR bindings do not load, \S+: failed to map segment from shared object"),
    ("RLIMIT_STACK", 256 << 10, r"the stack is limited to 262,144 bytes \(ulimit -s\), MLIR needs 1,048,576")])
def test_limits_of_the_process_are_an_error_that_names_them(limit, size, text):
    import resource

    def limited() -> None:
        kind = getattr(resource, limit)
        resource.setrlimit(kind, (size, resource.getrlimit(kind)[1]))
    ended = subprocess.run([sys.executable, "-c", "import sys; from nki_mlir.cli.entry import opt; sys.exit(opt())", MODULE],
                           cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=limited)
    assert ended.returncode == 1
    assert re.match(rf"error: the machine has too little memory: {text} \[NKI-MEMORY\]\n  fix: ", ended.stderr)
