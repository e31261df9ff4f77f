# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The PyTorch entry points of ``torch_neuronx``: ``nki_jit``, ``wrap_nki``, ``nki_op``, ``trace``."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.diagnostics import value_text
from nki_mlir.language.arguments import BadArgument
from nki_mlir.language.kernel import Kernel, NoFunction, unwrap
from nki_mlir.machine import machine_named

if TYPE_CHECKING:
    from nki_mlir.bindings import Operation


class NoParameterNames(BadArgument):
    message = "mutates_args of nki_op is a value of type {kind}"
    fix = "name the parameters that the operator updates: mutates_args=('x',), or mutates_args=()"


def check_function(function: object) -> None:
    """Raise ``NoFunction`` for what is neither a function, nor a kernel, nor a model."""
    if not callable(function):
        raise NoFunction.of(function, value_text(function, repr)).here()


@without_internal_frames
def nki_jit(func: Callable[..., object] | None = None, **options: object) -> Any:
    """Return a kernel that writes the output tensors among its parameters, and returns them. It decorates a
    function or a kernel, with or without keywords.

    Arguments:
        func: the function or kernel; without it the result is a decorator
        options: as for nki.jit

    Result:
        A kernel: called with tensors, it returns those that it wrote.

    Errors:
        ``NoFunction`` for what is no function.

    Example:
        @nki_jit
        def double(x, out):
            nl.store(out, nl.multiply(nl.load(x), 2.0))
        x = torch.ones(4, 8)
        assert torch.equal(double(x, torch.zeros(4, 8)), 2 * x)
    """
    if func is None:
        return lambda function: nki_jit(function, **options)
    return unwrap(func).uncached(by_reference=True, mode="torchxla", options=options)


@without_internal_frames
def wrap_nki(kernel: object = None, **options: Any) -> Any:
    """Return a kernel for use in a model; also a decorator above ``nki.jit``. PyTorch traces calls of unwrapped
    kernels, too.

    Arguments:
        kernel: the function or kernel; without it the result is a decorator
        options: platform_target is the target to compile for; the others, of the vendor's compiler, have no effect

    Result:
        The kernel.

    Errors:
        ``NoFunction`` for what is no function, ``UnknownTarget`` for an unknown target.

    Example:
        kernel = wrap_nki(nki.jit(double))
        assert torch.equal(kernel(torch.ones(4, 8)), torch.full((4, 8), 2.0))
    """
    if kernel is None:
        return lambda function: wrap_nki(function, **options)
    wrapped: Kernel = unwrap(kernel)
    target = options.pop("platform_target", None)
    if target is None:
        return wrapped
    machine_named(target)                           # raises ``UnknownTarget``
    return wrapped.with_changes(target=target)


@without_internal_frames
def nki_op(name: str, fn: Callable[..., object] | None = None, /, *, mutates_args: str | Iterable[str] = ()) -> Any:
    """Define a PyTorch operator whose body, plain PyTorch, calls kernels.

    PyTorch derives its schema from the annotations, and the types of its results from the body on fake tensors.
    Compiled and exported programs contain the operations of the body.

    Arguments:
        name: "library::operator"
        fn: the body; without it the result is a decorator
        mutates_args: the parameters that it updates

    Result:
        A ``torch.library.CustomOpDef``: give it a derivative with ``register_autograd``.

    Errors:
        PyTorch's, for a name without a library and for parameters without annotations.

    Example:
        @nki_op("documented::double", mutates_args={})
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return nki.jit(double)(x)
        assert torch.equal(doubled(torch.ones(4, 8)), torch.full((4, 8), 2.0))
    """
    if fn is None:
        return lambda function: nki_op(name, function, mutates_args=mutates_args)
    check_function(fn)
    if not isinstance(mutates_args, Iterable):
        raise NoParameterNames(kind=type(mutates_args).__name__).here()
    import torch  # an optional package
    from torch._subclasses.functional_tensor import FunctionalTensorMode
    mutated = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
    operator = torch.library.custom_op(name, fn, mutates_args=mutated)
    operator.register_fake(fn)

    def inside(mode: Any, op: "Operation", types: object, arguments: tuple[object, ...],
               keywords: Mapping[str, object]) -> object:
        with mode:
            return fn(*arguments, **keywords)
    operator.register_torch_dispatch(FunctionalTensorMode, inside)
    return operator


@without_internal_frames
def trace(func: Callable[..., object], example_inputs: object, **options: object) -> Any:
    """Return a module with the same results as a model, a function or a kernel, for tensors like the examples, without
    derivatives. ``torch.export`` traces it, so its Python does not run again.

    Arguments:
        func: the model, function or kernel
        example_inputs: a tensor, or a tuple of the arguments
        options: of the vendor's compiler; they have no effect

    Result:
        The module. It takes tensors of the shapes and dtypes of the examples.

    Errors:
        Those of the kernels, and PyTorch's for programs that it cannot export.

    Example:
        traced = trace(nki.jit(double), torch.ones(4, 8))
        assert torch.equal(traced(torch.full((4, 8), 2.0)), torch.full((4, 8), 4.0))
    """
    check_function(func)
    from nki_mlir.frameworks.torch_traced import TracedModule  # an optional package
    return TracedModule(func, example_inputs if isinstance(example_inputs, tuple) else (example_inputs,))


def get_platform_target() -> str:
    """Return the target of kernels that name none.

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


__all__ = ["get_platform_target", "nki_jit", "nki_op", "trace", "wrap_nki"]
