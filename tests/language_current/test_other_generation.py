# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of one generation that get tensors of the other: the error names both."""

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

X = np.ones((128, 32), np.float32)


def current_kernel(helper, of_hbm):
    @nki.jit
    def kernel(x):
        tile = nl.ndarray((128, 32), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        helper(x if of_hbm else tile)
        return x
    return kernel


def beta_kernel(helper):
    @beta_nki.jit
    def kernel(x):
        out = beta.ndarray((128, 32), beta.float32, buffer=beta.shared_hbm)
        tile = beta.load(x)
        helper(tile)
        beta.store(out, tile)
        return out
    return kernel


@pytest.mark.parametrize("on", ["eager", "jit"])
@pytest.mark.parametrize(("helper", "of_hbm", "function"), [
    (lambda x: beta.load(x), True, "nl.load"), (lambda t: beta.exp(t), False, "a language function"),
    (lambda t: beta_isa.activation(beta.exp, t), False, "a language function")], ids=["load", "exp", "activation"])
def test_beta_functions_in_a_current_kernel(helper, of_hbm, function, on):
    with pytest.raises(NkiMlirError) as error:
        current_kernel(helper, of_hbm).on(on)(X)
    assert error.value.headline == (
        f"{function} of the beta generation (neuronxcc.nki) gets a tensor of the current one (nki)")
    assert error.value.code == "NKI-GENERATIONS" and "nki-migrate FILE" in error.value.advice[1]
    assert error.value.at.line == helper.__code__.co_firstlineno


def test_beta_slices_in_a_current_kernel():
    with pytest.raises(NkiMlirError, match=r"nl.ds of the beta generation .* indexes a tensor of the current one") as error:
        current_kernel(lambda x: x[beta.ds(0, 128), :], True)(X)
    assert error.value.code == "NKI-GENERATIONS"


def test_current_functions_in_a_beta_kernel():
    with pytest.raises(NkiMlirError, match="got a tile of a beta-1 API \\(neuronxcc\\)"):
        beta_kernel(lambda t: nl.exp(t))(X)
