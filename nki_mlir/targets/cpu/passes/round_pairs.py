# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""round-pairs: round values inside of a body to bfloat16 by the host's instruction, two registers at a time.

before:  r = round(x * y)   six instructions add to the bits of each register and mask them
after:   r = round(x * y)   one instruction rounds two registers, one spreads each of them again

The instruction treats denormals as 0. One test after the body, of results for zeros, covers all roundings. Where the
test finds a denormal, code computes the body again as before. Results keep their bits.

Where no rounding needs a repair of NaN (`leave-nans`), the pass changes nothing: the six instructions take no longer,
and need no test.
"""

from nki_mlir.scalar.dtypes import BFLOAT16
from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.roundings import keeping_nans, roundings
from nki_mlir.waist.nest import Nest


class RoundPairs(FormChoice, FunctionPass, name="round-pairs"):
    form = "rounds"
    always: int = 0             # 1: also change bodies in which no rounding needs a repair of NaN

    def is_worth_it(self, nest: Nest) -> bool:
        repaired = {wide for wide, dtype in roundings(nest).values() if dtype is BFLOAT16} - keeping_nans(nest)
        return bool(self.always or repaired)
