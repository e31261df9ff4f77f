# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the segments of an ELF file with the file's size.

The system's loader maps segments into memory, and a process that touches what lies behind the file's end is killed, as
after a copy that was interrupted.
"""

import struct
from pathlib import Path

HEADER = struct.Struct("<4sBB10xHHIQQQIHHH")    # of a 64-bit file, up to the number of segments
SEGMENT = struct.Struct("<IIQQQQ")              # up to the size in the file
MAGIC, BITS_64, LITTLE_ENDIAN = b"\x7fELF", 2, 1


def is_cut_off(file: Path, size: int) -> bool:
    """Return whether an ELF file of 64 bits ends before one of its segments does. The loader judges other files."""
    with file.open("rb") as source:
        start = source.read(HEADER.size)
        if len(start) < HEADER.size:
            return start.startswith(MAGIC)
        magic, bits, order, *_, table, _, _, _, entry, count = HEADER.unpack(start)
        if (magic, bits, order) != (MAGIC, BITS_64, LITTLE_ENDIAN):
            return False
        if table + entry * count > size:
            return True
        for number in range(count):
            source.seek(table + entry * number)
            _, _, offset, _, _, length = SEGMENT.unpack(source.read(SEGMENT.size).ljust(SEGMENT.size, b"\0"))
            if offset + length > size:
                return True
    return False
