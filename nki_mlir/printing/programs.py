# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of a grid that reduce over each other: what each computes up to there, the reduction, and what follows.

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
from nki_mlir.dialects.meeting import PROGRAMS
from nki_mlir.dialects.nisa.collectives import AllReduceOp, parsed
from nki_mlir.dialects.nki.elementwise import BinaryOp, alu_compute
from nki_mlir.dialects.nki.movement import CopyOp
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.exact_extremes import has_exact_steps, write_extreme
from nki_mlir.printing.index_text import IndexText, IndexValues
from nki_mlir.printing.kernel_text import KernelText, NamedTensor
from nki_mlir.printing.tile_operations import write_statement
from nki_mlir.scalar.dtypes import FLOAT32
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
    """What programs do up to a reduction over them, or up to their end."""

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

    tensors: dict[Value | NamedTensor, NamedTensor] = field(default_factory=dict)
    waiting: dict[Value, NamedTensor] = field(default_factory=dict)
    loads: dict[Value, str] = field(default_factory=dict)
    started: set[Value] = field(default_factory=set)
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
    for point, values in zip(itertools.product(*map(range, grid)), ids):
        numbers = {v: IndexText(n) for v, n in zip(values, point) if v is not None}
        programs.append(ProgramText({**out.tensors}, indices=IndexValues({**out.indices.texts, **numbers})))
    return programs


def write_reduction(out: KernelText, phases: Sequence[ProgramPhase], programs: Sequence[ProgramText],
                    written_once: Sequence[set[Value]]) -> None:
    """Write the reduction that ends a phase of each program: a fold of each group's tiles in their order.

    Intermediate results have the dtype in which the reduction computes. Raise ``Unprintable`` if its steps would
    round. Two programs of a group compute the last step; the others read a result that no operation writes again
    (``written_once`` has such buffers of each program). So the text has as many instructions as the collective.
    """
    nodes = [phase.reduction for phase in phases if phase.reduction is not None]
    ops = [op for node in nodes if (op := reduction_over_programs(node)) is not None]
    op, compute = ops[0], ops[0].compute
    assert compute is not None
    wide = compute is not FLOAT32                       # 32-bit integers, which most steps would round
    for group in parsed(op.groups):
        folded, *others = [_program_tile(out, ops[member].src, programs[member]) for member in group]
        computing = [member for n, member in enumerate(group) if n < 2 or not _is_shared(
            ops[member].dst, ops[group[1]].dst, programs[member], written_once[member])]
        results = [_program_tile(out, ops[member].dst, programs[member]) for member in computing]
        exact = wide and has_exact_steps(op.op, folded, *others)
        if wide and others and not exact and (
                alu_compute(op.op, compute, *[tile.dtype for tile in (folded, *others)]) is not compute):
            raise Unprintable(what=f"a reduction over programs by '{op.op}' of {op.src.dtype}, which is exact",
                              fix="reduce float32 or integers of 16 bits").located(location_of(nodes[0].op))
        # Each result computes the last step if it can: one instruction fewer than to copy it.
        apart = others and {tile.handle for tile in results}.isdisjoint((folded.handle, others[-1].handle))
        direct = apart and not (wide and results[0].dtype is not compute)
        for value in others[:-1] if direct else others:
            partial = out.temporary(op.src.shape, compute, SBUF)
            _write_step(out, op.op, partial, folded, value, exact)
            folded = partial
        for result in results:
            if direct:
                _write_step(out, op.op, result, folded, others[-1], exact)
            else:
                write_statement(out, CopyOp(dst=result, src=folded))
        for member in set(group) - set(computing):
            programs[member].tensors[ops[member].dst.handle] = out.tensors[results[1].handle]
            del programs[member].waiting[ops[member].dst.handle]


def _write_step(out: KernelText, op: str, dst: Tile, lhs: Tile, rhs: Tile, exact: bool) -> None:
    if exact:
        write_extreme(out, op, dst, lhs, rhs)
    else:
        write_statement(out, BinaryOp(dst=dst, lhs=lhs, rhs=rhs, op=op))


def _is_shared(tile: Tile, computed: Tile, program: ProgramText, written_once: set[Value]) -> bool:
    """Return whether a program can read another program's result instead of its own: a complete buffer that only the
    reduction writes, in both programs."""
    return all(t.handle in written_once and t.shape == t.base_shape and t.dtype is t.base_dtype
               for t in (tile, computed)) and tile.dtype is computed.dtype and tile.handle in program.waiting


def _program_tile(out: KernelText, tile: Tile, program: ProgramText) -> Tile:
    """Return a tile of a program as one of the text."""
    with program.of(out):
        out.use(tile.handle)
        tensor: Any = program.tensors[tile.handle]
    out.tensors[tensor] = tensor
    return tile.on(tensor)
