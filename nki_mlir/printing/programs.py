# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints programs of a grid that reduce over each other: all operations before the reduction, the reduction, the
others.

The programs' tiles exist at the same time, so the text has other names and lines for each program. Other grids are
loops.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from nki_mlir.bindings import Value
from nki_mlir.dialects.access import SBUF, Tile
from nki_mlir.dialects.launch_members import PROGRAMS
from nki_mlir.dialects.nisa.collectives import AllReduceOp, parsed
from nki_mlir.dialects.nki.movement import CopyOp
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.index_text import IndexText, IndexValues
from nki_mlir.printing.kernel_text import KernelText, NamedTensor
from nki_mlir.printing.tile_operations import write_statement
from nki_mlir.scalar.dtypes import DType
from nki_mlir.transforms.fold_over_programs import ProgramsApart, fold_steps
from nki_mlir.waist.function import ForLoop, FunctionBlock, FunctionNode, TileInstruction, nodes_of


def reduction_over_programs(node: FunctionNode | None) -> AllReduceOp | None:
    """Return the reduction over the programs of a launch that a node is, or None for any other node."""
    op = node.instruction if isinstance(node, TileInstruction) else None
    return op if isinstance(op, AllReduceOp) and op.over == PROGRAMS else None


@dataclass
class ProgramPart:
    """Nodes between two reductions, with the numbers of the loops around them."""

    block: FunctionBlock
    numbers: dict[Value, IndexText]


@dataclass
class ProgramPhase:
    """The operations of programs up to a reduction over them, or up to the end."""

    parts: list[ProgramPart] = field(default_factory=list)
    reduction: FunctionNode | None = None


def program_phases(body: FunctionBlock) -> list[ProgramPhase]:
    """Return the parts of a body between reductions over programs. Loops that contain a reduction are unrolled."""
    phases = [ProgramPhase()]
    _add_phases(body, {}, phases)
    return phases


def _add_phases(block: FunctionBlock, numbers: dict[Value, IndexText], phases: list[ProgramPhase]) -> None:
    part = ProgramPart(FunctionBlock(), numbers)
    phases[-1].parts.append(part)
    for node in block.nodes:
        if reduction_over_programs(node) is not None:
            phases[-1].reduction = node
            phases.append(ProgramPhase())
        elif not any(reduction_over_programs(inner) is not None for inner in nodes_of(FunctionBlock([node]))):
            part.block.nodes.append(node)
            continue
        elif isinstance(node, ForLoop) and (span := node.span) is not None:
            for number in span:
                _add_phases(node.body, {**numbers, node.variable: IndexText(number)}, phases)
        else:
            raise Unprintable(what="a reduction over programs in a branch or in a run-time loop",
                              fix="reduce after it, over the tiles of all programs").located(location_of(node.op))
        part = ProgramPart(FunctionBlock(), numbers)
        phases[-1].parts.append(part)


@dataclass
class ProgramText:
    """The state of the text that belongs to one program."""

    program: int
    tensors: dict[Value | NamedTensor, NamedTensor] = field(default_factory=dict)
    waiting: dict[Value, NamedTensor] = field(default_factory=dict)
    loads: dict[Value, str] = field(default_factory=dict)
    filled: dict[Value, tuple[int, ...]] = field(default_factory=dict)
    indices: IndexValues = field(default_factory=IndexValues)

    @contextmanager
    def of(self, out: KernelText) -> Iterator[None]:
        """Write lines of this program."""
        shared = {name: getattr(out, name) for name in vars(self)}
        vars(out).update(vars(self))
        yield
        vars(self).update({name: getattr(out, name) for name in shared})        # an unrolled loop replaces them
        vars(out).update(shared)


def program_texts(grid: Sequence[int], ids: Sequence[Sequence[Value | None]], out: KernelText) -> list[ProgramText]:
    """Return the programs in order, with the state that all share. ``ids`` are each program's."""
    out.flush()
    programs = []
    for number, (point, values) in enumerate(zip(itertools.product(*map(range, grid)), ids)):
        numbers = {v: IndexText(n) for v, n in zip(values, point) if v is not None}
        programs.append(ProgramText(number, {**out.tensors}, indices=IndexValues({**out.indices.texts, **numbers})))
    return programs


def write_reduction(out: KernelText, phases: Sequence[ProgramPhase], programs: Sequence[ProgramText],
                    written_once: Sequence[set[Value]]) -> None:
    """Write the reduction that ends a phase of each program: a fold of each group's tiles in their order.

    Programs read the result of the first one if no operation writes it again (``written_once`` has such buffers of
    each program), or a copy.
    """
    nodes = [phase.reduction for phase in phases if phase.reduction is not None]
    ops = [op for node in nodes if (op := reduction_over_programs(node)) is not None]

    def temporary(shape: Sequence[int], dtype: DType) -> Tile:
        return out.temporary(shape, dtype, SBUF)
    for group in parsed(ops[0].groups):
        sources = [_program_tile(out, ops[member].src, programs[member]) for member in group]
        result = _program_tile(out, ops[group[0]].dst, programs[group[0]])
        try:
            for step in fold_steps(ops[0], sources, result, temporary):
                write_statement(out, step)
        except ProgramsApart as error:
            raise Unprintable(**error.values).located(location_of(nodes[0].op)) from None
        shared = _is_shared(ops[group[0]].dst, written_once[group[0]])
        for member in group[1:]:
            program, dst = programs[member], ops[member].dst
            if shared and dst.handle in program.waiting and _is_shared(dst, written_once[member]):
                program.tensors[dst.handle] = out.tensors[result.handle]
                del program.waiting[dst.handle]
            else:
                write_statement(out, CopyOp(dst=_program_tile(out, dst, program), src=result))


def _is_shared(tile: Tile, written_once: set[Value]) -> bool:
    """Return whether a tile is a complete buffer that only one operation writes."""
    return tile.handle in written_once and tile.shape == tile.base_shape and tile.dtype is tile.base_dtype


def _program_tile(out: KernelText, tile: Tile, program: ProgramText) -> Tile:
    """Return a tile of a program as one of the text."""
    with program.of(out):
        out.emit_allocations(tile.handle)
        tensor: Any = program.tensors[tile.handle]
    out.tensors[tensor] = tensor
    return tile.on(tensor)
