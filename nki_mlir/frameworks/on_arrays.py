# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Callees and linked programs on NumPy arrays: the arrays' dtypes, the error on wrong ones, and the call itself."""

from collections.abc import Sequence

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.kernel_function import ArgumentSpec
from nki_mlir.frameworks.registry import Callee


class BadArguments(NkiMlirError, TypeError):
    code = "NKI-STABLEHLO-ARGUMENTS"
    message = "argument {number} is {found}; @{function} takes {expected}"
    fix = "give one array for each parameter, of its shape and dtype"


def checked(arguments: Sequence[object], wanted: Sequence[tuple[tuple[int, ...], np.dtype]], function: str
            ) -> list[np.ndarray]:
    """Arguments as arrays; raises ``BadArguments`` where one has not the shape and dtype that its parameter takes."""
    count = len(arguments)
    if count != len(wanted):
        raise BadArguments(number=count, found="missing" if count < len(wanted) else "extra", function=function,
                           expected=f"{len(wanted)} arrays")
    arrays = [np.asarray(value, order="C") for value in arguments]
    for number, (array, (shape, dtype)) in enumerate(zip(arrays, wanted)):
        if array.shape != shape or array.dtype != dtype:
            raise BadArguments(number=number, found=f"{array.shape} {array.dtype}", function=function,
                               expected=f"{shape} {dtype}")
    return arrays


def storage(spec: ArgumentSpec) -> np.dtype:
    """The dtype of arrays for a buffer."""
    assert spec.dtype is not None
    return np.dtype(spec.dtype.numpy.type)


def run_on_arrays(callee: Callee, arrays: Sequence[object]) -> list[np.ndarray]:
    """Run a callee on its operands; the new arrays of all results of the call."""
    record = callee.record
    operands = [np.asarray(v, order="C") for v in arrays]
    results = [np.zeros(r.shape, storage(r)) for r in record.results]
    for operand, result in record.form.aliases.items():
        results[result][...] = operands[operand]
    memory = {"operand": operands, "result": results}
    callee.entry([memory[kind][n].ctypes.data for kind, n in map(record.form.source, record.slots)])
    return results
