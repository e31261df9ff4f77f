# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The C interface of a built library: the layouts of ``include/gpsimd/abi.h``, dtypes, and the entry points."""

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int64, c_void_p

import ml_dtypes
import numpy as np

ABI = 1
CORES = 8
DIMS_MAX = 8
OPERATORS_MAX = 10

# c10::ScalarType
DTYPES: dict[int, np.dtype] = {0: np.dtype(np.uint8), 1: np.dtype(np.int8), 2: np.dtype(np.int16),
                               3: np.dtype(np.int32), 5: np.dtype(np.float16), 6: np.dtype(np.float32),
                               15: np.dtype(ml_dtypes.bfloat16)}
CODES = {dtype.name: code for code, dtype in DTYPES.items()}

# The declaration of a parameter in C++, and in a schema of PyTorch.
PARAMETERS = {"T": ("torch::Tensor", "Tensor"), "S": ("torch::Scalar", "Scalar"), "d": ("double", "float"),
              "i": ("int64_t", "int")}


class Arg(ctypes.Structure):
    _fields_ = [("kind", c_int64), ("number", c_double), ("data", c_void_p), ("dtype", c_int64), ("rank", c_int64),
                ("sizes", POINTER(c_int64))]


class SourceRecord(ctypes.Structure):
    _fields_ = [("file", c_char_p), ("line", c_int64)]


class FindingRecord(ctypes.Structure):
    _fields_ = [("kind", c_char_p), ("at", SourceRecord), ("other", SourceRecord), ("pc", c_void_p),
                ("values", c_int64 * 4), ("text", c_char_p), ("count", c_int64), ("cores", c_int64)]


class Counters(ctypes.Structure):
    """The events of a core that cost time. Only the checked build counts TCM and element accesses."""

    _fields_ = [(name, c_int64) for name in ("transfers_in", "bytes_in", "transfers_out", "bytes_out", "elements",
                                             "refills", "stream_elements", "tcm_accesses")]

    def __repr__(self) -> str:
        counts = ((field[0], getattr(self, field[0])) for field in self._fields_)
        return f"Counters({', '.join(f'{name}={count}' for name, count in counts if count)})"


class Report(ctypes.Structure):
    _fields_ = [("findings", POINTER(FindingRecord)), ("count", c_int64), ("printed", c_void_p),
                ("printed_bytes", c_int64), ("rank", c_int64), ("dtype", c_int64), ("sizes", c_int64 * DIMS_MAX),
                ("counters", Counters * CORES)]


class EngineOptions(ctypes.Structure):
    _fields_ = [("cores", c_int64), ("workers", c_int64), ("printf_bytes", c_int64)]


# Entry point -> (result, parameters).
ENTRIES: dict[str, tuple[object, ...]] = {
    "gpsimd_libraries": (c_char_p, ()), "gpsimd_multicore": (c_int64, ()), "gpsimd_checked": (c_int64, ()),
    "gpsimd_count": (c_int64, ()), "gpsimd_base": (c_void_p, ()), "gpsimd_name": (c_char_p, (c_int64,)),
    "gpsimd_kernel": (c_char_p, (c_int64,)), "gpsimd_parameters": (c_char_p, (c_int64,)),
    "gpsimd_bind": (None, (c_int64, c_void_p)), "gpsimd_demangle": (c_int64, (c_char_p, c_char_p, c_int64)),
    "gpsimd_shape": (POINTER(Report), (c_int64, POINTER(Arg))),
    "gpsimd_run": (POINTER(Report), (c_int64, POINTER(Arg), POINTER(Arg), POINTER(EngineOptions))),
    "gpsimd_free": (None, (POINTER(Report),)),
}


def declare(dll: ctypes.CDLL) -> None:
    """Declare the types of the entry points. Raise AttributeError if one is absent."""
    for name, (result, parameters) in ENTRIES.items():
        function = getattr(dll, name)
        function.restype, function.argtypes = result, parameters
