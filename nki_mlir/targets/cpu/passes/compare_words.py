# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""compare-words: fold a maximum or minimum of 16-bit floats on their bits.

before:  maximum(x, m)  32 elements are spread over two registers, widened and compared as float32
after:   maximum(x, m)  one register of 32 words is compared as integers with and without sign

The integers tell the maximum, and whether an element was NaN, so results are equal (``narrow_extrema.py``).
"""

from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass


class CompareWords(FormChoice, FunctionPass, name="compare-words"):
    form = "compares"
