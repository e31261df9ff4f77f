# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels, lowered objects, streams and times show: one line, tables in notebooks, names for users."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir import display
from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.stepping.stream_driver import PADDING, SteppedCore

from .kernels import X, beta_logs, current_logs


@pytest.mark.parametrize("kernel", [current_logs, beta_logs], ids=["current", "beta"])
def test_text__is_one_line(kernel) -> None:
    lowered = kernel.lower(X)
    name = kernel.__name__
    line = kernel.func.__code__.co_firstlineno
    assert repr(kernel) == f"<kernel {name} of kernels.py:{line}>"
    assert repr(kernel[2].on("jit")) == f"<kernel {name}[2] of kernels.py:{line}, on jit>"
    assert repr(lowered) == f"<lowered {name} for trn2: x float32[2, 4] -> float32[2, 4]>"
    assert repr(lowered.streams[0]).startswith(f"<streams of {name} for trn2: scalar ")
    assert repr(lowered.time()).startswith(f"<time of {name} on trn2: {lowered.time().total_ns / 1e3:.4g} us, ")
    assert repr(lowered.profile()).startswith(f"<profile of {name}: ")
    shown = (kernel, lowered, lowered.streams[0], lowered.time(), lowered.cost, lowered.profile())
    assert not [one for one in shown if "\n" in repr(one)]
    for one in (kernel, lowered.streams[0], lowered.time(), lowered.cost):
        assert "<table>" in one._repr_html_()


@pytest.mark.parametrize("kernel", [current_logs, beta_logs], ids=["current", "beta"])
def test_names__are_those_for_users(kernel) -> None:
    assert [name for name in dir(kernel) if not name.startswith("__")] == [
        "func", "grid", "lower", "mode", "on", "options", "target"]
    assert {"__call__", "__doc__", "__getitem__", "__name__", "__wrapped__"} <= set(dir(kernel))


def shown_tiles() -> tuple:
    """Kernels of both generations, and the text and table that each has shown of the tile ``doubled``."""
    shown = []

    @nki.jit
    def current(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        doubled = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=doubled, src=x)
        nisa.tensor_scalar(dst=doubled, data=doubled, op0=nl.multiply, operand0=2.0)
        shown.append((repr(doubled), doubled._repr_html_()))
        nisa.dma_copy(dst=out, src=doubled)
        return out

    @beta.jit
    def older(x):
        out = beta_language.ndarray(x.shape, dtype=x.dtype, buffer=beta_language.shared_hbm)
        doubled = beta_language.multiply(beta_language.load(x), 2.0)
        shown.append((repr(doubled), doubled._repr_html_()))
        beta_language.store(out, doubled)
        return out
    return current, older, shown


@pytest.mark.parametrize("shape", [(2, 4), (3, 2, 2), (1, 1), (128, 1)], ids=str)
def test_tile_in_a_run__has_its_elements(shape) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    current, older, shown = shown_tiles()
    for kernel in (current, older):
        np.testing.assert_array_equal(kernel.on("eager")(x), x * 2)
    for text, html in shown:
        header = f"doubled{list(shape)} float32 in sbuf"
        assert text == f"{header}\n{x * 2}"
        assert html == display.tile(header, (x * 2).reshape(shape[0], -1), (shape[0], x[0].size))
        assert html.count("<tr>") == 1 + min(shape[0], len(display.shown(shape[0])))


def test_tile_in_a_capture__has_a_header_alone() -> None:
    current, older, shown = shown_tiles()
    current.lower(X), older.lower(X)
    assert len(shown) >= 2
    for text, html in shown:
        assert text == "doubled[2, 4] float32 in sbuf"
        assert html == f"<div>{text}</div>" + display.table(["partition"], [])


def test_rows_of_a_memory__are_those_that_it_has():
    """All partitions and ranges of bytes at the ends of a memory of 4 partitions of 8 bytes."""
    memory = np.arange(4 * (8 + PADDING), dtype=np.uint8).reshape(4, 8 + PADDING)
    core = SimpleNamespace(memory={"sbuf": memory})
    for partition, start, count in product(range(6), range(10), range(10)):
        row = SteppedCore.row(core, "sbuf", partition, start, count)
        if partition < 4 and start + count <= 8:
            assert row.tolist() == list(memory[partition, start:start + count])
        else:
            assert row is None
    assert SteppedCore.row(core, "hbm", 0, 0, 1) is SteppedCore.row(core, "psum", 0, 0, 1) is None
