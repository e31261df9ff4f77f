# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whose handler of Ctrl-C ends the work of all threads, and which C function handles it."""

import asyncio
import signal
from collections.abc import Callable, Iterator

import pytest

from nki_mlir.targets.runtime.interruption import ends_work, getsig, handler_of_python, keep_handler, setsig


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("handler, ends", [
    (signal.default_int_handler, True), (signal.SIG_IGN, False), (signal.SIG_DFL, False),
    (lambda number, frame: None, False), (print, False)], ids=["default", "ignored", "system", "a function", "print"])
def test_only_pythons_handler_ends_the_work_of_all_threads(handler: Callable[..., object] | signal.Handlers,
                                                           ends: bool) -> None:
    signal.signal(signal.SIGINT, handler)
    assert ends_work() is ends
    assert (handler_of_python() is None) == isinstance(handler, signal.Handlers)


def test_the_handler_of_asyncio_ends_the_work_too() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def is_ending() -> bool:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        return ends_work()
    assert asyncio.run(is_ending())


def test_the_c_function_is_restored() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = getsig(signal.SIGINT)
    with keep_handler():
        assert getsig(signal.SIGINT) == before
    assert getsig(signal.SIGINT) == before
    ignored = 1                                             # SIG_IGN
    with keep_handler():
        setsig(signal.SIGINT, ignored)
        assert getsig(signal.SIGINT) == ignored
    assert getsig(signal.SIGINT) == before
    with pytest.raises(ZeroDivisionError, match="by zero"), keep_handler():
        setsig(signal.SIGINT, ignored)
        _ = 1 / 0
    assert getsig(signal.SIGINT) == before
