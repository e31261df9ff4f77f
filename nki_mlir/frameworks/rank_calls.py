# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A call in a framework's program that runs a kernel with collectives on all ranks that meet in it.

Each operand and result has a first dimension more, the rank. Ranks are threads of the process that makes the call. The
devices of the ranks wait for the results, so that the call itself cannot fail: its last result has the number of an
error, or 0. With such a number as its last operand, the call raises the error, on every device.
"""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from nki_mlir.alone import exclusive_property
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.kernel_function import ArgumentSpec
from nki_mlir.dialects.launch_members import RANKS
from nki_mlir.frameworks.registry import Callee, NativeEntry, callback_entry, callees
from nki_mlir.graph.custom_call import Slot
from nki_mlir.scalar import dtypes
from nki_mlir.targets.mesh import Mesh

ERRORS_KEPT = 256
ERRORS: dict[int, BaseException] = {}
NUMBERS = itertools.count(1)


class RankFailed(NkiMlirError, RuntimeError):
    code = "NKI-RANK"
    message = "kernel {name} failed on a rank, in the process of the first device"
    fix = "read the error in that process"


@dataclass(eq=False)
class CalleeOfRanks(Callee):
    """A kernel that graphs can call for ``ranks`` ranks at once, on a fixed executor."""

    ranks: int = 1

    @cached_property
    def key(self) -> str:
        """The hash of the kernel's key as a call of one rank, and the number of ranks."""
        alone = Callee(self.record, self.on, self.load)
        return hashlib.sha256(f"{alone.key} on {self.ranks} ranks".encode()).hexdigest()

    @property
    def operands(self) -> list[ArgumentSpec]:
        return self.stacked([*self.record.operands, self.error_number])

    @property
    def results(self) -> list[ArgumentSpec]:
        return self.stacked([*self.record.results, self.error_number])

    @property
    def error_number(self) -> ArgumentSpec:
        return ArgumentSpec("shared", 0, "error_number", (), dtypes.INT32)

    @property
    def sources(self) -> list[Slot]:
        return [*super().sources, ("operand", len(self.record.operands)), ("result", len(self.record.results))]

    def stacked(self, buffers: Sequence[ArgumentSpec]) -> list[ArgumentSpec]:
        """Return the descriptions of arrays that hold such a buffer of each rank."""
        return [replace(b, shape=(self.ranks, *b.shape)) for b in buffers]

    @exclusive_property
    def entry(self) -> NativeEntry:
        """Return the entry of a callback that runs all ranks."""
        program = self.load()

        def run(inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
            *outputs, known_error, new_error = shared
            if number := int(known_error[0]):
                raise ERRORS.get(number) or RankFailed(name=self.record.name)
            bodies = [partial(program, [a[rank] for a in inputs], [a[rank] for a in outputs])
                      for rank in range(self.ranks)]
            try:
                Mesh(bodies, RANKS, parallel=self.on == "jit", closed=True).run()
                new_error[...] = 0
            except BaseException as error:          # the other devices wait for the results
                new_error[...] = number = next(NUMBERS)
                ERRORS[number] = error
                ERRORS.pop(number - ERRORS_KEPT, None)
        numbers = [self.error_number, self.error_number]
        return callback_entry(run, self.stacked(self.record.inputs), self.stacked([*self.record.shared, *numbers]))


def of_ranks(callee: Callee, ranks: int) -> Callee:
    """Return the registered callee that runs the kernel of another one on this number of ranks."""
    together = CalleeOfRanks(callee.record, callee.on, callee.load, ranks)
    return callees().setdefault(together.key, together)
