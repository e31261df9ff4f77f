# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entries of caches: what was used last stays, whichever cache it belongs to."""

import os
import warnings
from pathlib import Path

import pytest

from nki_mlir import cache_entries
from nki_mlir.cache_entries import CacheEntryWarning, make_room, read_entry, write_entry

ENGINE = "0123456789abcdef"                     # as earlier versions named the folder of an engine's objects


def add(file: Path, age: int, size: int = 100) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(size))
    os.utime(file, (1000 - age, 1000 - age))
    return file


def names(cache: Path) -> list[str]:
    return sorted(str(file.relative_to(cache)) for file in cache.rglob("*") if file.is_file())


def test_room__goes_to_what_was_used_last(tmp_path: Path) -> None:
    for age, name in enumerate(("objects/a", "gpsimd/b", "objects/c", "gpsimd/d")):
        add(tmp_path / f"{name}.object", age)
    add(tmp_path / "objects/other", 5, 1000)                            # not an entry
    add(tmp_path / "executables/another", 5, 1000)                      # not one of these caches
    add(tmp_path / "objects/.d.object.0123456789abcdef", 100)           # by a process that ended while it wrote
    make_room(tmp_path, most=250)
    assert names(tmp_path) == ["executables/another", "gpsimd/b.object", "objects/a.object", "objects/other"]


def test_room__counts_folders_of_engines(tmp_path: Path) -> None:
    folder = tmp_path / "gpsimd" / ENGINE
    for part in ("core.o", "functions.o"):
        add(folder / part, 0)
    os.utime(folder, (900, 900))
    add(tmp_path / "gpsimd" / "not an engine" / "kept", 200)
    add(tmp_path / "gpsimd" / "new.object", 50)
    make_room(tmp_path, most=300)
    assert names(tmp_path) == [f"gpsimd/{ENGINE}/core.o", f"gpsimd/{ENGINE}/functions.o", "gpsimd/new.object",
                               "gpsimd/not an engine/kept"]
    make_room(tmp_path, most=299)
    assert names(tmp_path) == ["gpsimd/new.object", "gpsimd/not an engine/kept"] and not folder.exists()


def test_room__leaves_folders_with_the_name_of_an_entry(tmp_path: Path) -> None:
    add(tmp_path / "objects" / "name.object" / "kept", 200)
    add(tmp_path / "elsewhere" / "kept", 200)
    (tmp_path / "gpsimd").mkdir()
    (tmp_path / "gpsimd" / ENGINE).symlink_to(tmp_path / "elsewhere")
    make_room(tmp_path, most=0)
    assert names(tmp_path) == ["elsewhere/kept", "objects/name.object/kept"]


@pytest.mark.parametrize("most, remaining", [(400, "abcd"), (399, "abc"), (300, "abc"), (100, "a"), (99, ""), (0, "")])
def test_room__is_exactly_what_is_allowed(tmp_path: Path, most: int, remaining: str) -> None:
    for age, name in enumerate("abcd"):
        add(tmp_path / "objects" / f"{name}.object", age)
    make_room(tmp_path, most=most)
    assert names(tmp_path) == [f"objects/{name}.object" for name in remaining]


def test_room__is_256_mib(tmp_path: Path) -> None:
    for age, size in enumerate((100 << 20, 100 << 20, 56 << 20, 1)):
        with add(tmp_path / "objects" / f"{age}.object", age, 0).open("r+b") as file:
            file.truncate(size)                                         # a file with a hole takes no space
        os.utime(file.name, (1000 - age, 1000 - age))
    make_room(tmp_path)
    assert names(tmp_path) == ["objects/0.object", "objects/1.object", "objects/2.object"]


def test_room__in_an_empty_cache(tmp_path: Path) -> None:
    make_room(tmp_path / "missing")
    assert not list(tmp_path.iterdir())


def test_room__that_another_process_makes_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age, name in enumerate("abcd"):
        add(tmp_path / "objects" / f"{name}.object", age)
    listed = [*cache_entries.entries(tmp_path / "objects")]
    monkeypatch.setattr(cache_entries, "entries", lambda folder: iter(listed if folder.name == "objects" else []))
    (tmp_path / "objects" / "d.object").unlink()            # the other process removed it after this one listed it
    make_room(tmp_path, most=250)
    assert names(tmp_path) == ["objects/a.object", "objects/b.object"]


def test_read__marks_an_entry_as_used(tmp_path: Path) -> None:
    intact, damaged = tmp_path / "objects" / "first.object", add(tmp_path / "objects" / "second.object", 0)
    write_entry(intact, b"code")
    os.utime(intact, (10, 10))
    assert read_entry(intact, 1 << 10) == b"code" and read_entry(damaged, 1 << 10) is None
    make_room(tmp_path, most=50)
    assert names(tmp_path) == ["objects/first.object"]


def test_write__to_a_folder_of_that_name(tmp_path: Path) -> None:
    entry = tmp_path / "name.object"
    entry.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_entry(entry, b"code")
    assert read_entry(entry, 1 << 10) == b"code"
    entry.unlink()
    (entry / "inner").mkdir(parents=True)
    with pytest.warns(CacheEntryWarning, match=r"a folder has the name of a cache's entry, .*name\.object, whose content is "
                                               "built again in each process; remove the folder"):
        write_entry(entry, b"code")
    assert read_entry(entry, 1 << 10) is None and (entry / "inner").is_dir()


def test_write__through_a_link_to_a_folder(tmp_path: Path) -> None:
    """The link is replaced, and the folder to which it leads keeps its files."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "name.object").symlink_to(tmp_path / "elsewhere")
    write_entry(tmp_path / "name.object", b"code")
    assert read_entry(tmp_path / "name.object", 1 << 10) == b"code" and (tmp_path / "elsewhere").is_dir()
