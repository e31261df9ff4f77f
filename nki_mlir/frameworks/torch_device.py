# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A PyTorch device ``neuron`` for scripts that move their tensors to it: ``install()``, then ``x.to("neuron")``.

A tensor of the device wraps a CPU tensor, ``raw``. Every operation runs on the CPU and wraps its results; kernels run
on the memory of the CPU tensors. The device needs the experimental Python backends of torch 2.9: ``available()`` tells
whether this PyTorch has them.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.process_state import once

NAME = "neuron"
FACTORIES = ("empty.memory_format", "empty_strided", "_to_copy", "randn", "rand", "zeros", "ones", "full", "arange",
             "arange.start", "arange.start_step", "scalar_tensor", "eye", "linspace", "randint", "randint.low",
             "randperm", "tril_indices", "triu_indices")


# Operations on tensors of two devices: copies, and operations whose indices or lengths may be on the CPU.
MIXING = {"copy_", "_copy_from", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index",
          "_unsafe_index_put", "_pack_padded_sequence", "tensor_split", "set_"}


class NoPythonBackends(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-BACKEND"
    message = "torch {version} cannot have a device that is written in Python"
    fix = "use torch 2.9 or newer, or leave the tensors on the CPU: kernels run there"


class NeuronTensor(torch.Tensor):
    """A tensor of the device: it wraps a CPU tensor and reports the device ``neuron``.

    Arguments:
        raw: the CPU tensor
        requires_grad: whether autograd computes its gradient

    Errors:
        An operation on this tensor and a CPU tensor raises PyTorch's error for two devices.

    Example:
        install()
        x = torch.ones(4, 8).to("neuron")
        assert isinstance(x, NeuronTensor) and x.device.type == "neuron" and torch.equal(x.cpu(), torch.ones(4, 8))
    """

    raw: torch.Tensor

    @staticmethod
    def __new__(cls, raw: torch.Tensor, requires_grad: bool = False) -> "NeuronTensor":
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, raw.shape, strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype,
            device=torch.device(f"{NAME}:0"), requires_grad=requires_grad)
        tensor.raw = raw
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl             # type: ignore[assignment]

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["raw"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], meta: None, size: object, stride: object
                             ) -> "NeuronTensor":
        return NeuronTensor(inner["raw"])

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as tensors of other devices: by functions of PyTorch, which "weights_only" admits and which read
        "map_location", so that a checkpoint also loads on the CPU where this device is not installed."""
        if getattr(self, "_is_param", False):
            return torch._utils._rebuild_parameter, (self.detach(), self.requires_grad, OrderedDict())
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, (self.raw.detach(), self.dtype, str(self.device),
                                                                     self.requires_grad)

    def tolist(self) -> Any:
        return self.raw.tolist()

    def __repr__(self, **options: object) -> str:          # type: ignore[override]
        return f"{repr(self.raw)[:-1]}, device='{NAME}:0')"

    def numpy(self, **options: object) -> Any:
        raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy; use Tensor.cpu() first")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: object, args: tuple[object, ...] = (),        # type: ignore[override]
                           kwargs: dict[str, Any] | None = None) -> object:
        # A backward pass stays in the thread that calls it. PyTorch's own thread for the device might still hold Python
        # tensors when the interpreter ends, and freeing them then would abort the process.
        torch._C._set_multithreading_enabled(False)
        keywords = dict(kwargs or {})
        device = keywords.get("device")
        leaves = func is torch.ops.aten._to_copy.default and device is not None and torch.device(device).type == "cpu"
        if device is not None:
            keywords["device"] = "cpu"
        refuse_mixed(func, (args, keywords))
        wrappers: dict[int, NeuronTensor] = {}         # operations that update a tensor return that tensor

        def inside(value: object) -> object:
            if isinstance(value, NeuronTensor):
                wrappers[id(value.raw)] = value
                return value.raw
            return value

        def outside(value: object) -> object:
            if not isinstance(value, torch.Tensor):
                return value
            wrapper = wrappers.get(id(value))
            return cls(value) if wrapper is None else wrapper
        result = func(*tree_map(inside, args), **tree_map(inside, keywords))
        return result if leaves else tree_map(outside, result)


def refuse_mixed(operation: Any, arguments: object) -> None:
    """Raise PyTorch's error if an operation gets tensors of two devices. A CPU tensor without dimensions is accepted
    as a number."""
    tensors = [t for t in tree_leaves(arguments) if isinstance(t, torch.Tensor)]
    inside = any(isinstance(t, NeuronTensor) for t in tensors)
    if inside and any(not isinstance(t, NeuronTensor) and t.dim() and t.is_cpu for t in tensors) and (
            operation.overloadpacket.__name__ not in MIXING):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 "
                           f"and cpu! (when checking arguments of {operation})")


def available() -> bool:
    """Return whether this PyTorch can define the device.

    Arguments:
        none

    Result:
        True or False.

    Errors:
        None.

    Example:
        assert available() in (True, False)
    """
    from torch.utils import backend_registration  # an optional package
    return hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


def install() -> None:
    """Define the device, ``torch.neuron`` and ``torch.compile(backend="neuron")``; later calls do nothing.

    Arguments:
        none

    Result:
        None.

    Errors:
        ``NoPythonBackends`` if PyTorch lacks Python backends.

    Example:
        install()
        assert torch.equal(nki.jit(double)(torch.ones(4, 8).to("neuron")).cpu(), torch.full((4, 8), 2.0))
    """
    if not available():
        raise NoPythonBackends(version=torch.__version__)
    once("torch_device", _install)


class Module:
    """The module ``torch.neuron``, for a single device whose operations have finished when they return."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: object) -> None:
        """Do nothing: there is one device."""

    def synchronize(self, device: object = None) -> None:
        """Do nothing: every operation has finished when it returns."""

    def manual_seed_all(self, seed: int) -> None:
        """Do nothing: random numbers come from the CPU's generator, which PyTorch seeds as well."""

    manual_seed = manual_seed_all

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def _install() -> torch.library.Library:
    from torch._dynamo.backends.registry import lookup_backend, register_backend  # an optional package
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
    _setup_privateuseone_for_python_backend(rename=NAME, backend_module=Module())
    library = torch.library.Library("aten", "IMPL")
    for name in FACTORIES:
        base, _, overload = name.partition(".")
        library.impl(name, _factory(getattr(getattr(torch.ops.aten, base), overload or "default")), "PrivateUse1")
    torch.serialization.register_package(15, lambda storage: None, _load_storage)       # before that of PyTorch
    register_backend(lambda graph, inputs: lookup_backend("aot_eager")(graph, inputs), name=NAME)
    return library


def _load_storage(storage: Any, location: str) -> Any:
    """Return the memory that ``torch.load`` has read for a tensor of the device: it stays on the CPU."""
    return storage if location.partition(":")[0] == NAME else None


def _factory(operation: object) -> Callable[..., object]:
    """Return a function that creates tensors on the device by an operation on the CPU."""
    return lambda *arguments, **keywords: NeuronTensor.__torch_dispatch__(operation, (), arguments, keywords)


__all__ = ["NeuronTensor", "available", "install"]
