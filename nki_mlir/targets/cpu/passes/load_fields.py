# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""load-fields: load inputs that alternate in memory, as fields of records do, with the same vector loads.

before:  add(x, x + 4, y)  with steps of two        after:  add(x, x + 4, y)  with one load of whole vectors
"""

from dataclasses import replace

from nki_mlir.targets.cpu.addressed_nest import AddressedNest, with_memory
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import calls_in
from nki_mlir.targets.cpu.schedule import adjacent_fields
from nki_mlir.waist.nest import Nest


class LoadFields(FunctionPass, name="load-fields"):
    def rewrite(self, function: NativeFunction) -> None:
        for call in calls_in(*function.body.nodes):
            if isinstance(call.function, Nest | AddressedNest):
                routine = with_memory(call.function)
                if fields := adjacent_fields(routine.nest, call.arguments):
                    call.function = replace(routine, use=replace(routine.use, fields=fields))
