# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions that a shared library defines, read from its ELF file: kernels are named by text, not by address."""

import struct
from collections.abc import Iterator
from pathlib import Path

SYMBOL_TABLE, SYMBOL_BYTES = 11, 24             # SHT_DYNSYM of a 64-bit file
FUNCTION = 2


def defined_functions(library: Path) -> Iterator[str]:
    """The linker's names of all functions that the library defines and shows."""
    data = library.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("it is no 64-bit ELF file")
    table, = struct.unpack_from("<Q", data, 0x28)
    entry_bytes, entries = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + k * entry_bytes) for k in range(entries)]
    for _, kind, _, _, offset, size, link, *_ in sections:
        if kind != SYMBOL_TABLE:
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, SYMBOL_BYTES):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if info & 15 == FUNCTION and section:
                start = strings + name
                yield data[start:data.index(b"\0", start)].decode()
