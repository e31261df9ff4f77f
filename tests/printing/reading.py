# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Print kernels as NKI Python, and load kernels from such a text."""

from unittest.mock import patch

import numpy as np

from nki_mlir.language.beta import isa as beta_nisa
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta.typing import mutable_tensor, scalar
from nki_mlir.language.current import collectives as nccl
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.printing import kernel

from ..language.generated import kernel_from_text


def reread_beta(text, grid=()):
    """The kernel that a text of the beta generation defines, launched as the printed one."""
    body = text.split("@nki.jit\n")[1]
    captured = kernel_from_text(body, {"nl": beta_nl, "nisa": beta_nisa, "np": np, "scalar": scalar,
                                       "mutable_tensor": mutable_tensor},
                                name=body[4:body.index("(")])
    return captured[2] if "nl.program_id(" in text else captured


def reread(text, grid=()):
    """The kernel that a printed text defines, launched on two cores where it is a program of them."""
    body = text.split("@nki.jit\n")[1]
    name = body[4:body.index("(")]
    captured = kernel_from_text(body, {"nl": nl, "nisa": nisa, "nccl": nccl, "np": np}, name=name, jit=nki.jit)
    return captured[2] if "nl.program_id(" in text else captured


def printed(captured, arrays, **options):
    """The text of a kernel for such arguments, without comments and as it is before it is formatted."""
    return modules_text(captured.lower(*arrays).specialization.program_modules, **options)


def modules_text(modules, **options):
    """The text of a kernel's modules, as above."""
    with patch.object(kernel, "formatted", lambda text, file: text):
        return kernel.kernel_text(modules, comments=False, **options)
