# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel function as records, which passes of the CPU rewrite; ``native_nodes.py`` has the nodes of its blocks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np

from nki_mlir.analysis.effects import effects_of
from nki_mlir.bindings import Attribute, Type, Value
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects import native
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.targets.cpu.image import Site
from nki_mlir.targets.cpu.native_nodes import (
    CONSTANTS,
    FIRST_ID,
    MEMORY,
    Allocate,
    Argument,
    Compute,
    NativeBlock,
    NativeLoop,
    NestCall,
    Node,
    RoutineCall,
    ScratchBuffer,
    Spread,
    TileCall,
    blocks,
    calls_in,
    slot_address,
    slot_value,
    sub_blocks,
)
from nki_mlir.targets.cpu.routines import Routine
from nki_mlir.waist.nest import Nest

MOST_ARGUMENTS = 64                                 # most arguments that the machine's `run` has room for
UNKNOWN = (-(1 << 62), 1 << 62)
ALIASES = "inputs"                  # the root of all inputs of a kernel that may overlap


class Ranges(dict[int, tuple[int, int]]):
    """The least and greatest value of each slot; unbounded where nothing is known."""

    def __missing__(self, slot: int) -> tuple[int, int]:
        return UNKNOWN


class NativeFunction:
    """A function while passes rewrite it: new nodes are appended to ``block``.

    All functions of the kernel share ``constants`` and the failure ``sites`` of checks.
    """

    def __init__(self, kernel: KernelFunction, axes: int, constants: list[np.ndarray], sites: list[Site]) -> None:
        self.kernel, self.axes, self.constants, self.sites = kernel, axes, constants, sites
        self.tables: dict[int, Nest] = {}                       # functions of constants that are tables, by number
        self.globals: dict[int, tuple[Attribute, Type]] = {}    # names and types of constants of the module, by number
        self.inputs = {ALIASES} if kernel.may_alias else {spec.name for spec in kernel.inputs}
        self.slots = FIRST_ID + axes + len(kernel.inputs) + len(kernel.shared)
        self.buffers: list[ScratchBuffer] = []
        self.ranges: dict[int, tuple[int, int]] = Ranges()
        marks = kernel.op.attributes
        # whether passes of the CPU had rewritten it before it was read
        self.is_written = native.FUNCTION in marks
        self.notes: list[str] = [note.value for note in marks[native.NOTES]] if native.NOTES in marks else []
        self.has_variants = False               # whether other programs of the grid have other functions
        self.merged = 1                         # programs along the grid's last axis that the function runs as one
        self.body = self.block = NativeBlock()

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def loop_slot(self) -> int:
        """Return a new slot for the variable of a loop. The slot in front of it has the memory of an iteration on the
        pool."""
        self.slot()
        return self.slot()

    def add(self, node: Node) -> None:
        if isinstance(node, RoutineCall) and len(node.arguments) > MOST_ARGUMENTS:
            raise Unsupported(feature=f"an operation with {len(node.arguments)} operands on the CPU",
                              instead="split it")
        self.block.nodes.append(node)

    def emit(self, function: Routine | str, *arguments: Argument) -> None:
        self.add(RoutineCall(function, arguments))

    @contextmanager
    def inside(self, block: NativeBlock) -> Iterator[None]:
        """Append nodes to another block."""
        outer, self.block = self.block, block
        yield
        self.block = outer

    def replace_computations(self, replacement: "Callable[[Compute, int], Compute]") -> None:
        """Replace each computation by ``replacement(computation, slot)``, where the slot points to the memory of its
        block's buffers. Nodes that a replacement appends to the function come before it."""
        self._replace_in(self.body, MEMORY, replacement)

    def _replace_in(self, block: NativeBlock, memory: int,
                    replacement: "Callable[[Compute, int], Compute]") -> None:
        nodes, block.nodes = block.nodes, []
        with self.inside(block):
            for node in nodes:
                inside = node.memory if isinstance(node, NativeLoop) and node.on_pool else memory
                for inner in sub_blocks(node):
                    self._replace_in(inner, inside, replacement)
                self.add(replacement(node, memory) if isinstance(node, Compute) else node)

    def computed(self, function: str, *operands: Linear) -> Linear:
        """Compute a value into a new slot, and return it."""
        slot = self.slot()
        self.emit(function, slot_address(slot), *operands)
        return slot_value(slot)

    def add_loop(self, count: int, on_pool: bool = False) -> NativeLoop:
        """Append a loop over the numbers below ``count``."""
        loop = NativeLoop(self.loop_slot(), Linear(), Linear(count), Linear(1), range(count), on_pool=on_pool)
        self.ranges[loop.slot] = 0, count - 1
        self.add(loop)
        return loop

    @contextmanager
    def repeated(self, count: int) -> Iterator[Linear]:
        """Append a loop unless ``count`` is 1, append nodes to its body, and yield its variable's value."""
        if count == 1:
            yield Linear()
            return
        loop = self.add_loop(count)
        with self.inside(loop.body):
            yield slot_value(loop.slot)

    def allocate(self, size: int, memory: int = MEMORY) -> ScratchBuffer:
        """Append the allocation of a buffer, and return the buffer."""
        buffer = ScratchBuffer(size, len(self.buffers), memory)
        self.buffers.append(buffer)
        self.add(Allocate(buffer))
        return buffer

    def constant(self, array: np.ndarray) -> Linear:
        """Add an array to the constants of the kernel, once, and return its address."""
        number = next((k for k, other in enumerate(self.constants) if other is array), len(self.constants))
        self.constants[number:] = self.constants[number:] or [array]
        return slot_value(CONSTANTS - number)

    @property
    def names(self) -> dict[int, str]:
        """Return the names of slots in printed programs."""
        arguments = [a.name for a in (*self.kernel.inputs, *self.kernel.shared)]
        return {MEMORY: "memory", **{FIRST_ID + k: f"id{k}" for k in range(self.axes)},
                **{FIRST_ID + self.axes + k: name for k, name in enumerate(arguments)}}

    # -- facts about all operations ------------------------------------------------------------------------------------
    @cached_property
    def only_written(self) -> set[str]:
        """Return the kernel's outputs that none of its operations reads."""
        return self._arguments("shared", effects_of(self.kernel.op).reads)

    @cached_property
    def only_read(self) -> set[str]:
        """Return the kernel's inputs that none of its operations writes; none of them if inputs may overlap a written
        one."""
        return set() if self.kernel.may_alias else self._arguments("input", effects_of(self.kernel.op).writes)

    def _arguments(self, kind: str, besides: set[Value]) -> set[str]:
        arguments = zip(self.kernel.op.regions[0].blocks[0].arguments, self.kernel.arguments)
        return {spec.name for value, spec in arguments if spec.kind == kind and value not in besides}

    @property
    def targets(self) -> set[object]:
        """Return the roots of all memory that the function writes."""
        roots = set[object]()
        for call in calls_in(*self.body.nodes):
            if isinstance(call, Compute | Spread):
                roots |= {region.root for region in call.regions[len(call.nest.inputs):]}
            elif isinstance(call, TileCall):
                roots |= {r.root for (field, _), r in zip(call.op.operands(), call.regions) if field.writes}
        return roots

    def written_by(self, node: Node) -> set[object]:
        """Return the roots of the memory that a node may write."""
        roots = set[object]()
        for call in calls_in(node):
            roots |= {region.root for region in call.regions[len(call.nest.inputs):]} if isinstance(
                call, NestCall) else {self.buffers[number] for number in call.buffers}
        return roots

    def replace_calls(self, new_calls: Mapping[RoutineCall, NestCall]) -> None:
        """Replace calls by new ones."""
        for block in blocks(self.body) if new_calls else ():
            block.nodes[:] = [new_calls.get(node, node) if isinstance(node, RoutineCall) else node
                              for node in block.nodes]

    def tile_writers(self, is_wanted: Callable[[Compute], bool]
                     ) -> Iterator[tuple[NativeBlock, Compute, ScratchBuffer, Sequence[RoutineCall]]]:
        """Yield (block, computation, buffer, calls that use the buffer) for each wanted computation that writes a
        buffer of the function."""
        writers = [(block, node, node.regions[-1].root) for block in blocks(self.body) for node in block.nodes
                   if isinstance(node, Compute) and is_wanted(node)]
        users = self.users() if writers else {}
        for block, call, tile in writers:
            if isinstance(tile, ScratchBuffer):
                yield block, call, tile, users[tile]

    def users(self) -> dict[ScratchBuffer, list[RoutineCall]]:
        """List for each buffer the calls that have an address in it, in order."""
        users_of: dict[ScratchBuffer, list[RoutineCall]] = {}
        for call in calls_in(*self.body.nodes):
            for number in call.buffers:
                users_of.setdefault(self.buffers[number], []).append(call)
        return users_of

    def buffers_of(self, calls: Sequence[RoutineCall]) -> set[ScratchBuffer]:
        """Return the buffers in which some calls have addresses."""
        return {self.buffers[number] for call in calls for number in call.buffers}
