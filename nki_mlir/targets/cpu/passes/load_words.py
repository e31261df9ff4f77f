# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""load-words: load pairs of bfloat16 as words of 32 bits.

before:  multiply(x, g, y)  each 32 elements are spread over two registers and shifted: four instructions
after:   multiply(x, g, y)  on the lower halves of 16 words, shifted, and on their upper halves, masked: two

The lanes are then elements with even numbers, and elements with odd numbers: of each 32, one permutation puts results
in order when they are stored, and partial sums when the lanes are added. Sums keep the order of float32.
"""

from math import prod

from nki_mlir.targets.cpu.addressed_nest import can_load_words, with_memory, with_words
from nki_mlir.targets.cpu.function import NativeFunction, Spread, calls_in
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.routines import Routine
from nki_mlir.targets.cpu.schedule import schedule


class LoadWords(FunctionPass, name="load-words"):
    least: int = 256            # elements that a sum along lanes adds: with fewer, permutations take what loads save

    def rewrite(self, function: NativeFunction) -> None:
        for call in calls_in(*function.body.nodes):
            if isinstance(call, Spread):
                call.part = self.rewritten(call.part)
            elif not isinstance(call.function, str):
                call.function = self.rewritten(call.function)

    def rewritten(self, routine: Routine) -> Routine:
        """Return the routine with loads of words, if it can have them and they take less time."""
        if not can_load_words(routine):
            return routine
        nest = with_memory(routine).nest
        adds_few = schedule(nest).folds and prod(nest.extents[a] for a in nest.reduced) < self.least
        return routine if adds_few else with_words(routine)
