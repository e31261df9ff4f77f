# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types, their promotion, and the conversion of values to one (documents: beta 3.4 and 3.5)."""

from typing import Any

import ml_dtypes
import numpy as np


class DType:
    """An element type: equal to the NumPy type that holds it, and to its name."""

    def __init__(self, name: str, numpy: Any, kind: str) -> None:
        self.name, self.numpy, self.kind = name, np.dtype(numpy), kind      # kind: float, int, bool

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def dtype(self) -> np.dtype:
        return self.numpy

    def __eq__(self, other: Any) -> bool:
        try:
            return dtype_of(other).name == self.name
        except TypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


def _names(kind: str, **types: Any) -> dict[str, DType]:
    return {name: DType(name, numpy, kind) for name, numpy in types.items()}


DTYPES: dict[str, DType] = {
    **_names("float", float32=np.float32, tfloat32=np.float32, float16=np.float16, bfloat16=ml_dtypes.bfloat16,
             float8_e4m3=ml_dtypes.float8_e4m3, float8_e5m2=ml_dtypes.float8_e5m2,
             float8_e4m3fn=ml_dtypes.float8_e4m3fn, float8_e8m0fnu=ml_dtypes.float8_e8m0fnu, float64=np.float64),
    **_names("int", int8=np.int8, int16=np.int16, int32=np.int32, uint8=np.uint8, uint16=np.uint16, uint32=np.uint32,
             int64=np.int64, uint64=np.uint64),
    **_names("bool", bool=np.bool_),
}
FLOAT32, INT32, UINT8, UINT32, BOOL = (DTYPES[n] for n in ("float32", "int32", "uint8", "uint32", "bool"))
TFLOAT32 = DTYPES["tfloat32"]


def dtype_of(value: Any) -> DType:
    """The element type that a kernel or an array names: by an object, a NumPy type or a string."""
    if isinstance(value, DType):
        return value
    metadata = getattr(value, "metadata", None)             # of a NumPy type that holds another one
    if metadata and metadata.get("nki") in DTYPES:
        return DTYPES[metadata["nki"]]
    if value is float:
        return FLOAT32
    if value is int:
        return INT32
    if isinstance(value, np.dtype) and value.metadata and "nki" in value.metadata:
        return DTYPES[value.metadata["nki"]]        # arrays of tfloat32 are of float32, marked
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if name is None or not isinstance(name, str):
        name = np.dtype(value).name
    name = name.removesuffix("_")
    if name not in DTYPES:
        raise TypeError(f"no element type: {value!r}")
    return DTYPES[name]


def round_to_tfloat32(values: np.ndarray) -> np.ndarray:
    """float32 with 10 bits of mantissa: to nearest, ties to even (beta 12, row 17)."""
    bits = np.frombuffer(np.asarray(values, np.float32).tobytes(), np.uint32).reshape(np.shape(values))
    rounded = ((bits.astype(np.uint64) + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000).astype(np.uint32)
    return np.where(np.isfinite(values), rounded.view(np.float32), values).astype(np.float32)


class Whole:
    """A result of integer arithmetic: as such to 32-bit integers, what float32 gives to others (decisions: 32 bits)."""

    def __init__(self, integers: np.ndarray, single: np.ndarray) -> None:
        self.integers, self.single = integers, single

    def to(self, dtype: DType) -> np.ndarray:
        return self.integers if dtype.name in ("int32", "uint32") else self.single


def convert(values: Any, dtype: DType) -> np.ndarray:
    """Values as elements of a type: rounded to nearest even; to integers saturating, NaN to 0 (beta 3.5).

    Integers of the range of the type stay what they are. Others, and all that become floats, pass through float32,
    in which the engines compute.
    """
    values = np.asarray(values.to(dtype) if isinstance(values, Whole) else values)
    if dtype.kind == "bool":
        return values != 0
    if dtype.kind == "int":
        limits = np.iinfo(dtype.numpy)
        if values.dtype.kind in "iub":
            return np.clip(values.astype(object) if values.dtype == np.uint64 else values.astype(np.int64),
                           limits.min, limits.max).astype(dtype.numpy)
        wide = np.rint(np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        return np.where(wide >= float(limits.max), limits.max,
                        np.where(wide <= float(limits.min), limits.min,
                                 np.clip(wide, -2.0 ** 62, 2.0 ** 62).astype(np.int64))).astype(dtype.numpy)
    if dtype.numpy == np.float64:
        return values.astype(np.float64)
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
        return round_to_tfloat32(single) if dtype.name == "tfloat32" else single.astype(dtype.numpy)


# Beta 3.5: two floats; what is not here is the wider one.
_FLOATS = {frozenset(pair.split()): DTYPES[result] for pair, result in {
    "float32 tfloat32": "float32", "float32 bfloat16": "float32", "float16 bfloat16": "float32",
    "tfloat32 bfloat16": "float32", "tfloat32 float16": "float32", "tfloat32 float8_e4m3": "float32",
    "tfloat32 float8_e5m2": "float32", "tfloat32 float8_e4m3fn": "float32",
    "float8_e4m3 float8_e5m2": "bfloat16", "float8_e4m3 float8_e4m3fn": "bfloat16",
    "float8_e4m3fn float8_e5m2": "bfloat16"}.items()}
_ORDER = ("float8_e4m3fn", "float8_e4m3", "float8_e5m2", "float16", "bfloat16", "tfloat32", "float32")


def promote(a: DType, b: DType) -> DType:
    """The type of an operation on elements of two types (beta 3.5)."""
    if a.name == b.name:
        return a
    if "float" in (a.kind, b.kind):
        if a.kind != b.kind:
            return a if a.kind == "float" else b
        return _FLOATS.get(frozenset((a.name, b.name))) or max(a, b, key=lambda d: _ORDER.index(d.name))
    a, b = (UINT8 if d.kind == "bool" else d for d in (a, b))
    ranges = [np.iinfo(d.numpy) for d in (a, b)]
    low, high = min(r.min for r in ranges), max(r.max for r in ranges)
    fitting = [DTYPES[n] for n in ("uint8", "int8", "uint16", "int16", "uint32", "int32")]
    fitting = [d for d in fitting if np.iinfo(d.numpy).min <= low and np.iinfo(d.numpy).max >= high]
    return min(fitting, key=lambda d: d.itemsize) if fitting else FLOAT32


def weak(value: Any) -> DType:
    """The type of a number of the kernel: the widest of its kind for Python's, its own for NumPy's (beta 3.5)."""
    if isinstance(value, (bool, np.bool_)):
        return UINT8
    if isinstance(value, np.generic) and value.dtype.itemsize < 8:
        return dtype_of(value.dtype)
    return INT32 if isinstance(value, (int, np.integer)) else FLOAT32
