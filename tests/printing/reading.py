# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels printed as NKI Python, and kernels from such a text."""

from unittest.mock import patch

import numpy as np

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.printing import kernel

from ..language.generated import kernel_from_text


def reread(text, grid=()):
    """The kernel that a printed text defines, launched on two cores where it is a program of them."""
    body = text.split("@nki.jit\n")[1]
    name = body[4:body.index("(")]
    captured = kernel_from_text(body, {"nl": nl, "nisa": nisa, "np": np}, name=name, jit=nki.jit)
    return captured[2] if "nl.program_id(" in text else captured


def printed(captured, arrays, **options):
    """The text of a kernel for such arguments, without comments and as it is before it is formatted."""
    with patch.object(kernel, "formatted", lambda text: text):
        return kernel.kernel_text(captured.lower(*arrays).specialization.modules, comments=False, **options)
