# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""find-zeros: look for denormals only where a result of rounding to bfloat16 is 0.

before:  round(x)  code tests four registers of x for denormals, which the host's instruction rounds to 0
after:   round(x)  code tests two registers of results for zeros; only if it finds a zero, it tests x

Both give the same bits.
"""

from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass


class FindZeros(FormChoice, FunctionPass, name="find-zeros"):
    form = "zeros"
