# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write the HLO of programs that call kernels into the run directory, with ``NEURON_FRAMEWORK_DEBUG=1``.

A program becomes ``MODULE_<hash>_<name>.hlo_module.pb``, an ``HloModuleProto``, and ``.pbtxt``, the same as text.
Calls of kernels have the documented form in it, with the kernel in ``backend_config``, whatever platform the
program is for.
"""

import hashlib
import os
import re
import threading
import warnings
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from nki_mlir.alone import alone
from nki_mlir.bindings import Module, ir
from nki_mlir.files import write_file
from nki_mlir.graph.custom_call import TARGETS, KernelRecord

LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"         # JAX's event at the end of a lowering


def wanted() -> bool:
    return os.environ.get("NEURON_FRAMEWORK_DEBUG", "") not in ("", "0")


def write(name: str, proto: bytes, text: str) -> Path:
    """Write a program's ``.pb`` and ``.pbtxt`` files and return the path of the text. The names depend on the text
    alone, so the same program has the same name in every run."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    stem = f"MODULE_{digest}_{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:64]}.hlo_module"
    write_file(f"{stem}.pb", proto)
    path = Path(f"{stem}.pbtxt")
    write_file(path, text)
    return path


devices_taken: list[str] = []     # devices that scripts asked torch_xla for: they look for kernels in its cache


class ProgramRecorder(Protocol):
    """An object that writes complete programs. While one exists, ``write_call`` writes no single calls."""

    def step(self) -> None: ...


recorders: list[ProgramRecorder] = []


def write_call(record: KernelRecord) -> None:
    """Write the program of a single call, unless a recorder writes complete programs. Frameworks that execute operation
    by operation run this kernel."""
    from nki_mlir.frameworks.hlo import module_of, text_of  # start-up: loads MLIR
    if wanted() and not recorders:
        write(record.name, module_of(record), text_of(record))


# -- JAX ---------------------------------------------------------------------------------------------------------------
class Lowering(threading.local):
    """The module that a thread is lowering and that calls a kernel, or None."""

    module: "Module | None" = None


_lowering = Lowering()


def write_when_lowered(module: Module) -> None:
    """Have a JAX module written once its lowering ends: until then, a lowering rule sees only what precedes its own
    call."""
    if not wanted():
        return
    _lowering.module = module
    _listen()


@alone
@cache
def _listen() -> None:
    import jax.monitoring  # an optional package
    jax.monitoring.register_event_duration_secs_listener(_on_event)


def _on_event(event: str, duration_secs: float, **details: object) -> None:
    module = _lowering.module
    if event == LOWERED and module is not None:
        _lowering.module = None
        try:
            write_module(module)
        except Exception as error:              # the lowering needs no files, so it goes on
            warnings.warn(f"NEURON_FRAMEWORK_DEBUG: the HLO is not written: {error}", stacklevel=2)


def write_module(module: Module) -> None:
    """Write a JAX module. Skip an incomplete one, whose lowering failed."""
    if module.operation.verify():
        text = module.operation.get_asm(enable_debug_info=True)
        write_stablehlo(module.operation.attributes["sym_name"].value, documented_form(text))


def write_stablehlo(name: str, text: str) -> None:
    """Convert a StableHLO text with the documented calls to HLO and write it."""
    computation = hlo_of_stablehlo(text)
    write(name, computation.as_serialized_hlo_module_proto(), computation.as_hlo_module().to_string())


def write_exported(name: str, text: str) -> None:
    """Write a program that another framework exported. Warn where ``jaxlib``, which converts StableHLO to HLO, is not
    installed."""
    if wanted():
        try:
            write_stablehlo(name, text)
        except ImportError:
            warnings.warn("NEURON_FRAMEWORK_DEBUG: the HLO is not written: jaxlib, which converts it, is not installed",
                          stacklevel=3)


@alone
def documented_form(text: str) -> str:
    """Replace the typed CPU calls of kernels in a StableHLO module by calls in the documented form."""
    from nki_mlir.graph.upstream import graph_context  # start-up: loads MLIR
    from nki_mlir.transforms.link_kernels import calls_of, config_of
    context = graph_context()
    with context, ir.Location.unknown():
        module = ir.Module.parse(text, context)
        for op in calls_of(module, *TARGETS):
            config = config_of(op)
            if "mhlo.backend_config" in op.attributes:
                del op.attributes["mhlo.backend_config"]
            op.attributes["backend_config"] = ir.StringAttr.get(config)
            op.attributes["api_version"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 2)
        return module.operation.get_asm(enable_debug_info=True)


def hlo_of_stablehlo(text: str) -> Any:
    """Convert a StableHLO text to an ``XlaComputation``; JAX offers this conversion for its own modules only."""
    from jaxlib import _jax  # an optional package
    return _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False)
