# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of kernels that run although PyTorch records their derivative: the error comes when it is computed.

``create_graph=True`` and ``torch.func.grad`` record every backward, whether or not a second derivative follows. So a
kernel in a backward runs, and the error for its missing derivative comes with the second derivative. Scripts that take
the device of ``torch_xla`` call kernels on parameters, as they do on the device: there the error comes with the first.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from nki_mlir.diagnostics import Location
from nki_mlir.frameworks.debug_output import devices_taken
from nki_mlir.language.arguments import leaves_of, map_leaves
from nki_mlir.language.framework_tensors import NoDerivative, records, refuse_gradient
from nki_mlir.language.kernel import Kernel


class DifferentiatedOnce(torch.autograd.Function):
    """The identity on a result of a kernel. Its own backward raises ``NoDerivative``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(result: torch.Tensor, name: str, *tensors: torch.Tensor) -> torch.Tensor:
        return result.view_as(result)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.kernel = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> NoReturn:
        refuse_gradient(ctx.kernel)


def differentiated_once(call: Callable[..., object], kernel: Kernel, arguments: tuple[object, ...],
                        keywords: dict[str, object]) -> object:
    """Run ``call`` without recording its operations. Autograd sees each result as one operation on the tensors of the
    call, which can be differentiated once."""
    with torch.no_grad():
        results = call(kernel, arguments, keywords)
    tensors = tensors_in((arguments, keywords))
    if not records(tensors):
        return results
    apply: Callable[..., torch.Tensor] = DifferentiatedOnce.apply
    return map_leaves(results, lambda value: isinstance(value, torch.Tensor) and value.is_floating_point(),
                      lambda result: apply(result, kernel.__name__, *tensors))


def tensors_in(values: object) -> list[torch.Tensor]:
    leaves: Any = leaves_of(values, lambda value: isinstance(value, torch.Tensor))
    return [t for _, t in leaves]


# -- the device of torch_xla -------------------------------------------------------------------------------------------
class BackwardThroughKernel(NoDerivative):
    message = "a backward pass reaches this call of kernel {name}, and a kernel has no derivative"
    why = "the gradients of the tensors that the kernel reads would lack its terms"
    fix = ("call it in the forward of a torch.autograd.Function that has a backward; if you need no gradient through "
           "it, call it under torch.no_grad() or with x.detach()")


def records_as_on_device(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a call may record its tensors' history: in scripts that take the device of ``torch_xla``, outside
    of ``torch.func``, whose wrappers hide it."""
    return (("xla" in devices_taken or any([t.device.type == "xla" for t in tensors])) and records(tensors)
            and torch._C._functorch.peek_interpreter_stack() is None)


class CallWithHistory(torch.autograd.Function):
    """A call of a kernel whose backward raises ``BackwardThroughKernel``."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[], list[torch.Tensor]], error: dict[str, Any],
                updated: list[torch.Tensor], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.error = error
        results = run()
        ctx.mark_dirty(*updated)
        ctx.mark_non_differentiable(*[t for t in results if not t.is_floating_point()])
        return *results, *[t for t in updated if all([t is not result for result in results])]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> NoReturn:
        error = BackwardThroughKernel(name=ctx.error["name"])
        error.at = ctx.error["at"]
        raise error


def recorded_call(call: Callable[..., object], kernel: Kernel, arguments: tuple[object, ...],
                  keywords: dict[str, object], at: Location | None, updated: list[torch.Tensor]) -> object:
    """Run ``call`` as one operation of autograd, whose backward raises an error at the call."""
    structure: list[object] = []

    def run() -> list[torch.Tensor]:
        structure[:] = [call(kernel, arguments, keywords)]
        return tensors_in(structure[0])
    apply: Callable[..., tuple[torch.Tensor, ...]] = CallWithHistory.apply
    outputs = iter(apply(run, {"name": kernel.__name__, "at": at}, updated, *tensors_in((arguments, keywords))))
    return map_leaves(structure[0], lambda value: isinstance(value, torch.Tensor), lambda _: next(outputs))
