# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every test runs on every executor of this list, for the newest target."""

import os

import pytest

EXECUTORS = tuple(os.environ.get("NKI_MLIR_TEST_EXECUTORS", "eager,interpreter,jit,isa").split(","))


@pytest.fixture(params=EXECUTORS)
def on(request):
    """The name of an executor."""
    return request.param


@pytest.fixture(autouse=True)
def newest_target(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
