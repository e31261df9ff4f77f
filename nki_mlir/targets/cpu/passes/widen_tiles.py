# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""widen-tiles: store tiles of floats narrower than float32 in float32, if products and conversions alone read them.

before:  copy(x, tile); out += convert(tile) * convert(other)
after:   tile = convert(x); out += tile * other                    the tile has four bytes an element

All narrower floats are float32 numbers, and code still rounds the elements to the narrow dtype, so results keep their
bits. Each product must read all of the tile, or a loop around it must read the same part in each iteration: if a
product reads a part only once, a converted copy without gaps is better, because products read it faster.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import replace

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.passes.widen_factors import elements_of
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import ByteRegion


class WidenTiles(FunctionPass, name="widen-tiles"):
    least: int = 8              # least times that each product must read each element of a tile
    most: int = 1_048_576       # bytes in float32 of the largest tile to widen

    def rewrite(self, function: NativeFunction) -> None:
        new_calls: dict[cpu.RoutineCall, cpu.Compute] = {}
        users_of, loops_around = function.users(), dict(enclosing_loops(function.body))
        candidates = dict.fromkeys(reversed(users_of))
        while candidates:
            buffer, _ = candidates.popitem()
            users = users_of[buffer]
            calls = [new_calls.get(user, user) for user in users]
            if can_be_wide(buffer, calls, self.most) and self.are_worth_it(
                    buffer, calls, [loops_around[user] for user in users]):
                widen(buffer, users, new_calls)
                writers = [user for user, call in zip(users, calls) if is_written(buffer, call)]
                # The source of a copy to the tile may be wide now.
                candidates.update((function.buffers[number], None) for user in writers for number in user.buffers)
        function.replace_calls(new_calls)

    def are_worth_it(self, buffer: cpu.ScratchBuffer, calls: Sequence[cpu.RoutineCall],
                     loops_around: Sequence[Sequence[cpu.NativeLoop]]) -> bool:
        """Return whether products read a buffer, and each of them often. ``loops_around`` has the loops around each
        call."""
        products = 0
        writing = [loop for call, loops in zip(calls, loops_around) if is_written(buffer, call) for loop in loops]
        for call, loops in zip(calls, loops_around):
            outside = [loop for loop in loops if loop not in writing]
            for number, operand in operands_in(buffer, call):
                if isinstance(call, cpu.Compute) and number < len(call.nest.inputs) and contraction_of(call.nest):
                    is_complete = elements_of(call.nest, number) * operand.dtype.itemsize == buffer.size
                    if not self.is_read_often(call.nest, number) or not (
                            is_complete or is_repeated(call.regions[number], outside)):
                        return False
                    products += 1
        return products > 0

    def is_read_often(self, nest: Nest, factor: int) -> bool:
        """Return whether a product reads each element of a factor many times."""
        return not nest.symbols and elements_of(nest, factor) * self.least <= nest.elements


def can_be_wide(buffer: cpu.ScratchBuffer, calls: Sequence[cpu.RoutineCall], most: int) -> bool:
    """Return whether all calls that use a buffer write it as a narrow float, multiply its elements in a product or
    convert those that they read, and whether the buffer has at most this many bytes in float32."""
    dtypes = {operand.dtype for call in calls for _, operand in operands_in(buffer, call)}
    if len(dtypes) != 1 or not all(dtype.is_float and dtype.itemsize < FLOAT32.itemsize and (
            buffer.size * FLOAT32.itemsize <= most * dtype.itemsize) for dtype in dtypes):
        return False
    return all(isinstance(call, cpu.Compute) and allows_wide(buffer, call) for call in calls)


def allows_wide(buffer: cpu.ScratchBuffer, call: cpu.Compute) -> bool:
    """Return whether a call writes a buffer without reading it, multiplies its elements in a product, or converts those
    that it reads."""
    nest = call.nest
    for number, _ in operands_in(buffer, call):
        if number >= len(nest.inputs):
            if nest.uses(nest.first_output + number - len(nest.inputs)):
                return False
        elif not is_converted(nest, number) and contraction_of(nest) is None:
            return False
    return True


def widen(buffer: cpu.ScratchBuffer, users: Sequence[cpu.RoutineCall],
          new_calls: MutableMapping[cpu.RoutineCall, cpu.Compute]) -> None:
    """Store a buffer in float32, and map each call that uses it to one that uses it so. The buffer must be one that
    ``can_be_wide``."""
    calls = {user: new_calls.get(user, user) for user in users}
    dtype = next(operand.dtype for call in calls.values() for _, operand in operands_in(buffer, call))
    scale = FLOAT32.itemsize // dtype.itemsize
    new_calls.update({user: widened(buffer, call, scale) for user, call in calls.items()
                      if isinstance(call, cpu.Compute)})
    buffer.size *= scale


def enclosing_loops(block: cpu.NativeBlock, loops: tuple[cpu.NativeLoop, ...] = ()
                    ) -> Iterator[tuple[cpu.RoutineCall, tuple[cpu.NativeLoop, ...]]]:
    """Yield each call of a block with all loops around it: ``loops``, then those of the block."""
    for node in block.nodes:
        if isinstance(node, cpu.RoutineCall):
            yield node, loops
        for inner in cpu.sub_blocks(node):
            yield from enclosing_loops(inner, (*loops, node) if isinstance(node, cpu.NativeLoop) else loops)


def is_written(buffer: cpu.ScratchBuffer, call: cpu.RoutineCall) -> bool:
    return isinstance(call, cpu.Compute) and any(region.root is buffer for region in call.output_regions)


def is_repeated(region: ByteRegion, loops: Sequence[cpu.NativeLoop]) -> bool:
    """Return whether one of some loops, none of which writes the buffer, reads the same part of it in each
    iteration."""
    slots = {slot for slot, _ in region.offset.symbols}
    return slots <= {loop.slot for loop in loops} and any(
        loop.slot not in slots and loop.span is not None and len(loop.span) > 1 for loop in loops)


def is_converted(nest: Nest, number: int) -> bool:
    """Return whether all steps that read an input convert it to float32."""
    return number not in nest.results and all(
        step.kind == "convert" and step.dtype is FLOAT32 for step in nest.steps if number in step.operands)


def operands_in(buffer: cpu.ScratchBuffer, call: cpu.RoutineCall) -> list[tuple[int, Operand]]:
    """List the operands of a computation that lie in a buffer, with their numbers."""
    if not isinstance(call, cpu.Compute):
        return []
    return [(k, call.nest.operands[k]) for k, region in enumerate(call.regions) if region.root is buffer]


def widened(buffer: cpu.ScratchBuffer, call: cpu.Compute, scale: int) -> cpu.Compute:
    """Return a call that reads and writes a buffer in float32, whose elements have ``scale`` times as many bytes as
    before."""
    nest, regions = call.nest, list(call.regions)
    for k, _ in operands_in(buffer, call):
        region = regions[k]
        regions[k] = replace(region, size=region.size * scale, offset=Linear().plus(region.offset, scale))
        nest = with_wide_input(nest, k) if k < len(nest.inputs) else with_wide_output(nest, k - len(nest.inputs))
    return cpu.compute(nest, regions, call.symbols, call.streams)


def with_wide_input(nest: Nest, number: int) -> Nest:
    """Return the nest with an input that is float32 already, without the steps that convert it."""
    inputs = tuple([replace(o, dtype=FLOAT32) if k == number else o for k, o in enumerate(nest.inputs)])
    is_gone = [step.kind == "convert" and step.operands == (number,) and step.dtype is FLOAT32 for step in nest.steps]
    values = {value: value for value in range(nest.first_step)}
    for k, dropped in enumerate(is_gone):
        values[nest.first_step + k] = number if dropped else nest.first_step + k - sum(is_gone[:k])
    steps = [replace(step, operands=tuple([values[v] for v in step.operands]))
             for step, dropped in zip(nest.steps, is_gone) if not dropped]
    return replace(nest, inputs=inputs, steps=tuple(steps), results=tuple([values[v] for v in nest.results]))


def with_wide_output(nest: Nest, number: int) -> Nest:
    """Return a nest that stores an output in float32, rounded as before."""
    outputs = tuple([replace(o, dtype=FLOAT32) if k == number else o for k, o in enumerate(nest.outputs)])
    result = nest.first_step + len(nest.steps)
    return replace(nest, outputs=outputs, steps=(*nest.steps, Step("convert", FLOAT32, (nest.results[number],))),
                   results=tuple([result if k == number else v for k, v in enumerate(nest.results)]))
