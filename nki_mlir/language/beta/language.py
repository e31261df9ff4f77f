# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.language`` (``nl``): the tile language of the beta generation.

Functions whose names are operators too (``nl.add`` as ``op=nl.add``) carry that name as ``nki_token``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_mlir.capture.index import Mask, arange, ds, mgrid
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.tensor import View
from nki_mlir.capture.tracing import NkiRange
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.verifier import ShapeMismatch
from nki_mlir.input_limits import LISTED, check_iterations
from nki_mlir.language import creation, functions, indirect
from nki_mlir.language import operations as ops
from nki_mlir.language.beta.calls import BETA, bind_module, missing_from
from nki_mlir.language.creation import MemoryRegion, ParDim, makes, unique_name
from nki_mlir.language.creation import constant as shared_constant
from nki_mlir.language.direct_allocation import Allocation, InitializedAllocation
from nki_mlir.language.functions import TileSize, token
from nki_mlir.language.indirect import DynamicView, IndirectNotSupported, IndirectView
from nki_mlir.language.loop_reductions import loop_reduce
from nki_mlir.language.operations import select as where
from nki_mlir.language.signatures.binding import Contents
from nki_mlir.language.signatures.table import listing, names_of, published
from nki_mlir.language.tensor import Tensor
from nki_mlir.scalar.dtypes import BY_NAME, DType
from nki_mlir.scalar.tokens import alu_token

globals().update(published("nki.language", BETA.name, creation, functions, ops))
DTYPES = {name: BY_NAME[name].numpy for name in names_of("nki.language", BETA.name) if name in BY_NAME}
tile_size = TileSize()
par_dim = ParDim


class BadRange(KernelError, TypeError):
    code = "NKI-RANGE"
    message = "the range of a loop takes 1 to 3 bounds, got {given}"
    fix = "give (stop), (start, stop) or (start, stop, step)"


class ZeroStep(KernelError, ValueError):
    code = "NKI-RANGE-STEP"
    message = "the step of a loop cannot be 0"
    fix = "give a positive or a negative step"


def _bounds(bounds: tuple[object, ...]) -> list[int]:
    """Return the checked bounds of a loop."""
    if not 1 <= len(bounds) <= 3:
        raise BadRange(given=len(bounds)).here()
    numbers = [creation.integer(b, "a bound of a loop") for b in bounds]
    if numbers[2:] == [0]:
        raise ZeroStep().here()
    return numbers


# -- iterators ---------------------------------------------------------------------------------------------------------
def affine_range(*bounds: object, **directives: object) -> NkiRange:
    """Return a loop whose iterations are independent, except that they may accumulate."""
    return NkiRange(*_bounds(bounds), parallel=True)


def sequential_range(*bounds: object, **directives: object) -> NkiRange:
    """Return a loop whose iterations run in order."""
    return NkiRange(*_bounds(bounds), parallel=False)


def static_range(*bounds: object, **directives: object) -> list[int]:
    """Return a loop that unrolls: its variable is a Python int. A ``range`` in a kernel may stay a loop."""
    span = range(*_bounds(bounds))
    check_iterations(span, "Python", user_location, LISTED)
    return list(span)


# -- creating tensors --------------------------------------------------------------------------------------------------
class UnknownBuffer(KernelError, ValueError):
    code = "NKI-BUFFER"
    message = "{found!r} is not a buffer"
    fix = "use nl.sbuf, nl.psum, nl.hbm, nl.shared_hbm or an allocation of nki.compiler"


def _space(buffer: object) -> dict[str, Any]:
    if buffer is None:
        return {"space": SBUF}
    if isinstance(buffer, Allocation):
        return {"space": buffer.space, "allocation": buffer}
    named = creation.REGIONS.get(buffer) if isinstance(buffer, str) else None
    region = buffer if isinstance(buffer, MemoryRegion) else named
    if region is None:
        raise UnknownBuffer(found=buffer).here()
    return {"space": region.space, "shared": region.shared}


class HbmInitialValue(KernelError):
    code = "err_hbm_tensor_with_init_value_not_supported"
    message = "an HBM tensor is created with an initial value"
    fix = "create it with nl.ndarray and write it with nl.store"


@makes(Tensor)
def ndarray(shape: object, dtype: object, *, buffer: object, name: str) -> Any:
    """Create an uninitialized tensor. On chip, elements read as zero until they are written."""
    return creation.new_tensor(shape, dtype, name=name, **_space(buffer))


def _filled(shape: object, value: float, dtype: object, buffer: object, name: str) -> View:
    memory = _space(buffer)
    if "allocation" in memory:
        raise InitializedAllocation().here()
    if memory["space"] == HBM:
        raise HbmInitialValue().here()
    return creation.filled(shape, value, dtype, name=name, **memory)


def zeros(shape: object, dtype: object, *, buffer: str | MemoryRegion | None, name: str) -> View:
    """Create a tensor of zeros, on chip."""
    return _filled(shape, 0.0, dtype, buffer, name)


def ones(shape: tuple[int, ...], dtype: object, *, buffer: object, name: str) -> View:
    """Create a tensor of ones, on chip."""
    return _filled(shape, 1.0, dtype, buffer, name)


def full(shape: tuple[int, ...], fill_value: float, dtype: object, *, buffer: object, name: str) -> View:
    """Create a tensor filled with one value, on chip."""
    return _filled(shape, float(fill_value), dtype, buffer, name)


def zeros_like(a: View, dtype: object, *, buffer: object, name: str) -> View:
    """Create a tensor of zeros with the shape of another tensor, on chip."""
    return _filled(a.shape, 0.0, dtype or a.dtype, buffer, name)


def empty_like(a: View, dtype: object, *, buffer: object, name: str) -> View:
    """Create a tensor with uninitialized elements and the shape of another tensor."""
    return creation.new_tensor(a.shape, dtype or a.dtype, name=name, **_space(buffer))


def shared_identity_matrix(n: int, dtype: object) -> View:
    """Return the n x n identity as an HBM constant."""
    creation.checked_extents((n, n * n))
    return shared_constant(np.eye(n), dtype)


# -- moving data -------------------------------------------------------------------------------------------------------
def load(src: IndirectView | DynamicView | View, *, mask: object, dtype: object, mode: Any = None) -> View:
    """Load an HBM tensor into a new SBUF tile, cast to ``dtype``; rows addressed by an index tile are gathered."""
    if isinstance(src, indirect.ADDRESSED):
        return indirect.gather(src, mask=mask, dtype=dtype, mode=mode)
    return ops.load(src, mask=mask, dtype=dtype)


def load_transpose2d(src: View, *, mask: Mask | None, dtype: object) -> View:
    """Load a 2-D [N, M] HBM view into a tile [M, N]."""
    if isinstance(src, indirect.ADDRESSED):
        raise IndirectNotSupported(op="load_transpose2d").here()
    ops.require_space("load_transpose2d", "src", src, HBM)
    if src.ndim != 2:
        raise ShapeMismatch(what=f"load_transpose2d takes a 2-D view, got {src.shape}").here()
    with ops.stated_transpose():
        return ops.load(src.permuted((1, 0)), mask=mask.transposed() if isinstance(mask, Mask) else mask, dtype=dtype)


def store(dst: IndirectView | DynamicView | View, value: View | float, *, mask: object,
          mode: object = None) -> View | None:
    """Store an on-chip tile (or number) to HBM, cast to dst's dtype; rows addressed by an index tile are scattered,
    from a copy in SBUF if the tile is in PSUM."""
    if isinstance(dst, indirect.ADDRESSED):
        if isinstance(value, View) and value.buffer.space == PSUM:
            value = ops.copy(value, mask=mask)
        indirect.scatter(dst, value, mask=mask, mode=mode)
    else:
        ops.store(dst, value, mask=mask)
    return ops.stored(dst.buffer)


def atomic_rmw(dst: IndirectView | DynamicView, value: View | float, op: object, *, mask: object) -> None:
    """Set dst = op(dst, value) for rows addressed by an index tile; equal indices accumulate. ``op`` is np.add."""
    if not isinstance(dst, indirect.ADDRESSED):
        raise ShapeMismatch(what="atomic_rmw takes a destination indexed by a tile",
                            fix="index dst with a tile of row numbers: dst[indices, nl.arange(n)[None, :]]").here()
    indirect.scatter(dst, value, mask=mask, rmw=alu_token(op).name)


def broadcast_to(src: Tensor, *, shape: object) -> View:
    """Return a view of a tile that repeats it along its dimensions of size 1, including the partition."""
    return src.broadcast_to(shape)


def expand_dims(data: Tensor, axis: int) -> View:
    """Return a view with a dimension of size 1 inserted at ``axis``."""
    return data.expand_dims(axis)


# -- elementwise -------------------------------------------------------------------------------------------------------
def _binary(name: str) -> Callable[..., object]:
    boolean = name in functions.VERDICTS

    @token(name, name, f"{functions.summary(name)}; x and y are tiles or numbers, which broadcast as in NumPy.")
    def operate(x: object, y: object, *, dtype: object, mask: Mask | None) -> View:
        return ops.binary(name, x, y, dtype=dtype, mask=mask, boolean=boolean)
    return operate


def _positional(name: str) -> Callable[..., object]:
    @token(name, name, f"Compute ``{name}(x, y)`` elementwise.")
    def operate(x: float | View, y: float | View, dtype: object, mask: object) -> View:
        return ops.binary(name, x, y, dtype=dtype, mask=mask)
    return operate


def _unary(name: str) -> Callable[..., object]:
    @token(name, name, f"Compute ``{name}(x)`` of every element.")
    def operate(x: DynamicView | View, *, dtype: object, mask: object) -> View:
        return ops.unary(name, x, dtype=dtype, mask=mask)
    return operate


def dropout(x: View, rate: object, *, dtype: object, mask: Mask | None) -> View:
    """Return x with elements set to zero with a probability; nothing is rescaled."""
    return functions.dropout(x, rate, dtype=dtype, mask=mask)


def all_reduce(x: View, op: object, program_axes: object, *, dtype: object, mask: Mask | None,
               parallel_reduce: object, asynchronous: object) -> View:
    """Reduce x by ``op`` over all programs of the grid along ``program_axes``; each program gets the result."""
    return functions.all_reduce(x, op, program_axes, dtype=dtype, mask=mask)


# -- reductions --------------------------------------------------------------------------------------------------------
def _reduction(name: str, op: str) -> Callable[..., object]:
    @token(op, name, f"Compute ``{name}`` over free axes, accumulated in float32.")
    def operate(x: View, axis: object, *, dtype: object, mask: Mask | None, keepdims: bool) -> View:
        return ops.reduce(op, x, axis, dtype=dtype, mask=mask, keepdims=keepdims)
    return operate


@token("logical_and")
def all(x: View, axis: object, *, dtype: object, mask: object) -> View:
    """Reduce free axes with logical and: 1 where all elements are nonzero, else 0."""
    return ops.reduce("logical_and", x, axis, dtype=dtype, mask=mask)


globals().update(DTYPES, **{n: _binary(n) for n in (*functions.ARITHMETIC, *functions.BITWISE, *functions.VERDICTS)},
                 **{n: _positional(n) for n in functions.MODULI}, **{n: _unary(n) for n in functions.UNARY},
                 **{n: _reduction(n, op) for n, op in functions.REDUCTIONS.items()},
                 range=range)                   # Python's, by a name of older kernels
bind_module(globals(), "nki.language")
__doc__ = Contents(__doc__ or "", "nki.language", BETA.name)
__dir__ = listing(globals(), "nki.language", BETA.name, "Tensor", "range")
__getattr__ = missing_from("module 'neuronxcc.nki.language'", globals())
