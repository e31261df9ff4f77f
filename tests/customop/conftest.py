# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The libraries of the tests, each of which is built once for all workers of a session."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from nki_mlir import customop

SOURCES = Path(__file__).parent / "sources"
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "custom_operators"


BY_EACH_COMPILER = ("test_build", "test_faults", "test_values")         # in other modules one is enough


def pytest_generate_tests(metafunc):
    if "compiler" in metafunc.fixturenames:
        several = metafunc.module.__name__.rpartition(".")[2] in BY_EACH_COMPILER
        metafunc.parametrize("compiler", ["g++", "clang++"] if several else ["g++"], indirect=True, scope="session")


@pytest.fixture(scope="session")
def compiler(request):
    """The compiler of the libraries that ``build`` makes; absent ones are left out."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.fixture(scope="session")
def build(tmp_path_factory, worker_id, compiler):
    """``build(name, ...)``: the library of ``sources/<name>.cpp`` and ``<name>_shape.cpp``."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "customop" / compiler

    def build(name, multicore=False, checked=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CXX", compiler)
            return customop.load(f"{name}-{'many' if multicore else 'one'}-{'checked' if checked else 'fast'}",
                                 [SOURCES / f"{name}.cpp"], [SOURCES / f"{name}_shape.cpp"], folder, multicore,
                                 checked=checked)
    return build


@pytest.fixture
def x():
    return np.arange(32 * 16, dtype=np.float32).reshape(32, 16)


def marked(file, mark):
    """The line of a source that has the comment ``// mark``."""
    lines = (SOURCES / file).read_text().split("\n")
    numbers = [k + 1 for k, line in enumerate(lines) if line.endswith(f"// {mark}")]
    assert len(numbers) == 1, f"{mark} is marked {len(numbers)} times"
    return numbers[0]
