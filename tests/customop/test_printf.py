# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels print: the ring buffer, the environment's settings, cores."""

import re
import warnings

import numpy as np
import pytest

from nki_mlir import customop
from nki_mlir.customop.faults import PrintedOnCore
from nki_mlir.customop.settings import BadQueueSize
from tests.customop.conftest import marked

X = np.zeros((8, 8), np.float32)
SIZE = "NEURON_RT_GPSIMD_STDOUT_QUEUE_SIZE_BYTES"
HEAD = r"\d{4}-\w{3}-\d\d \d\d:\d\d:\d\d\.\d{4} \d+:\d+ INFO  TDRV:pool_stdio_queue_consume_all_entries  Printing stdout " \
       r"from GPSIMD:\n"


@pytest.fixture(params=[True, False], ids=["checked", "fast"])
def speak(build, request):
    return build("api", checked=request.param).speak


def said(lines):
    return "".join(f"line {k} of many\n" for k in range(lines)) + "the end\n!"


def test_printf__is_shown_below_the_runtimes_line(speak, monkeypatch, capfd):
    monkeypatch.setenv("NEURON_RT_LOG_LEVEL", "info")
    monkeypatch.setenv(SIZE, "131072")
    speak(X, 3)
    captured = capfd.readouterr()
    assert re.fullmatch(HEAD + re.escape(said(3)) + "\n", captured.err) and captured.out == ""


@pytest.mark.parametrize("level, size", [("WARN", "1024"), (None, "1024"), ("INFO", "0"), ("INFO", None)])
def test_printf__needs_both_settings(speak, monkeypatch, capfd, level, size):
    for name, value in (("NEURON_RT_LOG_LEVEL", level), (SIZE, size)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    speak(X, 3)
    assert capfd.readouterr() == ("", "")


def test_ring__keeps_the_newest_bytes(speak):
    for size in (16, 64, 1024):
        with customop.captured_printf(size) as printed:
            speak(X, 20)
        assert printed.getvalue() == said(20)[-size:]


def test_ring__is_empty_for_every_call(speak):
    with customop.captured_printf() as printed:
        speak(X, 1)
        speak(X, 0)
    assert printed.getvalue() == said(1) + said(0)


@pytest.mark.parametrize("size", ["1000", "262144", "-1", "many"])
def test_ring__of_a_size_that_there_is_not(speak, monkeypatch, size):
    monkeypatch.setenv(SIZE, size)
    with pytest.raises(BadQueueSize, match=f"{SIZE} cannot be {size}"):
        speak(X, 1)


def test_cores__but_the_first_have_no_output(build):
    with customop.captured_printf() as printed, pytest.warns(PrintedOnCore, match=r"cores 1 to 7") as caught:
        build("faults", multicore=True).cores(X, 6)
    assert printed.getvalue() == "core 0\n"
    assert caught[0].lineno == marked("faults.cpp", "no-dst")
    with customop.captured_printf() as printed, warnings.catch_warnings():
        warnings.simplefilter("error")
        build("faults", multicore=True, checked=False).cores(X, 6)
    assert printed.getvalue() == "core 0\n"


def test_printf_before_a_fault__is_shown(build):
    with customop.captured_printf() as printed, pytest.raises(customop.Fault, match="there are no -1 lines"):
        build("api").speak(X, -1)
    assert printed.getvalue() == said(0)
