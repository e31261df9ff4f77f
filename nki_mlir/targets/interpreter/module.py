# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executes a module with NumPy: each function is compiled once to closures over slots, then run."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import KernelError, Location, Unsupported
from nki_mlir.dialects.attributes import read_linear
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.targets.interpreter.execute import compile_op

Env = list[Any]                     # one slot per SSA value
Step = Callable[[Env], None]


class FunctionCompiler:
    """One function. Every SSA value gets a slot; every operation becomes a closure that reads and writes slots."""

    def __init__(self, function: Any) -> None:
        self.slots: dict[Any, int] = {}
        block = function.regions[0].blocks[0]
        self.arguments = [self.slot(a) for a in block.arguments]
        self.body = self.block(block)

    def slot(self, value: Any) -> int:
        return self.slots.setdefault(value, len(self.slots))

    def block(self, block: Any) -> list[Step]:
        steps = []
        for op in block.operations:
            step = self.step(op.operation)
            if step is not None:
                steps.append(step)
        return steps

    def step(self, op: Any) -> Step | None:
        if is_tile_op(op):
            return self.tile_operation(op)
        handler = _STEPS.get(op.name)
        if handler is None:
            raise Unsupported(feature=f"'{op.name}' in the interpreter",
                              instead="lower to the nki, waist or nisa level").located(place_of(op))
        return handler(self, op)

    def tile_operation(self, op: Any) -> Step:
        read = read_op(op)
        run = compile_op(read)
        tiles = [self.slot(t.handle) for _, t in read.operands()]
        symbols = [self.slot(s) for s in read.symbols]
        at = place_of(op)

        def step(env: Env) -> None:
            try:
                run([env[t] for t in tiles], [env[s] for s in symbols])
            except KernelError as error:
                raise error.located(at) from None
        return step

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocation(self, op: Any) -> Step:
        shape, dtype, _ = memref_parts(op.results[0].type)
        out = self.slot(op.results[0])
        return lambda env: env.__setitem__(out, np.zeros(shape, dtype.numpy))

    def get_global(self, op: Any) -> Step:
        out, array = self.slot(op.results[0]), global_array(op)
        return lambda env: env.__setitem__(out, array)

    # -- structure -----------------------------------------------------------------------------------------------------
    def loop(self, op: Any) -> Step:
        low, high, by = (self.slot(v) for v in list(op.operands)[:3])
        block = op.regions[0].blocks[0]
        variable, body = self.slot(block.arguments[0]), self.block(block)

        def run(env: Env) -> None:
            for i in range(env[low], env[high], env[by]):
                env[variable] = i
                for step in body:
                    step(env)
        return run

    def branch(self, op: Any) -> Step:
        condition = self.slot(op.operands[0])
        then, otherwise = ([s for b in r.blocks for s in self.block(b)] for r in op.regions)

        def run(env: Env) -> None:
            for step in then if env[condition] else otherwise:
                step(env)
        return run

    def nothing(self, op: Any) -> None:
        return None

    # -- integers ------------------------------------------------------------------------------------------------------
    def constant(self, op: Any) -> Step:
        out, value = self.slot(op.results[0]), op.attributes["value"].value
        return lambda env: env.__setitem__(out, value)

    def arithmetic(self, op: Any) -> Step:
        left, right, out = self.slot(op.operands[0]), self.slot(op.operands[1]), self.slot(op.results[0])
        if op.name == "arith.cmpi":
            compute = _COMPARE[op.attributes["predicate"].value]
        else:
            compute = _ARITHMETIC[op.name]
        return lambda env: env.__setitem__(out, compute(env[left], env[right]))

    def affine_apply(self, op: Any) -> Step:
        mapping = op.attributes["map"].value
        (result,) = mapping.results
        evaluate = compile_expression(result, mapping.n_dims)
        operands, out = [self.slot(v) for v in op.operands], self.slot(op.results[0])
        return lambda env: env.__setitem__(out, evaluate([env[s] for s in operands]))


_COMPARE: dict[int, Callable] = {0: lambda a, b: a == b, 1: lambda a, b: a != b, 2: lambda a, b: a < b,
                                 3: lambda a, b: a <= b, 4: lambda a, b: a > b, 5: lambda a, b: a >= b}
_ARITHMETIC: dict[str, Callable] = {
    "arith.muli": lambda a, b: a * b, "arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b,
    "arith.andi": lambda a, b: a and b, "arith.minsi": min, "arith.maxsi": max}
_STEPS: dict[str, Callable[[FunctionCompiler, Any], Step | None]] = {
    "memref.alloc": FunctionCompiler.allocation, "memref.get_global": FunctionCompiler.get_global,
    "memref.dealloc": FunctionCompiler.nothing, "scf.for": FunctionCompiler.loop, "scf.if": FunctionCompiler.branch,
    "scf.yield": FunctionCompiler.nothing, "func.return": FunctionCompiler.nothing,
    "arith.constant": FunctionCompiler.constant, "affine.apply": FunctionCompiler.affine_apply,
    "arith.cmpi": FunctionCompiler.arithmetic, **dict.fromkeys(_ARITHMETIC, FunctionCompiler.arithmetic)}


def register_step(name: str, handler: Callable[[FunctionCompiler, Any], Step | None]) -> None:
    """How operations of another level are executed (``targets.interpreter.structured`` adds the waist's)."""
    _STEPS[name] = handler


def memref_parts(kind: Any) -> tuple[tuple[int, ...], Any, str]:
    memref = ir.MemRefType(kind)
    space = memref.memory_space.value if isinstance(memref.memory_space, ir.StringAttr) else ""
    return tuple(memref.shape), BY_MLIR[str(memref.element_type)], space


def global_array(op: Any) -> np.ndarray:
    """The values of the global that a ``memref.get_global`` names."""
    name = op.attributes["name"].value
    module = op
    while module.name != "builtin.module":
        module = module.parent.operation
    for other in module.regions[0].blocks[0].operations:
        if other.operation.name == "memref.global" and other.operation.attributes["sym_name"].value == name:
            shape, dtype, _ = memref_parts(op.results[0].type)
            return elements(other.operation.attributes["initial_value"], shape, dtype)
    raise Unsupported(feature=f"the global @{name}, which is not defined", instead="define it with memref.global")


def elements(attribute: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A dense elements attribute as an array."""
    try:
        array = np.array(attribute)
    except (TypeError, ValueError, BufferError, NotImplementedError):
        array = np.array([float(x) for x in attribute]).reshape(shape)
    if array.dtype.itemsize == dtype.itemsize and array.dtype != dtype.numpy and array.dtype.kind in "uV":
        return array.view(dtype.numpy).reshape(shape)
    return np.broadcast_to(array.astype(dtype.numpy), shape) if array.size == 1 else array.astype(dtype.numpy).reshape(shape)


def compile_expression(e: Any, dims: int) -> Callable[[Sequence[int]], int]:
    """An affine expression as a function of its operands (dims first, then symbols)."""
    match e:
        case ir.AffineModExpr():
            inner, by = compile_expression(e.lhs, dims), read_linear(e.rhs).const
            return lambda values: inner(values) % by
        case ir.AffineFloorDivExpr():
            inner, by = compile_expression(e.lhs, dims), read_linear(e.rhs).const
            return lambda values: inner(values) // by
        case ir.AffineAddExpr():
            left, right = compile_expression(e.lhs, dims), compile_expression(e.rhs, dims)
            return lambda values: left(values) + right(values)
        case ir.AffineMulExpr():
            left, right = compile_expression(e.lhs, dims), compile_expression(e.rhs, dims)
            return lambda values: left(values) * right(values)
        case ir.AffineConstantExpr():
            number = e.value
            return lambda values: number
        case ir.AffineDimExpr():
            position = e.position
            return lambda values: values[position]
        case ir.AffineSymbolExpr():
            position = e.position + dims
            return lambda values: values[position]
    raise Unsupported(feature=f"the affine expression {e}", instead="use sums, products, mod and floordiv")


def place_of(op: Any) -> Location | None:
    """(file, line, column) of an operation's location; None where it has no file."""
    location = op.location
    if not isinstance(location, ir.FileLineColLoc):
        return None
    return Location(location.filename, location.start_line, location.start_col - 1)


Program = Callable[[Sequence[int], Sequence[np.ndarray], Sequence[np.ndarray]], None]


def compile_function(kernel: KernelFunction) -> Program:
    """``run(program point, inputs, shared outputs)``; arrays are C-contiguous and have the signature's shapes."""
    code = FunctionCompiler(kernel.op)
    size = len(code.slots)
    plan = list(zip(code.arguments, kernel.arguments))

    def run(point: Sequence[int], inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        env: Env = [None] * size
        for slot, spec in plan:
            match spec.kind:
                case "program_id":
                    env[slot] = int(point[spec.place])
                case "shared":
                    env[slot] = shared[spec.place]
                case _:
                    env[slot] = inputs[spec.place]
        for step in code.body:
            step(env)
    return run


def run_grid(program: Callable[[Sequence[int]], Program], grid: Sequence[int], inputs: Sequence[np.ndarray],
             shared: Sequence[np.ndarray]) -> None:
    """Every program of the grid, one after the other."""
    if prod(grid) == 1:
        program((0,) * len(grid))((0,) * len(grid), inputs, shared)
        return
    for point in np.ndindex(*grid):
        program(point)(point, inputs, shared)
