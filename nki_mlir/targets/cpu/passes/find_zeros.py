# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""find-zeros: look for denormals only where a result of rounding to bfloat16 is 0.

before:  round(x)  four registers of x are tested for denormals, which the host's instruction rounds to 0
after:   round(x)  two registers of results are tested for zeros; where there is one, x is tested

Both give the same bits.
"""

from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass


class FindZeros(FormChoice, FunctionPass, name="find-zeros"):
    form = "zeros"
