# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every example on every executor against its own reference."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.compat import install

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.py") if "def cases" in p.read_text())


@pytest.fixture(scope="module", autouse=True)
def vendor_names():
    install()
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
@pytest.mark.parametrize("name", NAMES)
def test_example(name, on):
    module = importlib.import_module(name)
    for kernel, arguments, answer, tolerance in module.cases():
        given = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
        result = kernel.run(given, {}, on)
        error = np.max(np.abs(np.asarray(result, np.float64) - answer))
        assert error <= tolerance, f"{kernel.__name__}: {error}"
