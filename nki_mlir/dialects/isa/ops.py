# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``isa`` dialect: a program as IR, with a region of blocks for each engine.

``isa.program`` holds the variables, semaphores and queues, then one ``isa.stream`` an engine. A block ends with
``isa.branch`` (taken, else), ``isa.next`` or ``isa.end``. Everything else is ``isa.instruction``, whose mnemonic names
the class that says what its tiles, fields and rules are.
"""
# mypy: disable-error-code="call-arg,name-defined"
# (the bindings make the classes from their annotations when the module is imported)


from nki_mlir.bindings import Context, ext, ir
from nki_mlir.dialects.attributes import MalformedAttribute, Nki, reported
from nki_mlir.dialects.isa.instruction import COMPARISONS, Control
from nki_mlir.dialects.isa.instruction_reader import read_instruction
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.verifier import verify, verify_mask


class Isa(ext.Dialect, name="isa"):
    """Instruction streams."""


class ProgramOp(Isa.Operation, name="program", traits=[ir.NoTerminatorTrait]):
    """A kernel on one core. Sizes are bytes per partition up to the last that is used; notes say how it was made."""

    kernel: ir.StringAttr
    target: ir.StringAttr
    sbuf_bytes: ir.IntegerAttr
    psum_bytes: ir.IntegerAttr
    notes: ir.ArrayAttr
    body: ext.Region


class VariableOp(Isa.Operation, name="variable"):
    """A tensor in HBM: ``kind`` is input, output, internal or constant; ``data`` a constant's bytes in hexadecimal."""

    label: ir.StringAttr
    kind: ir.StringAttr
    index: ir.IntegerAttr
    type: ir.TypeAttr
    data: ir.StringAttr


class SemaphoreOp(Isa.Operation, name="semaphore"):
    """A semaphore. Its number is its place among the program's."""

    label: ir.StringAttr


class QueueOp(Isa.Operation, name="queue"):
    """A DMA queue of an engine, with the semaphore that counts its transfers."""

    label: ir.StringAttr
    engine: ir.StringAttr
    semaphore: ir.IntegerAttr


class StreamOp(Isa.Operation, name="stream", traits=[ir.NoTerminatorTrait]):
    """The instructions of one engine."""

    engine: ir.StringAttr
    code: ext.Region


class _Signalling(Isa.Operation):
    """What all instructions have: ``waits`` are [semaphore, value], ``update`` is [semaphore, amount] or empty."""

    waits: ir.ArrayAttr
    update: ir.ArrayAttr


class InstructionOp(_Signalling, name="instruction"):
    """One instruction. A tile is ``[memory or variable, #nki.access<...>]`` with its physical partition and offset.

    The symbols of patterns are ``registers``. ``fields`` are the class's attributes, or a control operation's fields.
    ``queue`` is -1 but for a transfer.
    """

    mnemonic: ir.StringAttr
    tiles: ir.DictAttr
    fields: ir.DictAttr
    registers: ir.ArrayAttr
    queue: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        if any(name not in self.attributes for name in ("mnemonic", "tiles", "fields", "registers", "queue", "waits",
                                                        "update")):
            return True                         # the presence check, which runs after this one, reports it
        return reported(self, "isa.instruction", lambda: _verify(read_instruction(self.operation).op))


def _verify(op: Op | Control) -> None:
    if isinstance(op, Op):
        verify(op)
        verify_mask(op)


class BranchOp(_Signalling, name="branch", traits=[ir.IsTerminatorTrait]):
    """Go to the first successor if ``lhs op rhs``, else to the second. Sides are numbers or registers ("r1")."""

    op: ir.StringAttr
    sides: ir.ArrayAttr

    def verify_invariants(self) -> bool:
        return reported(self, "isa.branch", self.check)

    def check(self) -> None:
        if "op" in self.attributes and self.attributes["op"].value not in COMPARISONS:
            raise MalformedAttribute(f"has no comparison {self.attributes['op']}")
        if len(self.operation.successors) != 2:
            raise MalformedAttribute("needs two successors")


class NextOp(Isa.Operation, name="next", traits=[ir.IsTerminatorTrait]):
    """Go on with the successor, which comes next in the stream."""


class EndOp(Isa.Operation, name="end", traits=[ir.IsTerminatorTrait]):
    """The end of the stream."""


def load_isa(context: Context) -> None:
    """Load the dialect, and ``nki`` for access patterns; harmless when they are loaded already."""
    with context, ir.Location.unknown():
        for name, dialect in (("nki", Nki), ("isa", Isa)):
            if not context.is_dialect_loaded(name):
                dialect.load()
