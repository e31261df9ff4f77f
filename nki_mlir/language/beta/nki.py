# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki``: decorators and launchers of the beta generation."""

from nki_mlir.language.beta.calls import missing_from
from nki_mlir.language.kernel import unwrap
from nki_mlir.language.launching import Decorators
from nki_mlir.language.tensor import Tensor as tensor

_decorators = Decorators(unwrap, "interpreter")
jit, trace, baremetal, benchmark, profile, simulate_kernel = (
    _decorators.jit, _decorators.trace, _decorators.baremetal, _decorators.benchmark, _decorators.profile,
    _decorators.simulate_kernel)

__all__ = ["baremetal", "benchmark", "jit", "profile", "simulate_kernel", "tensor", "trace"]
MODULES = ("compiler", "errors", "isa", "language", "typing")           # submodules


def __dir__() -> list[str]:
    return sorted([*__all__, *MODULES])


__getattr__ = missing_from("module 'neuronxcc.nki'", globals())
