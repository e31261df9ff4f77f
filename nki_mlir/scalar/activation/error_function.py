# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error function and what is made of it: erf, its derivative, gelu and its derivative."""

import math

import numpy as np

from nki_mlir.scalar.activation.entry import Activation, horner, in_float64

# erf(z) / z in z^2 for |z| <= 1, relative error 1e-12.
_ERF = (
    1.1283791670945857, -0.37612638888505046, 0.11283791285386394, -0.02686613140983337, 0.0052237764076062156,
    -0.0008542488942379677, 0.00011954818368821477, -1.3898696861238759e-05, 1.0562966455773323e-06,
)
# (1 + 2 z) exp(z^2) erfc(z) in (z - 3) / (z + 3) for 0 <= z <= 10.5, relative error 4e-11.
_ERFC = (
    1.2530080582700625, -0.1356211070164301, -0.04756229451149831, 0.12964520615062455, -0.11927363520943939,
    0.06830731616908656, -0.023771243120952742, 0.002533660155958846, 0.001895074840735276, -0.0007896291359672188,
    -0.00012775611646024908, 0.00012543966521894398, 3.268179633748477e-05,
)


def _erfc(z: np.ndarray, gauss: np.ndarray) -> np.ndarray:
    """erfc(z) for z >= 0, with ``gauss`` = exp(-z^2)."""
    return gauss * horner((z - 3.0) / (z + 3.0), _ERFC) / (1.0 + 2.0 * z)


def _erf(x: np.ndarray) -> np.ndarray:
    z = np.minimum(np.absolute(x), 20.0)
    square = z * z
    far = np.copysign(1.0 - _erfc(z, np.exp(-square)), x)
    return np.where(z < 1.0, x * horner(np.minimum(square, 1.0), _ERF), far)


def _normal(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The normal distribution function at x, and exp(-x^2 / 2)."""
    gauss = np.exp(-0.5 * x * x)
    tail = 0.5 * _erfc(np.absolute(x) * math.sqrt(0.5), gauss)
    return np.where(x < 0.0, tail, 1.0 - tail), gauss


def _gelu(x: np.ndarray) -> np.ndarray:
    inside = np.clip(x, -40.0, 40.0)
    return np.maximum(x, -40.0) * _normal(inside)[0]


def _gelu_dx(x: np.ndarray) -> np.ndarray:
    x = np.clip(x, -40.0, 40.0)
    distribution, gauss = _normal(x)
    return distribution + x * gauss / math.sqrt(2.0 * math.pi)


def _erf_dx(x: np.ndarray) -> np.ndarray:
    return 2.0 / math.sqrt(math.pi) * np.exp(-x * x)


Activation("erf", in_float64(_erf), None, ulp=2)
Activation("erf_dx", in_float64(_erf_dx), None, ulp=2)
Activation("gelu", in_float64(_gelu), None, ulp=4)
Activation("gelu_dx", in_float64(_gelu_dx), None, ulp=4)
