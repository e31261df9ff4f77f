# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A stand-in for ``torch_xla`` where it is not installed: its device is the CPU, and nothing is lazy.

``modules()`` gives what scripts import: ``torch_xla``, ``torch_xla.core``, ``torch_xla.core.xla_model``. Scripts written
for the device then run on this machine, with the results of eager PyTorch.
"""

import inspect
import os
from types import ModuleType
from typing import Any


def xla_device(n: int | None = None, devkind: str | None = None) -> Any:
    """The CPU."""
    import torch
    return torch.device("cpu")


def device(index: int | None = None) -> Any:
    return xla_device(index)


def mark_step(*arguments: Any, **keywords: Any) -> None:
    """The end of a step: nothing waits to be run."""


def sync(wait: bool = True, **keywords: Any) -> None:
    """``mark_step`` of newer versions."""


def wait_device_ops(devices: Any = ()) -> None:
    """All operations are done when their call returns."""


def optimizer_step(optimizer: Any, barrier: bool = False, optimizer_args: dict[str, Any] | None = None,
                   **keywords: Any) -> Any:
    """One step; with one process there are no gradients to reduce."""
    return optimizer.step(**(optimizer_args or {}))


def is_master_ordinal(local: bool = True) -> bool:
    return True


def get_ordinal(defval: int = 0) -> int:
    return 0


def get_local_ordinal(defval: int = 0) -> int:
    return 0


def xrt_world_size(defval: int = 1) -> int:
    return 1


def master_print(*arguments: Any, **keywords: Any) -> None:
    print(*arguments, **keywords)


def save(data: Any, file_or_path: Any, master_only: bool = True, global_master: bool = False) -> None:
    import torch
    torch.save(data, file_or_path)


def rendezvous(tag: str, payload: bytes = b"", replicas: Any = ()) -> list[bytes]:
    """All processes meet: there is one."""
    return [payload]


def get_xla_supported_devices(devkind: str | None = None, max_devices: int | None = None) -> list[str]:
    return ["cpu"]


_XLA_MODEL = (xla_device, mark_step, wait_device_ops, optimizer_step, is_master_ordinal, get_ordinal, get_local_ordinal,
              xrt_world_size, master_print, save, rendezvous, get_xla_supported_devices)
_TORCH_XLA = (device, sync)


def modules() -> dict[str, ModuleType]:
    """The stand-in's modules by name, to be put into ``sys.modules``."""
    package, core, model = (ModuleType(n) for n in ("torch_xla", "torch_xla.core", "torch_xla.core.xla_model"))
    for module, functions in ((package, _TORCH_XLA), (model, _XLA_MODEL)):
        module.__doc__ = inspect.getdoc(inspect.getmodule(xla_device))
        for function in functions:
            setattr(module, function.__name__, function)
    package.__path__, core.__path__ = [], []        # packages without files: nothing else is found below them
    package.core, core.xla_model = core, model      # type: ignore[attr-defined]
    package.__version__ = "0.0+nki_mlir"            # type: ignore[attr-defined]
    # Its import sets this in the real package, and scripts read it to tell where they run.
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    return {m.__name__: m for m in (package, core, model)}
