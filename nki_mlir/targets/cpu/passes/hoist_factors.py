# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""hoist-factors: join or convert the factors of products before a loop if each iteration reads the same tiles.

before:  for i in 0..16: for j in 0..16: words = pairs(keys[:, 128 * j]); scores = pairs(queries) * words
after:   for j in 0..16: words[j] = pairs(keys[:, 128 * j])
         for i in 0..16: for j in 0..16: scores = pairs(queries) * words[j]

As in `hoist-tiles`, a product reads the factor often, and later operations of its block alone read it. Its elements may
also come from buffers of the function that the loop neither allocates nor writes.
"""

from collections.abc import Set

from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.passes.hoist_tiles import HoistTiles


class HoistFactors(HoistTiles, FunctionPass, name="hoist-factors"):
    most: int = 4_194_304       # most bytes of all factors
    cached: int = 1_048_576     # most bytes in float32 of factors that stay in the second cache
    times: int = 8              # least iterations of a loop for larger factors, read from the third cache
    least: int = 8              # least times that a product must read each element of a factor

    def unchanged(self, function: NativeFunction, loop: cpu.NativeLoop, private: Set[cpu.ScratchBuffer]
                  ) -> Set[object]:
        changed = private | function.written_by(loop)
        return function.only_read | (set(function.buffers) - changed)
