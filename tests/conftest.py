# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all tests share: one thread a worker, property tests that try the same examples each time, markers."""

import os
from zlib import crc32

# Workers run side by side; threads of the libraries inside each would only compete.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Code is compiled anew: what a test says of code is not said of a cache's.
os.environ.setdefault("NKI_MLIR_CACHE", "off")

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from nki_mlir.targets.neuron.codegen.emission import Emission  # noqa: E402

settings.register_profile("test", max_examples=60, derandomize=True, deadline=None, database=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", max_examples=4_000, deadline=None, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fuzz: a property test that `make fuzz` runs with many more examples")


@pytest.fixture(autouse=True)
def order_of_streams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls on the simulator keep program order. In half of the tests they take the order that is printed and timed, so
    that every kernel tests scheduling, too."""
    if crc32(request.node.nodeid.encode()) % 2:
        monkeypatch.setattr("nki_mlir.targets.neuron.codegen.emission.emit_for_values", lambda emit: emit(Emission()))
