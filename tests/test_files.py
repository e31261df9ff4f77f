# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that a user names: what is replaced, what is written to, and with which mode.

No test names a device of the system: a fault here would destroy it.
"""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import nki_mlir.language.beta.language as nl
from nki_mlir.files import descriptor_of, write_file
from nki_mlir.language.beta import nki
from nki_mlir.targets.neuron.format.artifacts import unpack_kernel

ROOT = Path(__file__).parent.parent
TEXT = "module {\n}\n\n"                        # as nki-opt prints what it reads
OPT = [sys.executable, "-m", "nki_mlir.cli.opt", "-"]


def command(arguments, cwd=ROOT):
    return subprocess.run([*OPT, *arguments], cwd=cwd, input=TEXT, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})


def from_command(file):
    done = command(["-o", str(file)])
    assert done.returncode == 0, done.stderr


WRITERS = {"function": lambda file: write_file(file, TEXT), "command": from_command}
write = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


def mode(file):
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture(params=[0o022, 0o077, 0o002])
def umask(request):
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def test_new_file__has_the_mode_that_the_umask_leaves(tmp_path, umask):
    write_file(tmp_path / "new", TEXT)
    write_file(tmp_path / "run", TEXT, 0o777)
    assert mode(tmp_path / "new") == 0o666 & ~umask and mode(tmp_path / "run") == 0o777 & ~umask
    assert (tmp_path / "new").read_text() == TEXT
    assert sorted(os.listdir(tmp_path)) == ["new", "run"]


@write
@pytest.mark.parametrize("was", [0o644, 0o600, 0o755, 0o664])
def test_replaced_file__keeps_its_mode(tmp_path, write, was):
    file = tmp_path / "out.mlir"
    file.write_text("a longer text that was there before\n")
    file.chmod(was)
    opened = file.open()
    write(file)
    assert file.read_text() == TEXT and mode(file) == was
    assert opened.read().startswith("a longer text")    # who reads the old file reads all of it
    assert os.listdir(tmp_path) == ["out.mlir"]


@write
def test_link__is_followed(tmp_path, write):
    (tmp_path / "folder").mkdir()
    target, first, second = tmp_path / "folder" / "target", tmp_path / "first", tmp_path / "second"
    target.write_text("old")
    target.chmod(0o640)
    first.symlink_to("folder/target")
    second.symlink_to(first)
    write(second)
    assert second.is_symlink() and first.is_symlink() and not target.is_symlink()
    assert target.read_text() == TEXT and mode(target) == 0o640


@write
def test_link_to_nothing__makes_its_target(tmp_path, write):
    (tmp_path / "link").symlink_to("made")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "made").read_text() == TEXT


@write
@pytest.mark.parametrize("linked", [False, True])
def test_fifo__is_written_to(tmp_path, write, linked):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()), daemon=True)
    reader.start()
    if linked:
        (tmp_path / "link").symlink_to(fifo)
    write(tmp_path / "link" if linked else fifo)
    reader.join(60)
    assert read == [TEXT] and stat.S_ISFIFO(fifo.stat().st_mode)


@write
def test_device__is_written_to(tmp_path, write):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.open("wb").close()
    except PermissionError:
        pytest.skip("only root makes devices, where the file system has them")
    write(device)
    assert stat.S_ISCHR(device.stat().st_mode) and device.stat().st_rdev == os.makedev(1, 3)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_name_of_a_descriptor__is_that_descriptor(tmp_path):
    """What the shell opened is written where it stands: the file behind it is not replaced."""
    file, link = tmp_path / "log", tmp_path / "link"
    link.symlink_to("/proc/self/fd/1")
    for name in ("/proc/self/fd/1", "/dev/fd/1", link):
        file.write_text("before\n")
        inode = file.stat().st_ino
        with file.open("a") as out:
            done = subprocess.run([*OPT, "-o", str(name)], cwd=ROOT, input=TEXT, stdout=out, text=True)
        assert done.returncode == 0
        assert file.read_text() == f"before\n{TEXT}" and file.stat().st_ino == inode
        assert subprocess.run([*OPT, "-o", str(name)], cwd=ROOT, input=TEXT, text=True,
                              capture_output=True).stdout == TEXT
    assert descriptor_of("/dev/fd/7") == 7 and descriptor_of(str(file)) is None and descriptor_of("missing") is None


@pytest.mark.parametrize(("name", "reason"), [
    ("folder", "Is a directory"), ("new/", "Is a directory"), ("missing/new", "No such file or directory"),
    ("loop", "Too many levels of symbolic links"), ("file/new", "Not a directory")])
def test_no_file__is_an_error_at_once(tmp_path, name, reason):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    (tmp_path / "loop").symlink_to("loop")
    done = command(["-o", name], cwd=tmp_path)
    assert done.returncode == 1 and done.stderr == f"error: cannot write {name}: {reason}\n"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "loop"]


def test_long_name__has_room_for_the_temporary_one(tmp_path):
    write_file(tmp_path / ("ä" * 127), TEXT)
    assert (tmp_path / ("ä" * 127)).read_text() == TEXT


def test_missing_folder__names_the_file_that_the_user_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"'[^']*/missing/k\.neff'$"):
        write_file(tmp_path / "missing/k.neff", b"")


def test_failure__leaves_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "file", TEXT)
    assert (tmp_path / "file").read_text() == "old" and os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_file_that_may_not_be_written__is_not_replaced(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o444)
    with pytest.raises(PermissionError, match="Permission denied"):
        write_file(tmp_path / "file", TEXT)
    assert (tmp_path / "file").read_text() == "old"


def test_program_of_a_measured_kernel__goes_through_links(tmp_path):
    (tmp_path / "kernel.neff").symlink_to("elsewhere.neff")

    @nki.baremetal(save_neff_name=str(tmp_path / "kernel.neff"))
    def double(x):
        result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(result, nl.load(x) * 2)
        return result
    np.testing.assert_array_equal(double(np.ones((4, 4), np.float32)), np.full((4, 4), 2, np.float32))
    assert (tmp_path / "kernel.neff").is_symlink()
    assert unpack_kernel((tmp_path / "elsewhere.neff").read_bytes(), "elsewhere.neff").kernel == "double"
    old = os.umask(0)
    os.umask(old)
    assert mode(tmp_path / "elsewhere.neff") == 0o666 & ~old
