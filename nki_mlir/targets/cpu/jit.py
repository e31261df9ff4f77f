# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vector code to machine code: the upstream passes, the ExecutionEngine, and the addresses of functions.

The generated code is vector code in its final form, so LLVM's own passes gain nothing and cost most of the time: the
engine runs at level 0, which still selects instructions and allocates registers as usual.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from nki_mlir.bindings import ir, load
from nki_mlir.diagnostics import InternalError

PASSES = ("convert-scf-to-cf", "convert-to-llvm", "reconcile-unrealized-casts")
ADDRESSES = "nki_addresses"

_engines: list[Any] = []            # code is never unloaded: addresses of it are in programs, in frameworks, in threads


@cache
def code_context() -> Any:
    """The context in which code is made. Without threads of its own, so that it also works after a fork."""
    context = ir.Context()
    context.enable_multithreading(False)
    with context:
        for name in ("llvm", "scf", "arith", "math", "vector"):
            context.dialects[name]
    return context


@cache
def _pass_managers() -> list[tuple[str, Any]]:
    managers = []
    with code_context():
        for name in PASSES:
            manager = load("passmanager").PassManager.parse(f"builtin.module({name})")
            manager.enable_verifier(False)
            managers.append((name, manager))
    return managers


def lower(module: Any) -> None:
    """Vector, scf and arith operations to the LLVM dialect, in place."""
    for name, manager in _pass_managers():
        try:
            manager.run(module.operation)
        except ir.MLIRError as error:
            raise InternalError(f"pass '{name}' failed on generated code: {error}") from None


def compile_functions(module: Any, names: Sequence[str]) -> dict[str, int]:
    """The addresses of functions of a module, which is lowered and compiled; they stay valid for good."""
    with code_context(), ir.Location.unknown():
        _append_addresses(module, names)
        lower(module)
        try:
            engine = load("execution_engine").ExecutionEngine(module, opt_level=0)
            entry = engine.raw_lookup(ADDRESSES)
        except RuntimeError as error:
            raise InternalError(f"generated code does not compile: {error}") from None
    if not entry:
        raise InternalError("generated code does not link")
    _engines.append(engine)
    table = (ctypes.c_void_p * max(1, len(names)))()
    place = ctypes.c_void_p(ctypes.addressof(table))
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(place))      # the engine's calling convention: addresses of arguments
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry)(ctypes.addressof(arguments))
    return {name: address or 0 for name, address in zip(names, table)}


def _append_addresses(module: Any, names: Sequence[str]) -> None:
    """A function that writes the addresses of others: lookup finds only what the engine has wrapped."""
    lines = [f"""  %f{k} = llvm.mlir.addressof @{name} : !llvm.ptr
  %p{k} = llvm.getelementptr %out[{k}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  llvm.store %f{k}, %p{k} : !llvm.ptr, !llvm.ptr""" for k, name in enumerate(names)]
    declared = "".join(f"llvm.func @{name}()\n" for name in names)      # only so that the text is valid by itself
    text = f"{declared}llvm.func @{ADDRESSES}(%out: !llvm.ptr) {{\n" + "\n".join(lines) + "\n  llvm.return\n}"
    parsed = ir.Module.parse(text)          # held until its operation has moved
    module.body.append(list(parsed.body.operations)[-1])
