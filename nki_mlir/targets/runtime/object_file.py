# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A loader of object files that the ExecutionEngine wrote: x86-64 ELF in the large code model.

In this model, addresses are 64-bit words, so that sections can be adjacent, and two kinds of relocation suffice. The
Python bindings can neither pass an object file to the engine nor link it.
"""

import ctypes
import mmap
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from nki_mlir.result_memory import pages

PAGE = mmap.PAGESIZE
HEADER, ELF = struct.Struct("<4sBBBx8xHHIQQQIHHHHHH"), b"\x7fELF"
RELOCATABLE, X86_64 = 1, 62
SYMBOLS, WITH_ADDENDS, NO_BITS, OF_LINKER = 2, 4, 8, 11         # kinds of sections, among them two with symbols
FUNCTION = 2                                            # kind of symbol
WRITABLE, LOADED = 1, 2                                 # flags of a section
SYMBOL, RELOCATION = struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
MOST_BYTES = 1 << 30            # most bytes of the sections of an intact file; code of kernels takes kilobytes


class RelocationKind(IntEnum):
    """The two kinds of relocations: symbol + addend, and symbol + addend - the word's address."""

    ABSOLUTE = 1
    RELATIVE = 24


class ElfSection(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class ElfSymbol(NamedTuple):
    name: str
    is_function: bool
    section: int            # 0: outside of the object
    value: int              # from the section's begin


class NotLoadable(Exception):
    """The file is damaged, or uses something that this loader does not support: the code has to be compiled."""


def load_object(image: bytes, symbol: str) -> tuple[int, mmap.mmap]:
    """Load an object file; return the address of a global function, and the memory to keep for as long as it is used.

    Raise ``NotLoadable`` for other files, and if the system forbids memory that becomes executable.
    """
    try:
        if HEADER.unpack_from(image)[4:6] != (RELOCATABLE, X86_64):
            raise NotLoadable("not a relocatable x86-64 ELF object")
        sections, symbols = read(image, SYMBOLS)
        return map_sections(image, sections, symbols, symbol)
    except (struct.error, IndexError, OverflowError, ValueError, OSError) as error:
        raise NotLoadable(str(error)) from None


def read(image: bytes, kind: int) -> tuple[list[ElfSection], list[ElfSymbol]]:
    """Return the sections of a file, and the symbols in its section of type ``kind``."""
    magic, bits, order, *_, table, _, _, _, _, _, count, _ = HEADER.unpack_from(image)
    if (magic, bits, order) != (ELF, 2, 1):
        raise NotLoadable("not a 64-bit ELF file")
    sections = [ElfSection(*struct.unpack_from("<IIQQQQIIQQ", image, table + 64 * k)) for k in range(count)]
    listed = next((s for s in sections if s.kind == kind), None)
    if listed is None:
        raise NotLoadable("no symbols")
    names = sections[listed.link].offset
    symbols = []
    for at in range(listed.offset, listed.offset + listed.size, SYMBOL.size):
        name, info, _, section, value, _ = SYMBOL.unpack_from(image, at)
        text = image[names + name:image.index(b"\0", names + name)].decode()
        symbols.append(ElfSymbol(text, info & 15 == FUNCTION, section, value))
    return sections, symbols


class SectionOffsets(NamedTuple):
    """Offsets in the memory of an object: those of its sections by number, that of the first writable section, and the
    end."""

    starts: dict[int, int]
    writable: int
    end: int


def offsets_of(sections: list[ElfSection]) -> SectionOffsets:
    """Assign offsets: code and constants first, which become executable pages, then data on writable pages."""
    starts: dict[int, int] = {}
    end = first_writable = 0
    for writable in (False, True):
        for number, section in enumerate(sections):
            if section.flags & LOADED and bool(section.flags & WRITABLE) == writable:
                end = -(-end // max(1, section.alignment)) * max(1, section.alignment)
                starts[number], end = end, end + section.size
        if not writable:
            first_writable = end = -(-end // PAGE) * PAGE
    if end > MOST_BYTES:
        raise NotLoadable(f"sections of {end:,} bytes")
    return SectionOffsets(starts, first_writable, end)


def relocate(image: bytes, sections: list[ElfSection], starts: dict[int, int], memory: mmap.mmap, base: int,
             address_of: Callable[[int], int]) -> None:
    """Apply the relocations of the sections in memory: write the addresses of symbols, which
    ``address_of`` returns by number."""
    for section in sections:
        if section.kind != WITH_ADDENDS or section.info not in starts:
            continue
        for at in range(section.offset, section.offset + section.size, RELOCATION.size):
            offset, info, addend = RELOCATION.unpack_from(image, at)
            patched_offset, value = starts[section.info] + offset, address_of(info >> 32) + addend
            kind = info & 0xFFFFFFFF
            if kind not in (RelocationKind.ABSOLUTE, RelocationKind.RELATIVE):
                raise NotLoadable(f"a relocation of kind {kind}")
            origin = base + patched_offset if kind == RelocationKind.RELATIVE else 0
            struct.pack_into("<Q", memory, patched_offset, (value - origin) % (1 << 64))


def map_sections(image: bytes, sections: list[ElfSection], symbols: list[ElfSymbol],
                 wanted_name: str) -> tuple[int, mmap.mmap]:
    """Load the sections into memory. Return the address of a symbol, and the memory."""
    starts, writable, end = offsets_of(sections)
    memory = pages(max(PAGE, -(-end // PAGE) * PAGE))
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for number, start in starts.items():
        section = sections[number]
        if section.kind != NO_BITS:
            memory[start:start + section.size] = image[section.offset:section.offset + section.size]
    process = ctypes.CDLL(None)

    def address(number: int) -> int:
        symbol = symbols[number]
        if symbol.section in starts:
            return base + starts[symbol.section] + symbol.value
        if symbol.section or not symbol.name or not hasattr(process, symbol.name):
            raise NotLoadable(f"the symbol '{symbol.name}' is not in this process")
        return ctypes.cast(getattr(process, symbol.name), ctypes.c_void_p).value or 0
    relocate(image, sections, starts, memory, base, address)
    if writable and ctypes.CDLL(None, use_errno=True).mprotect(
            ctypes.c_void_p(base), ctypes.c_size_t(writable), mmap.PROT_READ | mmap.PROT_EXEC):
        raise NotLoadable("this system forbids pages that are executable")
    for number, symbol in enumerate(symbols):
        if symbol.name == wanted_name and symbol.section in starts:
            return address(number), memory
    raise NotLoadable(f"the object has no '{wanted_name}'")
