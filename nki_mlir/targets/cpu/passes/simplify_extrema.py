# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""simplify-extrema: compute maxima and minima of float32 without repairs that change no result.

before:  m = repair(max(a, b), a) + 0.0;  w = m - left      NaN of a stays NaN, and a zero m is +0
after:   m = max(a, b);                   w = m - left      one instruction

The pass leaves out a repair of NaN if each result that depends on the extremum is NaN anyway where the first operand
is: arithmetic propagates NaN (w - a). It leaves out a repair of zeros if no result shows the sign: results that add a
number that is never -0, extrema that are repaired, and products whose sign is hidden. A fold, such as the maximum of a
row, repairs the zero of its result and not that of each step. Results keep their bits, and NaN stays NaN.
"""

from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass


class SimplifyExtrema(FormChoice, FunctionPass, name="simplify-extrema"):
    form = "extrema"
