# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run passes of the CPU on text: each reads the module that the previous one printed; the JIT compiles the last."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from nki_mlir.bindings import Module, ir
from nki_mlir.dialects.kernel_function import KernelFunction, the_kernel
from nki_mlir.targets.cpu import kernel as native_kernel
from nki_mlir.targets.cpu import lowering
from nki_mlir.targets.cpu.assemble import NativeProgram
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass, passes_of
from nki_mlir.targets.cpu.native_reader import CommonParts, read_native
from nki_mlir.targets.cpu.native_writer import module_of
from nki_mlir.waist.nest_reader import Reader


def program_text(function: NativeFunction) -> str:
    """Print the program of a function, slots numbered in the order in which they appear."""
    names: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"%slot{len(names)}")

    def pool(match: re.Match[str]) -> str:
        words = match[0].split(", ")            # the slot of the variable is a number; another one counts all slots
        return ", ".join([*words[:3], names.setdefault(f"%{words[3]}", f"%slot{len(names)}"), *words[4:7], *words[8:]])
    text = "\n".join(NativeProgram(function).text(function.names))
    return re.sub(r"nki_parallel\(.*\)", pool, re.sub(r"%\d+|constant\d+", named, text))


def read(kernel: KernelFunction, axes: int, has_variants: bool = False) -> NativeFunction:
    with kernel.op.context, ir.Location.unknown():
        function = read_native(kernel, axes, Reader(), CommonParts())
    function.has_variants = has_variants
    return function


@dataclass
class PassesOnText:
    """Counts the functions, and keeps their modules alive."""

    modules: list[Module] = field(default_factory=list)

    def passed(self, kernel: KernelFunction, axes: int, has_variants: bool, passes: list[FunctionPass] | None = None
               ) -> KernelFunction:
        """Return the kernel behind all passes. What each pass leaves is read back equal, and in the end the program is
        that of passes on records alone."""
        function, alone = (read(kernel, axes, has_variants) for _ in range(2))
        for one in passes or passes_of():
            one.rewrite(alone)
            one.rewrite(function)
            text = str(module_of(function))
            module = ir.Module.parse(text, kernel.op.context)
            assert module.operation.verify()
            written, kernel = function, the_kernel(module, kernel.name)
            function = read(kernel, axes, has_variants)
            assert program_text(function) == program_text(written), f"behind {one.name}:\n{text}"
            assert function.notes == written.notes
            self.modules.append(module)
        assert program_text(function) == program_text(alone), f"of records alone:\n{text}"
        return kernel


@contextmanager
def on_text() -> Iterator[PassesOnText]:
    """Compile kernels from the text of the last pass."""
    passes, read_functions = PassesOnText(), lowering.read_functions

    def read_passed(kernels, axes, common):
        kernels = list(kernels)
        return read_functions([passes.passed(kernel, axes, len(kernels) > 1) for kernel in kernels], axes, common)
    with patch.object(lowering, "read_functions", read_passed), \
            patch.object(native_kernel, "key_of", lambda *arguments: None):
        yield passes
