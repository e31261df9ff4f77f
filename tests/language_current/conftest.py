# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every test runs on every executor of this list, and on the oracle, for the newest target."""

import os

import pytest

from nki_mlir.language.current.kernel import Kernel

from ..checked_kernels import check_first_run
from . import oracle_executor

EXECUTORS = tuple(os.environ.get("NKI_MLIR_TEST_EXECUTORS", f"eager,interpreter,jit,isa,{oracle_executor.NAME}").split(","))


@pytest.fixture(params=EXECUTORS)
def on(request, monkeypatch):
    """The name of an executor."""
    if request.param == oracle_executor.NAME:
        oracle_executor.install(monkeypatch, request.module)
    return request.param


def pytest_collection_modifyitems(items):
    """What is about the product's own words does not run on the oracle."""
    items[:] = [item for item in items if oracle_executor.reason_against(item) is None]


@pytest.fixture(autouse=True)
def newest_target(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


@pytest.fixture(autouse=True)
def right_kernels_have_no_errors(request, monkeypatch, newest_target):
    check_first_run(request, monkeypatch, Kernel)
