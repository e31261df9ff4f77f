# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Step through the kernel's Python, operation by operation: tiles have the names of its variables."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki_mlir.capture.eager import EagerBuilder
from nki_mlir.capture.locations import user_frame, user_location
from nki_mlir.capture.prompts import GENERATED
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import Location, NkiMlirError, device_rules, report
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Op
from nki_mlir.language import eager_run
from nki_mlir.language.arguments import Bound
from nki_mlir.language.kernel import Kernel
from nki_mlir.language.tensor_object import TensorObject
from nki_mlir.stepping.debugger import Debugger
from nki_mlir.stepping.moment import MachineView, Moment, ShownTile
from nki_mlir.stepping.source_names import written_variable
from nki_mlir.targets.interpreter.execute import Pattern


class EagerDriver:
    """Stops around the operations of an eager run."""

    def __init__(self, debugger: Debugger) -> None:
        self.debugger, self.machine = debugger, MachineView()

    def run(self, kernel: Kernel, bound: Bound, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Run the kernel on arrays, which it may update, and return its results."""
        program = kernel.eager_program()

        def observed(*arguments: Any, **options: Any) -> EagerBuilder:
            builder = program(*arguments, **options)
            builder.observer = self
            return builder
        _, values, _ = eager_run.results(kernel, bound, arrays, observed, lambda launch, builders: None)
        return [np.asarray(v) for v in values]

    def perform(self, op: Op, views: Sequence[View], run: Callable[[], None]) -> None:
        """Run an operation, with a stop before it and one after it."""
        frame, at = user_frame(), user_location()
        local = dict(frame.f_locals) if frame is not None else {}
        names: dict[Buffer, str] = {}
        for name, value in local.items():
            if isinstance(value, TensorObject):
                self.debugger.add_tile(of_tensor(name, value))
                names.setdefault(buffer_of(value), name)
        pairs = [(field, tile, view.buffer) for (field, tile), view in zip(op.operands(), views)]
        written = [of_tile(self.name(buffer, names, at), tile) for field, tile, buffer in pairs if field.writes]
        scope = {name: value for name, value in local.items() if not isinstance(value, TensorObject)}
        moment = Moment("eager", self.debugger.count(), text_of(op), at, written, self.machine, scope)
        self.debugger.before(moment)
        run()
        self.debugger.after(moment)

    def broken_rule(self, error: NkiMlirError, at: Location | None, uncertain: bool) -> None:
        """Report a broken rule of the device as a run without a debugger does."""
        report(error, device_rules(), at, uncertain)

    def reshaping_copy(self, op: str, dst: Sequence[int], src: Sequence[int]) -> None:
        """Allow a copy between tensors of different shapes."""

    def name(self, buffer: Buffer, names: dict[Buffer, str], at: Any) -> str:
        """Return the variable to which the kernel assigns a buffer, or the buffer's name if there is none."""
        name = names.get(buffer) or (buffer.name if not GENERATED.fullmatch(buffer.name) else "")
        return name or written_variable(at) or buffer.name


def text_of(op: Op) -> str:
    """Return an operation's name with the function that it computes."""
    function = op.__dict__.get("fn") or op.__dict__.get("op") or op.__dict__.get("op0")
    return f"{op.name} ({function})" if function else op.name


def buffer_of(tensor: Any) -> Buffer:
    """Return the buffer of a tensor of either generation."""
    buffer: Buffer = tensor.buffer if isinstance(tensor, View) else tensor.storage.buffer
    return buffer


def of_tensor(name: str, tensor: Any) -> ShownTile:
    addresses = tensor._addresses()

    def values() -> np.ndarray:
        content = tensor._values()
        return np.zeros(0) if content is None else np.asarray(content)
    return ShownTile(name, tuple(tensor.shape), str(tensor.dtype), buffer_of(tensor).space, values,
                     addresses[0] if addresses else None)


def of_tile(name: str, tile: Tile) -> ShownTile:
    """Return the view that an operation writes. If only its mask keeps the pattern within the buffer, return the
    complete buffer."""
    def values() -> np.ndarray:
        memory = np.asarray(tile.handle)
        try:
            return Pattern(tile).at(memory, ())
        except Exception:
            return memory
    return ShownTile(name, tuple(tile.shape), str(tile.dtype), tile.space, values)
