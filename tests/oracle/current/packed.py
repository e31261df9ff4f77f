# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements that consist of four small floats (language, section 4.1)."""

import ml_dtypes
import numpy as np

from ..dtypes import DTYPES, DType

SMALL = {"float8_e5m2_x4": ml_dtypes.float8_e5m2, "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
         "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn}
LARGEST = {"float8_e5m2_x4": 57344.0, "float8_e4m3fn_x4": 448.0}
EXPONENT = {"float8_e5m2_x4": 15, "float8_e4m3fn_x4": 8}                # of the largest number


def unpacked(elements: np.ndarray, dtype: DType) -> np.ndarray:
    """Return [..., 4] numbers as float64: element k is in byte k, or in the k-th four bits."""
    bits = elements.astype(np.uint32)[..., None]
    if dtype.name == "float4_e2m1fn_x4":
        codes = (bits >> (4 * np.arange(4, dtype=np.uint32)) & 15).astype(np.uint8)
    else:
        codes = (bits >> (8 * np.arange(4, dtype=np.uint32)) & 255).astype(np.uint8)
    return codes.view(SMALL[dtype.name]).astype(np.float64)


def packed(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Pack each four of [..., 4] numbers as 8-bit floats, rounded to nearest even and limited to the largest."""
    limit = LARGEST[dtype.name]
    codes = np.clip(values, -limit, limit).astype(np.float32).astype(SMALL[dtype.name]).view(np.uint8)
    return (codes.astype(np.uint32) << (8 * np.arange(4, dtype=np.uint32))).sum(-1).astype(np.uint32)


DTYPES.update({name: DType(name, np.uint16 if name.startswith("float4") else np.uint32, "int") for name in SMALL})
