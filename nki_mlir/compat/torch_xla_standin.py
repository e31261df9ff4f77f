# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A stand-in for ``torch_xla`` where it is not installed: its device is the CPU, and no tensor is lazy.

The module has the names of ``torch_xla`` and of ``torch_xla.core.xla_model``. Scripts for the device run on this
machine with it, with the results of eager PyTorch.
"""

from typing import Any


def xla_device(n: int | None = None, devkind: str | None = None) -> Any:
    """Return the CPU device. From then on kernels are stored in the compiler's cache, and with
    ``NEURON_FRAMEWORK_DEBUG`` the operations are recorded."""
    import torch  # optional packages

    from nki_mlir.frameworks.debug_output import devices_taken, wanted
    devices_taken[:] = ["xla"]
    if wanted():
        from nki_mlir.frameworks.torch_recording import start  # start-up: loads MLIR
        start()
    return torch.device("cpu")


def device(index: int | None = None) -> object:
    return xla_device(index)


def mark_step(*arguments: object, **keywords: object) -> None:
    """End a step: write its recorded program. No operation is pending."""
    from nki_mlir.frameworks.debug_output import recorders  # start-up: loads MLIR
    for recorder in recorders:
        recorder.step()


def sync(wait: bool = True, **keywords: object) -> None:
    """End a step, as ``mark_step`` does in older versions."""
    mark_step()


def wait_device_ops(devices: object = ()) -> None:
    """Do nothing: operations have finished when their calls return."""


def optimizer_step(optimizer: Any, barrier: bool = False, optimizer_args: dict[str, object] | None = None,
                   **keywords: object) -> object:
    """Step the optimizer. A single process has no gradients to reduce."""
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


def is_master_ordinal(local: bool = True) -> bool:
    return True


def get_ordinal(defval: int = 0) -> int:
    return 0


def get_local_ordinal(defval: int = 0) -> int:
    return 0


def xrt_world_size(defval: int = 1) -> int:
    return 1


def master_print(*arguments: object, **keywords: Any) -> None:
    print(*arguments, **keywords)


def save(data: object, file_or_path: Any, master_only: bool = True, global_master: bool = False) -> None:
    import torch  # an optional package
    torch.save(data, file_or_path)


def rendezvous(tag: str, payload: bytes = b"", replicas: object = ()) -> list[bytes]:
    """Return this process's payload: there is no other process."""
    return [payload]


def get_xla_supported_devices(devkind: str | None = None, max_devices: int | None = None) -> list[str]:
    return ["cpu"]
