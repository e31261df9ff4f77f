# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels, lowered objects, streams and times show: one line, tables in notebooks, names for users."""

import pytest

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
