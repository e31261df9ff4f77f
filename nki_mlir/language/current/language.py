# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.language`` (``nl``): tensors, dtypes, loops and functions on tiles."""

from collections.abc import Iterator
from typing import Any, NoReturn

from nki_mlir.capture.index import arange, mgrid
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.tracing import note_idle
from nki_mlir.input_limits import check_iterations
from nki_mlir.language.creation import unique_name
from nki_mlir.language.current import creation, dynamic_loops, functions, indexing, kernel, memory
from nki_mlir.language.current.calls import reported
from nki_mlir.language.current.errors import NkiTypeError, integer, older, require, unknown_name
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.functions import bfp16, finfo, fp32, nc, spmd_dim
from nki_mlir.language.kernel_object import NKIObject
from nki_mlir.language.signatures.binding import Contents
from nki_mlir.language.signatures.table import CURRENT, listing, names_of, published
from nki_mlir.scalar.dtypes import BY_NAME

globals().update(published("nki.language", CURRENT, creation, dynamic_loops, indexing, kernel, memory, functions))
ds = reported(indexing.ds)
is_hbm, is_on_chip, is_psum, is_sbuf = (reported(f) for f in (memory.is_hbm, memory.is_on_chip, memory.is_psum,
                                                              memory.is_sbuf))
DType = str
tensor = NkiTensor              # for annotations

DTYPES = {name: BY_NAME[name] for name in ("bool", *names_of("nki.language")) if name in BY_NAME}


class OperatorName:
    """An operator for arguments of instructions, such as ``op``. Calling it is an error."""

    def __init__(self, name: str) -> None:
        self.nki_token = self.__name__ = name

    def __call__(self, *arguments: object, **keywords: object) -> NoReturn:
        raise NkiTypeError(f"nl.{self.nki_token} is an operator of instructions, not a function",
                           fix="pass it to an instruction, for example nisa.tensor_tensor(..., op=nl.add)").here()

    def __repr__(self) -> str:
        return f"nl.{self.nki_token}"

    def __reduce__(self) -> str:
        """Return the operator's name, so that copies and pickles are the same object."""
        return self.nki_token


average, prelu, bypass = OperatorName("average"), OperatorName("prelu"), OperatorName("bypass")


def _span(name: str, start: object, stop: object, step: Any) -> range:
    older(f"nl.{name} is range: annotation has no effect")
    begin, end = (0, start) if stop is None else (start, stop)
    require(integer(step, f"{name} step") != 0, f"nl.{name} step cannot be zero",
            fix="give a positive or a negative step", code="NKI-RANGE-STEP")
    span = range(integer(begin, f"{name} start"), integer(end, f"{name} stop"), step)
    if not span:
        note_idle()
    check_iterations(span, "Python", user_location)
    return span


@reported
def affine_range(start: object, stop: object, step: object) -> range:
    """Return a ``range``, whose loops unroll."""
    return _span("affine_range", start, stop, step)


@reported
def sequential_range(start: object, stop: object, step: object) -> range | Iterator[memory.VirtualRegister]:
    """Return a ``range``, or for bounds in registers a ``dynamic_range`` as in older releases."""
    if isinstance(start, memory.VirtualRegister) or isinstance(stop, memory.VirtualRegister):
        return dynamic_loops.dynamic_range(start, stop, step)
    return _span("sequential_range", start, stop, step)


@reported
def static_range(start: object, stop: object, step: object) -> range:
    """Return a ``range``, whose loops unroll."""
    return _span("static_range", start, stop, step)


@reported
def par_dim(x: int) -> int:
    """Return the number unchanged: dimension 0 is the partition even without this mark."""
    older("par_dim is deprecated")
    return x


__doc__ = Contents(__doc__ or "", "nki.language", CURRENT)
__all__ = [*names_of("nki.language"), "par_dim", "tensor", "unique_name"]


def __getattr__(name: str) -> NoReturn:
    raise unknown_name("module 'nki.language'", name, __all__)


# These shadow Python's builtins: assigned last, so that the code above uses the builtins.
globals().update(DTYPES, range=range)
__dir__ = listing(globals(), "nki.language", CURRENT, *__all__, "bool", "range")
