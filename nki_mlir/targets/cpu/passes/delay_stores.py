# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""delay-stores: round to bfloat16 and store in the next iteration of a loop over vectors.

before:  for k:  e = exp(x[k]);  y[k] = round(e)
after:   e = exp(x[0]);  for k from 1 on:  f = exp(x[k]);  y[k - 1] = round(e);  e = f

Rounding waits for the last step of a function, and a branch waits for the rounding. One iteration later the results are
available, and the processor runs the steps of the next function in parallel with the rounding. Bodies without a
function are too short to gain.
"""

from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.waist.nest import Nest


class DelayStores(FormChoice, FunctionPass, name="delay-stores"):
    least: int = 4              # iterations of the loop: code computes the first one before the loop
    functions: int = 1          # functions that a body computes, at least
    form = "delays"

    def is_worth_it(self, nest: Nest) -> bool:
        plan = schedule(nest)
        iterations = nest.extents[plan.order[-1]] // (plan.lanes * plan.unroll)
        return iterations >= self.least and sum(step.kind == "activation" for step in nest.steps) >= self.functions
