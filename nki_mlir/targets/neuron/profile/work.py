# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arithmetic: how many operations instructions are, which loops of the source they belong to, and the roofline."""

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from nki_mlir.dialects.isa.instruction import Control, Instruction
from nki_mlir.machine import Engine, Machine
from nki_mlir.targets.neuron.profile.slices import Slices
from nki_mlir.targets.neuron.timing.machine import TimedMachine


def operations(instruction: Instruction) -> int:
    """Multiplications and additions of a product; of other work one for each element; of a transfer none."""
    op = instruction.op
    if isinstance(op, Control) or instruction.queue is not None:
        return 0
    tiles = {f.name: t for f, t in op.operands()}
    if op.work().law.startswith("product") and {"stationary", "moving"} <= tiles.keys():
        return 2 * prod(tiles["stationary"].shape) * prod(tiles["moving"].shape[1:])
    return max((prod(t.shape) for t in tiles.values()), default=0)


@dataclass(frozen=True)
class SourceLoop:
    """A loop of the source, or a whole function: its lines, first and last."""

    name: str
    file: str
    first: int
    last: int


@dataclass(frozen=True)
class RooflinePoint:
    """Of the roofline: operations, bytes to and from HBM, and ns in which something of it ran."""

    name: str
    location: str
    operations: int
    hbm_bytes: int
    ns: float


def loops_of(file: str, lines: Iterable[int]) -> list[SourceLoop]:
    """The loops of a source file that have one of the lines in them; none of what is no Python."""
    wanted = set(lines)
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For):
            last = node.end_lineno or node.lineno
            if any(node.lineno <= line <= last for line in wanted):
                name = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
                found.append(SourceLoop(name, file, node.lineno, last))
    return sorted(found, key=lambda loop: (loop.first, -loop.last))


def points(run: TimedMachine, slices: Slices, total: float) -> list[RooflinePoint]:
    """The kernel's, then those of its loops."""
    record = run.record
    whole, of_line = [0, 0], {}         # type: tuple[list[int], dict[tuple[str, int], list[int]]]
    for (agent, place), times in Counter(zip(record.agent, record.position)).items():
        stream = run.agents[agent].stream
        instruction = stream.instructions[place]
        computed, moved = operations(instruction), getattr(stream.details.get(place), "hbm_bytes", 0)
        sums = [whole]
        if instruction.location is not None:
            sums.append(of_line.setdefault((instruction.location.file, instruction.location.line), [0, 0]))
        for own in sums:
            own[0] += times * computed
            own[1] += times * moved
    found = [RooflinePoint(run.cores[0].columns.program.kernel, "", whole[0], whole[1], total)]
    for file in sorted({file for file, _ in of_line}):
        for loop in loops_of(file, [line for name, line in of_line if name == file]):
            inside = [sums for (name, line), sums in of_line.items()
                      if name == file and loop.first <= line <= loop.last]
            ns = covered(_spans(slices, loop))
            found.append(RooflinePoint(loop.name, f"{file}:{loop.first}", sum(s[0] for s in inside),
                               sum(s[1] for s in inside), ns))
    return found


def _spans(slices: Slices, loop: SourceLoop) -> list[tuple[float, float]]:
    inside = [i.location is not None and i.location.file == loop.file and loop.first <= i.location.line <= loop.last
              for i in slices.instructions]
    return [(b, e) for b, e, i in zip(slices.begin, slices.end, slices.instruction) if inside[i]]


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """ns that at least one of the spans covers."""
    total = until = 0.0
    for begin, end in sorted(spans):
        if end > until:
            total += end - max(begin, until)
            until = end
    return total


def ceilings(machine: Machine, cores: int) -> dict[str, float]:
    """Operations a ns of the tensor engine, by what one pass takes, and of the vector engine; bytes a ns of HBM."""
    tensor = machine.costs.engines[Engine.TENSOR]
    peak = 2 * machine.partitions * machine.stationary_free_max * machine.clocks[Engine.TENSOR] * cores
    found = {"tensor": peak}
    if "product.float32" in tensor.laws:
        found["tensor float32"] = peak / tensor.laws["product.float32"].passes
    found["vector"] = machine.partitions * machine.clocks[Engine.VECTOR] * cores
    return {**found, "hbm_bytes_per_ns": float(machine.costs.dma.hbm_bytes_per_ns) * cores}
