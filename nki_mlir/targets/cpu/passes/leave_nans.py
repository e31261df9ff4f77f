# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""leave-nans: round to bfloat16 without a repair of NaN, in a body, to store or to look up, where NaN stays NaN.

before:  r = repair(mask(bits + half), x)      NaN of any payload stays NaN
after:   r = mask(bits + half)                 the lower half of each NaN is 0, so the upper one stays

The lower half is 0 in each NaN of bfloat16, and in each NaN that arithmetic and exp create or propagate. For numbers of
float32 that are constant in the loop over vectors, code clears the lower half of each NaN before the loop. Results keep
their bits, except for the payload of NaN.
"""

from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass


class LeaveNans(FormChoice, FunctionPass, name="leave-nans"):
    form = "nans"
