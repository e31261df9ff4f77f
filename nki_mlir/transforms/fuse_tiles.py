# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fuse-tiles: fuse an elementwise operation into the operations that use its result, to save passes over a tile.

before:  linalg.generic ins(%part) outs(%tile) { in }
         linalg.generic ins(%tile) outs(%sums) { in * in + out }
after:   linalg.generic ins(%part) outs(%sums) { in * in + out }

The pass fuses two operations if one reads each element of the other's result once, nothing else uses that result, and
nothing writes the operands in between. Two short folds over the same elements, or over fields of the same records,
become one walk with two results; products of matrices do not.

A tile of narrow floats stays if the operation before it rounds several times and the operation after it computes a
function of many instructions. If they were fused, native code would wait for each step in turn: the processor cannot
hold enough elements of such a long chain, while a tile of some rows stays in its first cache.
"""

from bisect import bisect_right
from collections.abc import Callable
from math import prod

from nki_mlir.analysis.effects import defining, local_effects, memory_of
from nki_mlir.analysis.view_starts import start_in_buffer
from nki_mlir.bindings import Block, Module, Operation, Value, ir, load, operations_of
from nki_mlir.dialects.kernel_function import KernelFunction, kernel_functions
from nki_mlir.dialects.mlir_ops import loop_span
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.waist.fusion import MOST_INPUTS, MOST_OPERATIONS, fusible, joined, read_through, work
from nki_mlir.waist.generic import GenericOperation, axes_of
from nki_mlir.waist.nest_reader import is_narrow, scalar_dtype

MOST_JOINED = 8             # limit for two folds that are joined: loops with more operations are not unrolled
# Functions of few instructions. The other functions take a dozen instructions or more, each of which waits for the
# last.
SHORT = frozenset({"abs", "ceil", "copy", "floor", "identity", "negative", "reciprocal", "relu", "rsqrt", "sign",
                   "sqrt", "square", "trunc"})


class FuseTiles(Pass, name="fuse-tiles"):
    least: int = 0      # elements that an operation computes in all programs on average, below which nothing is fused
    few: int = 64       # if there are more operations, raise the least number of elements in proportion
    roundings: int = 2  # fuse no operation with this many roundings to narrow floats into a long function; 0: fuse all

    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            kernels = kernel_functions(module)
            if self.least and not any(map(self.is_worth_it, kernels)):
                return
            share_views(module)
            for kernel in kernels:
                fuse_function(kernel, join=True, roundings=self.roundings)
            share_views(module)


    def is_worth_it(self, kernel: KernelFunction) -> bool:
        count, elements = structured_work(kernel)
        return elements >= self.least * count * max(1, count / self.few)


def fuse_function(kernel: KernelFunction, selects: Callable[[Operation], bool] = lambda op: True, join: bool = False,
                  roundings: int = 0) -> None:
    """Fuse the operations of a kernel; of structured operations only those that ``selects`` accepts.

    ``join``: join two folds to one operation with two results, which native code supports and engines do not.
    ``roundings``: keep the tile between an operation with this number of roundings and a long function; 0: fuse these,
    too.
    """
    fusion = _FunctionFusion(kernel, selects, roundings)
    fusion.fuse()
    if join:
        fusion.join_folds()


def structured_work(kernel: KernelFunction) -> tuple[int, int]:
    """Return the number of a kernel's structured operations, and the number of elements that they compute in static
    loops."""
    count = work = 0
    times: dict[Block, int] = {}                          # number of times that each block runs
    for op in operations_of(kernel.op, lambda name: name in ("scf.for", "linalg.generic")):
        if op.name == "scf.for":
            times[op.regions[0].blocks[0]] = times.get(op.block, 1) * len(loop_span(op) or (0,))
        else:
            count += 1
            work += times.get(op.block, 1) * prod(ir.MemRefType(op.operands[len(op.operands) - 1].type).shape)
    return count, prod(kernel.grid) * work


def share_views(module: Module) -> None:
    """Replace equal views by one value."""
    load("passmanager").PassManager.parse("builtin.module(cse)").run(module.operation)


class _FunctionFusion:
    """The operations of a function by number, in their order, and the operations that use and write each buffer.

    A walk lists them: other ways create classes of their dialects first, whose import takes 70 ms.
    """

    def __init__(self, kernel: KernelFunction, selects: Callable[[Operation], bool], roundings: int) -> None:
        self.selects, self.roundings = selects, roundings
        self.operations: list[Operation | None] = []
        self.users: dict[Value, set[int]] = {}
        self.writes: dict[Value | str, list[int]] = {}
        values = list(kernel.op.regions[0].blocks[0].arguments)
        self.aliases = {value for value, a in zip(values, kernel.arguments) if kernel.may_alias and a.kind == "input"}

        in_body = False                                 # whether the body of a structured operation uses it
        for op in operations_of(kernel.op, lambda name: True):
            if not in_body:
                self.add(op)
            elif op.name == "memref.load":              # a gather reads the buffer
                self.users.setdefault(memory_of(op.operands[0]), set()).add(len(self.operations) - 1)
            in_body = op.name != "linalg.yield" and (in_body or op.name.startswith("linalg."))

    def add(self, op: Operation) -> None:
        number, effects = len(self.operations), local_effects(op)
        self.operations.append(op)
        for buffer in effects.reads | effects.writes:
            self.users.setdefault(buffer, set()).add(number)
        for buffer in effects.writes:
            self.writes.setdefault(self.memory_key(buffer), []).append(number)

    def memory_key(self, buffer: Value) -> Value | str:
        """Return the key of a buffer. Inputs that may overlap count as one buffer."""
        return "inputs" if buffer in self.aliases else buffer

    def fuse(self) -> None:
        """Fuse until nothing changes: several users of a tile may have become one operation meanwhile."""
        while self.fuse_once():
            pass

    def fuse_once(self) -> bool:
        """Go through the operations once. A fused operation takes the number of its consumer, which the loop has yet to
        reach."""
        changed = False
        for number, op in enumerate(self.operations):
            if op is None:
                continue
            user_number = self.only_user(number)
            user = self.operations[user_number]
            if not user_number or user is None or user.name != "linalg.generic" or user.block != op.block or not (
                    self.selects(op) and self.selects(user)):
                continue
            producer, consumer = fusible(op), fusible(user)
            if producer is None or consumer is None or not can_fuse(producer, consumer):
                continue
            if self.roundings and roundings_of(producer) >= self.roundings and computes_long_function(consumer):
                continue
            sources = {memory_of(v) for v in producer.inputs if isinstance(v.type, ir.MemRefType)}
            target = memory_of(consumer.output)
            fusion = read_through(producer, consumer, consumer.inputs.index(producer.output))
            if len(fusion.inputs) > MOST_INPUTS or not fusion.has_extents():
                continue
            if any(self.is_written_between(buffer, number, user_number) for buffer in sources) or (
                    self.memory_key(target) in map(self.memory_key, sources)):
                continue
            for buffer in sources:
                self.users[buffer] = self.users[buffer] - {number} | {user_number}
            with ir.InsertionPoint(user), user.location:
                self.operations[number], self.operations[user_number] = None, fusion.write()
            user.erase()
            op.erase()
            changed = True
        return changed

    def join_folds(self) -> None:
        """Join folds that walk over the same memory: the joint operation replaces the later one."""
        earlier: dict[Value, int] = {}                          # the last fold that reads a buffer
        for number, op in enumerate(self.operations):
            fold = self.short_fold(op)
            if op is None or fold is None:
                continue
            sources = {memory_of(v) for v in fold.inputs if isinstance(v.type, ir.MemRefType)}
            before = max((earlier[b] for b in sources if b in earlier), default=None)
            other = self.short_fold(self.operations[before]) if before is not None else None
            if before is None or other is None or not can_join(other, fold) or not self.can_wait(
                    other, before, number, fold.output):
                earlier |= dict.fromkeys(sources, number)
                continue
            with ir.InsertionPoint(op), op.location:
                self.operations[number], self.operations[before] = joined(other, fold), None
            for replaced in (other, fold):
                for buffer in {memory_of(v) for v in (*replaced.inputs, replaced.output)
                               if isinstance(v.type, ir.MemRefType)}:
                    self.users[buffer] = self.users[buffer] - {before} | {number}
                replaced.op.erase()

    def short_fold(self, op: Operation | None) -> GenericOperation | None:
        nest = fusible(op) if op is not None and self.selects(op) else None
        return nest if nest is not None and not nest.parallel and not repeats_every_input(nest) and (
            2 * work(nest.body) <= MOST_JOINED) else None

    def can_wait(self, fold: GenericOperation, number: int, until: int, written: Value) -> bool:
        """Return whether a fold may move to ``until``: no operation before ``until`` needs its result or writes its
        operands."""
        buffers = {memory_of(v) for v in fold.inputs if isinstance(v.type, ir.MemRefType)}
        result = memory_of(fold.output)
        origin = defining(result)
        return (origin is not None and origin.name == "memref.alloc"
                and self.memory_key(memory_of(written)) not in map(self.memory_key, buffers)
                and not any(number < user <= until for user in self.users[result])
                and not any(self.is_written_between(buffer, number, until) for buffer in buffers))

    def only_user(self, number: int) -> int:
        """Return the only operation that uses the result of an operation, after it; 0 if there are none or several."""
        op = self.operations[number]
        if op is None or op.name != "linalg.generic":
            return 0
        buffer = memory_of(op.operands[len(op.operands) - 1])
        origin, users = defining(buffer), self.users[buffer]
        if origin is None or origin.name != "memref.alloc" or len(users) != 2 or min(users) != number:
            return 0
        return max(users)

    def is_written_between(self, buffer: Value, start: int, end: int) -> bool:
        """Return whether a buffer is written between two operations."""
        at = self.writes.get(self.memory_key(buffer), [])
        following = bisect_right(at, start)
        return following < len(at) and at[following] < end


def can_fuse(producer: GenericOperation, consumer: GenericOperation) -> bool:
    """Return whether the consumer reads each element of the producer's result exactly once, and may read the producer's
    operands."""
    tile = producer.output
    if not producer.parallel or not producer.writes_only or not producer.writes_each_element_once or any(
            -1 in axes_of(m) for m in producer.maps):
        return False
    if consumer.operands.count(tile) != 1 or consumer.output == tile or (
            work(producer.body) + work(consumer.body) > MOST_OPERATIONS):
        return False
    buffer, read = memory_of(tile), [v for v in producer.inputs if isinstance(v.type, ir.MemRefType)]
    other_operands = [v for v in (*consumer.inputs, consumer.output) if isinstance(v.type, ir.MemRefType) and v != tile]
    return (consumer.points == producer.points and all(memory_of(v) != buffer for v in other_operands)
            and all(memory_of(v) != memory_of(consumer.output) and _is_counted(v) for v in read))


def roundings_of(nest: GenericOperation) -> int:
    """Count the roundings of a body to floats that are narrower than float32."""
    return sum(op.name == "scalar.convert" and is_narrow(scalar_dtype(op.results[0].type)) for op in nest.body)


def computes_long_function(nest: GenericOperation) -> bool:
    """Return whether a body computes a function of many instructions."""
    return any(op.name in ("scalar.activation", "scalar.math") and op.attributes["fn"].value not in SHORT
               for op in nest.body)


def can_join(first: GenericOperation, second: GenericOperation) -> bool:
    """Return whether two folds have the same loops, are in the same block, and read elements within one step."""
    if first.op.block != second.op.block or first.extents != second.extents or first.maps[-1] != second.maps[-1] or (
            str(first.op.attributes["iterator_types"]) != str(second.op.attributes["iterator_types"])):
        return False
    return any(_lie_beside(v, w) for v, m in zip(first.inputs, first.maps) for w, n in zip(second.inputs, second.maps)
               if m == n and isinstance(v.type, ir.MemRefType) and isinstance(w.type, ir.MemRefType))


def repeats_every_input(nest: GenericOperation) -> bool:
    """Return whether a nest reads the elements of each input several times, as a product of matrices does. Native code
    computes such a nest alone in register tiles, which load an element once for several results."""
    long_axes = {axis for axis, extent in nest.extents.items() if extent > 1}
    return all(long_axes - set(axes_of(indices)) for value, indices in nest.accesses
               if isinstance(value.type, ir.MemRefType))


def _lie_beside(a: Value, b: Value) -> bool:
    start_a, start_b, kind = start_in_buffer(a), start_in_buffer(b), ir.MemRefType(a.type)
    strides = kind.get_strides_and_offset()[0]
    if (start_a.buffer, start_a.terms) != (start_b.buffer, start_b.terms) or (
            kind.element_type != b.type.element_type) or (
            list(strides) != list(ir.MemRefType(b.type).get_strides_and_offset()[0])):
        return False
    return abs(start_a.offset - start_b.offset) < max(1, min((abs(s) for s in strides if s), default=1))


def _is_counted(view: Value) -> bool:
    """Return whether a view's start is computed only from loop variables and constants.

    A start that is read from memory is checked at run time, and the check has to name the operation that reads it.
    """
    def counted(value: Value) -> bool:
        if isinstance(value.owner, ir.Block):
            return True
        op = value.owner.operation
        return op.name == "arith.constant" or (op.name == "affine.apply" and all(map(counted, op.operands)))
    return all(counted(value) for value, _ in start_in_buffer(view).terms)
