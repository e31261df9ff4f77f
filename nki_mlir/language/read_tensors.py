# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records the PyTorch tensors whose values a kernel's Python reads during capture, so that later calls notice changes
of their contents.

PyTorch calls a mode for each of its functions, so only tensors that the kernel uses are compared, and not all the
weights that an object of the kernel's leads to.
"""

import ctypes
import hashlib
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import cache
from types import TracebackType
from typing import Any

from nki_mlir.capture.mutable_state import ABSENT
from nki_mlir.language.framework_tensors import bytes_needed

LARGE = 1 << 24         # bytes: larger tensors are compared by address and PyTorch's count of changes
# Methods and attributes that tell nothing about the values of the elements.
ABOUT_SHAPE = frozenset("""
    __dir__ __hash__ __len__ data_ptr dim element_size get_device is_complex is_contiguous is_floating_point
    is_signed ndimension nelement numel size storage_offset stride
    device dtype grad_fn is_cpu is_leaf is_meta is_sparse itemsize layout nbytes ndim requires_grad shape""".split())


def state_of_tensor(tensor: Any) -> object:
    """Return a comparable state of a tensor's contents; ``ABSENT`` if its memory cannot be read, or there is none."""
    torch = sys.modules["torch"]
    if tensor is None:
        return ABSENT
    with torch._C.DisableTorchFunction():
        try:
            if tensor.untyped_storage().nbytes() < bytes_needed(tensor):
                return ABSENT
            steps = zip(tensor.shape, tensor.stride())
            about = str(tensor.dtype), tuple(tensor.shape), tensor.stride(), tensor.is_conj(), tensor.is_neg()
            count = 1 + sum([(extent - 1) * step for extent, step in steps]) if tensor.numel() else 0
            size, address = count * tensor.element_size(), tensor.data_ptr()
            if size > LARGE:
                return *about, address, tensor._version
        except (RuntimeError, NotImplementedError):
            return ABSENT
    return *about, hashlib.sha256(ctypes.string_at(address, size)).digest() if address else None


class TensorsRead:
    """A context that records the tensors that a kernel reads, with the state of their contents."""

    def __init__(self) -> None:
        self._states: dict[int, tuple[weakref.ref[Any], object]] = {}         # by id, which a later tensor may take
        torch = sys.modules.get("torch")
        self._mode: Any = _mode_class()(self) if hasattr(torch, "overrides") else nullcontext()

    def __enter__(self) -> "TensorsRead":
        self._mode.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._mode.__exit__(kind, error, at)

    @property
    def states(self) -> list[tuple[weakref.ref[Any], object]]:
        """A weak reference to each tensor, and the state of its contents when the kernel first read it."""
        return [*self._states.values()]

    def record(self, values: Iterable[object]) -> None:
        """Record the tensors among the arguments of one of PyTorch's functions."""
        for tensor in tensors_of(values):
            earlier, _ = self._states.get(id(tensor), (None, None))
            if (earlier is None or earlier() is not tensor) and (state := state_of_tensor(tensor)) is not ABSENT:
                self._states[id(tensor)] = weakref.ref(tensor), state


def tensors_of(values: Iterable[object]) -> Iterator[object]:
    """Yield the tensors in arguments, also those in lists; classes derived from PyTorch's may have no memory."""
    torch = sys.modules["torch"]
    for value in values:
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_of(value)


@cache
def _mode_class() -> Any:
    from torch.overrides import TorchFunctionMode  # optional dependency, which the program has imported

    class Reading(TorchFunctionMode):
        def __init__(self, record: TensorsRead) -> None:
            super().__init__()
            self._record = record

        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            if name == "__get__":
                name = getattr(function.__self__, "__name__", "")
            if name not in ABOUT_SHAPE:
                self._record.record((*arguments, *(keywords or {}).values()))
            return function(*arguments, **(keywords or {}))
    return Reading
