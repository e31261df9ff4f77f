# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Settings that all tests share: one thread for each worker, property tests that try the same examples each time,
markers.
"""

import gc
import os
import sys
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from random import Random
from zlib import crc32

# Workers run side by side; threads of the libraries inside each would only compete.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Code is compiled anew: what a test says of code is not said of a cache's.
os.environ.setdefault("NKI_MLIR_CACHE", "off")

# Who mends a test wants to see where an error was raised.
os.environ.setdefault("NKI_MLIR_TRACEBACK", "full")

import pytest  # noqa: E402
from hypothesis import HealthCheck, Phase, settings  # noqa: E402

from nki_mlir.compat import install  # noqa: E402
from nki_mlir.dialects.isa.program import Program  # noqa: E402
from nki_mlir.targets.cpu import lowering  # noqa: E402
from nki_mlir.targets.cpu.pipeline import PIPELINE  # noqa: E402
from nki_mlir.targets.neuron.checker import check_streams  # noqa: E402
from nki_mlir.targets.neuron.checker.violations import UnwrittenBytes  # noqa: E402
from nki_mlir.targets.neuron.codegen import emission  # noqa: E402
from nki_mlir.targets.neuron.codegen.emission import Emission  # noqa: E402
from nki_mlir.targets.neuron.codegen.records import Code  # noqa: E402
from nki_mlir.targets.runtime import host  # noqa: E402

from . import fuzz_time  # noqa: E402
from .examples import EXAMPLES  # noqa: E402
from .forced_passes import FORCED, OPTIONAL  # noqa: E402
from .property_counts import FUZZ  # noqa: E402

settings.register_profile("test", max_examples=40, derandomize=True, deadline=None, database=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", max_examples=4_000, deadline=None, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("mutants", settings.get_profile("test"), phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

MANY = 2                            # cases of a test, of which `.ci/run` runs a share


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fuzz: a property test that `make fuzz` runs with many more examples")
    config.addinivalue_line("markers", "share(n): many similar cases; of n cases `make test` runs about one, `make fuzz` all")
    if FUZZ and (seconds := os.environ.get("NKI_MLIR_FUZZ_SECONDS")):
        fuzz_time.limit(config, float(seconds), int(os.environ.get("NKI_MLIR_FUZZ_SEED", "0")))


def subject_of(item: pytest.Item) -> tuple[str, str]:
    """The module of a case, and the source file or the folder of its parameter ``file`` or ``files``."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    subject = parameters.get("file") or next((file.parent for file in parameters.get("files", ())), "")
    return item.nodeid.partition("::")[0], str(subject)


def only_in_fuzz(items: list[pytest.Item]) -> set[pytest.Item]:
    """The cases that ``make test`` leaves out, chosen at random, the same ones each time: of tests marked ``share``, and
    where ``NKI_MLIR_TEST_SHARE`` is above 1, of all tests with ``MANY`` cases. Of the same source files, or parameters, all
    tests run the same ones."""
    tests: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("share")           # a test may have cases with and without it
        tests.setdefault((item.nodeid.partition("[")[0], marker.args[0] if marker else 1), []).append(item)
    on_host = int(os.environ.get("NKI_MLIR_TEST_SHARE", "1"))
    left = set()
    for (_, of_marker), cases in tests.items():
        share = of_marker * (on_host if of_marker > 1 or len(cases) >= MANY else 1)
        if share > 1:
            cases.sort(key=lambda item: Random(Path(subject_of(item)[1]).name or item.name.partition("[")[2]).random())
            left.update(cases[ceil(len(cases) / share):])
    return left


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cases of one source file run one after the other: what a worker parses or migrates for one of them, it does not
    parse again, nor does the other worker. `make fuzz` chooses its tests by their marker."""
    for item in items:
        if item.get_closest_marker("share"):
            item.add_marker(pytest.mark.fuzz)
    if not FUZZ and not any("::" in argument for argument in config.args):
        left = only_in_fuzz(items)
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
    first: dict[tuple[str, str], int] = {}
    for number, item in enumerate(items):
        first.setdefault(subject_of(item), number)
    modules: dict[str, int] = {}
    for item in items:
        modules.setdefault(subject_of(item)[0], len(modules))
    items.sort(key=lambda item: (modules[subject_of(item)[0]], first[subject_of(item)]))
    fuzz_time.order(items)


def pytest_collection_finish() -> None:
    """The modules and cases, some millions of objects, stay to the end: the collector need not look at them in each test."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture
def only_new_garbage() -> None:
    """The test's collections examine the objects that it creates. There are millions of others, for seconds."""
    gc.freeze()


@pytest.fixture(scope="module")
def example_modules() -> Iterator[None]:
    """The vendor's names and the examples can be imported. Other files of their names may have been loaded before."""
    install()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        for file in EXAMPLES.glob("*.py"):
            if getattr(sys.modules.get(file.stem), "__file__", None) != str(file):
                patch.delitem(sys.modules, file.stem, raising=False)
        yield


@pytest.fixture(autouse=True)
def variant_of_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile in other ways than users do by default, in tests that the hash of the name selects. One fixture for all
    ways: most tests take a millisecond, of which each fixture costs a tenth."""
    number = crc32(request.node.nodeid.encode())
    with pytest.MonkeyPatch.context() as patch:
        if number % (2 if FUZZ else 4) == 1:
            schedule_streams(patch)
        if FUZZ or not number % 8:
            prove_streams(patch)
        if number & 2 and "tests/targets/cpu/" not in request.node.nodeid:
            compile_as_large_program(patch, number)
        yield


def schedule_streams(patch: pytest.MonkeyPatch) -> None:
    """Calls on the simulator take the order that is printed and timed instead of program order, so that nearly every
    kernel tests scheduling, too."""
    patch.setattr(emission, "emit_for_values", lambda emit: emit(Emission()))


def prove_streams(patch: pytest.MonkeyPatch) -> None:
    """The checker of streams examines what is emitted. Kernels of tests may read what nothing has written; all else that
    it reports is the emission's fault."""
    emit_code = emission.emit_code

    def emit_sound_code(code: Code, options: Emission) -> Program:
        program = emit_code(code, options)
        assert faults_of_emission([program]) == []
        return program
    patch.setattr(emission, "emit_code", emit_sound_code)


def faults_of_emission(programs: list[Program]) -> list[str]:
    """What the checker finds that no kernel can cause."""
    return [str(error) for error in check_streams(programs).violations if not isinstance(error, UnwrittenBytes)]


def compile_as_large_program(patch: pytest.MonkeyPatch, number: int) -> None:
    """Native code does for large programs what would not pay for those of tests. Here it does it for all: loops rolled
    again, tiles read in place, rows in chunks, streaming stores and packed products."""
    for name, options in FORCED.items():
        if name not in ("parallelize", "spread-nests"):           # threads for each small nest would take most of the time
            patch.setitem(PIPELINE, name, options)
    if number & 4:                          # one pass alone: what another one prepares for it does not hide faults
        for name in {*OPTIONAL} - {OPTIONAL[number % len(OPTIONAL)]}:
            patch.delitem(PIPELINE, name)
    for name in ("WORTH_ROLLING", "WORTH_FUSING"):
        patch.setattr(lowering, name, 1)
    patch.setattr(host, "cache_bytes", lambda: 1 << 7)
