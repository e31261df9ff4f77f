# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules about operands that every target shares, as checks that op classes call, and the errors they raise.

``verification.py`` runs them; rules that depend on the target are in ``target_rules.py``.
"""

import linecache
import re
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Linear, Tile
from nki_mlir.dialects.checked_bounds import dimensions_at
from nki_mlir.machine import Machine
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BY_NAME, DType

PARTITIONS, PSUM_BANK_BYTES = Machine.partitions, Machine.psum_bank_bytes      # of every generation


class OutOfBounds(KernelError, IndexError):
    code = "err_tensor_access_out_of_bound"
    message = ("Out-of-bound access for tensor `{tensor}` on dimension {dim}: index range [{low}, {high}] "
               "exceed dimension size of {extent}")
    fix = "shorten the range, or pass mask= with a condition that keeps the index below {extent}"

    @property
    def advice(self) -> tuple[str, str]:
        low = self.values.get("low")            # subclasses describe the index differently
        if isinstance(low, int) and low < 0:
            return "", "start the range at 0, or pass mask= with a condition that keeps the index at 0 or more"
        why, fix = super().advice
        high, extent = self.values.get("high"), self.values.get("extent")
        if not (isinstance(low, int) and isinstance(high, int) and isinstance(extent, int)) or self.at is None:
            return why, fix
        size = high - low + 1
        if 0 < low < size <= extent and "ds(" in linecache.getline(self.at.file, self.at.line):
            fix += (f"; nl.ds({low}, {size}) takes a start and a size, so {low} up to {size} is "
                    f"nl.ds({low}, {size - low})")
        return why, fix


class BeyondDimension(OutOfBounds):
    """An index that neither a mask nor an ``if`` excludes; ``excess`` counts the elements outside."""

    message = "an index is {elements} outside {dimension}"
    fix = "make the condition cover every subscript"

    @property
    def headline(self) -> str:
        excess = self.values["excess"]
        return self.message.format(elements="1 element" if excess == 1 else f"{excess} elements",
                                   dimension=dimensions_at(self.at))

    @property
    def advice(self) -> tuple[str, str]:
        close = "; a comparison by <= in place of < selects one element too many" if self.values["excess"] == 1 else ""
        return self.why, self.fix + close


class TooManyPartitions(KernelError):
    code = "err_num_partition_exceed_arch_limit"
    message = "number of partitions {count} exceed architecture limitation of {limit}."
    why = "axis 0 of an on-chip tile is its partition axis, and the memories have {limit} partitions"
    fix = "work on {limit} rows at a time, in a loop"


class PartitionAccess(KernelError):
    code = "NKI-PARTITION"
    message = "{what}"
    why = "an engine reads partitions start, start + 1, ...; an access pattern steps in the free dimension only"
    fix = "index axis 0 with one contiguous range, or transpose the tile first"


class PartitionMismatch(KernelError):
    code = "err_num_partition_mismatch"
    message = "number of partitions (dimension 0 size of a tile) mismatch in parameters ({tiles}) of '{op}'"
    fix = ("give all operands the same number of partitions; nl.broadcast_to(row, shape=...) copies a row to all "
           "partitions")


class NotOneARow(KernelError):
    code = "NKI-ROW-OPERAND"
    message = "operand '{operand}' of '{op}' has {count} values in each partition; it must have one"
    fix = "give it the shape ({rows}, 1)"

    @property
    def advice(self) -> tuple[str, str]:
        why, fix = super().advice
        has_tensor_form = self.values["operand"].startswith("operand")         # operand0 and operand1, not a scale
        return why, fix + "; nisa.tensor_tensor takes one value for each element" * has_tensor_form


class ShapeMismatch(KernelError):
    code = "NKI-SHAPE"
    message = "{what}"
    fix = "give the operands shapes that agree"


ONE_WIDTH = "give all operands the same shape, or use nisa.tensor_scalar for one value in each partition"


def agreement(first: Sequence[int], other: Sequence[int]) -> str:
    """Return advice for operands of two shapes."""
    return PartitionMismatch.fix if first[:1] != other[:1] else ONE_WIDTH


class BrokenRule(KernelError):
    """A rule of one operation, with the advice to give."""

    code = "NKI-RULE"
    message = "'{op}': {what}"
    fix = "{fix}"


IN_HBM = "create it with buffer=nl.shared_hbm; the tensor that is written comes first, as in nl.store(out, tile)"


class WrongMemory(KernelError):
    code = "err_unsupported_memory"
    message = ("Expected operand '{operand}' of '{op}' to be in address space '{expected}', "
               "but got a tile in '{found}' instead.")
    fix = "copy it between HBM and SBUF first, with nisa.dma_copy (beta: nl.load, nl.store)"

    @property
    def advice(self) -> tuple[str, str]:
        memory, expected = self.values["found"], self.values["expected"].split("|")
        if memory == PSUM and SBUF in expected:
            destination = self.values["operand"].startswith("dst")
            fix = "create it with buffer=nl.sbuf" if destination else "copy it to SBUF first, with nisa.tensor_copy"
            return "", fix
        if memory in (SBUF, PSUM) and expected == [HBM]:
            return "", IN_HBM if self.values["operand"].startswith("dst") else "give a tensor in HBM; nl.copy copies " \
                                                                               "tiles on chip"
        if memory == SBUF and expected == [PSUM]:
            return "", "create it with buffer=nl.psum"
        if memory not in (HBM, SBUF, PSUM):
            return "", "give a tensor of the kernel: a parameter, or a result of nl.ndarray or nl.load"
        return super().advice


UNNAMED = "a language function"         # in errors of functions that do not pass their name


class HostOperand(WrongMemory):
    """An operand that is a value of Python, which the device cannot read."""

    message = "operand '{operand}' of '{op}' is a value of type {found}; it must be a tensor in {expected}"
    operand: object = None                      # the value

    @property
    def advice(self) -> tuple[str, str]:
        if self.values["found"] == "NoneType":
            return ("an instruction that writes its first argument returns None",
                    "do not assign the result of such an instruction: nisa.memset(tile, 0.0), not tile = nisa.memset("
                    "...)")
        if pass_instead := getattr(type(self.operand), "pass_instead", ""):
            return "", pass_instead
        exchanged = "form" in self.values and callable(self.operand)
        return ("", f"call it as {self.values['form']}") if exchanged else super().advice


def dtype_advice(operand: str, expected: object) -> str:
    """Return advice for an operand of another dtype than the expected ones."""
    first = "int32" if str(expected) == "an integer type" else re.split(", | or ", str(expected))[0]
    name = f"nl.{first}" if first in BY_NAME else ""
    if operand.startswith("dst"):
        return f"create it with dtype={name}" if name else f"create it with {expected}"
    return f"convert it first, for example with nl.copy(x, dtype={name or '...'})"


class WrongDtype(KernelError):
    code = "NKI-DTYPE"
    message = "operand '{operand}' of '{op}' has dtype {found}, which must be {expected}"
    fix = "convert it first, for example with nl.copy(x, dtype=...)"

    @property
    def advice(self) -> tuple[str, str]:
        return "", dtype_advice(str(self.values["operand"]), self.values["expected"])


class TooLarge(KernelError):
    code = "err_size_of_dimension_exceed_arch_limit"
    message = "size of dimension {dim} in '{tile}' of '{op}' exceed architecture limitation of {limit}."
    fix = "split the operation into pieces of at most {limit}"


class PsumBank(KernelError):
    code = "NKI-PSUM-BANK"
    message = "a matmul result of {bytes} bytes per partition does not fit one PSUM bank of {limit} bytes"
    fix = "compute at most {elements} float32 columns at a time"


class WrongAttribute(KernelError):
    code = "NKI-ATTRIBUTE"
    message = "attribute '{attribute}' of '{op}' is {found}, which must be {expected}"
    fix = "give {expected}"


class OverlappingWrite(KernelError):
    code = "err_store_dst_shape_smaller_than_other_shape"
    message = "the destination {tile} of '{op}' names the same element more than once"
    fix = "write each element once: a destination must not be broadcast or overlap itself"


Interval = Callable[[Linear], tuple[int, int]]


class CheckedOperation(Protocol):
    """An operation or a control step, whose fields a check reads by their names."""

    @property
    def name(self) -> str: ...


class Check:
    """The rules for one operation: each raises its error or returns nothing."""

    def __init__(self, op: CheckedOperation) -> None:
        self.op = op
        self.name = op.name

    def tile(self, label: str, tile: Tile, writes: bool) -> None:
        """Check the rules of every operand: the partition form, self-overlap of destinations."""
        access = tile.access
        if tile.on_chip:
            step, count = access.dims[0]
            if (most := max(count, tile.base_shape[0])) > PARTITIONS:
                raise TooManyPartitions(count=most, limit=PARTITIONS)
            if count > 1 and step not in ((1,) if writes else (0, 1)):
                raise PartitionAccess(what=f"operand '{label}' steps through partitions by {step}")
        if writes and any([step == 0 and count > 1 for step, count in access.dims]):
            raise OverlappingWrite(tile=tile.describe(), op=self.name)

    def present(self, *labels: str) -> list[tuple[str, Tile]]:
        """Return the operands of these fields, without those that are absent."""
        return [(label, tile) for label in labels if (tile := getattr(self.op, label)) is not None]

    def spaces(self, label: str, *allowed: str) -> None:
        for _, tile in self.present(label):
            if tile.space not in allowed:
                raise WrongMemory(operand=label, op=self.name, expected="|".join(allowed), found=tile.space)

    def all_in(self, allowed: tuple[str, ...], *labels: str) -> None:
        for label in labels:
            self.spaces(label, *allowed)

    def on_chip(self, *labels: str) -> None:
        self.all_in((PSUM, SBUF), *labels)

    def in_hbm(self, label: str) -> None:
        self.spaces(label, HBM)

    def same_shape(self, *labels: str) -> None:
        tiles = self.present(*labels)
        shape = tiles[0][1].shape
        for label, tile in tiles[1:]:
            if tile.shape != shape:
                if tile.on_chip and tiles[0][1].on_chip and tile.shape[0] != shape[0]:
                    raise PartitionMismatch(tiles=", ".join(f"{n}{list(t.shape)}" for n, t in tiles), op=self.name)
                raise ShapeMismatch(what=f"'{self.name}' needs operands of the same shape, got "
                                         f"{tiles[0][0]}{list(shape)} and {label}{list(tile.shape)}",
                                    fix=agreement(shape, tile.shape))

    def on_chip_of_one_shape(self, *labels: str) -> None:
        """Check that operands are on chip and of one shape."""
        self.on_chip(*labels)
        self.same_shape(*labels)

    def dtype(self, label: str, *allowed: DType) -> None:
        for _, tile in self.present(label):
            if tile.dtype not in allowed:
                raise WrongDtype(operand=label, op=self.name, found=tile.dtype, expected=" or ".join(map(str, allowed)))

    def integers(self, *labels: str) -> None:
        for label, tile in self.present(*labels):
            if not tile.dtype.is_integer:
                raise WrongDtype(operand=label, op=self.name, found=tile.dtype, expected="an integer type")

    def at_most(self, label: str, dim: int, extent: int, limit: int) -> None:
        if extent > limit:
            raise TooLarge(dim=dim, tile=f"{label}{list(getattr(self.op, label).shape)}", op=self.name, limit=limit)

    def one_of(self, attribute: str, allowed: Collection[str] | Collection[int]) -> None:
        value = getattr(self.op, attribute)
        if value not in allowed:
            raise WrongAttribute(attribute=attribute, op=self.name, found=repr(value),
                                 expected="one of " + ", ".join(map(str, allowed)))

    def alu(self, attribute: str, *operands: int) -> None:
        """Check that an attribute names an ALU operation that takes one of these numbers of operands."""
        name = getattr(self.op, attribute)
        if name not in ALU or ALU[name].arity not in operands:
            self.one_of(attribute, [name for name, op in ALU.items() if op.arity in operands])

    def bits(self, attributes: Sequence[str], *labels: str) -> bool:
        """Check that all or none of the operations are bit operations, and with them tiles of integers; return whether
        they are."""
        names = [getattr(self.op, a) for a in attributes]
        on_bits = [ALU[n].on_bits for n in names if n != "bypass"]
        self.rule(all(on_bits) or not any(on_bits),
                  f"{' and '.join(attributes)} must both be bit operations or both arithmetic",
                  "compute with two instructions")
        if any(on_bits):
            self.integers(*labels)
        return any(on_bits)

    def shape(self, label: str, expected: tuple[int, ...]) -> None:
        tile: Tile = getattr(self.op, label)
        if tile.shape != expected:
            raise ShapeMismatch(what=f"operand '{label}' of '{self.name}' has shape {list(tile.shape)}, "
                                     f"which must be {list(expected)}",
                                fix=f"create it with shape {tuple(expected)}")

    def per_partition(self, *labels: str) -> None:
        """Check tiles of one value for each partition of ``dst``."""
        dst: Tile = self.op.dst         # type: ignore[attr-defined]
        for label, tile in self.present(*labels):
            if tile.free_elements != 1:
                raise NotOneARow(operand=label, op=self.name, count=tile.free_elements, rows=dst.shape[0])
            if tile.shape[0] != dst.shape[0]:
                raise PartitionMismatch(tiles=f"dst{list(dst.shape)}, {label}{list(tile.shape)}", op=self.name)

    def same_partitions(self, *labels: str) -> None:
        """Check that the present tiles have one number of partitions."""
        counts = {label: tile.shape[0] for label, tile in self.present(*labels)}
        listed = ", ".join(f"{label} {count}" for label, count in counts.items())
        self.rule(len(set(counts.values())) <= 1,
                  f"{' and '.join(counts)} must have the same number of partitions, got {listed}",
                  "give each the same number of partitions")

    def rule(self, holds: bool, rule: str, fix: str = "give it values that this rule allows") -> None:
        """Check a rule that only this op has; ``fix`` is the advice if it does not hold."""
        if not holds:
            raise BrokenRule(op=self.name, what=rule, fix=fix)

    def unmasked(self, reason: str = "") -> None:
        self.rule(not getattr(self.op, "mask", ()), f"it takes no mask{reason}", "leave the mask out")
