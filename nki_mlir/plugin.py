# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interface for plugins, version 1: the names that packages that extend the toolchain may use (docs/plugins.md).

    from nki_mlir.plugin import NisaOp, Pass, Machine, instruction, load

Names keep their meaning as long as ``API_VERSION`` does; a version only gains names. Importing this module loads
nothing: each name is loaded at first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from nki_mlir.extensions import API_VERSION, BrokenPlugin, Extension

if TYPE_CHECKING:
    from nki_mlir.bindings import ir
    from nki_mlir.diagnostics import KernelError, NkiMlirError
    from nki_mlir.dialects.access import Linear
    from nki_mlir.dialects.attributes import Attributes
    from nki_mlir.dialects.kernel_function import kernel_functions
    from nki_mlir.dialects.mlir_ops import read_op, walk, write_op
    from nki_mlir.dialects.nisa.opaque import PartitionWise
    from nki_mlir.dialects.op import In, InOut, Integers, NisaOp, Out, changed
    from nki_mlir.dialects.scalar_body import Elementwise, ScalarFunctions, V
    from nki_mlir.dialects.target_rules import TargetCheck
    from nki_mlir.dialects.verifier import Check
    from nki_mlir.language.plugin_instructions import instruction
    from nki_mlir.language.specialization import executor
    from nki_mlir.machine import Engine, Machine, Work, machine_named
    from nki_mlir.passes.levels import Level
    from nki_mlir.passes.pass_manager import Pass, pass_named, run_passes

HOMES = {
    "nki_mlir.bindings": "ir",
    "nki_mlir.diagnostics": "KernelError NkiMlirError",
    "nki_mlir.dialects.access": "Linear",
    "nki_mlir.dialects.attributes": "Attributes",
    "nki_mlir.dialects.kernel_function": "kernel_functions",
    "nki_mlir.dialects.mlir_ops": "read_op walk write_op",
    "nki_mlir.dialects.nisa.opaque": "PartitionWise",
    "nki_mlir.dialects.op": "In InOut Integers NisaOp Out changed",
    "nki_mlir.dialects.scalar_body": "Elementwise ScalarFunctions V",
    "nki_mlir.dialects.target_rules": "TargetCheck",
    "nki_mlir.dialects.verifier": "Check",
    "nki_mlir.language.plugin_instructions": "instruction",
    "nki_mlir.language.specialization": "executor",
    "nki_mlir.machine": "Engine Machine Work machine_named",
    "nki_mlir.passes.levels": "Level",
    "nki_mlir.passes.pass_manager": "Pass pass_named run_passes",
}
_HOME = {name: module for module, names in HOMES.items() for name in names.split()}

__all__ = ["API_VERSION", "Attributes", "BrokenPlugin", "Check", "Elementwise", "Engine", "Extension", "In", "InOut",
           "Integers", "KernelError", "Level", "Linear", "Machine", "NisaOp", "NkiMlirError", "Out", "PartitionWise",
           "Pass", "ScalarFunctions", "TargetCheck", "V", "Work", "changed", "executor", "instruction", "ir",
           "kernel_functions", "load", "machine_named", "pass_named", "read_op", "run_passes", "walk", "write_op"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nki_mlir.plugin' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__


def load(module: str) -> list[Extension]:
    """Load a plugin that is not installed, as ``--load-plugin`` does, and return its extensions.

    Arguments:
        module: the name of the plugin's module, which has the table ``NKI_MLIR_PLUGIN``

    Errors:
        ``BrokenPlugin`` if the module cannot be imported or has no table, ``PluginVersion`` if it is for another
        version of the interface. A plugin with operations must be loaded before the first kernel is captured.
    """
    from nki_mlir import extensions  # start-up: imported on first use
    from nki_mlir.dialects import catalog
    from nki_mlir.passes.pass_manager import check_plugin_files
    extensions_added = extensions.add(module)
    for extension in extensions_added:
        if extension.group == "ops":
            catalog.add(extension)
        if extension.group == "passes":
            check_plugin_files()
    return extensions_added
