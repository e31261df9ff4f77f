# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples of the project, for tests that run them. The fixture ``example_modules`` makes them importable."""

import importlib
from collections.abc import Iterable
from typing import Any

import pytest

from .sources import ROOT

EXAMPLES = ROOT / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.py") if "def cases" in p.read_text())
OF_RANKS = {"current_all_reduce"}           # a function that launches several ranks of a kernel


def cases(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterable[tuple[Any, Any, Any, float]]:
    """The kernels of an example, each with arguments, the answer and a tolerance, for the target that it names."""
    module = importlib.import_module(name)
    if hasattr(module, "TARGET"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", module.TARGET)
    return module.cases()
