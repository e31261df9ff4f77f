# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executes a module with NumPy: each function is compiled once to closures over slots, then run.

Loops, branches and buffers are compiled here; other operations where they register. A view of a buffer (a memref with a
strided layout) is (array, offset in elements) at run time. The array is the whole buffer; sizes and strides are static
and come from the type. Nothing is formed before the elements are accessed, because a view may name elements outside of
its buffer that a mask takes out.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nki_mlir.bindings import Block, Operation, Type, Value, ir
from nki_mlir.conversion.arith_to_scalar import ArithToScalar, upstream_operations
from nki_mlir.diagnostics import InternalError, Location, NkiMlirError, Unsupported
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.buffer_types import element_dtype, global_array, memref_parts
from nki_mlir.dialects.creation import terminator
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op, recognize
from nki_mlir.dialects.source_locations import location_of, source_location
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.dialects.view import start_of
from nki_mlir.passes.safety import LoopStep
from nki_mlir.targets.interpreter.unwritten import PreparedOperation, tracked
from nki_mlir.targets.mesh import run_programs
from nki_mlir.targets.small_products import on_one_thread
from nki_mlir.waist.reader import Reader, layout_of

ALLOCATIONS = ("memref.alloc", "memref.alloca")

Env = list[Any]                     # one slot per SSA value
Step = Callable[[Env], None]
Compile = Callable[["FunctionCompiler", "Operation"], Step | None]

_STEPS: dict[str, Compile] = {}


def executes(*names: str) -> Callable[[Compile], Compile]:
    """Decorator of a function that compiles operations of these names; None: there is nothing to do for it.

    Modules of this folder register with it; all of them are imported before the first function is compiled, so that
    no list is kept.
    """
    def register(compile_step: Compile) -> Compile:
        for name in names:
            if name in _STEPS:
                both = " and ".join(f"{f.__module__}.{f.__qualname__}" for f in (_STEPS[name], compile_step))
                raise InternalError(f"'{name}' is compiled by {both}")
            _STEPS[name] = compile_step
        return compile_step
    return register


@cache
def steps() -> dict[str, Compile]:
    """All of them."""
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.stem != "__init__":
            importlib.import_module(f"{__package__}.{file.stem}")
    return _STEPS


class FunctionCompiler:
    """One function. Every SSA value gets a slot; every operation becomes a closure that reads and writes slots."""

    def __init__(self, function: Operation) -> None:
        self.slots: dict[object, int] = {}
        self.touched: list[int] = []            # slots that operations used so far, in their order
        self.steps = steps()
        self.known: dict[object, Any] = {}      # work of tile operations, and runners of structures
        self.reader = Reader()
        block = function.regions[0].blocks[0]
        self.arguments = [self.slot(a) for a in block.arguments]
        self.body = self.block(block)

    def slot(self, value: Value) -> int:
        slot = self.slots.setdefault(value, len(self.slots))
        self.touched.append(slot)
        return slot

    def block(self, block: Block) -> list[Step]:
        """The block's steps. A buffer that is made in it is let go of behind the last of them that uses it."""
        compiled: list[Step] = []
        last: dict[int, int] = {}               # slot of a buffer -> its last step so far
        for operation in block.operations:
            op, begin = operation.operation, len(self.touched)
            step = self.step(op)
            if step is not None:
                compiled.append(step)
            made = op.name in ALLOCATIONS
            for slot in self.touched[begin:]:   # also by what is inside of it
                if made or slot in last:
                    last[slot] = len(compiled)
        ends: dict[int, list[int]] = {}
        for slot, end in last.items():
            ends.setdefault(end, []).append(slot)
        return [s for k, step in enumerate(compiled, 1) for s in (step, *([forget(ends[k])] if k in ends else []))]

    def step(self, op: ir.Operation) -> Step | None:
        if is_tile_op(op):
            return self.tile_operation(op)
        compile_step = self.steps.get(op.name)
        if compile_step is None:
            raise Unsupported(feature=f"'{op.name}' in the interpreter",
                              instead="lower to the nki, waist or nisa level").located(location_of(op))
        return compile_step(self, op)

    def located(self, at: Location | None, run: Step) -> Step:
        """The step, whose errors name the place of its operation."""
        def step(env: Env) -> None:
            try:
                run(env)
            except NkiMlirError as error:
                raise error.located(at) from None
        return step

    def tile_operation(self, op: Operation) -> Step:
        known, operands = recognize(op)
        work = self.known.get(known)
        if work is None:
            work = self.known[known] = PreparedOperation(read_op(op))
        slots = tuple([self.slot(value) for value in operands])
        count = len(slots) - len(work.op.symbols)
        return TileStep(work, slots[:count], slots[count:], op.location)


class TileStep:
    """Performs a tile operation on slots. An object of few parts: unrolled kernels have a great many."""

    __slots__ = ("at", "symbols", "tiles", "work")

    def __init__(self, work: PreparedOperation, tiles: tuple[int, ...], symbols: tuple[int, ...], at: ir.Location
                 ) -> None:
        self.work, self.tiles, self.symbols, self.at = work, tiles, symbols, at

    def __call__(self, env: Env) -> None:
        of, work = env.__getitem__, self.work
        try:
            work.perform(work.op, list(map(of, self.tiles)), list(map(of, self.symbols)), self.where)
        except NkiMlirError as error:
            raise error.located(self.where()) from None

    def where(self) -> Location | None:
        return source_location(self.at)


def forget(slots: list[int]) -> Step:
    def step(env: Env) -> None:
        for slot in slots:
            env[slot] = None
    return step


Program = Callable[[Sequence[int], Sequence[np.ndarray], Sequence[np.ndarray]], None]


def compile_function(kernel: KernelFunction) -> Program:
    """``run(program point, inputs, shared outputs)``; arrays are C-contiguous and have the signature's shapes."""
    code = FunctionCompiler(kernel.op) if not upstream_operations(kernel.op) else _compile_at_waist(kernel)
    size = len(code.slots)
    plan = list(zip(code.arguments, kernel.arguments))

    def run(point: Sequence[int], inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        env: Env = [None] * size
        for slot, spec in plan:
            match spec.kind:
                case "program_id":
                    env[slot] = int(point[spec.index])
                case "shared":
                    env[slot] = shared[spec.index]
                case _:
                    env[slot] = inputs[spec.index]
        for step in code.body:
            step(env)
    return run


def _compile_at_waist(kernel: KernelFunction) -> FunctionCompiler:
    """The function as it is in a copy of its module whose structured operations are all of the waist."""
    copy = kernel.op.parent.operation.clone()
    ArithToScalar().run(copy)
    return FunctionCompiler(next(
        op.operation for op in copy.regions[0].blocks[0].operations
        if op.operation.name == "func.func" and op.operation.attributes["sym_name"].value == kernel.name))


def run_grid(program: Callable[[Sequence[int]], Program], grid: Sequence[int], inputs: Sequence[np.ndarray],
             shared: Sequence[np.ndarray]) -> None:
    """Every program of the grid, one after the other unless they meet."""
    points = list(np.ndindex(*grid))
    with on_one_thread():
        run_programs(lambda number: program(points[number])(points[number], inputs, shared), len(points))


# -- loops and branches, and the buffers of a function -----------------------------------------------------------------
@executes("scf.for")
def _loop(code: FunctionCompiler, op: Operation) -> Step:
    if len(op.results):
        raise Unsupported(feature="'scf.for' with loop-carried values", instead="keep them in a buffer")
    low, high, by = (code.slot(v) for v in list(op.operands)[:3])
    block = op.regions[0].blocks[0]
    variable, body = code.slot(block.arguments[0]), code.block(block)

    def run(env: Env) -> None:
        if env[by] <= 0:
            raise LoopStep(step=env[by]).located(location_of(op))
        for i in range(env[low], env[high], env[by]):
            env[variable] = i
            for step in body:
                step(env)
    return run


@executes("scf.while")
def _while(code: FunctionCompiler, op: Operation) -> Step:
    if len(op.results) or len(op.operands):
        raise Unsupported(feature="'scf.while' with loop-carried values", instead="keep them in a buffer")
    before, after = (r.blocks[0] for r in op.regions)
    test = code.block(before)
    holds = code.slot(terminator(before).operands[0])
    body = code.block(after)

    def run(env: Env) -> None:
        while True:
            for step in test:
                step(env)
            if not env[holds]:
                return
            for step in body:
                step(env)
    return run


@executes("scf.if")
def _branch(code: FunctionCompiler, op: Operation) -> Step:
    condition = code.slot(op.operands[0])
    then, otherwise = ([s for b in r.blocks for s in code.block(b)] for r in op.regions)

    def run(env: Env) -> None:
        for step in then if env[condition] else otherwise:
            step(env)
    return run


@executes("scf.yield", "scf.condition", "func.return", "memref.dealloc")
def _nothing(code: FunctionCompiler, op: Operation) -> None:
    return None


@executes("memref.alloc", "memref.alloca")
def _allocation(code: FunctionCompiler, op: Operation) -> Step:
    result = op.result
    shape, dtype, space = memref_parts(result.type)
    out = code.slot(result)
    if space == HBM and all(is_tile_op(use.owner) for use in result.uses):
        name = op.attributes["nki.name"].value if "nki.name" in op.attributes else ""
        return lambda env: env.__setitem__(out, tracked(np.zeros(shape, dtype.numpy), name))
    return lambda env: env.__setitem__(out, np.zeros(shape, dtype.numpy))


@executes("memref.get_global")
def _get_global(code: FunctionCompiler, op: Operation) -> Step:
    out, array = code.slot(op.results[0]), global_array(op)
    return lambda env: env.__setitem__(out, array)


# -- views of buffers --------------------------------------------------------------------------------------------------
def buffer_of(value: object) -> tuple[np.ndarray, int]:
    """The array and the offset behind a memref's run-time value."""
    return value if type(value) is tuple else (value, 0)


class IterationWindow:
    """How an iteration space reads or writes a memref: an offset and a stride per iteration axis, in elements.

    ``axes`` are those that its subscripts use.
    """

    def __init__(self, kind: Type, label: str, steps: Sequence[int], start: int, axes: frozenset[int]) -> None:
        layout = layout_of(kind)
        self.sizes, self.dtype = layout.sizes, layout.dtype.numpy
        self.label, self.steps, self.start, self.axes = label, steps, start, axes

    def view(self, memref: object, starts: Sequence[int], counts: Sequence[int], axes: Sequence[int]) -> np.ndarray:
        """The elements of a box of the iteration space along ``axes``; a negative axis is a dim of extent 1."""
        array, offset = buffer_of(memref)
        offset += self.start
        for s, step in zip(starts, self.steps):
            offset += s * step
        shape = tuple([counts[a] if a >= 0 else 1 for a in axes])
        steps = [self.steps[a] if a >= 0 else 0 for a in axes]
        low = high = offset
        for n, step in zip(shape, steps):
            if step > 0:
                high += (n - 1) * step
            else:
                low += (n - 1) * step
        self.check(array, low, high)
        size = self.dtype.itemsize
        return np.ndarray(shape, self.dtype, array, offset * size, [step * size for step in steps])

    def elements(self, memref: object, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The whole buffer in one dimension, and the places of the given positions ``[rank, n]`` in it."""
        array, offset = buffer_of(memref)
        places = offset + self.start + np.dot(self.steps, positions)
        if places.size:
            self.check(array, int(places.min()), int(places.max()))
        return np.ndarray(array.nbytes // self.dtype.itemsize, self.dtype, array), places

    def check(self, array: np.ndarray, low: int, high: int) -> None:
        extent = array.nbytes // self.dtype.itemsize
        if low < 0 or high >= extent:
            raise OutOfBounds(tensor=self.label, dim="0 (flat)", low=low, high=high, extent=extent)


def full_window(kind: Type, label: str) -> IterationWindow:
    """A memref as the iteration space of its own dims."""
    strides = layout_of(kind).strides
    return IterationWindow(kind, label, strides, 0, frozenset(range(len(strides))))


# -- operations on views -----------------------------------------------------------------------------------------------
@executes("memref.reinterpret_cast", "memref.subview", "nki.view")
def _view(code: FunctionCompiler, op: Operation) -> Step:
    source, out = code.slot(op.operands[0]), code.slot(op.results[0])
    layout_of(op.results[0].type)
    start, terms = start_of(op)
    given = [(code.slot(value), c) for value, c in terms]
    is_part = op.name == "memref.subview"           # others count from the start of the buffer

    def run(env: Env) -> None:
        array, offset = buffer_of(env[source])
        env[out] = array, (offset if is_part else 0) + start + sum([int(env[slot]) * c for slot, c in given])
    return run


@executes("memref.cast", "memref.transpose", "memref.expand_shape", "memref.collapse_shape", "memref.memory_space_cast")
def _same_start(code: FunctionCompiler, op: Operation) -> Step:
    source, out = code.slot(op.operands[0]), code.slot(op.results[0])
    layout_of(op.results[0].type)
    return lambda env: env.__setitem__(out, env[source])


@executes("nki.reinterpret")
def _reinterpret(code: FunctionCompiler, op: Operation) -> Step:
    source, out = code.slot(op.operands[0]), code.slot(op.results[0])
    shape, dtype, _ = memref_parts(op.results[0].type)
    return lambda env: env.__setitem__(out, np.ndarray(shape, dtype.numpy, env[source]))


@executes("memref.load", "memref.store")
def _element(code: FunctionCompiler, op: Operation) -> Step:
    loads = op.name == "memref.load"
    memref, *subscripts = list(op.operands)[0 if loads else 1:]
    window, place = full_window(memref.type, op.name), code.slot(memref)
    at, scalar = [code.slot(v) for v in subscripts], code.slot(op.results[0] if loads else op.operands[0])
    sizes = window.sizes

    def run(env: Env) -> None:
        starts = [int(env[s]) for s in at]
        for dim, (i, n) in enumerate(zip(starts, sizes)):
            if not 0 <= i < n:
                raise OutOfBounds(tensor=window.label, dim=dim, low=i, high=i, extent=n)
        element = window.view(env[place], starts, sizes, ())
        if loads:
            env[scalar] = element[()]
        else:
            element[()] = env[scalar]
    return code.located(location_of(op), run)


@executes("linalg.fill", "linalg.copy", "memref.copy")
def _copy(code: FunctionCompiler, op: Operation) -> Step:
    source, target = op.operands[0], op.operands[1]
    out, to, frm = full_window(target.type, op.name), code.slot(target), code.slot(source)
    rank = len(out.sizes)
    zeros, axes = (0,) * rank, range(rank)
    if op.name == "linalg.fill":
        if element_dtype(source.type) is not element_dtype(ir.MemRefType(target.type).element_type):
            raise Unsupported(feature=f"'linalg.fill' of {target.type} with a {source.type}",
                              instead="convert it first")

        def fill(env: Env) -> None:
            out.view(env[to], zeros, out.sizes, axes)[...] = env[frm]
        return code.located(location_of(op), fill)
    into = full_window(source.type, op.name)
    if into.dtype != out.dtype:
        raise Unsupported(feature=f"'{op.name}' between {source.type} and {target.type}",
                          instead="convert the elements")

    def copy(env: Env) -> None:
        out.view(env[to], zeros, out.sizes, axes)[...] = into.view(env[frm], zeros, out.sizes, axes)
    return code.located(location_of(op), copy)
