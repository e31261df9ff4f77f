# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Base of passes that replace functions of one 16-bit float by lookups in a table of the function."""

from abc import abstractmethod
from math import prod

from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.native_nodes import Compute, NativeBlock, compute, sub_blocks
from nki_mlir.targets.cpu.passes.parallelize import repetitions
from nki_mlir.targets.cpu.tabulated import TabulatedFunction, tabulated_functions
from nki_mlir.waist.overlap import ByteRegion


class FunctionLookups:
    """Replaces the functions for which ``is_worth_it`` holds by lookups, in nests of at least ``least`` elements."""

    least: int

    def rewrite(self, function: NativeFunction) -> None:
        self.block(function, function.body, prod(function.kernel.grid))

    def block(self, function: NativeFunction, block: NativeBlock, times: int) -> None:
        """Rewrite the nodes of a block that runs ``times`` times."""
        for k, node in enumerate(block.nodes):
            if isinstance(node, Compute):
                if node.nest.elements * times >= self.least:
                    block.nodes[k] = self.with_lookups(function, node)
            else:
                for inner in sub_blocks(node):
                    self.block(function, inner, times * repetitions(node))

    def with_lookups(self, function: NativeFunction, call: Compute) -> Compute:
        """Return the call with lookups in place of functions."""
        while (chosen := next(filter(self.is_worth_it, tabulated_functions(call.nest)), None)) is not None:
            inputs, (region, name) = len(call.nest.inputs), self.table(function, chosen)
            regions = [*call.regions[:inputs], region, *call.regions[inputs:]]
            call = compute(chosen.replaced(name), regions, call.symbols, call.streams)
        return call

    @abstractmethod
    def table(self, code: NativeFunction, function: TabulatedFunction) -> tuple[ByteRegion, str]:
        """Return the table of a function, and the name of lookups in it."""

    @abstractmethod
    def is_worth_it(self, function: TabulatedFunction) -> bool:
        """Return whether lookups take less time than the function."""
