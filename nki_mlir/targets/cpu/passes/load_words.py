# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""load-words: load pairs of bfloat16 as words of 32 bits.

before:  multiply(x, g, y)  each 32 elements are spread over two registers and shifted: four instructions
after:   multiply(x, g, y)  on the lower halves of 16 words, shifted, and on their upper halves, masked: two

One vector then has the elements with even numbers, another one those with odd numbers. For each 32 elements, one
permutation restores the order of results when they are stored, and of partial sums when the lanes are added. Where the
host has no instruction that rounds to bfloat16, rounded results are upper halves of words: a shift and a mask join two
results to the word that is stored. Sums keep the order of float32.
"""

from math import prod

from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.waist.nest import Nest


class LoadWords(FormChoice, FunctionPass, name="load-words"):
    least: int = 256            # least elements of a sum along lanes: with fewer, permutations cost more than they save
    form = "words"

    def is_worth_it(self, nest: Nest) -> bool:
        return not schedule(nest).folds or prod(nest.extents[a] for a in nest.reduced) >= self.least
