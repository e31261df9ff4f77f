# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error function and what is made of it: erf, its derivative, gelu and its derivative."""

import math
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.activation.entry import ActivationFunction, horner, in_float64
from nki_mlir.scalar.activation.exponential import FLOOR, exp, exp_of_square, scale

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter

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



# -- expansions

# erf(z) / z - 1 in z^2 for |z| <= 1, error 1e-9 of erf.
_NEAR = (0.12837917, -0.37612626, 0.112835854, -0.026853815, 0.005188334, -0.0008010242, 7.8540084e-05)
# log(erfc(z)) for 1 <= z <= 4, error 1e-9 of erf.
_FAR = (-0.00034151258, -1.1270893, -0.63814473, -0.10310682, 0.021838097, -0.0029476667, 0.00018638009)
# exp(t^2 / 2) P(X > t) of the normal distribution, in 1 / (t + 2.5), for 0 <= t <= 14.4, relative error 9e-8.
_TAIL = (-1.1418558e-05, 0.3997302, 0.9743286, 2.4674397, -0.42925227, 24.277937, -90.648315, 121.63418, -59.961685)
_FAR_OUT = math.sqrt(-2 * FLOOR)         # beyond it the normal density, with any float32 factor, is 0


def _expand_erf(e: "ScalarEmitter", x: "Value") -> "Value":
    magnitude = e.clamp(e.abs(x), None, 4.0)
    square = e.mul(magnitude, magnitude)
    near = e.fma(x, e.horner(square, _NEAR), x)
    far = e.sub(1.0, exp(e, e.horner(magnitude, _FAR)))
    return e.select(e.cmp("olt", magnitude, 1.0), near, e.copysign(far, x))


def _tail_factor(e: "ScalarEmitter", magnitude: "Value") -> "Value":
    """P(X > t) / exp(-t^2 / 2)."""
    return e.horner(e.div(1.0, e.add(magnitude, 2.5)), _TAIL)


def _expand_erf_dx(e: "ScalarEmitter", x: "Value") -> "Value":
    limit = math.sqrt(-FLOOR)
    gauss = exp_of_square(e, e.clamp(x, -limit, limit), -1.0)
    return scale(e, e.mul(gauss.mantissa, 2.0 / math.sqrt(math.pi)), gauss.exponent)


def _expand_gelu(e: "ScalarEmitter", x: "Value") -> "Value":
    # x P(X < x) = max(x, 0) - |x| P(X > |x|)
    magnitude = e.clamp(e.abs(x), None, _FAR_OUT)
    gauss = exp_of_square(e, magnitude, -0.5)
    tail = scale(e, e.mul(magnitude, _tail_factor(e, magnitude)), gauss.exponent)
    return e.fma(e.neg(tail), gauss.mantissa, e.clamp(x, 0.0, None))


def _expand_gelu_dx(e: "ScalarEmitter", x: "Value") -> "Value":
    magnitude = e.clamp(e.abs(x), None, _FAR_OUT)
    gauss = exp_of_square(e, magnitude, -0.5)
    slope = e.fma(magnitude, -1.0 / math.sqrt(2.0 * math.pi), _tail_factor(e, magnitude))
    below = scale(e, e.mul(gauss.mantissa, slope), gauss.exponent)
    return e.select(e.cmp("olt", x, 0.0), below, e.sub(1.0, below))


ActivationFunction("erf", in_float64(_erf), _expand_erf, ulp=2)
ActivationFunction("erf_dx", in_float64(_erf_dx), _expand_erf_dx, ulp=2.5)
ActivationFunction("gelu", in_float64(_gelu), _expand_gelu, ulp=7.5)
ActivationFunction("gelu_dx", in_float64(_gelu_dx), _expand_gelu_dx, ulp=4, absolute=2.0**-23)
