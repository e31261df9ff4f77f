# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""select-powers: compute exp by sixteenths of powers of two, which one instruction selects.

before:  exp(x) = 2^n p(r)              r within ln(2) / 2, seven terms; the argument is bounded first
after:   exp(x) = 2^n 2^(j/16) p(r)     r within ln(2) / 32, three terms; r is bounded

Rounding of the selected power gives an error of 1.02 units in the last place instead of 0.87. Functions that are
computed from exp keep their terms. The host needs registers of 16 float32.
"""

from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass


class SelectPowers(FormChoice, FunctionPass, name="select-powers"):
    form = "powers"
