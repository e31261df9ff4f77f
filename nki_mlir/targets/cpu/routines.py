# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nests as compiled functions. One that any kernel of this process has used is not compiled again.

A routine is ``i64 routine(i64* arguments)``: the addresses of the nest's inputs and outputs, then its symbols. It
returns 0.
"""

import hashlib
from collections.abc import Iterable, Sequence

from nki_mlir.alone import ALONE
from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.dialects.access import Mask
from nki_mlir.passes.pass_manager import PassObserver
from nki_mlir.targets.cpu.contraction import Contraction, PanelProduct, product_of
from nki_mlir.targets.cpu.jit import addresses_text, code_context, compile_functions, lower
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.cpu.limits import Limits
from nki_mlir.targets.cpu.loops import Loops
from nki_mlir.targets.cpu.row_copies import RowCopies
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.targets.cpu.streaming import AddressedNest
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.recognition import integer_sums

Routine = Nest | AddressedNest | PanelProduct | Limits | RowCopies

_SHELL = """llvm.func internal @{name}(%arguments: !llvm.ptr) -> i64 {{
  %fine = llvm.mlir.constant(0 : i64) : i64
  llvm.return %fine : i64
}}
"""
_addresses: dict[Routine, int] = {}


def name_of(routine: Routine) -> str:
    """A symbol that says what it does and is different for different routines."""
    digest = hashlib.sha256(repr(routine).encode()).hexdigest()[:10]
    return f"{routine.title}_{digest}"


def addresses(routines: Iterable[Routine]) -> dict[Routine, int]:
    """Where the routines' code is. Those that are new are compiled together."""
    wanted = list(dict.fromkeys(routines))
    with ALONE:
        new = [r for r in wanted if r not in _addresses]
        if new:
            names = [name_of(r) for r in new]
            found = compile_functions(lambda: vector_code(new, addresses_text(names)), names, repr(new))
            _addresses.update((r, found[name]) for r, name in zip(new, names))
        return {r: _addresses[r] for r in wanted}


def forget() -> None:
    """Compile again what is needed from now on, for measurements. Code that is in use stays."""
    with ALONE:
        _addresses.clear()


def vector_code(routines: Sequence[Routine], more: str = "") -> Module:
    """A module with a function for each routine, in vector, scf and arith operations on LLVM pointers, and ``more``."""
    with ALONE, code_context(), ir.Location.unknown():
        module = ir.Module.parse("".join(_SHELL.format(name=name_of(r)) for r in routines) + more)
        for function, routine in zip(operations_of(module, lambda name: name == "llvm.func"), routines):
            _emit(function, routine)
        return module


def llvm_code(routines: Sequence[Routine], observer: PassObserver | None = None) -> Module:
    """The same in the LLVM dialect, which is what the engine compiles."""
    module = vector_code(routines)
    with ALONE, code_context(), ir.Location.unknown():
        lower(module, observer)
    return module


def _emit(function: Operation, routine: Routine) -> None:
    block = function.regions[0].blocks[0]
    code = FunctionEmitter()
    code.entry = ir.InsertionPoint.at_block_begin(block)
    leave, = operations_of(function, lambda name: name == "llvm.return")
    with ir.InsertionPoint(leave):
        words = block.arguments[0]
        if isinstance(routine, Limits):
            symbols = [code.word(words, k, code.i64_type) for k in range(routine.symbols + 1)]
            leave.operands[0] = routine.emit(code, symbols)
            return
        if isinstance(routine, AddressedNest | PanelProduct):
            routine.emit(code, words)
            return
        if isinstance(routine, RowCopies):
            leave.operands[0] = routine.emit(code, words)
            return
        count = len(routine.operands)
        pointers = [code.word(words, k, code.pointer) for k in range(count)]
        symbols = [code.word(words, count + k, code.i64_type) for k in range(routine.symbols)]
        _loops(code, routine, symbols).emit(pointers)


def _loops(code: FunctionEmitter, nest: Nest, symbols: list[Value]) -> Contraction | Loops:
    product = product_of(nest)
    if product is not None and not integer_sums(nest):
        return Contraction(code, nest, product)
    return Loops(code, nest, schedule(nest), symbols)


__all__ = ["Mask", "Routine", "addresses", "llvm_code", "name_of", "vector_code"]
