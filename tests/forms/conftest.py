# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every test runs on every executor of this list, in both generations where it takes ``nki``."""

import os
from types import SimpleNamespace

import pytest

from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa, language, nki

EXECUTORS = tuple(os.environ.get("NKI_MLIR_TEST_EXECUTORS", "eager,interpreter,jit,isa").split(","))
GENERATIONS = {"beta": SimpleNamespace(nki=beta_nki, nl=beta_language, nisa=beta_isa),
               "current": SimpleNamespace(nki=nki, nl=language, nisa=isa)}


@pytest.fixture(params=EXECUTORS)
def on(request):
    """The name of an executor."""
    return request.param


@pytest.fixture(params=GENERATIONS)
def names(request):
    """The modules of a generation: ``nki``, ``nl``, ``nisa``."""
    return GENERATIONS[request.param]
