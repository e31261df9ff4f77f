# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of which the end is missing: the system's loader would end the process with a signal."""

import _ctypes
import struct

import pytest

from nki_mlir import customop
from nki_mlir.customop.elf_segments import HEADER, SEGMENT, is_cut_off
from nki_mlir.customop.library import NotALibrary

TABLE, END = 64, 250            # the table of segments follows the header; the second segment ends last


def elf(bits=2, order=1, segments=((0, 176), (200, 50), (180, 20))):
    head = struct.pack("<4sBB10xHHIQQQIHHH", b"\x7fELF", bits, order, 3, 62, 1, 0, TABLE, 0, 0, 64, 56, len(segments))
    table = b"".join(struct.pack("<IIQQQQQQ", 1, 5, offset, 0, 0, size, size, 4096) for offset, size in segments)
    return (head.ljust(TABLE, b"\0") + table).ljust(END, b"\0")


def test_fields_are_those_of_the_format():
    assert (HEADER.size, SEGMENT.size) == (58, 40)


@pytest.mark.parametrize("size", [*range(0, 70), 119, 120, 175, 176, 231, 232, 248, END - 1, END, END + 1])
def test_cut_off__if_a_segment_ends_behind_the_file(size, tmp_path):
    file = tmp_path / "a.so"
    file.write_bytes((elf() + b"\0")[:size])
    assert is_cut_off(file, size) == (4 <= size < END)


@pytest.mark.parametrize("data", [elf(bits=1), elf(order=2), b"text" * 50, elf().replace(b"\x7fELF", b"\x7fELG"), b""])
def test_other_files_are_left_to_the_loader(data, tmp_path):
    file = tmp_path / "a.so"
    file.write_bytes(data[:100])
    assert not is_cut_off(file, 100)


def test_library_that_was_cut_off__is_an_error(tmp_path):
    with open(_ctypes.__file__, "rb") as source:
        data = source.read()
    file = tmp_path / "cut.so"
    for size in (30, 1_000, 5_000):
        file.write_bytes(data[:size])
        with pytest.raises(NotALibrary, match=r"cut\.so is not a library of custom operators: its end is missing"):
            customop.load_library(file)
    file.write_bytes(data)
    assert not is_cut_off(file, len(data))
