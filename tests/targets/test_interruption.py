# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whose handler of Ctrl-C ends the work of all threads, and which C function handles it."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from nki_mlir.targets.runtime.interruption import ends_work, getsig, handler_of_python, keep_handler, setsig
from nki_mlir.targets.runtime.machine import machine


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


def test_a_handler_that_raises_ends_the_launch_that_polls() -> None:
    polls = machine().polls()
    assert [next(polls), next(polls)] == [0, 0]
    error = ValueError("of a handler")
    assert polls.throw(error) != 0
    assert next(polls) == 0
    assert machine().raised() is error
    assert type(machine().raised()) is KeyboardInterrupt         # an error is raised once
    polls.close()


def test_launches_know_whether_ctrl_c_ends_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts while Python cannot answer: a framework waits for a launch and keeps Python's lock."""
    calls: list[tuple[object, ...]] = []
    machine().watch_signals()
    monkeypatch.setattr(machine(), "_callable", lambda name, *kinds: lambda *arguments: calls.append((name, *arguments)))
    for handler in (signal.default_int_handler, signal.SIG_IGN):
        signal.signal(signal.SIGINT, handler)
        machine().watch_signals()
    assert calls == [("nki_use_answer", True), ("nki_use_answer", False)]
    monkeypatch.undo()
    machine().watch_signals()


def test_a_launch_of_another_thread_ends_with_an_interrupt_of_its_own() -> None:
    machine().interruption = error = ValueError("of the main thread")
    raised: list[BaseException] = []
    thread = threading.Thread(target=lambda: raised.append(machine().raised()))
    thread.start()
    thread.join()
    assert [type(one) for one in raised] == [KeyboardInterrupt]
    assert machine().raised() is error
