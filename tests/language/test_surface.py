# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every documented name of the beta generation exists with its parameters, and some test or example uses it."""

import importlib
import re
from pathlib import Path

import pytest

from tests.signatures import documented, parameters

from .surface_beta import MODULES

ROOT = Path(__file__).parent.parent.parent
NAMES = [(module, name) for module, names in MODULES.items() for name in names]


@pytest.mark.parametrize("module, name", NAMES)
def test_name_exists_with_its_parameters_and_defaults(module, name):
    function = getattr(importlib.import_module(f"nki_mlir.language.beta.{module}"), name)
    if MODULES[module][name] is not None:
        assert parameters(function) == documented(MODULES[module][name])


SOURCES = "\n".join(p.read_text() for folder in ("tests", "examples") for p in (ROOT / folder).rglob("*.py")
                    if p.name not in ("surface_beta.py", "test_surface.py"))
PREFIX = {"nki": "nki", "language": "nl", "isa": "nisa", "compiler": "ncc", "typing": "nt"}


@pytest.mark.parametrize("module, name", [n for n in NAMES if n[0] in ("language", "isa")])
def test_some_test_uses_the_name(module, name):
    used = re.search(rf"\b{PREFIX[module]}\.{name}\b|[\"']{name}[\"']", SOURCES)
    assert used, f"no test uses {PREFIX[module]}.{name}"


def test_framework_kernel_is_in_the_vendor_module():
    from nki_mlir.compat import install
    install()
    import neuronxcc.nki as vendor
    assert vendor.FrameworkKernel.__name__ == "FrameworkKernel"
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = vendor.Nothing
