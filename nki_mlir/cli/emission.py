# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The last step of ``nki-opt``: a module as assembly, binary, or code of the CPU."""


from nki_mlir.bindings import Module
from nki_mlir.passes.pass_manager import PassObserver, pass_named, run_passes
from nki_mlir.passes.pipelines import GRAPH_ON_CPU, is_graph, passes_to


def lower_to_isa(module: Module, form: str, observer: PassObserver) -> str | bytes:
    """Streams as assembly text, isa module or binary container. A module at the isa level is written as it is."""
    from nki_mlir.targets import neuron  # start-up: needed where it is asked for
    if any(op.operation.name == "isa.program" for op in module.body.operations):
        return neuron.write([neuron.program_of_module(module)], form)
    run_passes(module, passes_to("nisa", module), observer)
    return neuron.emit(module, form, observer)


def lower_to_cpu(level: str, module: Module, observer: PassObserver) -> str:
    """The program that the JIT makes of a module, with its routines at the level ``vector`` or ``llvm``."""
    from nki_mlir.targets import cpu  # start-up: needed where it is asked for
    if is_graph(module):
        run_passes(module, [pass_named(name) for name in GRAPH_ON_CPU], observer)
    return cpu.lower_to(level, module, observer)
