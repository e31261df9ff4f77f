# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``.ap``: a view as ``[stride, count]`` pairs on the storage, with a start that may be of the run time."""

from collections.abc import Sequence
from math import prod

from nki_mlir.language.current.calls import dtype_argument
from nki_mlir.language.current.errors import integer, invalid, out_of_range, require
from nki_mlir.language.current.storage import Indirection
from nki_mlir.language.current.tensor import NkiTensor, one_index


def access_pattern(tensor: NkiTensor, pattern: Sequence[Sequence[int]], offset: int | None, scalar_offset: object,
                   vector_offset: NkiTensor | None, indirect_dim: int, dtype: object) -> NkiTensor:
    """Shape and strides of the tensor it is called on do not matter, only its storage and its start, to which
    ``offset`` is added. Whether the elements are in the storage is checked where the view is used."""
    kind = tensor.dtype if dtype is None else dtype_argument(dtype)
    strides, counts = zip(*pairs(pattern, "ap"))
    require(all(n >= 1 for n in counts), f"the counts of {list(pattern)} are positive")
    own = tensor.offset * tensor.dtype.itemsize
    require(own % kind.itemsize == 0, f"ap: the view starts at byte {own}, which is no element of {kind}")
    start = own // kind.itemsize + (0 if offset is None else integer(offset, "ap offset"))
    row = tensor.storage.row(kind)
    if tensor.on_chip:
        require(counts[0] == 1 or strides[0] in (row, 0),
                f"partition stride {strides[0]} of an on-chip pattern; it must be {row}, the elements of a partition")
    require(scalar_offset is None or vector_offset is None, "only one of scalar_offset and vector_offset can be given")
    require(tensor.indirection is None or (scalar_offset is None and vector_offset is None),
            "ap of a tensor that is already indexed at run time")
    base = tensor.base if dtype is None or kind.itemsize == tensor.dtype.itemsize else (
        *tensor.base[:-1], tensor.base[-1] * tensor.dtype.itemsize // kind.itemsize)
    found = None
    if scalar_offset is not None:
        found = _scalar(tensor, scalar_offset, indirect_dim, base)
    elif vector_offset is not None:
        require(indirect_dim == 0, "vector_offset is for indirect_dim 0")
        require(not tensor.on_chip, "vector_offset is for tensors in HBM")
        require(isinstance(vector_offset, NkiTensor) and vector_offset.dtype.is_integer,
                "vector_offset is a tensor of integers")
        found = Indirection("vector", vector_offset, prod(base[1:]), base[0])
    return NkiTensor(tensor.storage, counts, strides, start, kind, base, found)


def pairs(pattern: object, what: str) -> list[tuple[int, int]]:
    """The (step, count) pairs of a pattern, outermost first."""
    items = pattern if isinstance(pattern, (list, tuple)) else ()
    require(items and all(isinstance(p, (list, tuple)) and len(p) == 2 for p in items),
            f"{what}: a pattern is a list of [step, count] pairs, got {pattern}")
    return [(integer(step, f"{what} pattern"), integer(count, f"{what} pattern")) for step, count in items]


def check_reach(tensor: NkiTensor, free_only: bool = False) -> None:
    """The elements of a tensor that is used are inside the storage, on chip inside its partitions and their rows."""
    if not tensor.size:
        if not prod(tensor.storage.buffer.shape):               # all there is
            return
        invalid(f"{tensor.name} is used in part, and that part, of shape {list(tensor.shape)}, is empty")
    row, start = tensor.storage.row(tensor.dtype), tensor.offset
    steps, place = list(zip(tensor.strides, tensor.shape)), "the tensor"
    if tensor.on_chip:
        (step, count), *steps = steps
        rows, before = tensor.storage.buffer.shape[0], start // row
        last = before + (count - 1) * step // row
        if not free_only and not 0 <= before <= last < rows:
            out_of_range(f"index overflow: the access pattern reaches partitions {before} to {last}, {tensor.name} has "
                         f"{rows}")
        start, place = start % row, "a partition"
    low, high = (start + sum(s * (n - 1) for s, n in steps if s * sign > 0) for sign in (-1, 1))
    if low < 0 or high >= row:
        out_of_range(f"index overflow: the access pattern reaches elements {low} to {high} of {place}, {tensor.name} "
                     f"has {row}")


def _scalar(tensor: NkiTensor, value: object, dim: int, base: tuple[int, ...]) -> Indirection:
    one_index(value, "scalar_offset")
    require(0 <= dim < len(base), f"indirect_dim {dim} of a tensor of {len(base)} dimensions")
    return Indirection("scalar", value, prod(base[dim + 1:]), base[dim], dim)
