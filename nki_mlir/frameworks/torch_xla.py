# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of kernels with lazy tensors of an installed ``torch_xla``: each is a custom call of the graph that it
collects.

The call has the documented form, so whatever ``torch_xla`` prints or exports of the graph shows it, with the kernel
in ``backend_config``. ``torch_xla``'s client for the CPU cannot run custom calls. On the CPU, ``run`` computes
tensors with the linked program in another process; ``torch_xla`` calls it automatically where a script reads a
tensor or ends a step.
"""

import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from nki_mlir.bindings import PACKAGE
from nki_mlir.capture.locations import user_location
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.debug_output import wanted, write
from nki_mlir.frameworks.linked_process import run_in_process
from nki_mlir.frameworks.process_state import once
from nki_mlir.frameworks.torch_values import NKI_DTYPE, TORCH_DTYPE, operands_of, results_of
from nki_mlir.graph.custom_call import TARGET, KernelRecord

API_VERSION_UNSPECIFIED = 0             # API version of custom calls that the documents pass for PyTorch


def custom_call(record: KernelRecord, written: Sequence[torch.Tensor],
                tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Add the call to the graph. Return the new values of the updated tensors, then the kernel's new tensors."""
    import torch_xla  # an optional package
    once("torch_xla_values", _settle_on_demand)
    results = torch_xla._XLAC._xla_custom_call(
        operands_of(record, written, tensors), TARGET, [r.shape for r in record.results],
        [TORCH_DTYPE[r.dtype] for r in record.results if r.dtype], record.has_effects, record.config,
        API_VERSION_UNSPECIFIED, {})
    return results_of(record, results)


class LoadedBefore(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-XLA"
    message = "torch_xla was imported after a kernel had been compiled, and its compiler may end the process then"
    why = "both contain LLVM in different versions and share some of its global tables"
    fix = "import torch_xla at the start of the program"


# -- values ------------------------------------------------------------------------------------------------------------
def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Compute lazy tensors whose graph calls kernels.

    Arguments:
        tensors: lazy tensors of ``torch_xla``; afterwards they contain their values, which are not computed again

    Result:
        The values, on the CPU.

    Errors:
        The errors of the kernels.

    Example:
        x = torch.ones(4, 8, device=torch_xla.device())
        assert torch.equal(run([nki.jit(double)(x)])[0], torch.full((4, 8), 2.0))
    """
    import torch_xla  # an optional package
    xla, tensors = torch_xla._XLAC, list(tensors)
    if wanted():
        write("SyncTensorsGraph", xla._get_xla_tensors_hlo_proto(tensors), xla._get_xla_tensors_hlo(tensors))
    text = xla._get_stablehlo(tensors, xla._xla_get_default_device(), [], False).decode()
    _, inputs = xla._get_tensors_xla_device_data_node(tensors)
    values = run_in_process(text, [array_of(v.cpu()) for v in inputs])
    results = [tensor_of(r, t.dtype) for r, t in zip(values, tensors)]
    for tensor, result in zip(tensors, results):
        tensor.data.copy_(result)           # autograd does not see this update
    return results


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array of the same element type, which for some types is one of ``ml_dtypes``."""
    if tensor.dtype not in NKI_DTYPE:
        return tensor.detach().numpy()
    dtype = np.dtype(NKI_DTYPE[tensor.dtype].numpy.type)
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().view(dtype).reshape(tensor.shape)


def tensor_of(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(array.reshape(-1).view(np.uint8)).view(dtype).reshape(array.shape)


def settle(tensors: Iterable[torch.Tensor]) -> None:
    """Compute the tensors that have no value yet, if their graph calls a kernel."""
    import torch_xla  # an optional package
    xla, tensors = torch_xla._XLAC, list(tensors)
    lazy = [t for t, waits in zip(tensors, xla._check_tensor_need_materialization(tensors)) if waits]
    called = [t for t in lazy if "xla::custom_call(" in xla._get_xla_tensors_text([t])]
    if called:
        run(called)


def _live() -> list[torch.Tensor]:
    """Return the live tensors of the device in Python, and their gradients."""
    live = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor) and t.device.type == "xla"]
    gradients = [t.grad for t in live if t.is_leaf and t.grad is not None]
    return list({id(t): t for t in live + gradients}.values())


def _settle_on_demand() -> object:
    """Call ``settle`` before ``torch_xla``'s client for the CPU would get the graph: at reads of a tensor, and at
    steps."""
    import torch_xla  # optional packages
    import torch_xla.runtime

    loaded = list(sys.modules)
    if loaded.index("_XLAC") > loaded.index(f"{PACKAGE}._mlir_libs._mlir"):
        raise LoadedBefore().located(user_location())
    if torch_xla.runtime.device_type() != "CPU":
        return None
    library = torch.library.Library("aten", "IMPL")
    for name, reads in READS.items():
        library.impl(name, _settled(torch.library.get_kernel(f"aten::{name}", "XLA"), reads), "XLA", with_keyset=True,
                     allow_override=True)
    step = torch_xla.sync

    def sync(*arguments: object, **keywords: object) -> None:
        settle(_live())
        step(*arguments, **keywords)
    torch_xla.sync = sync
    return library


READS: dict[str, Callable[..., bool]] = {       # whether the operation copies its first argument from the device
    "_to_copy": lambda tensor, *, device=None, **keywords: device is not None and torch.device(device).type == "cpu",
    "_copy_from": lambda tensor, target, *_: target.device.type == "cpu",
    "_local_scalar_dense": lambda tensor: True}


def _settled(operation: Any, reads: Callable[..., bool]) -> Callable[..., object]:
    def read(keys: object, *arguments: torch.Tensor, **keywords: object) -> object:
        if arguments[0].device.type == "xla" and reads(*arguments, **keywords):
            settle(arguments[:1])
        return operation.call_boxed(keys, *arguments, **keywords)
    return read


__all__ = ["run"]
