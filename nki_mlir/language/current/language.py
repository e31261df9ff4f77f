# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.language`` (``nl``): tensors, dtypes, loops and functions on tiles."""

from typing import Any, NoReturn

from nki_mlir.frontend.index_tensors import arange, mgrid
from nki_mlir.language.creation import unique_name
from nki_mlir.language.current.calls import reported
from nki_mlir.language.current.creation import (
    empty_like,
    full,
    ndarray,
    ones,
    rand,
    random_seed,
    shared_constant,
    shared_identity_matrix,
    zeros,
    zeros_like,
)
from nki_mlir.language.current.dynamic_loops import dynamic_range, fori_loop, no_reorder, while_loop
from nki_mlir.language.current.errors import NkiTypeError, older, require, unknown_name, user_location, whole
from nki_mlir.language.current.functions import (
    abs,
    abs_max,
    abs_min,
    add,
    all,
    arctan,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    broadcast_to,
    ceil,
    copy,
    cos,
    device_print,
    divide,
    dropout,
    equal,
    erf,
    erf_dx,
    exp,
    expand_dims,
    floor,
    fmod,
    gather_flattened,
    gelu,
    gelu_apprx_sigmoid,
    gelu_apprx_sigmoid_dx,
    gelu_apprx_tanh,
    gelu_dx,
    greater,
    greater_equal,
    invert,
    left_shift,
    less,
    less_equal,
    load,
    load_transpose2d,
    log,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    matmul,
    max,
    maximum,
    mean,
    min,
    minimum,
    mish,
    mod,
    multiply,
    negative,
    not_equal,
    power,
    prod,
    reciprocal,
    relu,
    right_shift,
    rms_norm,
    rsqrt,
    sigmoid,
    sign,
    silu,
    silu_dx,
    sin,
    softmax,
    softplus,
    sqrt,
    square,
    store,
    subtract,
    sum,
    tan,
    tanh,
    transpose,
    trunc,
    var,
    where,
)
from nki_mlir.language.current.indexing import ds
from nki_mlir.language.current.kernel import num_programs, program_id, program_ndim
from nki_mlir.language.current.regions import (
    MemoryRegion,
    hbm,
    is_hbm,
    is_on_chip,
    is_psum,
    is_sbuf,
    private_hbm,
    psum,
    sbuf,
    shared_hbm,
    tile_size,
)
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.objects import NKIObject
from nki_mlir.language.spmd import nc, spmd_dim
from nki_mlir.language.tiles import bfp16, finfo, fp32
from nki_mlir.scalar import dtypes

is_hbm, is_on_chip, is_psum, is_sbuf = (reported(f) for f in (is_hbm, is_on_chip, is_psum, is_sbuf))
DType = str
tensor = NkiTensor              # in annotations

float32, tfloat32, float16, bfloat16 = dtypes.FLOAT32, dtypes.TFLOAT32, dtypes.FLOAT16, dtypes.BFLOAT16
float8_e4m3, float8_e4m3fn, float8_e5m2 = dtypes.FLOAT8_E4M3, dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2
float8_e8m0fnu, float4_e2m1fn_x4 = dtypes.FLOAT8_E8M0FNU, dtypes.FLOAT4_E2M1FN_X4
float8_e5m2_x4, float8_e4m3fn_x4 = dtypes.FLOAT8_E5M2_X4, dtypes.FLOAT8_E4M3FN_X4
int8, int16, int32 = dtypes.INT8, dtypes.INT16, dtypes.INT32
uint8, uint16, uint32 = dtypes.UINT8, dtypes.UINT16, dtypes.UINT32
bool_ = dtypes.BOOL


class Operator:
    """A name that is an operator of instructions only, no function."""

    def __init__(self, name: str) -> None:
        self.nki_token = self.__name__ = name

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise NkiTypeError(f"nl.{self.nki_token} is an operator of instructions, not a function").located(
            user_location())

    def __repr__(self) -> str:
        return f"nl.{self.nki_token}"

    def __reduce__(self) -> str:
        """Copies are the operator itself."""
        return self.nki_token


average, prelu, bypass = Operator("average"), Operator("prelu"), Operator("bypass")


def _span(name: str, start: Any, stop: Any, step: Any) -> range:
    older(f"nl.{name} is range: annotation has no effect")
    first, last = (0, start) if stop is None else (start, stop)
    require(whole(step, f"{name} step") != 0, f"nl.{name} step cannot be zero")
    return range(whole(first, f"{name} start"), whole(last, f"{name} stop"), step)


@reported
def affine_range(start, stop, step) -> range:
    """``range``: loops of the kernel's Python are unrolled."""
    return _span("affine_range", start, stop, step)


@reported
def sequential_range(start, stop, step) -> Any:
    """``range``; with registers as bounds ``dynamic_range``, as in older releases."""
    from nki_mlir.language.current.register import VirtualRegister
    if isinstance(start, VirtualRegister) or isinstance(stop, VirtualRegister):
        return dynamic_range(start, stop, step)
    return _span("sequential_range", start, stop, step)


@reported
def static_range(start, stop, step) -> range:
    """``range``: loops of the kernel's Python are unrolled."""
    return _span("static_range", start, stop, step)


@reported
def par_dim(x) -> int:
    """The number itself: dimension 0 is the partition."""
    older("par_dim is deprecated")
    return x


__all__ = [
    "DType",
    "MemoryRegion",
    "NKIObject",
    "NkiTensor",
    "abs",
    "abs_max",
    "abs_min",
    "add",
    "affine_range",
    "all",
    "arctan",
    "average",
    "bfloat16",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bool_",
    "broadcast_to",
    "bypass",
    "ceil",
    "copy",
    "cos",
    "device_print",
    "divide",
    "dropout",
    "ds",
    "dynamic_range",
    "empty_like",
    "equal",
    "erf",
    "erf_dx",
    "exp",
    "expand_dims",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "floor",
    "fmod",
    "fori_loop",
    "full",
    "gather_flattened",
    "gelu",
    "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx",
    "gelu_apprx_tanh",
    "gelu_dx",
    "greater",
    "greater_equal",
    "hbm",
    "int8",
    "int16",
    "int32",
    "invert",
    "is_hbm",
    "is_on_chip",
    "is_psum",
    "is_sbuf",
    "left_shift",
    "less",
    "less_equal",
    "load",
    "load_transpose2d",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mish",
    "mod",
    "multiply",
    "ndarray",
    "negative",
    "no_reorder",
    "not_equal",
    "num_programs",
    "ones",
    "par_dim",
    "power",
    "prelu",
    "private_hbm",
    "prod",
    "program_id",
    "program_ndim",
    "psum",
    "rand",
    "random_seed",
    "reciprocal",
    "relu",
    "right_shift",
    "rms_norm",
    "rsqrt",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "shared_identity_matrix",
    "sigmoid",
    "sign",
    "silu",
    "silu_dx",
    "sin",
    "softmax",
    "softplus",
    "sqrt",
    "square",
    "static_range",
    "store",
    "subtract",
    "sum",
    "tan",
    "tanh",
    "tensor",
    "tfloat32",
    "tile_size",
    "transpose",
    "trunc",
    "uint8",
    "uint16",
    "uint32",
    "unique_name",
    "var",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]


def __getattr__(name: str) -> NoReturn:
    raise unknown_name("module 'nki.language'", name, __all__)


# Names of Python's own in this table, last so that the code above means Python's.
globals().update(range=range, bool=dtypes.BOOL)
