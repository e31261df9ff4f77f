# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts arrays between the 64-bit integers of a graph and the 32-bit integers of its instruction streams."""

from collections.abc import Sequence

import numpy as np

from nki_mlir.diagnostics import NkiMlirError


class DoesNotFit(NkiMlirError, ValueError):
    code = "NKI-NARROW"
    message = "argument {index} has the {dtype} {value}; instruction streams take numbers from {least} to {most}"
    why = "engines compute integers of 32 bits"
    fix = "give numbers in this range, or run this program on the CPU"


def narrowed(arrays: Sequence[np.ndarray], dtypes: Sequence[np.dtype]) -> list[np.ndarray]:
    """Return the arrays in the dtypes of a program's inputs: 64-bit integers as 32-bit ones where the program has
    these. Other arrays are returned unchanged. Raise ``DoesNotFit`` for a number that streams do not take."""
    return [array if array.dtype == dtype or array.dtype.itemsize != 8 else narrow_array(array, dtype, index)
            for index, (array, dtype) in enumerate(zip(arrays, dtypes, strict=True))]


def narrow_array(array: np.ndarray, dtype: np.dtype, index: int) -> np.ndarray:
    most = np.iinfo(dtype).max // 2                             # as ``argument_range``: sums of two fit
    least = max(np.iinfo(dtype).min, -most)
    beyond = array[(array < least) | (array > most)]
    if beyond.size:
        raise DoesNotFit(index=index, dtype=array.dtype, value=int(beyond.flat[0]), least=least, most=most)
    return array.astype(dtype)
