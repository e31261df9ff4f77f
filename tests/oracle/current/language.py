# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of nki.language that are not elementwise (language, sections 5 and 6): memory, loops, programs."""

import ast
import inspect
import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING
from enum import Enum
from typing import Any

import numpy as np

from ..dtypes import convert, dtype_of, promote
from ..memory import HBM, PSUM, SBUF, Storage, allocate
from ..program import current
from . import elementwise, generators, search, transfers
from .operands import moved
from .registers import VirtualRegister, register_alloc, require
from .tensor import NkiTensor, Window


class MemoryRegion(Enum):
    """A memory of the core (3.1)."""

    sbuf, psum, private_hbm, shared_hbm = "sbuf", "psum", "private_hbm", "shared_hbm"


sbuf, psum = MemoryRegion.sbuf, MemoryRegion.psum
private_hbm, shared_hbm = MemoryRegion.private_hbm, MemoryRegion.shared_hbm
hbm = private_hbm
SPACES = {sbuf: SBUF, psum: PSUM, private_hbm: HBM, shared_hbm: HBM}


def is_sbuf(buffer: MemoryRegion) -> bool:
    return buffer is sbuf


def is_psum(buffer: MemoryRegion) -> bool:
    return buffer is psum


def is_hbm(buffer: MemoryRegion) -> bool:
    return buffer in (private_hbm, shared_hbm)


def is_on_chip(buffer: MemoryRegion) -> bool:
    return buffer in (sbuf, psum)


def region(storage: Storage) -> MemoryRegion:
    """Return the memory of a tensor; inputs are in shared HBM if a launch has two cores (8.2)."""
    return getattr(storage, "region", shared_hbm if num_programs() > 1 else private_hbm)


# -- creation (6.1) --------------------------------------------------------------------------------------------------------
def ndarray(shape: Any, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "", address: Any = None) -> NkiTensor:
    """Return unwritten memory. Cores of a launch share tensors in shared HBM, by name or by order of calls (5)."""
    if isinstance(shape, int):
        shape = (shape,)
    program = current()
    tensor: NkiTensor
    if buffer is shared_hbm:
        rank = program.state.get("rank", 0)
        key = rank, name or f"shared{program.count('shared')}"
        if key in program.run.shared:
            tensor = program.run.shared[key]
            require(tensor.shape == tuple(shape) and tensor.dtype == dtype_of(dtype),
                    f"Tensor {name} has mismatched shape or dtype across program instances")
            return tensor
        tensor = program.run.shared[key] = allocate(NkiTensor, shape, dtype, HBM, key[1])
    else:
        tensor = allocate(NkiTensor, shape, dtype, SPACES[buffer], name or f"{buffer.value}{program.count('tensors')}")
    tensor.storage.region = buffer
    return tensor


def full(shape: Any, fill_value: Any, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    tensor = ndarray(shape, dtype, buffer, name)
    elementwise.memset(tensor, fill_value)
    return tensor


def zeros(shape: Any, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Any, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    return full(shape, 1, dtype, buffer, name)


def empty_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    return ndarray(x.shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    return full(x.shape, 0, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def tile(values: Any, dtype: Any, buffer: MemoryRegion = sbuf) -> NkiTensor:
    """Return a new tile with values."""
    values = np.asarray(values)
    result = ndarray(values.shape, dtype, buffer)
    result.write(values)
    return result


def shared_constant(constant: Any, dtype: Any = None) -> NkiTensor:
    """Return an array of the host as a tensor in HBM, of a dtype that release 0.2 could name."""
    values = np.load(constant) if isinstance(constant, str) else np.asarray(constant)
    kind = dtype_of(values.dtype if dtype is None else dtype)
    values = convert(values, kind)
    tensor = allocate(NkiTensor, values.shape, kind, HBM, "constant", written=True)
    tensor.storage.elements(tensor.dtype)[:values.size] = values.reshape(-1)
    tensor.storage.region = shared_hbm
    return tensor


def shared_identity_matrix(n: int, dtype: Any = "uint8", dst: Any = None) -> NkiTensor:
    values = np.eye(n)
    if dst is None:
        return tile(values, dtype)
    dst.write(values)
    return dst


def rand(shape: Any, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """Return numbers that are uniform in [0, 1)."""
    tensor = ndarray(shape, dtype, buffer, name)
    generators.rand2(tensor, 0.0, 1.0)
    return tensor


def random_seed(seed: NkiTensor) -> None:
    generators.set_rng_seed(seed)


# -- movement (6.2) --------------------------------------------------------------------------------------------------------
def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    result = ndarray(src.shape or (1, 1), src.dtype if dtype is None else dtype)
    transfers.dma_copy(result, src)
    return result


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    return tile(src.read().T, src.dtype if dtype is None else dtype)


def store(dst: NkiTensor, value: NkiTensor) -> None:
    transfers.dma_copy(dst, value)


def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    result = ndarray(x.shape, x.dtype if dtype is None else dtype)
    moved(result, x)
    return result


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    return tile(x.read().T, x.dtype if dtype is None else dtype, psum)


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """Return x.T @ y of x (K, M), or x @ y of x (M, K), as float32 in PSUM."""
    left, right = (t.read().astype(np.float64) for t in (x, y))
    return tile(((left.T if transpose_x else left) @ right).astype(np.float32), "float32", psum)


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """Return data[p, indices[p, j]] as element [p, j], over the flattened free axes."""
    gathered = ndarray(indices.shape, data.dtype)
    search.nc_n_gather(gathered, data, indices)
    return gathered if dtype is None else copy(gathered, dtype)


def broadcast_to(x: NkiTensor, shape: Any, dtype: Any = None) -> NkiTensor:
    if tuple(shape) == tuple(x.shape):
        return x
    return tile(np.broadcast_to(x.read(), shape), x.dtype if dtype is None else dtype)


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    return x.expand_dim(axis % (x.ndim + 1))


def dropout(x: NkiTensor, rate: Any, dtype: Any = None) -> NkiTensor:
    result = ndarray(x.shape, x.dtype if dtype is None else dtype)
    generators.dropout(result, x, rate)
    return result


def where(condition: Any, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Select x where the condition is not 0, else y, in the dtype of x (4.4); unlike dtypes convert through float32
    (decisions)."""
    tiles = [v for v in (x, y) if isinstance(v, NkiTensor)]
    first, second = (v.read() if isinstance(v, NkiTensor) else np.float32(v) for v in (x, y))
    chosen = condition.read() != 0
    shape = np.broadcast_shapes(chosen.shape, np.shape(first), np.shape(second))
    result = ndarray(shape, dtype or (tiles[0].dtype if tiles else "float32"))
    for values, places in ((first, chosen), (second, ~chosen)):
        same = len(tiles) == 2 and (x.dtype == y.dtype or promote(x.dtype, y.dtype).kind == "int")
        result.write(np.broadcast_to(values if same else values.astype(np.float32), shape), np.broadcast_to(places, shape))
    return result


# -- iterators (2.3, 2.6) --------------------------------------------------------------------------------------------------
def affine_range(start: Any, stop: Any = None, step: int = 1) -> range:
    """Return the same numbers as ``range``."""
    return range(int(start)) if stop is None else range(int(start), int(stop), int(step))


sequential_range = static_range = affine_range


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[VirtualRegister]:
    """A loop of the device: its variable is a frozen register, and the device reads its bound in each iteration."""
    require(isinstance(step, int) and step > 0, "the step of a dynamic loop is a positive number")
    bound = start if stop is None else stop
    register = bound if isinstance(bound, VirtualRegister) else VirtualRegister()
    before, register.frozen = register.frozen, True
    try:
        for i in affine_range(start, stop, step):
            yield VirtualRegister(i, frozen=True)
    finally:
        register.frozen = before


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[VirtualRegister], None], step: int = 1) -> None:
    for i in dynamic_range(lower, upper, step):
        require(body_fun(i) is None, "the body of fori_loop returns nothing")


def while_loop(init: VirtualRegister, body_fun: Callable[[VirtualRegister], VirtualRegister]) -> None:
    register = register_alloc(init)
    while int(register) != 0:
        register = body_fun(register)


def ds(start: Any, size: int) -> Any:
    """Return the slice start : start + size (3.5)."""
    return Window(start, size) if isinstance(start, (VirtualRegister, NkiTensor)) else slice(start, start + size)


@contextmanager
def no_reorder() -> Iterator[None]:
    """Do nothing, as the oracle runs in program order."""
    yield


# -- programs (5) -----------------------------------------------------------------------------------------------------------
def program_id(axis: int = 0) -> int:
    require(axis == 0, f"invalid program axis {axis} (must be zero)")
    return current().ids[0] if current().ids else 0


def num_programs(axes: int = 0) -> int:
    require(axes in (0, None), f"invalid program axis {axes} (must be zero)")
    return int(np.prod(current().run.grid, dtype=int))


def program_ndim() -> int:
    return len(current().run.grid)


# -- the rest ---------------------------------------------------------------------------------------------------------------
def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    current().run.printed.append((print_prefix, tensor.read()))


def par_dim(x: int) -> int:
    """Return the size: dimension 0 is always that of the partitions (10)."""
    return x


def unique_name(name: str) -> str:
    return f"{name}_{current().count(('name', name))}"


def generation() -> str:
    """Return the target: gen2, gen3 or gen4."""
    names = {"trn1": "gen2", "inf2": "gen2", "trn2": "gen3", "trn3": "gen4"}
    chosen = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    return names.get(chosen, chosen)


class TileSize:
    """The limits of tiles (3.2)."""

    pmax, psum_bank_fmax, psum_bank_fmax_bytes, psum_fmax = 128, 512, 2048, 512
    gemm_stationary_fmax, gemm_moving_fmax, bn_stats_fmax = 128, 512, 512
    psum_min_align, sbuf_min_align = 4, 1

    @property
    def psum_num_banks(self) -> int:
        return 7 if os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE") == "true" else 8

    @property
    def sbuf_fmax_bytes(self) -> int:
        return {"gen2": 180224, "gen3": 212984, "gen4": 245752}[generation()]

    total_available_sbuf_size = sbuf_fmax_bytes

    @property
    def sbuf_fmax(self) -> int:
        return self.sbuf_fmax_bytes // 4

    @property
    def sbuf_size_bytes(self) -> int:
        return {"gen2": 24, "gen3": 28, "gen4": 32}[generation()] << 20


tile_size = TileSize()


def assigned(cls: type) -> list[str]:
    """Return the names that the text of a class assigns or annotates."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body      # type: ignore[attr-defined]
    targets = [t for s in body for t in getattr(s, "targets", [getattr(s, "target", None)])]
    return [t.id for t in targets if isinstance(t, ast.Name)]


class NKIObject:
    """A class without ``__init__`` gets one that takes its fields in the order of the text, decorated or not; fields
    without a default are None (2.5)."""

    def __init_subclass__(cls) -> None:
        if cls.__init__ is NKIObject.__init__:
            cls.__init__ = NKIObject.__init__           # type: ignore[method-assign]   ``dataclass`` leaves it so

    def __init__(self, *values: Any, **named: Any) -> None:
        cls = type(self)
        parts = cls.__mro__[:cls.__mro__.index(NKIObject)]
        fields = list(dict.fromkeys(name for part in reversed(parts) for name in assigned(part)))
        args = dict(zip(fields, values)) | named
        require(set(args) <= set(fields), f"unexpected keyword argument {sorted(set(args) - set(fields))}", TypeError)
        for field in fields:
            factory = getattr(getattr(cls, "__dataclass_fields__", {}).get(field), "default_factory", MISSING)
            default = getattr(cls, field, None) if factory is MISSING else factory()
            object.__setattr__(self, field, args.get(field, default))
        self.__post_init__()

    def __post_init__(self) -> None:
        """Do nothing."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = object.__hash__
