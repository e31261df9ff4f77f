# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wrapper of every function of the language: binds calls in any release's form, and converts errors."""

import importlib
from collections.abc import Callable
from types import FunctionType

import numpy as np

from nki_mlir.capture.builder import active
from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.dialects.nisa.indirect import IndirectOutOfBounds
from nki_mlir.dialects.nisa.require_written import UnwrittenTile
from nki_mlir.language.current import enums
from nki_mlir.language.current.errors import NkiTypeError, integer, invalid, not_a_tensor, of_core, older
from nki_mlir.language.current.memory import MemoryRegion, VirtualRegister, region_value
from nki_mlir.language.signatures import kinds
from nki_mlir.language.signatures.binding import Function, Generation, R, bound
from nki_mlir.language.signatures.kinds import ParameterKind, dtype_value
from nki_mlir.language.signatures.parameter_names import call_of
from nki_mlir.language.tensor_object import TensorObject
from nki_mlir.scalar.dtypes import BY_NAME, FLOAT32, UINT8, DType
from nki_mlir.similar_names import nearest

INSTRUCTIONS = ("nki.isa.", "nki.collectives.")


class Current(Generation):
    """The binding of calls for the package ``nki``, with its errors for arguments that a parameter does not accept."""

    def word(self, kind: ParameterKind) -> str:
        return kind.label

    def refuse(self, function: Function, parameter: str, kind: ParameterKind, value: object) -> None:
        self.require_kernel(function)
        subject = f"{function.title} {parameter}"
        if kind is kinds.DTYPE and kinds.names_dtype(value):
            dtype_argument(value)
        if kind is kinds.INTEGER and not isinstance(value, TensorObject):
            integer(value, subject)
        if kind is kinds.TENSOR:
            not_a_tensor(value, subject)
        if kind.enumeration:
            members = ", ".join(f"nisa.{m}" for m in self.values.enumerations[kind.enumeration])
            invalid(f"expecting '{kind.enumeration}' for {parameter}, got {shown(value)}", fix=f"one of {members}")
        if kind.label:
            fix = f"call it as {call_of(function.title, function.__signature__)}"
            if isinstance(value, np.ndarray) and "tensor" in kind.label:
                fix = "pass the array to the kernel as a parameter, and load it with nisa.dma_copy"
            elif isinstance(value, str) and "number" in kind.label:
                fix = "give a number without quotes"
            elif kind is kinds.DTYPE and isinstance(value, TensorObject):
                fix += ": a function of nl returns its result, and an instruction of nisa writes it to dst="
            raise NkiTypeError(f"{subject}: expecting {kind.label}, got {shown(value)}", fix=fix,
                               code="NKI-DTYPE-UNKNOWN" if kind is kinds.DTYPE else "").here()

    def unbound(self, function: Function, text: str) -> NkiMlirError:
        self.require_kernel(function)
        fix = f"call it as {call_of(function.title, function.__signature__)}"
        return NkiTypeError(text, fix=fix, code="NKI-PARAMETER").here()

    @staticmethod
    def require_kernel(function: Function) -> None:
        if function.name.startswith(INSTRUCTIONS):
            active(function.imported_name)

    def translated(self, error: KernelError) -> Exception:
        """Convert an error of the core to ``NkiValidationError``. Run-time errors (an index out of bounds, a read of an
        unwritten tile) stay unchanged."""
        return error if isinstance(error, (IndirectOutOfBounds, UnwrittenTile)) else of_core(error)

    def cross(self, function: Function, arguments: dict[str, object]) -> object:
        crossing = importlib.import_module("nki_mlir.language.current.beta_calls")
        return crossing.call(function, arguments)

    def report(self, text: str) -> None:
        older(text)


ENUMERATIONS = {e.__name__: e for e in (enums.engine, enums.reduce_cmd, enums.dge_mode, enums.oob_mode,
                                        enums.dma_engine, enums.matmul_perf_mode)}
CURRENT = Current("current", {**ENUMERATIONS, "nl": "nki_mlir.language.current.functions", "np": np, "uint8": UINT8,
                              "float32": FLOAT32, "MemoryRegion": MemoryRegion})
CURRENT.values.registers = (VirtualRegister,)
CURRENT.values.region = region_value
CURRENT.values.enumerations |= ENUMERATIONS
CURRENT.values.report_number = lambda value, member: older(
    f"the newest release takes nisa.{type(member).__name__}.{member.name}, not the number {value}")


def shown(value: object) -> str:
    """Return the text of a rejected value for an error message: its repr if short, else its type."""
    if isinstance(value, FunctionType):
        return f"the function {value.__name__}"
    try:
        text = repr(value)
        if isinstance(value, TensorObject):         # the elements of an eager tensor are on further lines
            text = text.partition("\n")[0]
    except Exception:
        text = type(value).__name__
    return text if len(text) < 40 else f"'{type(value).__name__}'"


def dtype_argument(dtype: object) -> DType:
    """Return a dtype given as one of the language, of NumPy or of a framework, or raise an error."""
    converted = dtype_value(dtype)
    if converted is kinds.REFUSED:
        name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", "")
        last = name.rpartition(".")[2]              # float32 of torch.float32
        suggestion = nearest(last, BY_NAME) if last else ""
        fix = f"use nl.{suggestion}" if suggestion else (
            "use a dtype of the language, for example nl.float32 or nl.bfloat16")
        text = shown(dtype) if isinstance(dtype, TensorObject) else name or dtype
        if isinstance(dtype, MemoryRegion):
            fix = f"give a dtype, and the memory as buffer=nl.{dtype.name}"
        if isinstance(dtype, TensorObject):
            fix = "give a dtype: a function of nl returns its result, and an instruction of nisa writes it to dst="
        raise NkiTypeError(f"unsupported dtype '{text}'", fix=fix, code="NKI-DTYPE-UNKNOWN").here()
    assert isinstance(converted, DType)
    return converted


def table_name(function: Callable[..., object]) -> str:
    """Return the name in the table of signatures for a function of this package, derived from its module."""
    module, name = function.__module__.rpartition(".")[2], function.__name__
    if "." in function.__qualname__ and "<locals>" not in function.__qualname__:
        return f"nki.language.{function.__qualname__}"
    part = module if module == "collectives" else "language"
    if module.startswith(("isa", "generated_functions")):
        part = "isa"
    return f"nki.{part}.{name}"


def reported(function: Callable[..., R]) -> Callable[..., R]:
    """Wrap a function so that it takes the arguments of any release, and replaces errors that both generations share
    by those that the current generation documents."""
    return bound(function, table_name(function), CURRENT)
