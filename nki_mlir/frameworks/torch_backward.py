# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels in the backward of an operation whose derivative PyTorch records.

``create_graph=True`` and ``torch.func.grad`` record every backward, whether or not a second derivative follows. So a
kernel in a backward runs, and the error for its missing derivative comes with the second derivative.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from nki_mlir.language.arguments import leaves_of, map_leaves
from nki_mlir.language.framework_tensors import records, refuse_gradient
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
    tensors = [t for _, t in leaves_of((arguments, keywords), lambda value: isinstance(value, torch.Tensor))]
    if not records(tensors):
        return results
    apply: Callable[..., torch.Tensor] = DifferentiatedOnce.apply
    return map_leaves(results, lambda value: isinstance(value, torch.Tensor) and value.is_floating_point(),
                      lambda result: apply(result, kernel.__name__, *tensors))
