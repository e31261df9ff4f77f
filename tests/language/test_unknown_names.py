# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names that the language does not have, and names that are none of it."""

import importlib

import pytest

from nki_mlir.compat import install
from nki_mlir.diagnostics import NkiMlirError


@pytest.fixture(params=["neuronxcc.nki", "nki"])
def names(request):
    install()                       # it stays: tests of other files import these names when they run
    return request.param


def test_misspelled__is_an_error_at_the_line_with_the_name_that_was_meant(names):
    nl = importlib.import_module(f"{names}.language")
    with pytest.raises(AttributeError) as caught:
        nl.sofmax  # noqa: B018
    assert isinstance(caught.value, NkiMlirError)
    assert caught.value.headline == f"module '{names}.language' has no attribute 'sofmax'; did you mean softmax?"
    assert caught.value.at is not None and caught.value.at.file == __file__
    assert "nl.sofmax  #" in str(caught.value) and "[NKI-NAME]" in str(caught.value)


def test_misspelled__elsewhere(names):
    isa, nki = importlib.import_module(f"{names}.isa"), importlib.import_module(names)
    with pytest.raises(AttributeError, match=r"did you mean tensor_scalar\?"):
        isa.tensor_scaler  # noqa: B018
    with pytest.raises(AttributeError, match=r"did you mean benchmark\?"):
        nki.benchmrk  # noqa: B018
    with pytest.raises(AttributeError) as caught:
        isa.sofmax  # noqa: B018
    assert "did you mean" not in str(caught.value)
    assert not hasattr(nki, "sofmax") and getattr(nki, "_private", None) is None


def test_dir__has_what_is_public_alone(names):
    nki = importlib.import_module(names)
    modules = {"neuronxcc.nki": {"compiler", "errors", "isa", "language", "typing"},
               "nki": {"collectives", "compiler", "isa", "language", "meta", "typing"}}[names]
    public = {"baremetal", "benchmark", "jit", "profile", "simulate_kernel", "tensor", "trace"}
    extra = {"Kernel", "cpu_simulate", "dtype", "simulate"} if names == "nki" else set()
    assert set(dir(nki)) == modules | public | extra
    assert all(hasattr(nki, name) for name in dir(nki))
    for part in ("language", "isa"):
        listed = dir(importlib.import_module(f"{names}.{part}"))
        assert not [n for n in listed if n.startswith("_") or n in ("Any", "Callable", "NoReturn", "np", "ops", "token")]
