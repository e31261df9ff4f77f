# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tensors of both generations are to Python: names of operators, copies, lengths, their text."""

from typing import Any, TypeVar

BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "mod": "mod", "pow": "power",
          "floordiv": "floor_divide", "lshift": "left_shift", "rshift": "right_shift", "and": "bitwise_and",
          "or": "bitwise_or", "xor": "bitwise_xor"}
UNARY = {"neg": "negative", "invert": "invert", "abs": "abs"}


T = TypeVar("T", bound="TensorObject")


class TensorObject:
    """Base of the classes of tensors."""

    __slots__ = ()
    shape: Any
    dtype: Any
    name: Any

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memory: object) -> T:
        """A copy of an object that holds a tensor holds the same one: its memory is the device's."""
        return self

    def _text(self, memory: str, value: object) -> str:
        """Its name, shape and dtype, the memory it is in, and its elements where they are known."""
        header = f"{self.name}{list(self.shape)} {self.dtype} in {memory}"
        return header if value is None else f"{header}\n{value}"

    def _table(self, memory: str, value: Any) -> str:
        """The same for a notebook: a row for each partition."""
        rows = None if value is None or not value.size else value.reshape(value.shape[0] if value.ndim else 1, -1)
        header = self._text(memory, None)
        from nki_mlir import display  # start-up: imported on first use
        return display.tile(header, rows, rows.shape) if rows is not None else display.tile(header, [], (0, 0))
