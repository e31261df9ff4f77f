# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""verify-target: check the rules that depend on the machine, ``nki.target``, for every instruction.

The rules are those of ``dialects.target_rules``, which the capture of a kernel also checks. The pass checks them again
because a module may come from a file, and because passes create instructions. ``verify`` of the operations checks the
rules that all targets share.
"""

from typing import NamedTuple

from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.dialects.kernel_function import KernelFunction, kernel_functions
from nki_mlir.dialects.mlir_ops import RecognizedOperation, recognize
from nki_mlir.dialects.nisa.gpsimd_call import GpsimdCallOp
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.dialects.target_findings import findings
from nki_mlir.machine import Machine, machine_named
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass


class SeveralLibraries(KernelError):
    code = "NKI-GPSIMD-LIBRARIES"
    message = "'{op}' runs a function of {library}, and an instruction before it one of {other}"
    why = "a model has one library of custom operators on the device"
    fix = "build all its operators into one library"


class VerifyTarget(Pass, name="verify-target", reads=Level.NISA):
    """Raises the error of the first instruction that breaks a rule."""

    def run(self, module: Module) -> None:
        verified(module)


class VerifiedInstruction(NamedTuple):
    """An instruction as it was read."""

    operation: Operation
    recognized: RecognizedOperation
    operands: list[Value]


def verified(module: Module) -> list[VerifiedInstruction]:
    """Check each instruction of a module. Return the instructions in order, so that nothing reads them again while the
    module stays unchanged."""
    instructions: list[VerifiedInstruction] = []
    with module.context, ir.Location.unknown():
        for kernel in kernel_functions(module):
            verify(kernel, instructions)
    return instructions


def verify(kernel: KernelFunction, instructions: list[VerifiedInstruction]) -> None:
    """Check each instruction of a kernel, and add it to ``instructions``."""
    machine = machine_named(kernel.target)
    library = ""                # library of programs of the GpSimd cores
    accepted: set[RecognizedOperation] = set()
    for operation in operations_of(kernel.op, lambda name: name in REGISTRY and name.startswith("nisa.")):
        try:
            recognized, operands = recognize(operation)
            instructions.append(VerifiedInstruction(operation, recognized, operands))
            if recognized in accepted:      # most instructions of unrolled code differ only in their handles
                continue
            op = recognized.with_ranges(operation, operands)
            check(op, machine)
            if isinstance(op, GpsimdCallOp):
                if library and op.library != library:
                    raise SeveralLibraries(op=op.name, library=op.library, other=library)
                library = op.library
            elif not op.symbols:
                accepted.add(recognized)
        except NkiMlirError as error:
            raise error.located(location_of(operation)) from None


def check(op: Op, machine: Machine) -> None:
    """Raise the error of the first rule that an instruction breaks, except rules on which documents contradict each
    other."""
    for finding in findings(op, machine):
        if not finding.uncertain:
            raise finding.error
