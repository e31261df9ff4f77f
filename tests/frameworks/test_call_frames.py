# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attributes of a call of XLA, read from a call frame in memory as its C interface lays it out."""

import ctypes
from collections.abc import Sequence

import pytest

from nki_mlir.frameworks.xla_handler import attributes_of

ARRAY, DICTIONARY, SCALAR, STRING = 1, 2, 3, 4          # XLA_FFI_AttrType
SIZE, COUNT, TYPES, NAMES, VALUES = 168, 136, 144, 152, 160


class Frame:
    """A call frame with attributes, each a name, a type and bytes. What it points to lives as long as the frame."""

    def __init__(self, attributes: Sequence[tuple[str, int, bytes]]) -> None:
        self.keep_alive: list[object] = []
        self.memory = (ctypes.c_int64 * (SIZE // 8))(*[-1] * (SIZE // 8))
        self.memory[COUNT // 8] = len(attributes)
        self.memory[TYPES // 8] = self.address((ctypes.c_int32 * (len(attributes) + 1))(*[kind for _, kind, _ in attributes]))
        self.memory[NAMES // 8] = self.pointers([self.span(name.encode()) for name, _, _ in attributes])
        self.memory[VALUES // 8] = self.pointers([
            self.span(data) if kind == STRING else self.address(ctypes.create_string_buffer(data, 16))
            for _, kind, data in attributes])

    def address(self, memory: ctypes.Array) -> int:
        self.keep_alive.append(memory)
        return ctypes.addressof(memory)

    def span(self, data: bytes) -> int:
        """A text and its length, with other letters behind it: no zero ends it."""
        return self.address((ctypes.c_int64 * 2)(self.address(ctypes.create_string_buffer(data + b"behind")), len(data)))

    def pointers(self, addresses: Sequence[int]) -> int:
        return self.address((ctypes.c_int64 * (len(addresses) + 1))(*addresses))


@pytest.mark.parametrize("attributes, texts", [
    ([], {}),
    ([("kernel_id", SCALAR, b"\x07")], {}),
    ([("kernel_key", STRING, b"0123456789abcdef")], {"kernel_key": "0123456789abcdef"}),
    ([("a", STRING, b""), ("b", STRING, "\N{MICRO SIGN}s".encode())], {"a": "", "b": "\N{MICRO SIGN}s"}),
    ([("kernel_id", SCALAR, b"\x07"), ("kernel_key", STRING, b"key"), ("shape", ARRAY, b"\x01"),
      ("kernel_record", STRING, b'{"form": 1}'), ("more", DICTIONARY, b"\x02")],
     {"kernel_key": "key", "kernel_record": '{"form": 1}'})])
def test_texts_among_attributes(attributes: list[tuple[str, int, bytes]], texts: dict[str, str]) -> None:
    frame = Frame(attributes)
    assert attributes_of(ctypes.addressof(frame.memory)) == texts
