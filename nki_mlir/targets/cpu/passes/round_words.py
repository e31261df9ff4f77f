# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""round-words: round values inside of a body to bfloat16 by sums of products of 16-bit words.

before:  r = mask(bits + half + odd)         four instructions
after:   r = mask(dot(bits, even, 2, -1))    three: the dot adds half, less 1 where the upper half is even

The dot adds the products of two halves to a word. Results keep their bits.

The host's multipliers compute dots. Bodies that keep the multipliers busy with products, quotients and functions other
than exp stay unchanged.
"""

from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.roundings import roundings
from nki_mlir.waist.nest import Nest

# cycles of multipliers
PRODUCTS = {"multiply": 1, "square": 1, "average": 1, "divide": 6, "reciprocal": 6, "rsqrt": 12}
# cycles of multipliers for functions, as measured: exp waits for other steps
FUNCTIONS = {"exp": 2}
FUNCTION, BESIDE_PRODUCTS = 10, 4           # the same for each other function, and the cycles of its other instructions


class RoundWords(FormChoice, FunctionPass, name="round-words"):
    form = "dots"
    always: int = 0             # 1: also change bodies with more products than other steps

    def is_worth_it(self, nest: Nest) -> bool:
        rounded = roundings(nest)
        products = other_steps = 0
        for value, step in enumerate(nest.steps, nest.first_step):
            cycles = PRODUCTS.get(step.name, 0) if step.kind == "alu" else (
                FUNCTIONS.get(step.name, FUNCTION) * (step.kind == "activation"))
            products += cycles
            if step.kind == "activation":
                other_steps += BESIDE_PRODUCTS
            elif not cycles and step.kind != "constant" and step.dtype is FLOAT32 and value not in rounded:
                other_steps += 1
        return bool(self.always) or products < other_steps
