# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The files that a capture notes: those that a kernel's code reads, by their contents."""

import builtins
import io
import json
import os
import pathlib
import threading
import traceback

import numpy as np
import pytest

from nki_mlir.language import read_files
from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel
from nki_mlir.language.read_files import FilesRead, state_of_file


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sizes.json"
    path.write_text("[1, 2]")
    return path


READS = {
    "open": lambda p: open(p).read(), "open of bytes": lambda p: open(os.fsencode(p), "rb").read(), "by keyword": lambda p: open(file=p).close(),
    "io.open": lambda p: vars(io)["open"](p).read(), "pathlib": lambda p: p.read_text(), "numpy": lambda p: np.fromfile(open(p, "rb"), np.uint8),
    "json": lambda p: json.load(open(p)), "mode": lambda p: open(p, mode="rb", buffering=0).close(),
}
OTHERS = {"write": lambda p: open(p, "w").close(), "append": lambda p: open(p, "a").close(), "update": lambda p: open(p, "r+").close(),
          "exclusive": lambda p: open(f"{p}.new", "x").close(), "descriptor": lambda p: os.close(open(os.open(p, 0), closefd=False).fileno()),
          "a thread": lambda p: [t := threading.Thread(target=lambda: open(p).close()), t.start(), t.join()], "nothing": lambda p: None}


@pytest.mark.parametrize("read", READS)
def test_files_that_are_read(file, read, monkeypatch):
    monkeypatch.chdir(file.parent)
    for path in (file, pathlib.Path(file.name)):
        with FilesRead() as files:
            READS[read](path)
        assert files.states == {str(file): state_of_file(str(file))}
    assert builtins.open is io.open and not hasattr(builtins.open, "__wrapped__")


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_not_read(file, other):
    with FilesRead() as files:
        OTHERS[other](file)
    assert files.states == {}


def test_the_first_state_counts(file):
    before = state_of_file(str(file))
    with FilesRead() as files:
        open(file).close()
        file.write_text("[3]")
        open(file).close()
    assert files.states == {str(file): before} and before != state_of_file(str(file))


def test_the_toolchain_and_imports_read_for_themselves(file, monkeypatch):
    monkeypatch.setattr(read_files, "is_toolchain", lambda name: name == __file__)
    with FilesRead() as files:
        file.read_text()
    assert files.states == {}
    (file.parent / "imported_here.py").write_text("TEXT = open(__file__).read()\n")
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(file.parent))
    with FilesRead() as files:
        import imported_here
        assert imported_here.TEXT
    assert files.states == {imported_here.__file__: state_of_file(imported_here.__file__)}
    assert not read_files.is_read_by_kernel(None)


IMPORT = "<frozen importlib._bootstrap>"


@pytest.mark.parametrize("frames, is_noted", [
    (["kernel.py"], True), (["kernel.py", "site-packages/lib.py"], True), (["kernel.py", "STDLIB/json.py"], True),
    (["own.py"], False), (["own.py", "site-packages/lib.py"], False), (["own.py", "STDLIB/json.py"], False),
    (["own.py", "kernel.py"], True), (["kernel.py", "own.py"], False), (["kernel.py", "own.py", "STDLIB/json.py"], False),
    (["kernel.py", IMPORT], False), (["kernel.py", IMPORT, "STDLIB/json.py"], False),
    (["kernel.py", IMPORT, "site-packages/lib.py"], False), (["own.py", IMPORT, "kernel.py"], True),
    (["kernel.py", "<frozen codecs>"], True), (["own.py", "<frozen codecs>"], False)])
def test_whose_code_reads(file, monkeypatch, frames, is_noted):
    """Each of the frames calls the next one, and the last one opens the file; the test around them is no kernel."""
    monkeypatch.setattr(read_files, "is_toolchain", lambda name: name in ("own.py", __file__))

    def function(name, call):
        variables = {"call": call}
        exec(compile("def f(path): call(path)", name.replace("STDLIB", read_files.STANDARD_LIBRARY), "exec"), variables)
        return variables["f"]
    with FilesRead() as files:
        call = builtins.open
        for name in reversed(frames):
            call = function(name, call)
        call(str(file))
    assert (files.states != {}) is is_noted


def test_no_frame_of_a_missing_file_is_the_toolchains(tmp_path):
    """A traceback would otherwise show all frames of the toolchain, as for a defect of it."""
    with pytest.raises(FileNotFoundError, match="nothing") as raised, FilesRead():
        open(tmp_path / "nothing")
    assert [frame.filename for frame in traceback.extract_tb(raised.tb)] == [__file__, "<frozen io>"]


def test_replacements_of_open_stay(file, monkeypatch):
    original = builtins.open
    with FilesRead():
        replaced = builtins.open
        assert replaced is io.open is not original
    assert builtins.open is io.open is original
    def replacement(*a):
        return original(*a)
    with FilesRead():
        builtins.open = replacement
    assert builtins.open is replacement and io.open is original
    builtins.open = original
    with FilesRead():
        io.open = replacement
    assert io.open is replacement and builtins.open is original
    io.open = original


def test_states_of_what_has_no_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe")):
        assert state_of_file(path) != state_of_file(path)


def test_a_kernel_that_reads_a_device__reads_it_in_each_call():
    def kernel(x):
        with open("/dev/urandom", "rb") as device:
            number = int.from_bytes(device.read(2), "little")
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) + number)
        return out
    jitted = Kernel(kernel)
    assert len({float(jitted(np.zeros((1, 1), np.float32))[0, 0]) for _ in range(4)}) > 1


def test_states_of_files(file, monkeypatch):
    path = str(file)
    first = state_of_file(path)
    file.write_text("[1, 3]")
    assert state_of_file(path) != first
    file.write_text("[1, 2]")
    assert state_of_file(path) == first
    assert state_of_file(str(file.parent)) is None and state_of_file(f"{path}.missing") is None and state_of_file("a\0b") is None
    monkeypatch.setattr(read_files, "LARGE", 5)
    status = os.stat(path)
    assert state_of_file(path) == (6, status.st_mtime_ns, status.st_ino)
    monkeypatch.setattr(read_files, "LARGE", 6)
    assert state_of_file(path) == first
