# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""forward-constants: compute with a constant instead of a tile that is filled with it.

before:  fill(1.0, ones); scan(s * ones + x)
after:   scan(s * 1.0 + x)

The pass forwards a constant in float32 if one computation fills all of the tile with it, before the operations that
read the tile, in the same block or inside of it. Some operations still read the tile: products, lookups, operations
that have no other input, and sums of which each lane computes a part, because the strides of their inputs determine the
order of the terms.
"""

from collections.abc import Sequence
from dataclasses import replace

from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.forwarding import filled_tile
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import (
    Allocate,
    Compute,
    NativeBlock,
    RoutineCall,
    ScratchBuffer,
    blocks,
    calls_in,
    compute,
)
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.waist.nest import Step


class ForwardConstants(FunctionPass, name="forward-constants"):
    def rewrite(self, function: NativeFunction) -> None:
        new_calls: dict[RoutineCall, Compute] = {}
        dropped: set[object] = set()                # fills, and the buffers that only they wrote
        inside: dict[NativeBlock, set[RoutineCall]] = {}        # the calls in each block
        for block, fill, tile, users in function.tile_writers(is_constant_fill):
            if block not in inside:
                inside[block] = {*calls_in(*block.nodes)}
            if inside[block].issuperset(users) and is_only_writer(fill, tile, users):
                constant = fill.nest.step(fill.nest.results[0])
                assert constant is not None
                readers = {user: with_constant(new_calls.get(user, user), tile, constant) for user in users[1:]}
                new_calls |= {user: reader for user, reader in readers.items() if reader is not None}
                if None not in readers.values():
                    dropped |= {fill, tile}
        function.replace_calls(new_calls)
        for block in blocks(function.body) if dropped else ():
            block.nodes[:] = [node for node in block.nodes if node not in dropped and not (
                isinstance(node, Allocate) and node.buffer in dropped)]


def is_constant_fill(call: Compute) -> bool:
    """Return whether a computation stores one number in all of a tile of float32."""
    nest = call.nest
    if call.symbols or nest.inputs or nest.reduced or len(nest.outputs) != 1 or nest.outputs[0].dtype is not FLOAT32:
        return False
    step = nest.step(nest.results[0])
    return step is not None and step.kind == "constant" and step.dtype is FLOAT32 and filled_tile(call) is not None


def is_only_writer(fill: Compute, tile: ScratchBuffer, users: Sequence[RoutineCall]) -> bool:
    """Return whether a computation alone writes a tile, before all that reads it."""
    return users[0] is fill and all([
        isinstance(user, Compute) and all(region.root is not tile for region in user.output_regions)
        for user in users[1:]])


def with_constant(call: RoutineCall, tile: ScratchBuffer, constant: Step) -> Compute | None:
    """Return a computation with a constant instead of a tile; None if it has to read the tile."""
    if not isinstance(call, Compute) or call.function is not call.nest or contraction_of(call.nest) is not None:
        return None
    nest = call.nest
    inputs = [k for k in range(len(nest.inputs)) if call.regions[k].root is not tile]
    if not inputs or any(step.kind in ("gather", "lookup") for step in nest.steps):
        return None
    if any(nest.inputs[k].dtype is not FLOAT32 for k in range(len(nest.inputs)) if k not in inputs):
        return None
    remaining = [*inputs, *range(len(nest.inputs), len(nest.operands))]
    first = len(remaining)                          # the constant is the first step, after the inputs
    number = dict.fromkeys(range(len(nest.inputs)), first) | {value: k for k, value in enumerate(remaining)}
    number |= {nest.first_step + k: first + 1 + k for k in range(len(nest.steps))}
    steps = [replace(step, operands=tuple([number[value] for value in step.operands])) for step in nest.steps]
    forwarded = replace(nest, inputs=tuple([nest.inputs[k] for k in inputs]), steps=(constant, *steps),
                        results=tuple([number[value] for value in nest.results])).simplified
    if schedule(nest).folds or schedule(forwarded).folds:
        return None
    return compute(forwarded, [call.regions[k] for k in remaining], call.symbols)
