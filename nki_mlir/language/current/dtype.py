# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.dtype`` as a module: the names of the dtypes."""

from nki_mlir.language.current.language import (
    bfloat16,
    bool,
    bool_,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)

__all__ = ["bfloat16", "bool", "bool_", "float4_e2m1fn_x4", "float8_e4m3", "float8_e4m3fn", "float8_e4m3fn_x4",
           "float8_e5m2", "float8_e5m2_x4", "float8_e8m0fnu", "float16", "float32", "int8", "int16", "int32",
           "tfloat32", "uint8", "uint16", "uint32"]
