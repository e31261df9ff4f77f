# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A stand-in for ``torch_xla`` where it is not installed: its device is the CPU, and no tensor is lazy.

The module has the names of ``torch_xla`` and of ``torch_xla.core.xla_model``. Scripts for the device run on this
machine with it, with the results of eager PyTorch.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from nki_mlir.compat import torch_xla_exchange as exchange
from nki_mlir.compat import torch_xla_runtime as runtime
from nki_mlir.compat.torch_xla_exchange import all_gather as all_gather
from nki_mlir.compat.torch_xla_exchange import all_reduce as all_reduce
from nki_mlir.compat.torch_xla_exchange import broadcast_master_param as broadcast_master_param
from nki_mlir.compat.torch_xla_exchange import mesh_reduce as mesh_reduce
from nki_mlir.compat.torch_xla_exchange import reduce_gradients as reduce_gradients
from nki_mlir.compat.torch_xla_exchange import rendezvous as rendezvous
from nki_mlir.compat.torch_xla_launch import spawn
from nki_mlir.compat.torch_xla_steps import add_step_closure as add_step_closure
from nki_mlir.compat.torch_xla_steps import mark_step, step

REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX = exchange.REDUCTIONS


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


def devices() -> list[object]:
    return [xla_device()]


def device_count() -> int:
    return runtime.addressable_device_count()


def compile(f: Callable[..., Any] | None = None, full_graph: bool | None = False, name: str | None = None,
            max_different_graphs: int | None = None) -> Any:
    """Return a function whose calls are steps, or a context manager of a step. Operations run one by one."""
    return step() if f is None else step()(f)


def launch(fn: Callable[..., object], args: tuple[object, ...] = (), start_method: str = "spawn",
           debug_single_process: bool = False) -> None:
    """Call ``fn(index, *args)`` for the device of this process."""
    spawn(functools.partial(call_of_launch, fn), args)


def call_of_launch(fn: Callable[..., object], index: int, *arguments: object) -> None:
    """Call a launched function with the process's index on its machine: torchrun has started each process."""
    fn(runtime.local_ordinal(), *arguments)


def manual_seed(seed: int, device: object = None) -> None:
    import torch  # an optional package
    torch.manual_seed(seed)


def set_rng_state(seed: int, device: object = None) -> None:
    manual_seed(seed)


def get_rng_state(device: object = None) -> int:
    import torch  # an optional package
    return torch.initial_seed()


def xla_device_hw(device: object) -> str:
    return runtime.device_type()


def sync(wait: bool = True, **keywords: object) -> None:
    """End a step, as ``mark_step`` does in older versions."""
    mark_step()


def wait_device_ops(devices: object = ()) -> None:
    """Do nothing: operations have finished when their calls return."""


def optimizer_step(optimizer: Any, barrier: bool = False, optimizer_args: dict[str, object] | None = None,
                   groups: Sequence[Sequence[int]] | None = None, pin_layout: bool = True) -> object:
    """Average the gradients of all processes, and step the optimizer."""
    reduce_gradients(optimizer, groups)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


def is_master_ordinal(local: bool = True) -> bool:
    return (get_local_ordinal() if local else get_ordinal()) == 0


def get_ordinal(defval: int = 0) -> int:
    return exchange.rank()


def get_local_ordinal(defval: int = 0) -> int:
    return runtime.local_ordinal()


def xrt_world_size(defval: int = 1) -> int:
    return exchange.number_of_processes()


def master_print(*arguments: object, **keywords: Any) -> None:
    if is_master_ordinal():
        print(*arguments, **keywords)


def save(data: object, file_or_path: Any, master_only: bool = True, global_master: bool = False) -> None:
    """Write data, in the first process of a machine (or of all) only, unless ``master_only`` is False."""
    import torch  # an optional package
    if not master_only or is_master_ordinal(local=not global_master):
        torch.save(data, file_or_path)
    rendezvous("save")


def get_xla_supported_devices(devkind: str | None = None, max_devices: int | None = None) -> list[str]:
    return ["cpu"]
