# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The process that ``test_interrupts.py`` starts: work that would take hours, each part of which Ctrl-C ends.

A thread sends the signal while the part runs. After each part the same small kernel runs, with the right result.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

import nki_mlir.compat

nki_mlir.compat.install()

import neuronxcc.nki as nki  # noqa: E402
import neuronxcc.nki.isa as nisa  # noqa: E402
import neuronxcc.nki.language as nl  # noqa: E402

from nki_mlir.targets import neuron  # noqa: E402
from nki_mlir.targets.neuron.checker.memory import MemoryCheck  # noqa: E402
from nki_mlir.targets.runtime import jit  # noqa: E402
from nki_mlir.targets.runtime.interruption import getsig  # noqa: E402
from nki_mlir.targets.runtime.machine import machine  # noqa: E402

FOREVER = 200_000_000
x = np.ones((128, 512), np.float32)


@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


@nki.jit
def loop(x, times):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    for _ in nl.sequential_range(times):
        t[...] = nl.exp(nl.multiply(t, 0.5))
    nl.store(out, t)
    return out


@nki.jit
def products(x, times):
    out = nl.ndarray((512, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        t = nl.load(x)
        for _ in nl.sequential_range(times):
            t[...] = nl.copy(nisa.nc_matmul(t[:, 0:128], t))
        nl.store(out[i * 128:(i + 1) * 128, :], t)
    return out


@nki.jit
def unrolled(x, times):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    for i in nl.static_range(times):
        t = nl.multiply(t, 1.0 + i)
    nl.store(out, t)
    return out


def signal_handler() -> int:
    """Return the address of the C function that handles Ctrl-C."""
    address: int = getsig(signal.SIGINT)
    return address


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def while_running(work: Callable[[], object]) -> None:
    """Ctrl-C while Python works."""
    timer = threading.Timer(0.3, interrupt)
    timer.start()
    ends(work)
    timer.join()


def in_native_code(work: Callable[[], object]) -> None:
    """Ctrl-C behind the start of the compiled launch."""
    launch = machine().launch_watched

    def watched(*arguments: object) -> object:
        threading.Timer(0.2, interrupt).start()
        return launch(*arguments)
    machine().launch_watched = watched
    try:
        ends(work)
    finally:
        machine().launch_watched = launch


def once_launched(work: Callable[[], object]) -> None:
    """Ctrl-C while another thread is in compiled code: as soon as its launch handles the signal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)        # Python's C function, which a launch replaces
    before = signal_handler()
    with ThreadPoolExecutor(1) as killer:
        killer.submit(lambda: until(lambda: signal_handler() != before) or interrupt())
        ends(work)


def until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.01)


def as_it_begins(module: object, name: str) -> Callable[[Callable[[], object]], None]:
    """Ctrl-C where a function is called: a phase that is too short to be hit by time."""
    def run_interrupted(work: Callable[[], object]) -> None:
        function = getattr(module, name)

        def signaled(*arguments: object, **keywords: object) -> object:
            interrupt()
            time.sleep(0.01)
            return function(*arguments, **keywords)
        setattr(module, name, signaled)
        try:
            ends(work)
        finally:
            setattr(module, name, function)
    return run_interrupted


def on_thread() -> None:
    """Wait for a thread in compiled code, which raises the exception as well, or the wait would not end."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(loop, x, FOREVER)
        try:
            wait([call])
        finally:
            assert type(call.exception()) is KeyboardInterrupt


def under_other_handlers() -> None:
    """A handler of the program decides: one that returns changes nothing, and its exception ends the launch."""
    signals: list[int] = []

    def handle(number: int, frame: object) -> None:
        signals.append(number)
        if len(signals) == 2:
            raise KeyboardInterrupt
        threading.Timer(0.2, interrupt).start()
    default = signal.signal(signal.SIGINT, handle)
    try:
        loop(x, FOREVER)
    finally:
        signal.signal(signal.SIGINT, default)
        assert len(signals) == 2


def ends(work: Callable[[], object]) -> None:
    try:
        work()
    except KeyboardInterrupt:
        return
    raise AssertionError("it was not interrupted")


PLACES = {
    "native loop": (in_native_code, lambda: loop(x, FOREVER)),
    "native products on the pool": (in_native_code, lambda: products(x, FOREVER)),
    "native code again": (in_native_code, lambda: loop(x, FOREVER)),
    "native code on another thread": (once_launched, on_thread),
    "native code under another handler": (in_native_code, under_other_handlers),
    "capture": (while_running, lambda: unrolled(x, 2_000_000)),
    "compilation": (as_it_begins(jit, "compile_anew"), lambda: loop(np.ones((64, 96), np.float32), 7)),
    "eager": (while_running, lambda: loop.on("eager")(x, FOREVER)),
    "interpreter": (while_running, lambda: loop.on("interpreter")(x, FOREVER)),
    "simulation": (while_running, lambda: loop.on("isa")(x, FOREVER)),
    "streams": (as_it_begins(neuron, "lowered"), lambda: loop.lower(x, 8).as_text("isa")),
    "timing": (while_running, lambda: loop.lower(x, FOREVER).time()),
    "profile": (while_running, lambda: loop.lower(x, FOREVER).profile()),
    "checker of streams": (as_it_begins(MemoryCheck, "initialize"), lambda: neuron.checked(loop.lower(x, 8).streams)),
}


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)       # a shell's background jobs start without it
    np.testing.assert_array_equal(doubled(x), 2 * x)
    for name, (run_interrupted, work) in PLACES.items():
        run_interrupted(work)
        for on in ("jit", "isa"):
            np.testing.assert_array_equal(doubled.on(on)(x), 2 * x)
        print(name, flush=True)


if __name__ == "__main__":
    sys.exit(main())
