# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tabulate-functions: functions of one 16-bit float are read from a table of their values.

before:  y = round(gelu(widen(x)))          for x and y in bfloat16
after:   y = table[bits of x]               the table is a constant of the kernel

Compiled code of the function computes the table, so results keep their bits.
"""

from math import prod

from nki_mlir.targets.cpu import host_measurements
from nki_mlir.targets.cpu.function import Compute, NativeBlock, NativeFunction, compute, sub_blocks
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.passes.parallelize import repetitions
from nki_mlir.targets.cpu.tabulated import TabulatedFunction, table_region, tabulated_functions


class TabulateFunctions(FunctionPass, name="tabulate-functions"):
    least: int = 131_072        # elements that a nest must compute: with fewer, the table costs more than it saves
    gain: int = 150             # time of the function in percent of that of lookups on this host; 0: always look up

    def rewrite(self, function: NativeFunction) -> None:
        self.block(function, function.body, prod(function.kernel.grid))

    def block(self, function: NativeFunction, block: NativeBlock, times: int) -> None:
        """Rewrite the nodes of a block that runs ``times`` times."""
        for k, node in enumerate(block.nodes):
            if isinstance(node, Compute):
                if node.nest.elements * times >= self.least:
                    block.nodes[k] = self.tabulated(function, node)
            else:
                for inner in sub_blocks(node):
                    self.block(function, inner, times * repetitions(node))

    def tabulated(self, function: NativeFunction, call: Compute) -> Compute:
        """Return the call with lookups in place of functions."""
        while (chosen := next(filter(self.is_worth_it, tabulated_functions(call.nest)), None)) is not None:
            inputs, region = len(call.nest.inputs), table_region(function, chosen.alone)
            call = compute(chosen.replaced(), [*call.regions[:inputs], region, *call.regions[inputs:]], call.symbols,
                           call.streams)
        return call

    def is_worth_it(self, function: TabulatedFunction) -> bool:
        return not self.gain or 100 * host_measurements.gain_of_table(function) >= self.gain
