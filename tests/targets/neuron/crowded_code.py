# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random code on all engines, of whose tiles SBUF holds few at once, and the graphs that its schedulers use."""

import random

from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.records import InstructionStep
from nki_mlir.targets.neuron.codegen.schedule_instructions import Schedules
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from tests.targets.neuron.code_builder import Builder


def program(seed: int, steps: int, target: str = "trn2", loop_at: int = -1, products: int = 1) -> Builder:
    """Return steps on tiles of several sizes, some of which are used for long; at one of them a short loop.
    ``products``: how much more often than other operations."""
    r, b = random.Random(seed), Builder(target)
    unit = b.code.machine.sbuf_bytes_per_partition // r.choice((8, 16, 64)) // 4
    x, y = (b.hbm(name, (128, 4 * unit), role) for name, role in (("x", "input"), ("y", "output")))
    tiles, sums = [], []

    def new():
        tiles.append(b.on_chip(f"t{len(tiles)}", (128, r.choice((unit // 2, unit, unit, 2 * unit)))))
        return tiles[-1]

    def part(buffer, width):
        return buffer, 0, 128, 0, width
    for _ in range(2):
        b.copy(part(new(), unit // 2), part(x, unit // 2))
    for number in range(steps):
        source, other = (r.choice(tiles[-r.choice((2, 3, 8)):]) for _ in range(2))
        target_tile = new() if r.random() < 0.6 else r.choice(tiles[-3:])
        width = min(t.shape[1] for t in (source, other, target_tile)) // r.choice((1, 1, 4))
        columns = min(128, unit // 2)
        if number == loop_at:
            with b.loop(2):
                b.memset(part(source, width), 1)
                b.add(part(source, width), part(source, width), part(other, width))
        match r.choice((*range(8), *[8, 9] * products)):
            case 0 | 1 | 2:
                start = 0 if r.random() < 0.7 else 64
                b.copy((target_tile, start, 64, 0, width), (x, start, 64, 0, width))
            case 3:
                b.copy(part(y, width), part(source, width))
            case 4 | 5:
                b.add(part(target_tile, width), part(source, width), part(other, width))
            case 6 | 7:
                b.activation(part(target_tile, width), part(source, width), r.choice(("exp", "tanh", "relu", "sqrt")))
            case 8:
                sums.append(b.on_chip(f"p{len(sums)}", (128, r.choice((128, 512))), "psum"))
                b.matmul(part(sums[-1], columns), part(source, columns), part(other, columns))
                b.tensor_copy(part(target_tile, columns), part(sums[-1], columns))
            case 9 if sums:
                sum_tile = r.choice(sums[-3:])
                b.activation(part(target_tile, columns), part(sum_tile, columns), r.choice(("exp", "relu")))
    b.copy(part(y, unit // 2), part(tiles[1], unit // 2))           # in use throughout
    for node in b.code.body.nodes:
        if isinstance(node, InstructionStep):
            issuer = r.choice((Engine.SYNC, Engine.GPSIMD, Engine.SCALAR)) if node.op.queued else node.op.runs_on
            node.op.engine = (Engine.UNKNOWN if r.random() < 0.8 else issuer).value
    return b


def graphs_of(b: Builder, written: bool = False) -> list[SchedulingGraph]:
    """Return the graph of each run. ``written``: choose engines and PSUM as the vendor's compiler does."""
    parts = Schedules(b.code, EngineChoice(b.code.machine, written=written)).parts
    return [graph for run in parts for _, _, graph in run]
