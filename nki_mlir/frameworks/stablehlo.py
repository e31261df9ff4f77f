# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs StableHLO modules that call kernels: the kernels are linked, the graph around them is compiled for the CPU.

Kernels and graph become one kernel function, which the kernels' compiler takes as it takes any other. What it has no
form of runs with the upstream passes alone, around calls of the kernels (``native_calls``).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir import recycled
from nki_mlir.alone import ALONE
from nki_mlir.bindings import Module, Type, cloned, ir, load
from nki_mlir.conversion.stablehlo_to_linalg import StablehloToLinalg
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.source_locations import name_operations
from nki_mlir.frameworks.native_calls import NativeCalls
from nki_mlir.frameworks.on_arrays import checked
from nki_mlir.frontend.capture import Captured, Variant
from nki_mlir.graph.upstream import BadModule, first_operation, graph_context, public_function
from nki_mlir.language.kernel import default_executor
from nki_mlir.passes.pass_manager import run_passes
from nki_mlir.passes.pipelines import passes_to
from nki_mlir.passes.safety import check_safe
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.transforms.fuse_graph import FuseGraph

if TYPE_CHECKING:
    from nki_mlir.targets.neuron.codegen.emission import Emission


class LinkedProgram:
    """A linked and compiled module. Call it with arrays; it returns the list of results.

    Arguments:
        source: as of run_linked
        on: isa: instruction streams on the simulator; else it is compiled for the CPU

    Errors:
        As of run_linked.

    Example:
        module = ("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %y = stablehlo.add %x, %x : tensor<4xf32>"
                  "return %y : tensor<4xf32> }")
        assert np.array_equal(LinkedProgram(module, "jit")(np.arange(4, dtype=np.float32))[0], [0, 2, 4, 6])
    """

    def __init__(self, source: str | bytes, on: str = "") -> None:
        with ALONE, graph_context(), ir.Location.unknown():
            module = read_graph(source)
            main = public_function(module)
            self.name = main.attributes["sym_name"].value
            signature = main.attributes["function_type"].value
            self.inputs = [array_type(t) for t in signature.inputs]
            self.outputs = [array_type(t) for t in signature.results]
            self.run = simulated(module) if on == "isa" else compiled(module)

    @property
    def is_one_program(self) -> bool:
        """Whether graph and kernels are one program; else the graph calls the kernels' own programs."""
        return not isinstance(self.run, NativeCalls)

    def __call__(self, *arguments: object) -> list[np.ndarray]:
        arrays = checked(arguments, self.inputs, self.name)
        results = [recycled.empty(shape, dtype) for shape, dtype in self.outputs]
        self.run(arrays, results)
        return results


def run_linked(module: str | bytes, arguments: Sequence[object]) -> list[np.ndarray]:
    """Run a StableHLO module that calls kernels.

    Arguments:
        module: text, or a portable artifact such as ``jax.export`` serialises
        arguments: an array for each parameter of its function

    Result:
        The list of its results, NumPy arrays.

    Errors:
        A module that cannot be read or linked, and arrays of another count, shape or dtype, are errors.

    Example:
        module = ("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %y = stablehlo.add %x, %x : tensor<4xf32>"
                  "return %y : tensor<4xf32> }")
        assert np.array_equal(run_linked(module, [np.arange(4, dtype=np.float32)])[0], [0, 2, 4, 6])
    """
    return LinkedProgram(module)(*arguments)


def simulate_linked(module: str | bytes, arguments: Sequence[object]) -> list[np.ndarray]:
    """As ``run_linked``, as one program of the instruction streams on the simulator.

    Arguments:
        module: as of run_linked
        arguments: as of run_linked

    Result:
        As of run_linked.

    Errors:
        As of run_linked.

    Example:
        module = ("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %y = stablehlo.add %x, %x : tensor<4xf32>"
                  "return %y : tensor<4xf32> }")
        assert np.array_equal(simulate_linked(module, [np.arange(4, dtype=np.float32)])[0], [0, 2, 4, 6])
    """
    return LinkedProgram(module, "isa")(*arguments)


def linked_streams(module: str | bytes, options: "Emission", file: str = "-") -> list[Program]:
    """The instruction streams of a StableHLO module of a file with its kernels; instructions know what they are of."""
    with ALONE, graph_context(), ir.Location.unknown():
        graph = read_graph(module)
        name_operations(graph, file)
        from nki_mlir.targets.neuron.codegen.emission import emit_module  # start-up: loads MLIR
        run_passes(graph, passes_to("nisa", graph))
        return [emit_module(graph, options)]


def simulated(module: Module) -> Callable[[list[np.ndarray], list[np.ndarray]], None]:
    """The module as one program of instruction streams, on the simulator."""
    from nki_mlir.targets.neuron.codegen.emission import emit_for_values, emit_module  # start-up: loads MLIR
    from nki_mlir.targets.neuron.simulator import simulate
    run_passes(module, passes_to("nisa", module))
    program = emit_for_values(lambda options: emit_module(module, options))

    def run(arrays: list[np.ndarray], results: list[np.ndarray]) -> None:
        simulate(program, arrays, results)
    return run


def compiled(module: Module) -> Callable[[list[np.ndarray], list[np.ndarray]], None]:
    """The module's executable: one program for graph and kernels, where the kernels are compiled for the CPU."""
    if default_executor() == "jit":
        from nki_mlir.targets.cpu.kernel import NativeKernel  # start-up: loads MLIR
        graph = cloned(module)
        try:
            for step in (StablehloToLinalg(), FuseGraph()):
                step.run(graph)
            return NativeKernel(Captured({(): Variant(graph, [], None, 0)}, 0, {}), ())
        except Unsupported:
            pass                        # it may still run with the upstream passes around calls of the kernels
    return NativeCalls(module)


# -- reading -----------------------------------------------------------------------------------------------------------
def read_graph(source: str | bytes) -> Module:
    """The module of a text or a portable artifact; raises ``BadModule`` or ``UnsafeInput``."""
    try:
        if isinstance(source, bytes):
            module: Module = load("_mlir_libs._stablehlo").deserialize_portable_artifact(ir.Context.current, source)
        else:
            module = ir.Module.parse(source)
    except (ir.MLIRError, ValueError) as error:
        raise BadModule(what=f"it does not parse: {str(error).splitlines()[0]}") from None
    check_safe(module)
    if first_operation(module, ("nki.", "nisa.")):
        raise BadModule(what="its kernels are linked already; give the module that has the custom calls")
    return module


def array_type(kind: Type) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the arrays for a tensor type."""
    try:
        tensor = ir.RankedTensorType(kind)
        if not tensor.has_static_shape:
            raise ValueError
        element = str(tensor.element_type)
        return tuple(tensor.shape), np.dtype(np.float64) if element == "f64" else BY_MLIR[element].numpy
    except (ValueError, KeyError):
        raise BadModule(what=f"a parameter or result is a {kind}") from None


__all__ = ["LinkedProgram", "run_linked", "simulate_linked"]
