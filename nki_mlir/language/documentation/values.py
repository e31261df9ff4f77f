# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ``help(nl)`` and ``help(nisa)`` say of names beside the functions: dtypes, memories, enumerations, classes."""

import enum
import importlib
import inspect
import textwrap

import ml_dtypes
import numpy as np

from nki_mlir.language.documentation.page import EXAMPLES, example
from nki_mlir.scalar.dtypes import BOOL, DType, dtype_of

SENTENCES = {
    "sbuf": "memory on the chip, 128 partitions, which all engines read and write",
    "psum": "memory on the chip where products are summed: 128 partitions of 8 banks of 512 float32",
    "hbm": "nl.private_hbm", "private_hbm": "memory of the device that one program sees",
    "shared_hbm": "memory of the device that all programs of a launch see: that of inputs and outputs",
    "tile_size": "limits of tiles on the kernel's target, such as pmax, the partitions, and gemm_moving_fmax",
    "mgrid": "mgrid[a:b, c:d] is an index for each axis, by position or as .p (partition), .x, .y, .z and .w",
    "average": "the mean, an operator of reductions", "bypass": "no operation, an operator of nisa.activate2",
    "prelu": "x above 0, relu_param * x below: a function of nisa.activate2",
    "DType": "str, as dtypes are annotated", "tensor": "nl.NkiTensor, as parameters are annotated",
    "range": "Python's range", "Tensor": "nki.tensor, a tensor or a view of one", "dma_engine": "what moves data",
}


def of_dtype(dtype: DType) -> str:
    """What an element type holds."""
    element, packed, _ = dtype.name.partition("_x4")
    if packed:
        return f"four {element} in {dtype.bits} bits, operands of nisa.nc_matmul_mx"
    if dtype is BOOL:
        return "0 or 1, in a byte"
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        return f"integers of {dtype.bits} bits, {limits.min} to {limits.max}"
    most = float(ml_dtypes.finfo(dtype.numpy).max)
    if not dtype.mantissa:
        return f"powers of 2 in {dtype.bits} bits, up to {most:.6g}: scales of nisa.nc_matmul_mx"
    return f"floats of {dtype.bits} bits, {dtype.mantissa} of them mantissa, up to {most:.6g}"


def sentence(name: str, value: object) -> str:
    """One sentence about a public name."""
    if isinstance(value, (DType, np.dtype)):
        return of_dtype(dtype_of(value))
    if name in SENTENCES:
        return SENTENCES[name]
    if isinstance(value, enum.Enum):
        return f"nisa.{value}"
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return f"{inspect.getdoc(value)} Members: {', '.join(value.__members__)}."
    return (inspect.getdoc(value) or "").split("\n")[0]


def values(module: str, generation: str) -> dict[str, object]:
    """The public names of a module beside its functions, with what they are."""
    home = importlib.import_module(f"nki_mlir.language.{generation}.{module.rpartition('.')[2]}")
    return {name: value for name in dir(home) for value in [vars(home)[name]] if not hasattr(value, "record")}


def contents(module: str, generation: str) -> str:
    """The values of a module: a sentence for each, then an example of each form."""
    found = values(module, generation)
    lines = [f"{name}: {sentence(name, value)}" for name, value in found.items()]
    shown = {EXAMPLES[module, generation][name]: example(module, name, generation) for name in reversed(found)}
    examples = "\n\n".join(textwrap.indent(text, "    ") for text in reversed(shown.values()))
    return "\n".join(["Other names:", *(f"    {line}" for line in lines), "", "Examples:", examples])
