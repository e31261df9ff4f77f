# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The columns of the vendor's tables about an instruction's operands, read from its assembly."""

import re
from typing import NamedTuple

from nki_mlir.scalar.dtypes import BY_ASM

# the partitions of a tile, if they differ from the instruction's
TILE = r"=(\w+@[^\s\[]+)\[([^\]]*)\]\[([^\]]*)\](?:\*(\d+))?"
QUEUE = re.compile(r"\bqueue=(\d+)")
FUNCTION = re.compile(r"^ACTIVATE\S* fn=([\w.]+)")
PATTERN = re.compile(rf"^MATMUL(?:_DOUBLE_ROW)? (?:\w+=1 )*dst{TILE} stationary{TILE} moving{TILE}.*\bchannels=(\d+)")
OPERAND = re.compile(r"\b(\w+)=(\w+)@([^\s\[]+)\[([^\]]*)\]\[([^\]]*)\](?:\*(\d+))?")
CHANNELS = re.compile(r"\bchannels=(\d+)")
TRANSPOSE = "DMA_TRANSPOSE"

Row = dict[str, object]


class OperandPattern(NamedTuple):
    """An access pattern: counts and steps in elements, outermost first; the start as assembly shows it."""

    dtype: str
    start: str
    shape: list[int]
    steps: list[int]

    def columns(self, way: str) -> Row:
        """Return the columns of a transfer's source (``read``) or destination (``write``)."""
        return {f"{way}_shape": str(self.shape), f"{way}_offset": self.start, f"{way}_steps": str(self.steps)}


def operands_text(text: str) -> str:
    """Return the operands; those of a product in the form that readers parse: src, dst, then K*M."""
    product = PATTERN.match(text)
    if product is None:
        return text.partition(" ")[2]
    dst, _, columns, _, _, _, stationary, rows, moving, _, elements, _, channels = product.groups()
    return f"src={moving}[1,0,0][{_count(elements)},1,1] dst={dst}[1,0,0][{_count(columns)},1,1] " \
           f"{rows or channels}*{_count(stationary)}"


def _count(counts: str) -> int:
    """Return the number of elements of a partition in a pattern."""
    total = 1
    for count in counts.split(","):
        total *= int(count)
    return total


def queue_number(text: str) -> int | None:
    """Return the number of the queue of a transfer."""
    queue = QUEUE.search(text)
    return int(queue[1]) if queue else None


def activation_function(text: str) -> str | None:
    """Return the function of the scalar engine that an instruction applies."""
    function = FUNCTION.match(text)
    return function[1].upper() if function else None


def patterns_of(text: str) -> dict[str, OperandPattern]:
    """Return the patterns of the tiles of an instruction by field. The partitions of a tile on chip come first."""
    patterns = {}
    channels = CHANNELS.search(text)
    for name, dtype, start, steps, counts, partitions in OPERAND.findall(text):
        shape, apart = ([int(number) for number in column.split(",") if number][::-1] for column in (counts, steps))
        # the dimension of partitions has no step in bytes
        if start.startswith("0x") and channels is not None:
            shape = [int(partitions or channels[1]), *shape]
        patterns[name] = OperandPattern(dtype, start, shape, apart)
    return patterns


def pattern_columns(text: str) -> Row:
    """Return the columns of a transfer that describe its patterns, and its transpose if it is one."""
    patterns = patterns_of(text)
    unknown = OperandPattern("", "", [], [])
    src, dst = (patterns.get(name, unknown) for name in ("src", "dst"))
    transposes = text.startswith(TRANSPOSE)
    columns: Row = {}
    for way, pattern in (("read", src), ("write", dst)):
        columns |= pattern.columns(way) if pattern.dtype else dict.fromkeys(unknown.columns(way))
    dtype = BY_ASM.get(src.dtype)
    return columns | {
        "is_transpose_mode": transposes,
        "transpose_element_size": dtype.itemsize if transposes and dtype is not None else None,
        "transpose_shape": str(dst.shape) if transposes and dst.dtype else None,
        "transpose_from_shape": str(src.shape) if transposes and src.dtype else None,
        "transpose_to_shape": str(dst.shape) if transposes and dst.dtype else None,
        "transpose_unroll_factor": None, "modular_flow_function": None}
