# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A stand-in for ``torch_xla.distributed.xla_multiprocessing`` and ``parallel_loader``.

It starts functions on the device of this process, and loads batches to it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nki_mlir.compat.torch_xla_steps import mark_step
from nki_mlir.diagnostics import NkiMlirError


class ProcessesOfStandIn(NkiMlirError, ValueError):
    code = "NKI-XLA-PROCESSES"
    message = "{count} processes are to be started with the stand-in of torch_xla, whose only device is the CPU"
    why = "torch_xla starts one process for each device"
    fix = ("leave out nprocs; or let the script initialize torch.distributed, and start it with "
           "nki-env --torch-xla torchrun --nproc_per_node={count} SCRIPT")


def spawn(fn: Callable[..., object], args: tuple[object, ...] = (), nprocs: int | None = None, join: bool = True,
          daemon: bool = False, start_method: str = "spawn") -> None:
    """Call ``fn(0, *args)`` in this process, as ``torch_xla`` does where there is one device."""
    if nprocs not in (None, 1):
        raise ProcessesOfStandIn(count=nprocs).here()
    fn(0, *args)


class MpModelWrapper:
    """Holds the model that all processes of ``spawn`` move to their devices."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def to(self, device: object) -> Any:
        return self._model.to(device)


class MpSerialExecutor:
    """Calls functions of the processes one after the other."""

    def run(self, fn: Callable[[], Any]) -> Any:
        return fn()


class MpDeviceLoader:
    """Iterates over a loader's batches, moves their tensors to the device, and ends a step after each batch."""

    def __init__(self, loader: Any, device: Any, batches_per_execution: int = 1, **keywords: object) -> None:
        self._loader, self._device, self._batches = loader, device, batches_per_execution

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self._loader, 1):
            yield on_device(batch, self._device)
            if number % self._batches == 0:
                mark_step()
        mark_step()


class ParallelLoader:
    """Loads the batches of one loader to each of the devices."""

    def __init__(self, cpu_loader: Iterable[Any], devices: Iterable[Any], **keywords: Any) -> None:
        self._loader, self._keywords = cpu_loader, keywords

    def per_device_loader(self, device: Any) -> MpDeviceLoader:
        return MpDeviceLoader(self._loader, device, **self._keywords)

    def close(self) -> None:
        """Do nothing: no thread loads batches."""


def on_device(batch: Any, device: Any) -> Any:
    """Return a batch with its tensors on the device: a tensor, or lists, tuples and dicts that contain some."""
    from torch.utils._pytree import tree_map  # an optional package
    return tree_map(lambda value: value.to(device) if hasattr(value, "to") else value, batch)
