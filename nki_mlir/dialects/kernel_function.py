# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The signature of a kernel in IR: what each argument of its function is, the grid, the results.

``arg_attrs`` carry ``nki.name``, ``nki.shared = n`` (the n-th output made by the kernel) or ``nki.program_id = axis``; an
argument without marks is an input. ``nki.results`` names the arguments that hold the results, ``nki.grid`` the grid.
"""

from dataclasses import dataclass
from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.scalar.dtypes import BY_MLIR, DType


class BadSignature(NkiMlirError):
    code = "NKI-SIGNATURE"
    message = "{what}"
    fix = "a kernel is a func.func of HBM memrefs and index arguments marked nki.program_id"


@dataclass(frozen=True)
class ArgumentSpec:
    """One argument. ``kind`` is input, shared or program_id; ``place`` counts within the kind (or is the grid axis)."""

    kind: str
    place: int
    name: str
    shape: tuple[int, ...] = ()
    dtype: DType | None = None


@dataclass(frozen=True)
class KernelFunction:
    """A kernel as its function's attributes describe it; ``op`` is the ``func.func``."""

    name: str
    op: Any
    grid: tuple[int, ...]
    arguments: tuple[ArgumentSpec, ...]
    results: tuple[int, ...]            # argument numbers
    target: str

    @property
    def inputs(self) -> list[ArgumentSpec]:
        return [a for a in self.arguments if a.kind == "input"]

    @property
    def shared(self) -> list[ArgumentSpec]:
        return sorted((a for a in self.arguments if a.kind == "shared"), key=lambda a: a.place)


def kernel_functions(module: Any) -> list[KernelFunction]:
    """Every function of the module, in order; raises ``BadSignature``."""
    target = "trn2"
    if "nki.target" in module.operation.attributes:
        target = module.operation.attributes["nki.target"].value
    found = []
    for op in module.body.operations:
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
            found.append(_describe(op.operation, target))
    return found


def the_kernel(module: Any, name: str | None = None) -> KernelFunction:
    """The only function, or the one of that name."""
    functions = kernel_functions(module)
    chosen = [f for f in functions if name in (None, f.name)]
    if len(chosen) != 1:
        names = ", ".join(f.name for f in functions) or "none"
        raise BadSignature(what=f"the module has {len(functions)} functions ({names}); say which one to use")
    return chosen[0]


def _describe(op: Any, target: str) -> KernelFunction:
    attributes = op.attributes
    name = attributes["sym_name"].value
    block = op.regions[0].blocks[0]
    marks = list(attributes["arg_attrs"]) if "arg_attrs" in attributes else [{}] * len(block.arguments)
    arguments: list[ArgumentSpec] = []
    inputs = 0
    for argument, mark in zip(block.arguments, marks):
        label = mark["nki.name"].value if "nki.name" in mark else f"arg{argument.arg_number}"
        if "nki.program_id" in mark:
            arguments.append(ArgumentSpec("program_id", mark["nki.program_id"].value, label))
            continue
        shape, dtype = _memref(argument.type, name, argument.arg_number)
        if "nki.shared" in mark:
            arguments.append(ArgumentSpec("shared", mark["nki.shared"].value, label, shape, dtype))
        else:
            arguments.append(ArgumentSpec("input", inputs, label, shape, dtype))
            inputs += 1
    grid = tuple(g.value for g in attributes["nki.grid"]) if "nki.grid" in attributes else ()
    results = tuple(r.value for r in attributes["nki.results"]) if "nki.results" in attributes else ()
    if any(not 0 <= r < len(arguments) for r in results):
        raise BadSignature(what=f"nki.results of @{name} names arguments {list(results)} of {len(arguments)}")
    return KernelFunction(name, op, grid, tuple(arguments), results, target)


def _memref(kind: Any, name: str, number: int) -> tuple[tuple[int, ...], DType]:
    try:
        memref = ir.MemRefType(kind)
        if not memref.has_static_shape:
            raise ValueError
        return tuple(memref.shape), BY_MLIR[str(memref.element_type)]
    except (ValueError, KeyError):
        raise BadSignature(what=f"argument {number} of @{name} is a {kind}, not a memref of static shape") from None
