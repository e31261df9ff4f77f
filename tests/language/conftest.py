# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every language test runs on every executor of this list."""

import os

import pytest

EXECUTORS = tuple(os.environ.get("NKI_MLIR_TEST_EXECUTORS", "eager,interpreter,jit,isa").split(","))


@pytest.fixture(params=EXECUTORS, scope="session")
def on(request):
    """The name of an executor."""
    return request.param
