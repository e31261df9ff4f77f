# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The steps of the emission as passes that can be observed: their records are written as modules where one looks."""

from collections.abc import Callable
from typing import TypeVar

from nki_mlir.bindings import Module, cloned, ir
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.passes.pass_manager import PassObserver
from nki_mlir.targets.neuron.codegen.records import Code

Result = TypeVar("Result")


class Observation:
    """Who is told of steps, and the module that the records were read from; nobody without them."""

    def __init__(self, observer: PassObserver | None = None, module: Module | None = None) -> None:
        self.observer, self.module = observer, module

    def step(self, name: str, code: Code, run: Callable[[], Result]) -> Result:
        """Run a step; what it does not return it has done in place."""
        if self.observer is None:
            return run()
        self.observer.before(name, lambda: self.as_module(code))
        result = run()
        self.observer.after(name, lambda: self.as_module(result if isinstance(result, (Code, Program)) else code))
        return result

    def as_module(self, code: Code | Program) -> Module:
        """Records as a module of their own."""
        from nki_mlir.dialects.isa.module import write_program  # start-up: needed where one looks
        from nki_mlir.targets.neuron.codegen.write_records import write_code
        assert self.module is not None
        with self.module.context, ir.Location.unknown():
            copy = cloned(self.module)
            if isinstance(code, Program):
                write_program(copy, code)
            else:
                write_code(the_kernel(copy), code)
            return copy
