# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of one target, for one instruction: partitions an engine begins at, sizes, memories, generations.

An operation's class has its own rules (``since``, ``verify_target``); this module has the rules of all instructions of
an engine. ``target_findings.py`` checks an operation by them.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import PSUM, Linear, Ranges, Tile
from nki_mlir.dialects.verifier import NotOneARow, dtype_advice
from nki_mlir.machine import Engine, Machine
from nki_mlir.machine.engine import BITS, DOCUMENTED, SINCE, engines_of
from nki_mlir.scalar.dtypes import DType

# -- which partitions an engine reaches --------------------------------------------------------------------------------
# Tiles begin at quadrants, and each lane finds its data in its own partition.

def is_spread(tile: Tile) -> bool:
    """Return whether all lanes read one partition, which only a transfer can do."""
    step, count = tile.access.dims[0]
    return step == 0 and count > 1


def starts_legally(machine: Machine, tile: Tile, offsets: tuple[int, ...] = (0,)) -> bool:
    """Return whether an engine may begin at the tile's partition, whatever the values of its symbols.

    ``offsets`` from a legal start are legal, too.
    """
    start = tile.access.partition
    assert start is not None
    steps = (c for _, c in start.symbols)                       # sums of multiples of legal starts are legal
    return (any(o <= start.const and machine.legal_start_partition(start.const - o, tile.partitions) for o in offsets)
            and all(machine.legal_start_partition(abs(c), tile.partitions) for c in steps))


def rows_around(machine: Machine, tile: Tile) -> tuple[Tile, range] | None:
    """Return a tile that starts where engines can and contains the rows of another tile, and the indices of these rows;
    None if a loop moves the rows."""
    partition = tile.access.partition
    if partition is None or partition.symbols:
        return None
    first, count = partition.const, tile.shape[0]
    starts = (first - first % machine.quadrant, 0)
    start = next(s for s in starts if machine.legal_start_partition(s, first - s + count))
    rows = range(first - start, first - start + count)
    return tile.patterned(partition=Linear(start), dims=((1, rows.stop), *tile.access.dims[1:])), rows


# -- errors ------------------------------------------------------------------------------------------------------------
class TargetRule(KernelError):
    """A rule of the device that an instruction breaks."""


class StartPartition(TargetRule):
    code = "NKI-START-PARTITION"
    message = "operand '{operand}' of '{op}' begins at partition {start} and has {count} partitions"
    why = "the {engine} engine begins {count} partitions only at {legal}"
    fix = "start the tile at such a partition, or move its rows with nisa.dma_copy first"


class SpreadPartition(TargetRule):
    code = "NKI-PARTITION-BROADCAST"
    message = "operand '{operand}' of '{op}' is one partition that {count} lanes read"
    why = "each lane of the {engine} engine reads its own partition"
    fix = "copy the partition to all partitions with nisa.dma_copy first"


class TooManyDims(TargetRule):
    code = "NKI-PATTERN-DIMS"
    message = "operand '{operand}' of '{op}' steps through {count} free dims"
    why = "an access pattern of {target} has at most {limit}"
    fix = "split the operation, or copy the operand so that fewer steps describe it"


class TooFar(TargetRule):
    code = "NKI-PATTERN-STEP"
    message = "operand '{operand}' of '{op}' steps by {step} elements"
    why = "a step of an access pattern of {target} is at most {limit}"
    fix = "split the operation along that dim, or lay the tile out with smaller rows"


class TooManyElements(TargetRule):
    code = "NKI-PATTERN-ELEMENTS"
    message = "operand '{operand}' of '{op}' has {count} elements in each partition"
    why = "an instruction of {target} accesses at most {limit} in {space}"
    fix = "split the operation along a free dim"


class CrossesBank(TargetRule):
    code = "NKI-PSUM-BANK"
    message = "the result of '{op}' takes bytes {first} to {last} of its buffer's rows, in more than one PSUM bank"
    why = "a product is accumulated in one bank of {limit} bytes"
    fix = "begin the result at a multiple of {limit} bytes"


class MemoryOfEngine(TargetRule):
    code = "NKI-ENGINE-MEMORY"
    message = "operand '{operand}' of '{op}' is in PSUM, which the gpsimd engine of {target} cannot access"
    fix = "copy it to SBUF first, or use the vector engine"


class NotOnTarget(TargetRule):
    code = "NKI-GENERATION"
    message = "{what} needs generation {needs} of the core, and {target} is generation {has}"
    fix = "{instead}"


class NotOnEngine(TargetRule):
    code = "NKI-ENGINE-OPERATION"
    message = "the {engine} engine has no {what}, which '{op}' needs"
    why = "only the {engines} engine has {what}"
    fix = "let the compiler choose the engine, or name one that executes it"


class DtypeOfOperand(TargetRule):
    code = "NKI-OPERAND-DTYPE"
    message = "operand '{operand}' of '{op}' has dtype {found}; it must have {expected}"
    fix = "convert it first, for example with nl.copy(x, dtype=...)"

    @property
    def advice(self) -> tuple[str, str]:
        return "", dtype_advice(self.values["operand"], self.values["expected"])


class RuleOfTarget(TargetRule):
    code = "NKI-TARGET-RULE"
    message = "'{op}': {what}"
    fix = "{instead}"


class Finding(NamedTuple):
    """A rule that an instruction breaks.

    ``uncertain``: documents disagree on the rule, or code that ran on devices breaks it. ``binds_current``: the
    documents of the current generation agree on the rule, so it is certain for kernels of that generation.
    """

    error: KernelError
    uncertain: bool = False
    binds_current: bool = False


class TargetedOperation(Protocol):
    """What rules of targets read of an operation in addition to the fields that they name."""

    engine: str

    @property
    def name(self) -> str: ...
    @property
    def runs_on(self) -> Engine: ...
    @property
    def offsets(self) -> Mapping[str, tuple[int, ...]]: ...
    @property
    def ranges(self) -> Ranges: ...


class TargetCheck:
    """Checks the rules for one operation on one machine. ``findings`` are the rules that the operation breaks."""

    def __init__(self, op: TargetedOperation, machine: Machine) -> None:
        self.op, self.machine = op, machine
        self.findings: list[Finding] = []

    def broken(self, error: type[KernelError], uncertain: bool = False, binds_current: bool = False,
               **values: object) -> None:
        raised = error(op=self.op.name, target=self.machine.name, **values)
        self.findings.append(Finding(raised, uncertain or binds_current, binds_current))

    def need(self, generation: int, feature: str, instead: str, uncertain: bool = False,
             binds_current: bool = False) -> None:
        """Check that the machine is of a generation that has ``feature``."""
        if self.machine.generation < generation:
            self.broken(NotOnTarget, uncertain, binds_current, what=feature, needs=generation,
                        has=self.machine.generation, instead=instead)

    def rule(self, holds: bool, rule: str, instead: str, uncertain: bool = False, binds_current: bool = False) -> None:
        """Check a rule that only this operation has."""
        if not holds:
            self.broken(RuleOfTarget, uncertain, binds_current, what=rule, instead=instead)

    def dtypes(self, label: str, *allowed: DType, uncertain: bool = False) -> None:
        tile: Tile | None = getattr(self.op, label)
        if tile is not None and tile.dtype not in allowed:
            self.broken(DtypeOfOperand, uncertain, operand=label, found=tile.dtype,
                        expected=", ".join(map(str, allowed)))

    def one_a_row(self, *labels: str, uncertain: bool = False) -> None:
        """Check operands of which a lane reads only one value, for all elements of its partition."""
        for label in labels:
            tile: Tile | None = getattr(self.op, label)
            if tile is not None and any([step and count > 1 for step, count in tile.access.free_dims]):
                rows = getattr(self.op, "dst", tile).shape[0]
                self.broken(NotOneARow, uncertain, operand=label, count=tile.free_elements, rows=rows)

    def operators(self, *names: str, binds_current: bool = False) -> None:
        """Check that the engine has the ALU operators.

        Documents allow more operators on GpSimd for some instructions than for others. With ``binds_current``, the
        documents of the current generation state the rule for this instruction.
        """
        engine, chosen = self.op.runs_on, self.op.engine != Engine.UNKNOWN.value
        for name in names:
            self.rule(name in DOCUMENTED, f"{name} is not in the documents' table of operators",
                      "divide by multiplying with nisa.reciprocal; compute others from operators of the table",
                      uncertain=True)
            self.need(SINCE.get(name, 0), f"'{self.op.name}' of {name}", "compute it by other operators",
                      binds_current=True)
            if engine not in (has := engines_of(name)):
                uncertain = (engine is Engine.GPSIMD and name not in BITS) or name == "rsqrt" or not chosen
                binds_here = binds_current and uncertain and engine is Engine.GPSIMD and chosen
                self.broken(NotOnEngine, uncertain, binds_here, engine=engine.value, what=name,
                            engines=" or ".join(e.value for e in has))

    def partitions(self, operand: str, tile: Tile, engine: Engine) -> None:
        op = self.op
        if is_spread(tile):
            self.broken(SpreadPartition, operand=operand, count=tile.partitions, engine=engine.value)
            return
        offsets = op.offsets.get(operand, (0,))
        if starts_legally(self.machine, tile, offsets):
            return
        legal = [str(p + o) for p in range(self.machine.partitions)
                 if self.machine.legal_start_partition(p, tile.partitions) for o in offsets]
        start = tile.access.partition
        assert start is not None
        low, high = start.interval(op.ranges)
        self.broken(StartPartition, operand=operand, start=low if low == high else f"{low} to {high}",
                    count=tile.partitions, engine=engine.value,
                    legal=f"{', '.join(legal[:-1])} or {legal[-1]}" if len(legal) > 1 else legal[0])

    def size(self, operand: str, tile: Tile) -> None:
        machine = self.machine
        dims = sum(count > 1 for _, count in tile.access.free_dims)
        if dims > machine.free_dims_max:
            self.broken(TooManyDims, operand=operand, count=dims, limit=machine.free_dims_max)
        farthest = max((abs(step) for step, count in tile.access.free_dims if count > 1), default=0)
        if farthest > machine.step_max:
            self.broken(TooFar, operand=operand, step=farthest, limit=machine.step_max)
        limit = machine.psum_elements_max if tile.space == PSUM else machine.sbuf_elements_max
        if tile.free_elements > limit:
            self.broken(TooManyElements, operand=operand, count=tile.free_elements, limit=limit, space=tile.space)

    def bank(self, dst: Tile) -> None:
        """Check that a result lies in one PSUM bank. A buffer larger than a bank begins at one, so an offset
        determines the bank."""
        bank, size = self.machine.psum_bank_bytes, dst.dtype.itemsize
        if dst.row * size <= bank:
            return
        low, high = (end * size for end in dst.access.reach())
        for start in _starts(self.op, dst):
            if (start * size + low) // bank != (start * size + high + size - 1) // bank:
                self.broken(CrossesBank, first=start * size + low, last=start * size + high + size - 1, limit=bank)
                return


def _starts(op: TargetedOperation, tile: Tile) -> Iterator[int]:
    """Yield free offsets that a tile can have: for the values of one symbol at a time, which suffice to find a
    crossing."""
    free = tile.access.free
    base = free.const + sum(c * op.ranges[s][0] for s, c in free.symbols)
    yield base
    for s, c in free.symbols:
        low, high = op.ranges[s]
        yield from (base + c * k for k in range(1, high - low + 1))
