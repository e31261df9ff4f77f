# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base of passes on a function's records.

A pass is one class in one file of its name in ``passes``; fields are its options. On a module it reads each function
into records, rewrites them, and writes them back. When a kernel is compiled, all passes run on the same records.
"""

from collections.abc import Set
from importlib import import_module

from nki_mlir.bindings import Module, ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.passes.pass_manager import Pass, PassObserver, file_names, pass_named
from nki_mlir.passes.pipeline_text import split_pipeline
from nki_mlir.similar_names import nearest
from nki_mlir.targets.cpu import pipeline
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.native_nodes import NestCall, TileCall, calls_in
from nki_mlir.targets.cpu.native_reader import CommonParts, read_native
from nki_mlir.targets.cpu.pipeline import NAMES, PIPELINE, REQUIRED
from nki_mlir.targets.cpu.roundings import EXTREMA
from nki_mlir.targets.cpu.schedule import WITH_32_REGISTERS
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest_reader import Reader


class UnknownFunctionPass(NkiMlirError):
    code = "NKI-CPU-PASS"
    message = "'{name}' is not a pass of the CPU"
    fix = "use a pass that nki-opt --help lists at --cpu-passes"

    @property
    def advice(self) -> tuple[str, str]:
        if file_names(name := self.values["name"]):
            return "", f"run it on the module before, as the option --{name}, or {self.fix}"
        suggestion = nearest(name, NAMES)
        return "", f"write {suggestion}, or {self.fix}" if suggestion else self.fix


class FunctionPass(Pass):
    """The base of all passes. Subclasses define ``rewrite(function)``; options are integers."""

    def __init_subclass__(cls, *, name: str) -> None:
        super().__init_subclass__(name=name)

    def run(self, module: Module) -> None:
        from nki_mlir.targets.cpu.native_writer import write_function  # start-up: only tools print modules
        with module.context, ir.Location.unknown():
            for kernel in kernel_functions(module):
                function = read_native(kernel, len(kernel.grid), Reader(), CommonParts())
                self.rewrite(function)
                write_function(function, kernel.op)

    def rewrite(self, function: NativeFunction) -> None:
        """Change the function in place. It computes the same before and after."""


def function_pass(name: str, options: str = "") -> FunctionPass:
    """Instantiate a pass with options written as ``name=value other=value``."""
    if name not in NAMES:
        raise UnknownFunctionPass(name=name)
    import_module(f"nki_mlir.targets.cpu.passes.{name.replace('-', '_')}")       # faster than a search through files
    named = pass_named(name, options)
    assert isinstance(named, FunctionPass)
    return named


def unneeded_passes(function: NativeFunction) -> Set[str]:
    """Return the names of passes that change nothing in a function, and nothing in what other passes make of it."""
    calls = [*calls_in(*function.body.nodes)]
    nests = dict.fromkeys(call.nest for call in calls if isinstance(call, NestCall))
    steps = [step for nest in nests for step in nest.steps]
    has_products = any(nest.reduced and len(nest.inputs) == 2 for nest in nests)
    is_absent = {
        pipeline.CHANGE_FUNCTIONS: all(step.kind != "activation" for step in steps),
        pipeline.CHANGE_PRODUCTS: not has_products,
        pipeline.CHANGE_TILES: not (has_products or function.buffers),
        pipeline.CHANGE_CONSTANT_TILES: all(nest.inputs for nest in nests),
        pipeline.CHANGE_OPERATIONS: not any(isinstance(call, TileCall) for call in calls),
        pipeline.CHANGE_NARROW_FLOATS: all(step.kind != "convert" for step in steps) and all(
            operand.dtype.itemsize >= 4 for nest in nests for operand in nest.operands),
        pipeline.CHANGE_EXTREMA: all(step.name not in EXTREMA for step in steps),
        pipeline.CHANGE_GRIDS: len(function.kernel.grid) < 2,
        pipeline.CHANGE_SEQUENCES: len(calls) < 2,
        pipeline.CHANGE_DIVIDED_SEQUENCES: len(calls) < 2 and not has_products,
        pipeline.NEED_WIDE_REGISTERS: host.lanes() < WITH_32_REGISTERS}
    return frozenset().union(*[names for names, absent in is_absent.items() if absent])


def passes_of(text: str | None = None, is_written: bool = False, without: Set[str] = frozenset()) -> list[FunctionPass]:
    """Return the passes of a pipeline's text, A,B{x=1}; without a text, the passes of every kernel, ``without`` some. A
    function that passes have written already gets only the passes that its values need."""
    chosen = dict.fromkeys(REQUIRED, "")
    if text is not None:
        chosen |= dict(split_pipeline(text))
    elif not is_written:
        chosen = {name: PIPELINE[name] for name in NAMES if name in PIPELINE and name not in without}
    return [function_pass(name, options) for name, options in chosen.items()]


def run_passes(function: NativeFunction, passes: list[FunctionPass], observer: PassObserver | None = None) -> None:
    """Run passes in order."""
    for function_pass in passes:
        if observer is None:
            function_pass.rewrite(function)
        else:
            from nki_mlir.targets.cpu.native_writer import module_of  # start-up: only tools print modules
            observer.observe(function_pass.name, function, function_pass.rewrite, module_of)
