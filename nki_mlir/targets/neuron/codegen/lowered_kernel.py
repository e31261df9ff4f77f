# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel that is lowered for the emission, equal operations only once (``conversion/repeated_operations.py``)."""

from functools import cached_property

from nki_mlir.bindings import Module, cloned, ir
from nki_mlir.conversion.repeated_operations import LoweredOnce, lower_once
from nki_mlir.dialects.kernel_function import KernelFunction, the_kernel
from nki_mlir.dialects.mlir_ops import meetings_of
from nki_mlir.machine import Machine, machine_named
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import PassObserver, run_passes
from nki_mlir.passes.pipelines import level_of, passes_to
from nki_mlir.targets.neuron.codegen.mlir_records import read_code
from nki_mlir.targets.neuron.codegen.records import Code
from nki_mlir.targets.neuron.codegen.repeated_records import NoTemplate
from nki_mlir.transforms.fold_over_programs import ProgramsApart
from nki_mlir.transforms.loop_over_programs import LoopOverPrograms


def at_nisa(module: Module) -> Module:
    """Return a copy of a module, lowered to the nisa level."""
    with module.context, ir.Location.unknown():
        copy = cloned(module)
        run_passes(copy, passes_to("nisa", copy))
        return copy


class LoweredKernel:
    """The only kernel of a module, from which ``code`` reads records. ``is_lowered``: the module is at the nisa level.
    """

    def __init__(self, module: Module, is_lowered: bool = False) -> None:
        self._captured = module
        self.module, self.repeats, self.instructions = (
            LoweredOnce(module, None, []) if is_lowered else lower_once(module))

    @property
    def captured(self) -> Module:
        """The module at the level at which it was captured."""
        return self._captured

    @cached_property
    def kernel(self) -> KernelFunction:
        return the_kernel(self.module)

    @property
    def machine(self) -> Machine:
        return machine_named(self.kernel.target)

    @property
    def exchanges_data(self) -> bool:
        """Whether programs of the kernel exchange data."""
        return bool(meetings_of(self.kernel.op))

    def on_one_core(self, observer: PassObserver | None) -> "LoweredKernel | None":
        """Return the kernel with its programs in loops, which one core runs; None if the programs exchange data other
        than for reductions, or if loops cannot express these."""
        if level_of(self.captured) is Level.WAIST:
            return None
        with self.captured.context, ir.Location.unknown():
            copy = cloned(self.captured)
            try:
                run_passes(copy, [LoopOverPrograms()], observer)
            except ProgramsApart:
                return None
        looped = LoweredKernel(copy)
        return None if looped.exchanges_data else looped

    def code(self, like: Code | None = None) -> Code:
        """Return new records of the kernel. ``like``: the code of another variant of the kernel, whose buffers in HBM
        these share.
        """
        try:
            return read_code(self.kernel, like, self.repeats, self.instructions)
        except NoTemplate:                  # no template expresses some operation: lower all of them
            self.module, self.repeats, self.instructions = at_nisa(self.captured), None, []
            del self.kernel
            return read_code(self.kernel, like)
