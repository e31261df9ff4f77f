# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a tensor's storage that accesses with run-time addresses reach.

They are rows of a table, partitions, or the positions of a pattern.
"""

from nki_mlir.capture.index import Index
from nki_mlir.capture.strides import Dim
from nki_mlir.capture.tensor import View
from nki_mlir.language.current.memory import Indirection
from nki_mlir.language.current.tensor import NkiTensor


def table_rows(tensor: NkiTensor, indirection: Indirection) -> View | None:
    """Return the rows in HBM among which a tensor's index tile selects one for each of its rows.

    None for other addresses, and where a part of the last row would be beyond the storage: only an access to that
    element is then an error.
    """
    rows, *inner = zip(tensor.strides, tensor.shape)
    if tensor.on_chip or indirection.kind != "vector" or indirection.index.size != rows[1]:
        return None
    steps = (indirection.scale, indirection.extent), *inner
    ends = [step * (count - 1) for step, count in steps]
    if min(ends) < 0 or not 0 <= tensor.offset < tensor.storage.row(tensor.dtype) - sum(ends):
        return None
    dims = tuple(Dim(0, 0 if count == 1 else step, count) for step, count in steps)
    return View(tensor.storage.buffer, Index(), Index(tensor.offset), dims, tensor.dtype)


def pattern_attributes(tensor: NkiTensor, indirection: Indirection) -> dict[str, object]:
    """Return the attributes that locate the elements of a run-time pattern in a row of ``lowering.table_of``."""
    steps = list(tensor.strides)
    start = tensor.offset
    if tensor.on_chip:
        start, steps[0] = start % tensor.storage.row(tensor.dtype), 0
    if indirection.kind == "vector":
        steps[0] = 0
    return {"start": start, "steps": tuple(0 if n == 1 else s for s, n in zip(steps, tensor.shape)),
            "scale": indirection.scale, "extent": indirection.extent}


def partition_attributes(tensor: NkiTensor, indirection: Indirection) -> dict[str, object]:
    """Return the attributes that locate the elements of an on-chip tensor whose partitions are indexed at run time."""
    tensor.check_reach(free_only=True)
    shape = tuple(tensor.shape)
    steps = [0 if n == 1 or (k == 0 and indirection.kind == "vector") else s
             for k, (s, n) in enumerate(zip(tensor.strides, shape))]
    none = Index().spread(shape)
    return {"position": Index(tensor.offset, {}, tuple(steps), shape), "first": none, "second": none,
            "scales": (indirection.scale,), "extents": (indirection.extent,)}


def every_partition(tensor: NkiTensor) -> View:
    """Return a view of all partitions of an on-chip tensor's storage."""
    dims = Dim(1, 0, tensor.storage.buffer.shape[0]), Dim(0, 1, tensor.storage.row(tensor.dtype))
    return View(tensor.storage.buffer, Index(), Index(), dims, tensor.dtype)
