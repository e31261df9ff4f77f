# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tabulate-functions: read the values of functions of one 16-bit float from a table.

before:  y = round(gelu(widen(x)))          for x and y in bfloat16
after:   y = table[bits of x]               the table is a constant of the kernel

Compiled code of the function computes the table, so results keep their bits.
"""

from nki_mlir.targets.cpu import host_measurements
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_lookups import FunctionLookups
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.tabulated import TabulatedFunction, table_region
from nki_mlir.waist.overlap import ByteRegion


class TabulateFunctions(FunctionLookups, FunctionPass, name="tabulate-functions"):
    least: int = 131_072        # least elements of a nest: with fewer, the table costs more than it saves
    gain: int = 150  # least time of the function on this host, in percent of the lookups' time; 0: always look up

    def table(self, code: NativeFunction, function: TabulatedFunction) -> tuple[ByteRegion, str]:
        return table_region(code, function.alone), function.name

    def is_worth_it(self, function: TabulatedFunction) -> bool:
        return not self.gain or 100 * host_measurements.gain_of_table(function) >= self.gain
