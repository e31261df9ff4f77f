# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""leave-nans: round to bfloat16, inside of a body or to store, without a repair of NaN, where the rounding keeps NaN.

before:  r = repair(mask(bits + half), x)      NaN of any payload stays NaN
after:   r = mask(bits + half)                 the lower half of each NaN is 0, so the upper one stays

The NaNs of bfloat16 have such a lower half, and so have the NaNs that arithmetic and exp create from them or propagate.
Numbers of float32 that are constant in the loop over vectors have it, too: before the loop, code clears the lower half
of each NaN. Results keep their bits, but for the payload of NaN.
"""

from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass


class LeaveNans(FormChoice, FunctionPass, name="leave-nans"):
    form = "nans"
