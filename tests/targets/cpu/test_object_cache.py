# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled code on disk: another process gets the same values without compiling, and damage is compiled again."""

import os
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir import cache_entries, diagnostics
from nki_mlir.cache_entries import digest_of
from nki_mlir.files import shown
from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel
from nki_mlir.targets.cpu import routines
from nki_mlir.targets.runtime import host, jit, object_cache
from nki_mlir.targets.runtime.machine import machine, thunk
from nki_mlir.targets.runtime.object_file import (
    LOADED,
    PAGE,
    WRITABLE,
    ElfSection,
    ElfSymbol,
    NotLoadable,
    load_object,
    map_sections,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux" or host.platform.machine() != "x86_64",
                                reason="objects are kept on x86-64 Linux")

PROGRAM = """
import sys, numpy as np
from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel
from nki_mlir.targets.runtime import jit

def kernel(x, y):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    weights = nl.exp(nl.load(x) - nl.max(nl.load(x), axis=1))
    product = nl.matmul(nl.load(y), nl.load(y), transpose_x=True)
    nl.store(out, weights / nl.sum(weights, axis=1) + nl.sin(nl.copy(product)) + nl.tanh(nl.load(x)))
    return out

x, y = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
sys.stdout.buffer.write(Kernel(kernel).on("jit")(x, y).tobytes())
print(len(jit._compiled), len(jit._loaded), file=sys.stderr)
"""


def run(folder: Path, before: str = "", **environment: str) -> tuple[bytes, int, int]:
    """Return the values, and the numbers of batches that a new process compiles and loads."""
    done = subprocess.run([sys.executable, "-c", before + PROGRAM], capture_output=True, check=True, env=os.environ | {
        "NKI_MLIR_CACHE": "on", "NKI_MLIR_CACHE_DIR": str(folder)} | environment)
    compiled, loaded = map(int, done.stderr.split()[-2:])
    return done.stdout, compiled, loaded


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    machine()                           # a process compiles it once, so it would write its code into one test's cache
    monkeypatch.setenv("NKI_MLIR_CACHE", "on")
    monkeypatch.setenv("NKI_MLIR_CACHE_DIR", str(tmp_path))
    return tmp_path / "objects"


def add_three(x: np.ndarray) -> np.ndarray:
    """Compile or load the function, whatever this process has compiled before."""
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) + 3)
        return out
    routines.clear_memo()
    return Kernel(kernel).on("jit")(x)


def refuse(*arguments: object) -> None:
    raise AssertionError("compiled")


X = np.arange(128, dtype=np.float32).reshape(8, 16)


def test_processes__share_code_and_values(tmp_path: Path) -> None:
    first, compiled, loaded = run(tmp_path)
    assert compiled >= 2 and loaded == 0
    second = run(tmp_path)
    assert second == (first, 0, compiled)
    assert run(tmp_path, NKI_MLIR_CACHE="off") == (first, compiled, 0)


def test_processes__at_the_same_time(tmp_path: Path) -> None:
    environment = os.environ | {"NKI_MLIR_CACHE": "on", "NKI_MLIR_CACHE_DIR": str(tmp_path)}
    processes = [subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=environment) for _ in range(3)]
    assert len({process.communicate()[0] for process in processes}) == 1
    assert not any(process.returncode for process in processes)
    assert run(tmp_path)[1] == 0


def test_process__whose_files_cannot_grow_goes_on(tmp_path: Path) -> None:
    values, compiled, _ = run(tmp_path / "other")
    before = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))"
    assert run(tmp_path, before) == (values, compiled, 0)


def test_code__with_addresses_of_its_process_is_not_kept(cached: Path) -> None:
    add_three(X)
    before = sorted(cached.iterdir())
    assert list(map(type, (thunk(1 << 40), thunk(1 << 41)))) == [int, int]
    assert sorted(cached.iterdir()) == before


def test_code__that_was_compiled_keeps_no_engine(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine takes 0.8 MB for each batch of routines, the object file that it wrote a page or two."""
    before = len(jit._compiled)
    add_three(X)
    kept = len(jit._compiled)
    assert {type(code).__name__ for code in jit._compiled[before:]} == {"mmap"}

    def no_object(image: bytes, symbol: str) -> None:
        raise NotLoadable("a platform whose objects are not read")
    monkeypatch.setattr(jit, "load_object", no_object)
    np.testing.assert_array_equal(add_three(X), X + 3)
    assert "ExecutionEngine" in {type(code).__name__ for code in jit._compiled[kept:]}
    del jit._compiled[kept:]


def test_entry__is_loaded_without_compiling(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.testing.assert_array_equal(add_three(X), X + 3)
    assert oct(cached.stat().st_mode)[-3:] == "700"
    assert {oct(f.stat().st_mode)[-3:] for f in cached.iterdir()} == {"600"}
    monkeypatch.setattr(jit, "lower", refuse)
    np.testing.assert_array_equal(add_three(X), X + 3)


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: raw[:len(raw) // 2], lambda raw: raw + b"\0",
                                    lambda raw: raw[:100] + bytes([raw[100] ^ 1]) + raw[101:],
                                    lambda raw: bytes(len(raw))], ids=["empty", "cut", "longer", "a bit", "zeros"])
def test_entry__that_is_damaged_is_compiled_again(cached: Path, damage) -> None:
    add_three(X)
    intact = {file: file.read_bytes() for file in cached.iterdir()}
    for file, raw in intact.items():
        file.write_bytes(damage(raw))
    np.testing.assert_array_equal(add_three(X), X + 3)
    assert {file: file.read_bytes()[:32] for file in cached.iterdir()} == {f: raw[:32] for f, raw in intact.items()}


@pytest.mark.parametrize("make", [os.mkfifo, lambda file: os.symlink("/dev/zero", file), lambda file: os.symlink(file, file),
                                  lambda file: file.touch() or os.truncate(file, 1 << 40)],
                         ids=["FIFO", "link to a device", "link to itself", "terabyte"])
def test_entry__that_is_no_file_of_the_cache_is_replaced(cached: Path, make) -> None:
    add_three(X)
    files = list(cached.iterdir())
    for file in files:
        file.unlink()
        make(file)
    np.testing.assert_array_equal(add_three(X), X + 3)
    assert all(file.is_file() and not file.is_symlink() and 0 < file.stat().st_size < 1 << 20 for file in files)


@pytest.mark.parametrize("content", [False, True], ids=["empty", "with a file"])
def test_entry__whose_name_a_directory_has(cached: Path, content: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory is replaced; for another one the code is compiled in each process, which is said once."""
    monkeypatch.setattr(diagnostics, "shown", {})
    add_three(X)
    files = sorted(cached.iterdir())
    for file in files:
        file.unlink()
        file.mkdir()
        if content:
            (file / "kept").touch()
    descriptors = len(os.listdir("/proc/self/fd"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        np.testing.assert_array_equal(add_three(X), X + 3)
        np.testing.assert_array_equal(add_three(X), X + 3)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert sorted(cached.iterdir()) == files and [file.is_dir() for file in files] == [content] * len(files)
    texts = [f"a folder has the name of a cache's entry, {shown(file)}, whose content is built again in each process; remove "
             "the folder" for file in files]
    assert sorted(str(warning.message) for warning in caught) == (sorted(texts) if content else [])


def test_entry__with_a_valid_digest_that_is_no_object_is_compiled_again(cached: Path) -> None:
    add_three(X)
    sizes = {file: file.stat().st_size for file in cached.iterdir()}
    for file in cached.iterdir():
        content = b"not an object"
        file.write_bytes(digest_of(file, content) + content)
    np.testing.assert_array_equal(add_three(X), X + 3)
    assert {file: file.stat().st_size for file in cached.iterdir()} == sizes


def test_entry__of_another_key_is_none(cached: Path) -> None:
    """Each is a valid entry under its own name."""
    keys = [object_cache.key_of(description) for description in (b"one", b"other")]
    for key in keys:
        object_cache.store(key, key.encode())
    first, second = map(object_cache.entry, keys)
    assert first is not None and second is not None
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    assert [object_cache.find(key) for key in keys] == [None, None]
    first.write_bytes(one)
    assert [object_cache.find(key) for key in keys] == [keys[0].encode(), None]


def test_folder__that_others_can_write_to_is_not_used(cached: Path) -> None:
    cached.mkdir()
    cached.chmod(0o777)
    np.testing.assert_array_equal(add_three(X), X + 3)
    assert not list(cached.iterdir())


def test_folder__that_cannot_be_made_is_no_error(cached: Path) -> None:
    cached.write_text("a file")
    np.testing.assert_array_equal(add_three(X), X + 3)
    assert cached.read_text() == "a file"


@pytest.mark.parametrize("named", ["", "~/kept", "~nobody_of_this_name/kept"])
def test_folder__of_a_user_without_a_home_is_none(cached: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    def refuse(user: int) -> None:
        raise KeyError(user)
    monkeypatch.chdir(cached.parent)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", refuse)
    monkeypatch.setenv("NKI_MLIR_CACHE_DIR", named)
    np.testing.assert_array_equal(add_three(X), X + 3)
    assert not list(cached.parent.iterdir())


def test_folder__in_the_home(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(cached.parent))
    monkeypatch.setenv("NKI_MLIR_CACHE_DIR", "~/kept")
    np.testing.assert_array_equal(add_three(X), X + 3)
    assert list((cached.parent / "kept" / "objects").glob("*.object")) and not cached.exists()


@pytest.mark.parametrize("size", [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE])
@pytest.mark.parametrize("data", [0, 5])
def test_map_sections__has_pages_for_all_bytes(size: int, data: int) -> None:
    """Code fills pages that become executable; data follow on pages of their own."""
    image = bytes(range(256)) * (size // 256 + 1)
    sections = [ElfSection(0, 1, LOADED, 0, 0, size, 0, 0, 16, 0), ElfSection(0, 1, LOADED | WRITABLE, 0, 0, data, 0, 0, 8, 0)]
    entry, memory = map_sections(image, sections, [ElfSymbol("f", True, 0, 0)], "f")
    first_writable = -(-size // PAGE) * PAGE
    assert len(memory) == first_writable + (PAGE if data else 0)
    assert memory[:size] == image[:size] and memory[first_writable:first_writable + data] == image[:data]
    assert entry % PAGE == 0


def test_room__is_made_by_one_of_256_new_entries(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[Path] = []
    monkeypatch.setattr(cache_entries, "make_room", checks.append)
    keys = [f"{number}" for number in range(1_500)]
    first = [key for key in keys if (file := object_cache.entry(key)) is not None and file.name.startswith("00")]
    assert 0 < len(first) < 20
    for key in [*first, *keys[:20]]:
        object_cache.store(key, b"code")
    assert checks == [cached.parent] * len([*first, *({*keys[:20]} & {*first})])


def test_description__sources_and_host_are_in_the_name(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {object_cache.entry("one"), object_cache.entry("another")}
    monkeypatch.setattr(object_cache, "fingerprint", lambda: b"another host")
    names |= {object_cache.entry("one"), object_cache.entry("another")}
    assert len(names) == 4


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    kept: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NKI_MLIR_CACHE", "on")
        patch.setenv("NKI_MLIR_CACHE_DIR", str(tmp_path_factory.mktemp("object")))
        patch.setattr(object_cache, "store", lambda key, content: kept.append(content))
        add_three(X)
    return kept[0]


@pytest.mark.fuzz
@given(st.data())
def test_load_object__refuses_or_loads_what_is_damaged(image: bytes, data: st.DataObject) -> None:
    """The loader writes nothing outside of the memory that it has allocated: a crash would end this process."""
    raw = bytearray(image[:data.draw(st.integers(0, len(image)))] if data.draw(st.booleans()) else image)
    for _ in range(data.draw(st.integers(0, 6))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        load_object(bytes(raw), f"_mlir_{jit.ADDRESSES}")
    except NotLoadable:
        pass


@pytest.mark.parametrize(("field", "number"), [(32, 1 << 30), (32, 1 << 62), (48, 1 << 63)], ids=["1 GB", "4 EB", "alignment"])
def test_load_object__refuses_sections_of_more_bytes_than_any_code_has(image: bytes, field: int, number: int) -> None:
    """``field`` is the position of the size or alignment in the header of a section."""
    table, = struct.unpack_from("<Q", image, 40)
    raw, count = bytearray(image), struct.unpack_from("<H", image, 60)[0]
    loaded = [k for k in range(count) if struct.unpack_from("<Q", image, table + 64 * k + 8)[0] & 2]
    struct.pack_into("<Q", raw, table + 64 * loaded[-1] + field, number)
    with pytest.raises(NotLoadable, match=r"sections of [0-9,]+ bytes"):
        load_object(bytes(raw), f"_mlir_{jit.ADDRESSES}")


def test_load_object__wants_its_symbol(image: bytes) -> None:
    with pytest.raises(NotLoadable, match="the object has no 'other'"):
        load_object(image, "other")
