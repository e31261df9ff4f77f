# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The signature of a kernel in IR: the kinds of its function's arguments, the grid, the results.

``arg_attrs`` carry ``nki.name``, ``nki.shared = n`` (the n-th output that the kernel allocates) or ``nki.program_id
= axis``; an argument without marks is an input. ``nki.results`` lists the arguments that contain the results,
``nki.grid`` the grid. With ``nki.may_alias`` inputs may overlap in memory; without it, an input that the kernel
writes overlaps no other one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nki_mlir.bindings import Module, Operation, Type, ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.attributes import Attributes, MalformedAttribute, read_value
from nki_mlir.dialects.source_locations import errors_at, location_of
from nki_mlir.machine import DEFAULT_TARGET
from nki_mlir.scalar.dtypes import BY_MLIR, DType

MAY_ALIAS = "nki.may_alias"


class BadSignature(NkiMlirError):
    code = "NKI-SIGNATURE"
    message = "{what}"
    fix = "write the kernel as a func.func of HBM memrefs and index arguments marked nki.program_id"


@dataclass(frozen=True)
class ArgumentSpec:
    """One argument. ``kind`` is input, shared or program_id; ``index`` counts within the kind (or is the grid axis)."""

    kind: str
    index: int
    name: str
    shape: tuple[int, ...] = ()
    dtype: DType | None = None
    space: str = HBM                    # arguments of kernels are in HBM, those of outlined parts may not be


class KernelFunction(NamedTuple):
    """A kernel as its function's attributes describe it; ``op`` is the ``func.func``."""

    name: str
    op: Operation
    grid: tuple[int, ...]
    arguments: tuple[ArgumentSpec, ...]
    results: tuple[int, ...]            # argument numbers
    target: str
    may_alias: bool = False             # whether inputs may overlap

    @property
    def inputs(self) -> list[ArgumentSpec]:
        return [a for a in self.arguments if a.kind == "input"]

    @property
    def shared(self) -> list[ArgumentSpec]:
        return sorted((a for a in self.arguments if a.kind == "shared"), key=lambda a: a.index)


def write_signature(function: Operation, make: Attributes, arguments: Sequence[Mapping[str, Any]],
                    grid: Sequence[int], results: Sequence[int]) -> None:
    """Set the attributes of a function whose block is complete. ``arguments`` are the marks of each argument."""
    set_argument_types(function)
    attributes = function.attributes
    attributes["arg_attrs"] = ir.ArrayAttr.get([
        ir.DictAttr.get({name: make.value(value) for name, value in marks.items()}) for marks in arguments])
    attributes["nki.grid"], attributes["nki.results"] = make.value(tuple(grid)), make.value(tuple(results))


def set_argument_types(function: Operation) -> None:
    """Set the type of a function without results to the types of its block's arguments."""
    kinds = [argument.type for argument in function.regions[0].blocks[0].arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, []))


def kernel_functions(module: Module) -> list[KernelFunction]:
    """Return every function of the module, in order; raise ``BadSignature`` for one that is not a kernel."""
    target = target_of(module.operation)
    kernels = []
    for op in module.body.operations:
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
            with errors_at(op):
                kernels.append(_describe(op.operation, target))
    return kernels


def target_of(module: Operation) -> str:
    """Return the name of a module's target."""
    return _mark(module.attributes, "nki.target", str, "the module") or DEFAULT_TARGET


def the_kernel(module: Module, name: str | None = None) -> KernelFunction:
    """Return the only function, or the one with ``name``; raise ``BadSignature`` if there is none or several."""
    functions = kernel_functions(module)
    chosen = [f for f in functions if name in (None, f.name)]
    if len(chosen) != 1:
        names = ", ".join(f.name for f in functions)
        inner = " but modules: nki-opt reads several with --split-input-file" if any(
            op.operation.name == "builtin.module" for op in module.body.operations) else ""
        error = BadSignature(what=f"the module has {len(functions)} functions ({names}); say which one to use"
                             if functions else f"the module has no function{inner}")
        raise error.located(location_of(functions[1].op if len(chosen) > 1 else module.operation))
    return chosen[0]


def _describe(op: Operation, target: str) -> KernelFunction:
    attributes = op.attributes
    name = f"@{attributes['sym_name'].value}"
    block = op.regions[0].blocks[0]
    marks = list(attributes["arg_attrs"]) if "arg_attrs" in attributes else [{}] * len(block.arguments)
    grid = _mark(attributes, "nki.grid", tuple, name) or ()
    results = _mark(attributes, "nki.results", tuple, name) or ()
    if any(extent < 1 for extent in grid):
        raise BadSignature(what=f"nki.grid of {name} is {list(grid)}; every extent must be 1 or more")
    arguments: list[ArgumentSpec] = []
    inputs = 0
    for argument, mark in zip(block.arguments, marks):
        label = _mark(mark, "nki.name", str, name) or f"arg{argument.arg_number}"
        axis, shared = _mark(mark, "nki.program_id", int, name), _mark(mark, "nki.shared", int, name)
        if axis is not None:
            if not 0 <= axis < len(grid) or not isinstance(argument.type, ir.IndexType):
                raise BadSignature(what=f"argument {argument.arg_number} of {name} has type {argument.type} and is "
                                        f"marked nki.program_id = {axis}, with a grid of {len(grid)} axes")
            arguments.append(ArgumentSpec("program_id", axis, label))
            continue
        shape, dtype, space = _memref(argument.type, name, argument.arg_number)
        kind, number = ("input", inputs) if shared is None else ("shared", shared)
        arguments.append(ArgumentSpec(kind, number, label, shape, dtype, space))
        inputs += shared is None
    axes = [a.index for a in arguments if a.kind == "program_id"]
    if len(set(axes)) < len(axes):
        raise BadSignature(what=f"program ids of {name} are of axes {axes}, which must differ")
    numbers = sorted(a.index for a in arguments if a.kind == "shared")
    if numbers != list(range(len(numbers))):
        raise BadSignature(what=f"nki.shared of {name} counts {numbers}, which must be 0, 1, ... once each")
    if any(not 0 <= r < len(arguments) for r in results):
        raise BadSignature(what=f"nki.results of {name} names arguments {list(results)} of {len(arguments)}")
    return KernelFunction(name[1:], op, grid, tuple(arguments), results, target, MAY_ALIAS in attributes)


def _mark(attributes: ir.OpAttributeMap | ir.DictAttr, key: str, kind: type, label: str) -> Any:
    """Return the plain value of an optional attribute, None if it is absent."""
    if key not in attributes:
        return None
    try:
        return read_value(attributes[key], kind, key)
    except MalformedAttribute as error:
        raise BadSignature(what=f"{error} ({label})") from None


def _memref(kind: Type, name: str, number: int) -> tuple[tuple[int, ...], DType, str]:
    """Return shape, element type and memory of a complete buffer."""
    memref = ir.MemRefType(kind) if isinstance(kind, ir.MemRefType) else None
    if memref is None or not memref.has_static_shape or str(memref.element_type) not in BY_MLIR:
        raise BadSignature(what=f"argument {number} of {name} has type {kind}, not a memref of static shape")
    space = memref.memory_space.value if isinstance(memref.memory_space, ir.StringAttr) else HBM
    return tuple(memref.shape), BY_MLIR[str(memref.element_type)], space
