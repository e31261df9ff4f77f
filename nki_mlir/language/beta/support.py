# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.starfish.support.{dtype,util}``: the names that tests of kernels import from there."""


import numpy as np

from nki_mlir.language.beta.language import DTYPES
from nki_mlir.language.functions import static_cast


def allclose(a: object, b: object, rtol: float = 1e-5, atol: float = 1e-8, **ignored: object) -> bool:
    """Return whether two arrays of any dtypes are close, compared as float64."""
    left, right = (np.asarray(x).astype(np.float64) for x in (a, b))
    return bool(np.allclose(left, right, rtol=rtol, atol=atol, equal_nan=bool(ignored.get("equal_nan"))))


globals().update(DTYPES)
__all__ = ["allclose", "static_cast", *DTYPES]
