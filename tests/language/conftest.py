# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every language test runs on every executor of this list."""

import os

import pytest

from nki_mlir.language.kernel import Kernel

from ..checked_kernels import check_first_run

EXECUTORS = tuple(os.environ.get("NKI_MLIR_TEST_EXECUTORS", "eager,interpreter,jit,isa").split(","))


@pytest.fixture(params=EXECUTORS, scope="session")
def on(request):
    """The name of an executor."""
    return request.param


@pytest.fixture(autouse=True)
def right_kernels_have_no_errors(request, monkeypatch):
    check_first_run(request, monkeypatch, Kernel)
