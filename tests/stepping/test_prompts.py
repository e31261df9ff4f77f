# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""At a breakpoint of Python's debugger in an eager run: tiles have values and names. In kernels they have none."""

import io
import pdb

import numpy as np
import pytest

from nki_mlir.capture.prompts import variable
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

X = np.arange(8, dtype=np.float32).reshape(2, 4)
DEBUGGERS: list[pdb.Pdb] = []           # the one that kernels stop in


def stop() -> None:
    DEBUGGERS[-1].set_trace(__import__("sys")._getframe(1))


@nki.jit
def current_kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    placed = nl.ndarray((2, 4), dtype=x.dtype, buffer=nl.sbuf, address=(0, 4096))
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=placed, data=tile, op0=nl.add, operand0=1.0)
    stop()
    nisa.dma_copy(dst=out, src=placed)
    return out


@beta.jit
def beta_kernel(x):
    out = beta_language.ndarray(x.shape, dtype=x.dtype, buffer=beta_language.shared_hbm)
    tile = beta_language.load(x)
    placed = beta_language.add(tile, 1.0)
    stop()
    beta_language.store(out, placed)
    return out


def said(kernel, *commands: str) -> str:
    """What a debugger prints that is given these commands where the kernel stops."""
    out = io.StringIO()
    DEBUGGERS.append(pdb.Pdb(stdin=io.StringIO("\n".join([*commands, "continue", ""])), stdout=out, nosigint=True))
    try:
        assert np.array_equal(kernel.on("eager")(X), X + 1)
    finally:
        DEBUGGERS.pop()
    return out.getvalue()


@pytest.mark.parametrize("kernel", [current_kernel, beta_kernel], ids=["current", "beta"])
def test_values__are_known_at_the_prompt(kernel) -> None:
    text = said(kernel, "p tile.numpy().sum()", "import numpy as np", "p np.asarray(placed).tolist()",
                "p np.isnan(tile).any(), (np.add(tile, placed)[1, 3])", "np.asarray(tile[1:2, 0:2]).tolist()")
    assert "28.0" in text and "[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]" in text
    assert "15.0" in text and "True" not in text and "[[4.0, 5.0]]" in text and "Error" not in text


@pytest.mark.parametrize("kernel", [current_kernel, beta_kernel], ids=["current", "beta"])
def test_tiles__have_the_names_of_variables(kernel) -> None:
    text = said(kernel, "p tile", "p tile[0:1, 0:2]", "p x", "p placed")
    assert "tile[2, 4] float32 in sbuf\n[[0. 1. 2. 3.]" in text
    assert "tile[1, 2] float32 in sbuf\n[[0. 1.]]" in text
    assert "x[2, 4] float32 in " in text
    if kernel is current_kernel:
        assert "placed[2, 4] float32 in sbuf, address (0, 4096)\n[[1. 2." in text


@pytest.mark.parametrize("on", ["eager", "interpreter"])
@pytest.mark.parametrize("function", [np.asarray, np.isnan, lambda tile: tile.numpy(), np.mean],
                         ids=["asarray", "isnan", "numpy", "mean"])
def test_kernels__have_no_values(function, on) -> None:
    @nki.jit
    def current(x):
        tile = nl.load(x)
        function(tile)

    @beta.jit
    def beta_one(x):
        tile = beta_language.load(x)
        function(tile)

    for kernel in (current, beta_one):
        with pytest.raises(NkiMlirError, match=r"the device|binary operators on tensors|not a NumPy array") as caught:
            kernel.on(on)(X)
        assert caught.value.at is not None and caught.value.at.file == __file__


class Wanted:
    """A value that variables are looked up by."""


def test_variable__is_that_of_the_innermost_function_that_has_one() -> None:
    def innermost(other: object) -> str:
        return variable(lambda value: type(value) is Wanted)

    def inner(passed: object, other: object) -> str:
        return innermost(other)

    def outer(first: object) -> str:
        return inner(None, first)
    assert (innermost(Wanted()), inner(Wanted(), 1), outer(Wanted()), outer(1)) == ("other", "passed", "other", "")
    local = Wanted()
    assert outer(1) == "local" and variable(lambda value: value == "no such value") == "" and local
