# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles vector code to machine code: the upstream passes, the ExecutionEngine, and the addresses of functions.

The generated code is vector code in its final form, so LLVM's own passes gain nothing and cost most of the time: the
engine runs at level 0, which still selects instructions and allocates registers as usual.
"""

import ctypes
import os
import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from nki_mlir.alone import ALONE
from nki_mlir.bindings import Context, Module, ir, load
from nki_mlir.diagnostics import InternalError
from nki_mlir.targets.runtime import object_cache
from nki_mlir.targets.runtime.interruption import keep_handler
from nki_mlir.targets.runtime.object_file import NotLoadable, load_object

if TYPE_CHECKING:
    from nki_mlir.passes.pass_manager import PassObserver

# Operations that LLVM lacks become calls of the C library, one for each lane; all others are lowered before.
PASSES = ("convert-scf-to-cf", "convert-to-llvm", "convert-math-to-libm", "convert-to-llvm",
          "reconcile-unrealized-casts")
ADDRESSES = "nki_addresses"
_EVERY_DIALECT = """
llvm.func @f(%c: i1, %x: f32) {
  %v = vector.broadcast %x : f32 to vector<4xf32>
  %r = math.sqrt %x : f32
  scf.if %c { %y = arith.addf %r, %x : f32 }
  llvm.return
}
"""


class Batch(NamedTuple):
    """Functions that were compiled together: the key of their code in the cache, and the address of each."""

    key: str
    addresses: tuple[int, ...]


_batches: dict[str, Batch] = {}
# Code is never unloaded: programs, frameworks and threads have its addresses.
_loaded: list[object] = []          # memory of code from the cache
_compiled: list[object] = []        # code that this process compiled: engines, where there is no object file


@cache
def code_context() -> Context:
    """Return the MLIR context that compiles code. It starts no threads, so that it also works after a fork."""
    context = ir.Context()
    context.enable_multithreading(False)
    with context:
        ir.Module.parse(_EVERY_DIALECT)         # loads the dialects
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


def lower(module: Module, observer: "PassObserver | None" = None) -> None:
    """Lower vector, scf and arith operations to the LLVM dialect, in place."""
    from nki_mlir.passes.pass_manager import PassObserver  # start-up: cached code needs no passes
    observer = observer or PassObserver()
    for name, manager in _pass_managers():
        try:
            observer.before(name, lambda: module)
            manager.run(module.operation)
            observer.after(name, lambda: module)
        except ir.MLIRError as error:
            raise InternalError(f"pass '{name}' failed on generated code: {error}") from None


def compile_functions(make: Callable[[], Module], names: Sequence[str], description: str) -> Batch:
    """Return the functions of a module in the order of ``names``. Their addresses stay valid until the process ends.

    If the cache on disk has no code of ``description``, the module is built, lowered and compiled. The description has
    everything that determines the code, except sources and host. The module's text must contain
    ``addresses_text(names)``.
    """
    key = object_cache.key_of(description.encode())
    with suppress(NotLoadable):
        return find_batch(key, len(names))
    _batches[key] = Batch(key, compile_anew(make, len(names), key))     # compiling replaces the entry
    return _batches[key]


def find_batch(key: str, count: int) -> Batch:
    """Return functions that this process or the cache has; raise ``NotLoadable`` if neither has them."""
    if key not in _batches:
        image = object_cache.find(key)
        if image is None:
            raise NotLoadable("the cache has no code")
        entry, memory = load_object(image, f"_mlir_{ADDRESSES}")
        _loaded.append(memory)
        _keep_for_good(memory)
        _batches[key] = Batch(key, _addresses(entry, count))
    return _batches[key]


def clear_memo() -> None:
    """Clear the memo of compiled code, so that later calls compile again. Code that is in use stays loaded."""
    _batches.clear()


def compile_anew(make: Callable[[], Module], count: int, key: str | None = None) -> tuple[int, ...]:
    """Compile a module and return its functions. If there is a key, add their code to the cache."""
    findings: list[str] = []

    def collect(diagnostic: object) -> bool:           # otherwise MLIR prints its errors
        findings.append(str(diagnostic))
        return True
    with ALONE, code_context() as context, ir.Location.unknown():
        module = make()
        lower(module)
        handler = context.attach_diagnostic_handler(collect)
        try:
            engine = load("execution_engine").ExecutionEngine(module, opt_level=0)
            entry = engine.raw_lookup(ADDRESSES)
        except RuntimeError as error:
            raise InternalError(f"generated code does not compile: {'; '.join([str(error), *findings])}") from None
        finally:
            handler.detach()
    if not entry:
        raise InternalError("generated code does not link")
    image = _object_of(engine)
    if image and key is not None and object_cache.folder() is not None:
        object_cache.store(key, image)
    try:
        entry, code = load_object(image, f"_mlir_{ADDRESSES}")      # the engine takes 50 times the memory of its code
    except NotLoadable:
        code = engine
    _compiled.append(code)
    _keep_for_good(code)
    return _addresses(entry, count)


def _object_of(engine: Any) -> bytes:
    """Return the engine's code as an object file, or b"" if a limit on the size of files is in the way: the system
    would end a process that exceeds it, even for a file in memory.
    """
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return b""
    try:
        with open(os.memfd_create("code"), "rb") as code, keep_handler():
            engine.dump_to_object_file(f"/proc/self/fd/{code.fileno()}")
            return code.read()
    except OSError:
        return b""


def _keep_for_good(code: object) -> None:
    """Keep code loaded until the process ends: threads of other libraries, which end after Python, free memory with
    it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))


def _addresses(entry: int, count: int) -> tuple[int, ...]:
    """Return the addresses that the function at ``entry`` writes into a table."""
    table = (ctypes.c_void_p * count)()
    pointer = ctypes.c_void_p(ctypes.addressof(table))
    # the engine's calling convention: addresses of arguments
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry)(ctypes.addressof(arguments))
    return tuple(address or 0 for address in table)


def addresses_text(names: Sequence[str]) -> str:
    """Return the text of a function that writes the addresses of others to a table: a lookup by name finds only
    functions that the engine has wrapped."""
    lines = [f"""  %f{k} = llvm.mlir.addressof @{name} : !llvm.ptr
  %p{k} = llvm.getelementptr %out[{k}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  llvm.store %f{k}, %p{k} : !llvm.ptr, !llvm.ptr""" for k, name in enumerate(names)]
    return f"llvm.func @{ADDRESSES}(%out: !llvm.ptr) {{\n" + "\n".join(lines) + "\n  llvm.return\n}\n"
