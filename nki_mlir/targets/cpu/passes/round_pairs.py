# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""round-pairs: round values inside of a body to bfloat16 by the host's instruction, two registers at a time.

before:  r = round(x * y)   bits of each register are added to and masked: six instructions
after:   r = round(x * y)   one instruction rounds two registers, one spreads each of them again

The instruction takes denormals as 0. One test behind the body, of results for zeros, covers all roundings. Where it
finds a denormal, code computes the body again as before. Results keep their bits.
"""

from nki_mlir.targets.cpu.form_choice import FormChoice
from nki_mlir.targets.cpu.function_pass import FunctionPass


class RoundPairs(FormChoice, FunctionPass, name="round-pairs"):
    form = "rounds"
