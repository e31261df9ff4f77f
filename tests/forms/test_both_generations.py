# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every function of one generation refuses tiles of the other with a specific error."""

import contextlib
import importlib
import inspect

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki

PACKAGES = {"beta": (beta_nki, beta_nl), "current": (current_nki, current_nl)}
CASES = [(generation, module, name) for generation in PACKAGES for module in ("language", "isa")
         for home in [importlib.import_module(f"nki_mlir.language.{generation}.{module}")]
         for name in dir(home) if hasattr(getattr(home, name), "record")]


@pytest.mark.parametrize("generation, module, name", CASES)
def test_tiles_of_the_other_generation__are_an_error(generation, module, name):
    nki, nl = PACKAGES["current" if generation == "beta" else "beta"]
    function = getattr(importlib.import_module(f"nki_mlir.language.{generation}.{module}"), name)
    required = [p for p in inspect.signature(function).parameters.values()
                if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        with contextlib.suppress(NkiMlirError):         # and no other; some take any tile, or none
            function(*(x if name.startswith("load") else tile for _ in required))
        nl.store(out, tile)
        return out

    x = np.ones((128, 64), np.float32)
    np.testing.assert_array_equal(nki.jit(kernel, mode="simulation")(x), x)
