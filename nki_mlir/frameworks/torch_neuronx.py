# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_neuronx``: its PyTorch entry points: ``nki_jit``, ``wrap_nki``, ``nki_op``."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from nki_mlir.language.kernel import Kernel, unwrap

if TYPE_CHECKING:
    from nki_mlir.bindings import Operation


def nki_jit(func: Callable[..., object] | None = None, **options: object) -> Any:
    """A kernel that writes output tensors given to it, and returns them. Usable bare, with keywords, on a kernel.

    Arguments:
        func: the function or kernel; without it the result is a decorator
        options: as of nki.jit

    Result:
        A kernel: called with tensors it gives those that it wrote.

    Errors:
        None.

    Example:
        @nki_jit
        def double(x, out):
            nl.store(out, nl.multiply(nl.load(x), 2.0))
        x = torch.ones(4, 8)
        assert torch.equal(double(x, torch.zeros(4, 8)), 2 * x)
    """
    if func is None:
        return lambda function: nki_jit(function, **options)
    return unwrap(func).anew(by_reference=True, mode="torchxla", options=options)


def wrap_nki(kernel: object = None, **options: Any) -> Any:
    """A kernel for use in a model; a decorator too, above ``nki.jit``. Calls are traced without it as well.

    Arguments:
        kernel: the function or kernel; without it the result is a decorator
        options: platform_target is the target to compile for; others concern the vendor's compiler alone

    Result:
        The kernel.

    Errors:
        None.

    Example:
        kernel = wrap_nki(nki.jit(double))
        assert torch.equal(kernel(torch.ones(4, 8)), torch.full((4, 8), 2.0))
    """
    if kernel is None:
        return lambda function: wrap_nki(function, **options)
    wrapped: Kernel = unwrap(kernel)
    target = options.pop("platform_target", None)
    return wrapped.with_changes(target=target) if target is not None else wrapped


def nki_op(name: str, fn: Callable[..., object] | None = None, /, *, mutates_args: str | Iterable[str] = ()) -> Any:
    """A PyTorch operator whose body, plain PyTorch, calls kernels.

    Its schema comes from the annotations, and the body on fake tensors says what it returns. Compiled and exported
    programs see what is inside of it.

    Arguments:
        name: "library::operator"
        fn: the body; without it the result is a decorator
        mutates_args: the parameters that it updates

    Result:
        A ``torch.library.CustomOpDef``: give it a derivative with ``register_autograd``.

    Errors:
        PyTorch's, of a name without a library and of parameters without annotations.

    Example:
        @nki_op("documented::double", mutates_args={})
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return nki.jit(double)(x)
        assert torch.equal(doubled(torch.ones(4, 8)), torch.full((4, 8), 2.0))
    """
    if fn is None:
        return lambda function: nki_op(name, function, mutates_args=mutates_args)
    import torch  # an optional package
    from torch._subclasses.functional_tensor import FunctionalTensorMode
    mutated = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
    made = torch.library.custom_op(name, fn, mutates_args=mutated)
    made.register_fake(fn)

    def inside(mode: Any, op: "Operation", types: object, arguments: tuple[object, ...],
               keywords: Mapping[str, object]) -> object:
        with mode:
            return fn(*arguments, **keywords)
    made.register_torch_dispatch(FunctionalTensorMode, inside)
    return made


def get_platform_target() -> str:
    """The target that kernels are compiled for where they do not say.

    Arguments:
        none

    Result:
        trn1, trn2 or trn3.

    Errors:
        None.

    Example:
        assert get_platform_target() in ("trn1", "trn2", "trn3")
    """
    return unwrap(lambda: None).platform            # a kernel with the defaults


__all__ = ["get_platform_target", "nki_jit", "nki_op", "wrap_nki"]
