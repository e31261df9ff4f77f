# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensor creation of ``nki.language``."""

import os
from collections.abc import Sequence

import numpy as np

from nki_mlir.array_files import UnreadableArray, read_array
from nki_mlir.capture.builder import active
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.nisa.random import RandOp
from nki_mlir.input_limits import DIMENSIONS, ELEMENTS
from nki_mlir.language import creation, functions
from nki_mlir.language.creation import emit, makes
from nki_mlir.language.current import assignment
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import dtype_argument, reported
from nki_mlir.language.current.errors import aligned_byte, core_rule, integer, invalid, pair, require
from nki_mlir.language.current.memory import MemoryRegion, Storage, machine, region, region_value, sbuf
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import FLOAT32, UINT8, DType


def is_shape_of_tile(shape: tuple[object, ...]) -> bool:
    """Return whether a shape consists of positive Python integers, as few and as small as a tensor has."""
    return 0 < len(shape) <= DIMENSIONS and all([type(n) is int and 0 < n < ELEMENTS for n in shape])


def check_address(address: Sequence[int] | None, buffer: MemoryRegion, shape: Sequence[int],
                  dtype: DType) -> tuple[int, int] | None:
    """Check the address of an on-chip tensor, and return it as (partition, byte in the partition) or None."""
    if address is None:
        return None
    partition, byte = pair(address, "address")
    require(buffer.space != "hbm", "a tensor in HBM has no address",
            fix="leave address= out, or put the tensor into nl.sbuf or nl.psum")
    rows = machine().partitions
    require(partition in range(0, rows, machine().quadrant), "partition dimension must be 0, 32, 64, or 96",
            fix="start at one of them")
    require(partition + shape[0] <= rows, f"{shape[0]} partitions do not fit from partition {partition} on",
            fix=f"use at most {rows - partition} partitions there, or another start")
    aligned_byte(byte, dtype.itemsize, f"byte {byte} is not aligned to {dtype}")
    if buffer is MemoryRegion.psum:
        aligned_byte(byte, machine().psum_bank_bytes, f"byte {byte} is not the start of a PSUM bank")
    return partition, byte


@makes(NkiTensor)
@reported
def ndarray(shape: object, dtype: DType, buffer: MemoryRegion, name: str, address: Sequence[int] | None) -> NkiTensor:
    """Create a tensor with uninitialized elements."""
    builder = active("nl.ndarray")
    if type(buffer) is MemoryRegion and type(dtype) is DType and type(shape) is tuple and not name and (
            address is None and is_shape_of_tile(shape) and buffer.space != HBM):
        return low.allocate(shape, dtype, buffer)
    extents = creation.checked_extents(
        [integer(n, "shape") for n in (shape if isinstance(shape, (tuple, list)) else (shape,))])
    # Empty tensors are allowed in HBM only (empty batches).
    least = int(region_value(buffer) not in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm))
    if not extents or min(extents) < least:
        core_rule(False, creation.EmptyDimension, what=f"a tensor of shape {list(extents)} has an empty dimension")
    if hasattr(buffer, "memory"):                               # a ``Window`` of the kernel
        view: NkiTensor = buffer.view(dtype, extents, name)
        return view
    memory_region, kind = region(buffer), dtype_argument(dtype)
    if name:
        used, at = builder.properties.setdefault("tensor_names", {}), user_location()
        if (first := used.get(name)) is not None:
            creator = "this call" if first == at else f"{first.file}:{first.line}"
            invalid(f"Tensor name '{name}' already in use", why=f"{creator} created a tensor of that name before",
                    fix="give each tensor a different name, or none")
        used[name] = at
    checked = check_address(address, memory_region, extents, kind)
    return low.allocate(extents, kind, memory_region, name=name, address=checked)


def _filled(shape: object, value: float, dtype: object, buffer: object, name: str) -> NkiTensor:
    tensor = ndarray(shape, dtype, buffer, name)
    assignment.fill(tensor, float(value))
    return tensor


@reported
def zeros(shape: tuple[int, ...], dtype: object, buffer: object, name: str) -> NkiTensor:
    """Create a tensor of zeros."""
    return _filled(shape, 0.0, dtype, buffer, name)


@reported
def ones(shape: tuple[int, ...], dtype: object, buffer: object, name: str) -> NkiTensor:
    """Create a tensor of ones."""
    return _filled(shape, 1.0, dtype, buffer, name)


@reported
def full(shape: tuple[int, ...], fill_value: float, dtype: object, buffer: object, name: str) -> NkiTensor:
    """Create a tensor filled with one value."""
    return _filled(shape, fill_value, dtype, buffer, name)


@reported
def zeros_like(x: NkiTensor, dtype: DType, buffer: MemoryRegion, name: str) -> NkiTensor:
    """Create a tensor of zeros with the shape of another tensor, and by default its dtype and buffer."""
    return _filled(x.shape, 0.0, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


@reported
def empty_like(x: NkiTensor, dtype: object, buffer: object, name: object) -> NkiTensor:
    """Create an uninitialized tensor with the shape of another tensor, and by default its dtype and buffer."""
    return ndarray(x.shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


@reported
def shared_constant(constant: object, dtype: DType | None = None) -> NkiTensor:
    """Create a tensor in HBM from an array, or from the array in a ``.npy`` file."""
    require(not isinstance(constant, (NkiTensor, View)), "shared_constant takes an array of the host, not a tensor",
            fix="give a NumPy array; a tensor of the kernel needs no constant")
    if isinstance(constant, str):
        require(os.path.isfile(constant), f"shared_constant: there is no file {constant}",
                fix="give the path of a .npy file, or an array")
    values = constant_of_file(constant) if isinstance(constant, str) else np.asarray(constant)
    if values.dtype in (np.int64, np.uint64):
        limits = np.iinfo(np.int32)
        require(not values.size or limits.min <= values.min() <= values.max() <= limits.max,
                "shared_constant has integers of more than 32 bits"
                + f", from {values.min()} to {values.max()}" * bool(values.size), fix="give values that int32 holds")
        values = values.astype(np.int32)
    view = creation.constant(values, None if dtype is None else dtype_argument(dtype))
    return NkiTensor.full(Storage(view.buffer, MemoryRegion.shared_hbm, view.dtype))


def constant_of_file(path: str) -> np.ndarray:
    try:
        return read_array(path)
    except UnreadableArray as error:
        invalid(f"shared_constant: {path}: {error}", fix="give a file that numpy.save wrote")


@reported
def shared_identity_matrix(n: int, dtype: object, dst: NkiTensor) -> NkiTensor:
    """Create the n x n identity matrix in SBUF, or write it to ``dst``."""
    kind = dtype_argument(dtype)
    require(0 < n <= low.PARTITIONS, f"an identity matrix has 1 to {low.PARTITIONS} rows, got {n}",
            fix=f"use up to {low.PARTITIONS} rows, and several tiles for a larger matrix")
    if dst is not None:
        low.is_tensor(dst, "shared_identity_matrix", "dst")
    matrix = dst if dst is not None else low.allocate((n, n), kind, identity=True)
    assignment.assign(matrix, shared_constant(np.eye(n, dtype=np.float32), kind if kind.is_float else UINT8))
    return matrix


@reported
def rand(shape: object, dtype: DType, buffer: MemoryRegion, name: object) -> NkiTensor:
    """Create a tensor of uniform random numbers in [0, 1)."""
    tensor = ndarray(shape, dtype, buffer, name)
    if dtype is FLOAT32 and buffer is sbuf:
        with low.operands("rand", tensor) as (target,):
            emit(RandOp, {"dst": target, "state": functions.generator_state()})
        return tensor
    numbers = low.adopt(functions.rand((tensor.shape[0], tensor.size // tensor.shape[0]), FLOAT32))
    assignment.assign(tensor, numbers)
    return tensor


@reported
def random_seed(seed: NkiTensor) -> None:
    """Seed the generator with a [1, 1] tile."""
    if not isinstance(seed, NkiTensor):
        invalid(f"random_seed: expecting 'tensor', got '{type(seed).__name__}'",
                fix="give a tile of shape (1, 1) with the seed")
    functions.random_seed(low.tile("random_seed", "seed", seed))
