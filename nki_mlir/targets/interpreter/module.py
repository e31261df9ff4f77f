# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executes a module with NumPy: each function is compiled once to closures over slots, then run.

This module compiles loops, branches, buffers and views; ``structured.py`` compiles nests, ``execute.py`` tile
operations. A view of a buffer is (array, offset in elements) at run time (``windows.py``).
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np

from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.conversion.arith_to_scalar import ArithToScalar, upstream_operations
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.access import HBM, SBUF, ZERO
from nki_mlir.dialects.buffer_types import global_array, memref_parts
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.mlir_ops import is_tile_op, recognize
from nki_mlir.dialects.source_locations import location_of, source_location
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.input_limits import check_iterations
from nki_mlir.passes.safety import LoopStep
from nki_mlir.targets.interpreter.scalars import scalar_function
from nki_mlir.targets.interpreter.structured import Generic
from nki_mlir.targets.interpreter.unwritten_hbm import PreparedOperation, tracked
from nki_mlir.targets.interpreter.windows import IterationWindow
from nki_mlir.targets.mesh import run_programs
from nki_mlir.targets.small_products import on_one_thread
from nki_mlir.waist import function as waist
from nki_mlir.waist.nest_reader import layout_of
from nki_mlir.waist.overlap import ByteRegion
from nki_mlir.waist.reader import Executor, read_function

HERE = Executor("in the interpreter")

Env = list[Any]                     # a slot per SSA value
Step = Callable[[Env], None]


class StepObserver(Protocol):
    """An observer of each step that the interpreter runs."""

    def allocated(self, op: Operation, memory: np.ndarray) -> None:
        """Receive the memory of a new buffer."""

    def perform(self, op: Operation, operands: Sequence[object], written: Sequence[int], run: Callable[[], None]
                ) -> None:
        """Call ``run``, which performs the operation; ``written`` are the numbers of operands that it writes."""


class Freedom(NamedTuple):
    """Choices that a device is free to make, on which no result may depend."""

    # whether parallel loops, and programs without barriers, run from the last to the first
    backwards: bool = False
    fill: int = 0                       # the byte with which new memory in SBUF and HBM is filled

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any] | type[Any], space: str) -> np.ndarray:
        """Allocate memory that nothing has written. PSUM holds zeros, so that a product that adds to it starts from 0.
        """
        memory = np.zeros(shape, dtype)
        if self.fill and space in (SBUF, HBM):
            memory.reshape(-1).view(np.uint8)[...] = 1 if memory.dtype == np.bool_ else self.fill
        return memory


USUAL = Freedom()
MEETINGS = (".core_barrier", ".sendrecv", ".rank_id")       # programs that wait for each other keep their order
FREEDOM = 0                                                 # slot of the choices that this run is free to make


class FunctionCompiler:
    """Compiles one function. Every SSA value gets a slot; every node becomes a closure that reads and writes slots.

    The result runs with any ``Freedom``, but an observer needs steps that are compiled for it.
    """

    def __init__(self, function: Operation, observer: StepObserver | None) -> None:
        self.observer = observer
        self.slots: dict[object, int] = {Freedom: FREEDOM}
        self.touched: list[int] = []            # slots that nodes used so far, in their order
        # memos: compiled tile operations, and structured operations by their structure
        self.prepared: dict[object, Any] = {}
        self.arguments = [self.slot(a) for a in function.regions[0].blocks[0].arguments]
        body = read_function(function, HERE)
        self.index_values = body.index_values
        self.body = self.block(body)

    def slot(self, value: Hashable) -> int:
        slot = self.slots.setdefault(value, len(self.slots))
        self.touched.append(slot)
        return slot

    def block(self, block: waist.FunctionBlock) -> list[Step]:
        """Return the steps of the block. Its buffers are released after their last use."""
        compiled: list[Step] = []
        last_step: dict[int, int] = {}               # slot of a buffer -> its last step so far
        for node in block.nodes:
            begin = len(self.touched)
            compiled.append(self.observed(node, self.step(node)))
            allocates = isinstance(node, waist.BufferAllocation)
            for slot in self.touched[begin:]:   # the key includes the operations inside
                if allocates or slot in last_step:
                    last_step[slot] = len(compiled)
        ends: dict[int, list[int]] = {}
        for slot, end in last_step.items():
            ends.setdefault(end, []).append(slot)
        return [s for k, step in enumerate(compiled, 1)
                for s in (step, *([release_slots(ends[k])] if k in ends else []))]

    def step(self, node: waist.FunctionNode) -> Step:
        match node:
            case waist.TileInstruction():
                return self.tile_operation(node.op)
            case waist.NestComputation():
                return self.nest(node)
            case waist.ScalarValue():
                return self.scalar(node)
            case waist.BufferAllocation():
                return self.allocation(node)
            case waist.ForLoop():
                return self.loop(node)
            case waist.IfBranch():
                return self.branch(node)
            case waist.WhileLoop():
                return self.while_loop(node)
            case waist.ElementLoad() | waist.ElementStore():
                return self.element(node)
            case waist.ConstantBuffer():
                out, array = self.slot(node.result), global_array(node.op)
                return lambda env: env.__setitem__(out, array)
            case waist.BufferReinterpretation():
                return self.reinterpretation(node)
        raise HERE.refusal(node.op)

    def observed(self, node: waist.FunctionNode, run: Step) -> Step:
        """Return the step with calls of the observer around it."""
        observer = self.observer
        observed = waist.TileInstruction | waist.NestComputation | waist.BufferAllocation
        if observer is None or not isinstance(node, observed):
            return run
        op = node.op
        if isinstance(node, waist.BufferAllocation):
            out = self.slot(node.result)

            def allocate(env: Env) -> None:
                run(env)
                observer.allocated(op, env[out])
            return allocate
        regions = dict(zip(node.read.values, node.regions)) if isinstance(node, waist.NestComputation) else {}
        operands = [self.memref(regions.get(v) or ByteRegion(v, ZERO, 0, ZERO), v) for v in op.operands]
        if isinstance(node, waist.TileInstruction):
            written = [k for k, (field, _) in enumerate(node.instruction.operands()) if field.writes]
        else:
            written = [*range(len(operands) - len(node.read.nest.outputs), len(operands))]
        return lambda env: observer.perform(op, [of(env) for of in operands], written, lambda: run(env))

    def located(self, at: Location | None, run: Step) -> Step:
        """Return the step with the source location of its operation added to errors."""
        def step(env: Env) -> None:
            try:
                run(env)
            except NkiMlirError as error:
                raise error.located(at) from None
        return step

    # -- computations --------------------------------------------------------------------------------------------------
    def tile_operation(self, op: Operation) -> Step:
        recognized, operands = recognize(op)
        work = self.prepared.get(recognized)
        if work is None:
            work = self.prepared[recognized] = PreparedOperation(recognized.with_ranges(op, operands))
        slots = tuple([self.slot(value) for value in operands])
        count = len(slots) - len(work.op.symbols)
        return TileStep(work, slots[:count], slots[count:], op.location)

    def nest(self, node: waist.NestComputation) -> Step:
        read = node.read
        generic = self.prepared.get(read.structure)
        if generic is None:
            generic = self.prepared[read.structure] = Generic(read, len(node.op.operands), node.op.name)
        operands = [self.memref(region, value) for region, value in zip(node.regions, read.values)]
        symbols = [self.slot(v) for v in read.symbols]

        def run(env: Env) -> None:
            generic.run([of(env) for of in operands], [env[s] for s in symbols])
        return self.located(location_of(node.op), run)

    def scalar(self, node: waist.ScalarValue) -> Step:
        function, out = scalar_function(node), self.slot(node.result)
        operands = [self.slot(v) for v in node.operands]
        if not operands:
            value = function()
            return lambda env: env.__setitem__(out, value)
        return lambda env: env.__setitem__(out, function(*[env[s] for s in operands]))

    # -- control -------------------------------------------------------------------------------------------------------
    def loop(self, node: waist.ForLoop) -> Step:
        low, high, by = (self.slot(v) for v in node.bounds)
        variable, body = self.slot(node.variable), self.block(node.body)
        at, parallel, is_idle = partial(location_of, node.op), node.parallel, node.body.is_idle

        def run(env: Env) -> None:
            if env[by] <= 0:
                raise LoopStep(step=env[by]).located(at())
            if is_idle:
                return
            numbers = range(env[low], env[high], env[by])
            check_iterations(numbers, "the interpreter", at)
            for i in reversed(numbers) if parallel and env[FREEDOM].backwards else numbers:
                env[variable] = i
                for step in body:
                    step(env)
        return run

    def while_loop(self, node: waist.WhileLoop) -> Step:
        test = self.block(node.test)
        assert node.test.condition is not None
        holds = self.slot(node.test.condition)
        body = self.block(node.body)

        def run(env: Env) -> None:
            while True:
                for step in test:
                    step(env)
                if not env[holds]:
                    return
                for step in body:
                    step(env)
        return run

    def branch(self, node: waist.IfBranch) -> Step:
        condition = self.slot(node.condition)
        then, otherwise = self.block(node.then), self.block(node.otherwise) if node.otherwise is not None else []

        def run(env: Env) -> None:
            for step in then if env[condition] else otherwise:
                step(env)
        return run

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocation(self, node: waist.BufferAllocation) -> Step:
        result, op = node.result, node.op
        shape, dtype, space = memref_parts(result.type)
        out = self.slot(result)
        if space == HBM and all(is_tile_op(use.owner) for use in result.uses):
            name = op.attributes["nki.name"].value if "nki.name" in op.attributes else ""
            return lambda env: env.__setitem__(out, tracked(env[FREEDOM].fresh(shape, dtype.numpy, space), name))
        return lambda env: env.__setitem__(out, env[FREEDOM].fresh(shape, dtype.numpy, space))

    def reinterpretation(self, node: waist.BufferReinterpretation) -> Step:
        source, out = self.slot(node.source), self.slot(node.result)
        shape, dtype, _ = memref_parts(node.result.type)
        if memref_parts(node.source.type)[1] is dtype:
            return lambda env: env.__setitem__(out, env[source])
        return lambda env: env.__setitem__(out, np.ndarray(shape, dtype.numpy, env[source]))

    def memref(self, region: ByteRegion, value: Value) -> Callable[[Env], Any]:
        """Return a function that reads the run-time value of an operand: a number, an array, or (array, offset in
        elements)."""
        root, offset = self.slot(region.root), region.offset
        if offset == ZERO:
            return itemgetter(root)
        size = layout_of(value.type).dtype.itemsize
        start, terms = offset.const // size, [(self.slot(self.index_values[k]), c // size) for k, c in offset.symbols]
        if not terms:
            return lambda env: (env[root], start)
        return lambda env: (env[root], start + sum([int(env[slot]) * c for slot, c in terms]))

    def element(self, node: waist.ElementLoad | waist.ElementStore) -> Step:
        loads = isinstance(node, waist.ElementLoad)
        strides = layout_of(node.memref.type).strides
        window = IterationWindow(node.memref.type, node.op.name, strides, 0, frozenset(range(len(strides))))
        memref, at = self.memref(node.region, node.memref), [self.slot(v) for v in node.subscripts]
        scalar = self.slot(node.result if isinstance(node, waist.ElementLoad) else node.value)
        sizes = window.sizes

        def run(env: Env) -> None:
            starts = [int(env[s]) for s in at]
            for dim, (i, n) in enumerate(zip(starts, sizes)):
                if not 0 <= i < n:
                    raise OutOfBounds(tensor=window.label, dim=dim, low=i, high=i, extent=n)
            element = window.view(memref(env), starts, sizes, ())
            if loads:
                env[scalar] = element[()]
            else:
                element[()] = env[scalar]
        return self.located(location_of(node.op), run)


class TileStep:
    """A step that performs a tile operation on slots. Unrolled kernels have very many steps, so a step has few
    fields."""

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


def release_slots(slots: list[int]) -> Step:
    def step(env: Env) -> None:
        for slot in slots:
            env[slot] = None
    return step


class CompiledProgram(Protocol):
    """A compiled function: runs at a point of the grid on inputs and shared outputs, C-contiguous arrays of the
    signature's shapes."""

    def __call__(self, point: Sequence[int], inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray],
                 freedom: Freedom = ...) -> None: ...


def compile_function(kernel: KernelFunction, observer: StepObserver | None = None) -> CompiledProgram:
    """Compile the function to a program, whose steps the observer sees."""
    code = (FunctionCompiler(kernel.op, observer) if not upstream_operations(kernel.op)
            else _compile_at_waist(kernel, observer))
    size = len(code.slots)
    plan = list(zip(code.arguments, kernel.arguments))

    def run(point: Sequence[int], inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray], freedom: Freedom = USUAL
            ) -> None:
        env: Env = [None] * size
        env[FREEDOM] = freedom
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


def _compile_at_waist(kernel: KernelFunction, observer: StepObserver | None) -> FunctionCompiler:
    """Compile the function from a copy of its module in which the waist has written all structured operations."""
    copy = kernel.op.parent.operation.clone()
    ArithToScalar().run(copy)
    return FunctionCompiler(next(
        op.operation for op in copy.regions[0].blocks[0].operations
        if op.operation.name == "func.func" and op.operation.attributes["sym_name"].value == kernel.name), observer)


def has_meetings(module: Module) -> bool:
    """Return whether programs of the module exchange data or wait for each other, so that they keep their order."""
    return bool(operations_of(module, lambda name: name.endswith(MEETINGS)))


def run_grid(program: Callable[[Sequence[int]], CompiledProgram], grid: Sequence[int], inputs: Sequence[np.ndarray],
             shared: Sequence[np.ndarray], freedom: Freedom = USUAL, ordered: bool = False) -> None:
    """Run every program of the grid: one after the other, or on threads if they wait for each other.

    ``ordered``: from the first to the last, even if the freedom chooses another order.
    """
    points = list(np.ndindex(*grid))
    if freedom.backwards and not ordered:
        points.reverse()
    with on_one_thread():
        run_programs(lambda number: program(points[number])(points[number], inputs, shared, freedom), len(points))
