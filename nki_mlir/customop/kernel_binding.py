# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Custom operators in NKI kernels: a call on tensors in HBM becomes a ``nisa.gpsimd_call``, a single instruction.

Its cost follows from a call on zeros, in which the emulated cores count: transfers, bytes and cycles depend only on the
shapes, unless a kernel's control flow depends on values.
"""

import json
import warnings
from collections.abc import Sequence
from functools import cache
from numbers import Real
from typing import Any

import numpy as np

from nki_mlir.capture.tensor import View
from nki_mlir.customop import cost
from nki_mlir.customop.abi import DTYPES
from nki_mlir.customop.findings import Fault, KernelWarning
from nki_mlir.customop.library import DenseArray, Operator, loaded_library
from nki_mlir.customop.settings import CallSettings, current_engine
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.nisa.gpsimd_call import SOURCES, GpsimdCallOp
from nki_mlir.dialects.programs import PROGRAMS, Program
from nki_mlir.language import operations
from nki_mlir.scalar.dtypes import dtype_of

QUIET = CallSettings(threads=False, printf_bytes=0)


class TooManyTensors(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-TENSORS"
    message = "{signature} is called in a kernel or a linked graph; its instruction can have at most {limit} tensors"
    fix = "pass fewer tensors, for example several joined into one"


class EmptyTensor(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-EMPTY"
    message = "{signature} is called in a kernel or a linked graph, and an operand or the result has no elements"
    why = "each tensor of an instruction must have elements"
    fix = "skip the call if a tensor is empty"


def call(operator: Operator, arguments: Sequence[object]) -> object:
    """Call an operator in a kernel that is being captured or run. Return a tensor in HBM, of the generation of the
    arguments."""
    if all(isinstance(a, View) for a, p in zip(arguments, operator.parameters) if p == "T"):
        return instruction(operator, arguments)
    from nki_mlir.language.current import lowering  # start-up: kernels of the beta generation do not need it
    from nki_mlir.language.current.tensor import NkiTensor  # start-up: as above
    views = [lowering.core_view(lowering.reading(a)) if isinstance(a, NkiTensor) else a for a in arguments]
    return lowering.adopt(instruction(operator, views))


def instruction(operator: Operator, arguments: Sequence[Any]) -> View:
    """Emit the call on tensors of the core language, and return the tensor that it writes."""
    tensors = [a for a, p in zip(arguments, operator.parameters) if p == "T"]
    for number, tensor in enumerate(tensors):
        if not isinstance(tensor, View):
            operator.refuse(number, tensor, "a tensor of the kernel")
    numbers = numbers_of(operator, arguments)
    kinds = [(operator.code_of(number, t.dtype.numpy), tuple(t.shape)) for number, t in enumerate(tensors)]
    shape, code = operator.infer(merged(operator, [DenseArray(0, *kind) for kind in kinds], numbers))
    try:
        check_instruction(operator, [*(s for _, s in kinds), shape])
    except NkiMlirError as error:
        raise error.here() from None
    path = str(operator.library.path)
    PROGRAMS[path, operator.name] = program_of(operator)
    attributes = measured(operator, tuple(kinds), numbers)
    result: View = operations.compute(GpsimdCallOp, shape, dtype_of(DTYPES[code]), dict(zip(SOURCES, tensors)),
                                    space=HBM, library=path, function=operator.name, numbers=json.dumps(numbers),
                                    shapes=json.dumps([shape for _, shape in kinds]), **attributes)
    return result


def numbers_of(operator: Operator, arguments: Sequence[Any]) -> tuple[float, ...]:
    """Return the numbers among the arguments; a loop's variable gets its number by unrolling. Raise
    ``WrongArgument``."""
    numbers: list[float] = []
    for index, (argument, parameter) in enumerate(zip(arguments, operator.parameters)):
        if parameter != "T":
            is_symbol = not isinstance(argument, Real | np.bool_) and hasattr(argument, "__float__")
            numbers.append(operator.number_of(index, float(argument) if is_symbol else argument))
    return tuple(numbers)


def check_instruction(operator: Operator, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise ``TooManyTensors`` or ``EmptyTensor`` if an instruction cannot have these operands and this result."""
    if len(shapes) - 1 > len(SOURCES):
        raise TooManyTensors(signature=operator.signature, limit=len(SOURCES))
    if any(0 in shape for shape in shapes):
        raise EmptyTensor(signature=operator.signature)


def program(library: str, function: str) -> Program:
    """Return a function of a loaded library as a program on NumPy arrays."""
    return program_of(getattr(loaded_library("", "", library, function), function))


@cache
def program_of(operator: Operator) -> Program:
    def run(arrays: Sequence[np.ndarray], numbers: Sequence[float]) -> np.ndarray:
        return operator.on_numpy(merged(operator, arrays, numbers), current_engine())
    return run


def merged(operator: Operator, arrays: Sequence[object], numbers: Sequence[float]) -> list[Any]:
    """Return tensors and numbers in the order of the parameters."""
    tensors, remaining_numbers = iter(arrays), iter(numbers)
    return [next(tensors) if p == "T" else next(remaining_numbers) for p in operator.parameters]


@cache
def measured(operator: Operator, described: tuple[tuple[int, tuple[int, ...]], ...],
             numbers: tuple[float, ...]) -> dict[str, int]:
    """Return the cost of a call, by attributes of the instruction. It is empty if the call on zeros fails."""
    zeros = [np.zeros(shape, DTYPES[code]) for code, shape in described]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelWarning)          # each run warns again
        try:
            cores = operator.measured(merged(operator, zeros, numbers), QUIET)[1]
        except Fault:                                           # a run raises it, too, unless the zeros cause it
            return {}
    names = ("transfers_in", "bytes_in", "transfers_out", "bytes_out")
    return {"busy": round(cost.cycles(cores))} | {n: sum(getattr(c, n) for c in cores) for n in names}
