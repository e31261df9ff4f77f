# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_neuronx``: its PyTorch entry points: ``nki_jit``, ``wrap_nki``, ``nki_op``."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nki_mlir.language.kernel import Kernel, unwrap


def nki_jit(func: Callable | None = None, **options: Any) -> Any:
    """A kernel that writes output tensors given to it, and returns them. Usable bare, with keywords, on a kernel."""
    if func is None:
        return lambda function: nki_jit(function, **options)
    return replace(unwrap(func), by_reference=True, mode="torchxla", options=options, specializations={})


def wrap_nki(kernel: Any = None, **options: Any) -> Any:
    """A kernel for use in a model; a decorator too, above ``nki.jit``. Calls are traced without it as well.

    ``platform_target`` is the target to compile for; other options concern the vendor's compiler alone.
    """
    if kernel is None:
        return lambda function: wrap_nki(function, **options)
    wrapped: Kernel = unwrap(kernel)
    target = options.pop("platform_target", None)
    return replace(wrapped, target=target) if target is not None else wrapped


def nki_op(name: str, fn: Callable | None = None, /, *, mutates_args: str | Iterable[str] = ()) -> Any:
    """A PyTorch operator ``name`` ("library::operator") whose body, plain PyTorch, calls kernels.

    Its schema comes from the annotations, and the body on fake tensors says what it returns. The result is a
    ``torch.library.CustomOpDef``: give it a derivative with ``register_autograd``. Compiled and exported programs see
    what is inside of it.

        @nki_op("mylib::add", mutates_args={})
        def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return add_kernel[2](a, b)
    """
    if fn is None:
        return lambda function: nki_op(name, function, mutates_args=mutates_args)
    import torch  # an optional package
    from torch._subclasses.functional_tensor import FunctionalTensorMode
    mutated = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
    made = torch.library.custom_op(name, fn, mutates_args=mutated)
    made.register_fake(fn)

    def inside(mode: Any, op: Any, types: Any, arguments: tuple, keywords: dict[str, Any]) -> Any:
        with mode:
            return fn(*arguments, **keywords)
    made.register_torch_dispatch(FunctionalTensorMode, inside)
    return made


def get_platform_target() -> str:
    """The target that kernels are compiled for where they do not say."""
    return unwrap(_no_kernel).platform


def _no_kernel() -> None:
    """Has the defaults of every kernel."""


__all__ = ["get_platform_target", "nki_jit", "nki_op", "wrap_nki"]
