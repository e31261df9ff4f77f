# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of an engine's stream: an operation with its waits and signals; and the control operations.

The operation is an ``Op`` with mnemonic and opcode (the ``nisa`` family, and ``nki.device_print``) whose tiles lie in
the physical memories and whose symbols are registers, or a ``Control``.
"""

import dataclasses
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects import catalog
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.machine import ENGINES, Engine, Machine, Work
from nki_mlir.machine.engine import table_of
from nki_mlir.scalar import predicates
from nki_mlir.scalar.activation import ACTIVATIONS

REGISTERS, SEMAPHORE_MAX = Machine.registers, Machine.semaphore_max
COMPLETIONS = Machine.dma_engines       # a finished transfer adds one for each of them to its queue's semaphore


class NoEncoding(NkiMlirError):
    code = "NKI-NO-ENCODING"
    message = "'{op}' has no instruction: its class has no {missing}"
    fix = "lower it to nisa operations that have a mnemonic and an opcode"


@dataclass(frozen=True)
class Register:
    """A scalar register of the engine that executes the instruction."""

    number: int

    def __str__(self) -> str:
        return f"r{self.number}"


class Label(int):
    """The index of an instruction in its stream: the target of a branch."""


Scalar = Register | int


class Wait(NamedTuple):
    """A condition on the start of an instruction: the semaphore is at least ``value``."""

    semaphore: int
    value: int


class Update(NamedTuple):
    """The signal of an instruction: add ``amount`` to the semaphore when the instruction, or the transfer that it
    issues, is complete."""

    semaphore: int
    amount: int


# -- control operations ------------------------------------------------------------------------------------------------
CONTROLS: dict[str, type["Control"]] = {}           # by mnemonic


class Control:
    """Base of the operations on registers and semaphores.

    Fields are of type Register, Scalar, int, str, Label or Tile (one element, at a fixed address).
    """

    name: ClassVar[str] = ""
    mnemonic: ClassVar[str] = ""
    opcode: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...]]] = {}      # the values of a field of type str
    inputs: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, mnemonic: str, opcode: int) -> None:
        cls.name, cls.mnemonic, cls.opcode = mnemonic, mnemonic, opcode
        CONTROLS[mnemonic] = cls

    @classmethod
    @cache
    def kinds(cls) -> dict[str, object]:
        """Map the names of fields to their types, in order."""
        return {f.name: f.type for f in dataclasses.fields(cls)}        # type: ignore[arg-type]

    def values(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.kinds()}


class RegisterDivision(NkiMlirError):
    code = "NKI-REGISTER-DIVISION"
    message = "{op} of {lhs} by 0 in a register"
    why = "no document says what the register then contains"
    fix = "branch around it with COMPARE_BRANCH where the divisor is 0"


def _divides(op: str, function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def divided(lhs: int, rhs: int) -> int:
        if rhs == 0:
            raise RegisterDivision(op=op, lhs=lhs)
        return function(lhs, rhs)
    return divided


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    comparison.name: comparison.holds for comparison in predicates.COMPARISONS}
ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "subtract": operator.sub, "mult": operator.mul, "min": min, "max": max,
    "floordiv": _divides("floordiv", operator.floordiv), "mod": _divides("mod", operator.mod),
    "and": operator.and_, "or": operator.or_,
    **COMPARISONS}


def signed(value: int) -> int:
    """Return a register's 32 bits as a signed number."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


@dataclass(frozen=True)
class EventSemaphore(Control, mnemonic="EVENT_SEMAPHORE", opcode=0x01):
    """Does nothing but wait and signal."""


@dataclass(frozen=True)
class RangeClear(Control, mnemonic="EVENT_SEMAPHORE_RANGE_CLEAR", opcode=0x02):
    """Sets the semaphores ``first`` to ``last`` to 0."""

    first: int
    last: int


@dataclass(frozen=True)
class Move(Control, mnemonic="MOVE", opcode=0x03):
    """dst = value."""

    dst: Register
    value: Scalar


@dataclass(frozen=True)
class RegisterAlu(Control, mnemonic="ALU", opcode=0x04):
    """dst = lhs op rhs; comparisons give 0 or 1, division and remainder round down."""

    op: str
    dst: Register
    lhs: Scalar
    rhs: Scalar
    choices = {"op": tuple(ARITHMETIC)}


@dataclass(frozen=True)
class TensorLoad(Control, mnemonic="TENSOR_LOAD", opcode=0x06):
    """dst = the integer in memory."""

    dst: Register
    src: Tile


@dataclass(frozen=True)
class CompareBranch(Control, mnemonic="COMPARE_BRANCH", opcode=0x05):
    """Branch to ``target`` if lhs op rhs holds."""

    op: str
    lhs: Scalar
    rhs: Scalar
    target: Label
    choices = {"op": tuple(COMPARISONS)}


@dataclass(frozen=True)
class ActTableLoad(Control, mnemonic="ACT_TABLE_LOAD", opcode=0x07):
    """Loads a set of functions into the scalar engine, in place of its current one."""

    table: str
    choices = {"table": tuple(dict.fromkeys(filter(None, map(table_of, ACTIVATIONS))))}


# -- instructions ------------------------------------------------------------------------------------------------------
@dataclass(eq=False, slots=True)
class SourceIteration:
    """The iteration of a loop of the kernel to which an instruction belongs.

    ``value``: the value of the loop's variable; if the instruction is in a loop of the device (``in_loop``), the number
    that this iteration adds to that loop's variable. ``name``: the variable's name, if no source line defines it.
    ``parent``: the iteration of the next outer loop."""

    location: Location | None
    name: str
    value: int
    parent: "SourceIteration | None" = None
    in_loop: bool = False


@dataclass(slots=True)
class Instruction:
    """One entry of a stream. ``queue`` is the DMA queue of a transfer. ``work`` is the work of the operation, and
    ``iteration`` its iteration of the kernel's innermost loop, if they are known: texts and binaries do not contain
    them. ``timed`` has the instruction's costs on a machine."""

    op: Op | Control
    waits: tuple[Wait, ...] = ()
    update: Update | None = None
    queue: int | None = None
    location: Location | None = None
    work: Work | None = field(default=None, compare=False, repr=False)
    iteration: SourceIteration | None = field(default=None, compare=False, repr=False)
    timed: Any = field(default=None, compare=False, repr=False)

    def work_of(self, op: Op) -> Work:
        """Return the work of its operation ``op``, memoized."""
        if self.work is None:
            self.work = op.work()
        return self.work


@cache
def by_mnemonic() -> dict[str, type[Op] | type[Control]]:
    """Return every class that can be in a stream; two classes of one mnemonic or opcode are a defect of the classes."""
    catalog.load()
    classes: dict[str, type[Op] | type[Control]] = dict(CONTROLS)
    for cls in REGISTRY.values():
        if cls.mnemonic and cls.opcode:
            if classes.setdefault(cls.mnemonic, cls) is not cls:
                raise NkiMlirError(f"{cls.full_name()} has the mnemonic of another class: {cls.mnemonic}")
    return classes


@cache
def by_opcode() -> dict[int, type[Op] | type[Control]]:
    classes: dict[int, type[Op] | type[Control]] = {}
    for cls in by_mnemonic().values():
        if classes.setdefault(cls.opcode, cls) is not cls:
            raise NkiMlirError(f"{cls.mnemonic} has the opcode of {classes[cls.opcode].mnemonic}: {cls.opcode:#x}")
    return classes


def check_encodable(cls: type[Op]) -> None:
    """Raise ``NoEncoding`` for an operation that no stream can contain."""
    for missing in ("mnemonic", "opcode"):
        if not getattr(cls, missing):
            raise NoEncoding(op=cls.full_name(), missing=missing)


ENGINE_NAMES = {Engine.TENSOR: "Tensor", Engine.SCALAR: "Scalar", Engine.VECTOR: "Vector", Engine.GPSIMD: "GpSimd",
                Engine.SYNC: "Sync"}
BY_ASM = {e.asm: e for e in ENGINES}
