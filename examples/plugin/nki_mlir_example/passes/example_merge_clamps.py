# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""example-merge-clamps: merge two consecutive clamps of a tile.

before:  example_clamp t <- t, -2, 2                after:  example_clamp t <- t, -1, 2
         example_clamp t <- t, -1, 3
"""

from itertools import pairwise
from typing import Any

from nki_mlir.plugin import Level, Pass, ir, kernel_functions, read_op, walk
from nki_mlir_example.ops import ExampleClampOp

NAME = ExampleClampOp.full_name()


class MergeClamps(Pass, name="example-merge-clamps", reads=Level.NISA):
    """Intersect the limits of the second clamp with those of the first."""

    rounded: bool = False                   # also tiles whose dtype rounds what lies between the two

    def run(self, module: Any) -> None:
        with module.context, ir.Location.unknown():
            for kernel in kernel_functions(module):
                operations: list[Any] = []
                walk(kernel.op.regions[0].blocks[0], operations.append)
                for first, second in pairwise(operations):
                    if first.name == second.name == NAME:
                        self.merge(first, second)

    def merge(self, first: Any, second: Any) -> None:
        """Change the second operation and erase the first, if both are clamps of the same tile."""
        a, b = read_op(first), read_op(second)
        tiles = (a.dst, b.src, b.dst)
        one = all(t.handle == a.dst.handle and t.access == a.dst.access for t in tiles) and a.symbols == b.symbols
        if not one or a.mask != b.mask or a.limits or b.limits or not (self.rounded or a.dst.dtype.itemsize == 4):
            return
        low, high = (min(max(limit, b.low), b.high) for limit in (a.low, a.high))
        second.operands[1] = first.operands[1]
        second.attributes["access"] = ir.ArrayAttr.get([second.attributes["access"][0], first.attributes["access"][1]])
        for name, value in (("low", low), ("high", high)):
            second.attributes[name] = ir.FloatAttr.get_f64(value)
        first.erase()
