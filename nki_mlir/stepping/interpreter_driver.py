# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Step through a module of any level on the interpreter: buffers have the names of the kernel's variables."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from nki_mlir.bindings import Operation
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.stepping.debugger import Debugger
from nki_mlir.stepping.moment import MachineView, Moment, ShownTile
from nki_mlir.stepping.source_names import written_variable
from nki_mlir.targets.interpreter.windows import buffer_of


class InterpreterDriver:
    """Stops around the operations of a function."""

    def __init__(self, debugger: Debugger) -> None:
        self.debugger, self.machine = debugger, MachineView()
        self.of_memory: dict[int, ShownTile] = {}       # by the address of the array, which the tile keeps alive

    def parameters(self, kernel: KernelFunction, inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        """Record the arrays of a call."""
        for spec in kernel.arguments:
            if spec.kind != "program_id":
                array = shared[spec.index] if spec.kind == "shared" else inputs[spec.index]
                self.add_tile(spec.name, spec.shape, str(spec.dtype), "hbm", array)

    def add_tile(self, name: str, shape: Sequence[int], dtype: str, space: str, array: np.ndarray) -> None:
        tile = ShownTile(name, tuple(shape), dtype, space, lambda: np.asarray(array))
        self.of_memory[id(array)] = tile
        self.debugger.add_tile(tile)

    def allocated(self, op: Operation, memory: np.ndarray) -> None:
        """Record a buffer that was allocated."""
        shape, dtype, space = memref_parts(op.results[0].type)
        attribute_name = op.attributes["nki.name"].value if "nki.name" in op.attributes else ""
        name = written_variable(location_of(op)) or attribute_name or f"buffer{len(self.of_memory)}"
        self.add_tile(name, shape, str(dtype), space, memory)

    def perform(self, op: Operation, operands: Sequence[object], written: Sequence[int], run: Callable[[], None]
                ) -> None:
        """Run an operation, with a stop before it and one after it."""
        at = location_of(op)
        tiles = []
        for number in written:
            array, _ = buffer_of(operands[number])
            shown = self.of_memory.get(id(array))
            tiles.append(shown or ShownTile(written_variable(at) or f"operand{number}", array.shape,
                                            str(array.dtype), "memory", partial(np.asarray, array)))
        moment = Moment("interpreter", self.debugger.count(), text_of(op), at, tiles, self.machine)
        self.debugger.before(moment)
        run()
        self.debugger.after(moment)


def text_of(op: Operation) -> str:
    """Return an operation's name with the functions that it computes."""
    inside = [inner.operation for region in op.regions for block in region.blocks for inner in block.operations]
    names = [str(operation.attributes[key].value) for operation in (op, *inside) for key in ("fn", "op", "op0")
             if key in operation.attributes]
    return f"{op.name} ({', '.join(names)})" if names else str(op.name)
