# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ReLU as a C++ operator on NumPy arrays: element by element on one core, in blocks on one core, in blocks on eight.

python -m nki_mlir examples/custom_operators/relu_operator.py
"""

import tempfile
from pathlib import Path

import numpy as np

from nki_mlir import customop

HERE = Path(__file__).parent


def load(folder, multicore, **options):
    name = "relu_multicore" if multicore else "relu"
    return customop.load(name, [HERE / "relu.cpp"], [HERE / "relu_shape.cpp"], folder, multicore, **options)


def main(folder):
    x = np.random.default_rng(0).normal(size=(600, 1000)).astype(np.float32)
    gradient = np.ones_like(x)
    one, eight = load(folder, multicore=False), load(folder, multicore=True)
    for label, library, name in (("elements, 1 core", one, "relu_elements"), ("blocks, 1 core", one, "relu_forward"),
                                 ("blocks, 8 cores", eight, "relu_forward")):
        operator = library.operators[name]
        assert np.array_equal(operator(x), np.maximum(x, 0))
        print(f"relu by {label}: about {operator.microseconds(x):,.0f} us on the device")
    assert np.array_equal(eight.relu_backward(gradient, x), (x > 0).astype(np.float32))
    with customop.engine(threads=False):            # core after core, for a debugger
        assert np.array_equal(eight.relu_forward(x), np.maximum(x, 0))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
