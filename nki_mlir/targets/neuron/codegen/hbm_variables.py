# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The HBM variables of a program, with names that are valid in its text and its container."""

from collections.abc import Iterable
from functools import lru_cache

from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.isa.program import Variable
from nki_mlir.targets.neuron.codegen.records import Code, DeviceBuffer


@lru_cache(1 << 12)
def plain(name: str) -> str:
    """Return a name as the text and the container take it; a Python name already is one."""
    if name.isascii() and name.isidentifier():
        return name
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "_" for c in name)
    return name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"


def variables_of(code: Code, used: Iterable[DeviceBuffer]) -> dict[DeviceBuffer, Variable]:
    """Return the HBM variables of a program: those from outside, then the internal ones that are used, with unique
    names."""
    buffers = dict.fromkeys(code.globals)
    buffers |= dict.fromkeys([buffer for buffer in used if buffer.space == HBM])
    names: set[str] = set()
    internal = 0
    variables: dict[DeviceBuffer, Variable] = {}
    for buffer in buffers:
        kind, position = buffer.role, buffer.index
        if kind == "local":
            kind, position, internal = "internal", internal, internal + 1
        base_name = name = plain(buffer.name or kind)
        k = 1
        while name in names:
            k += 1
            name = f"{base_name}_{k}"
        names.add(name)
        variables[buffer] = Variable(name, kind, position, buffer.shape, buffer.dtype, bytearray(buffer.data))
    return variables
