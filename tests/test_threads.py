# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Any public function from any thread: the first calls of a process, reading modules, recovered kernels."""

import importlib
import os
import subprocess
import sys
import threading
import time
from _thread import interrupt_main
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.alone import ALONE, alone, exclusive_property
from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import new_context, shared_context
from nki_mlir.frameworks.registry import PlainResults, program_of, record_of
from nki_mlir.graph.custom_call import read_record
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.passes import pass_manager
from nki_mlir.passes.pass_manager import run_passes
from nki_mlir.passes.pipelines import passes_to

from .at_once import at_once
from .threads_workload import KINDS

ROOT = Path(__file__).parent.parent
THREADS = 8


def workload(*numbers):
    done = subprocess.run([sys.executable, "-m", "tests.threads_workload", *map(str, numbers)], cwd=ROOT,
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout.splitlines()


def test_first_calls__of_several_threads():
    assert workload(THREADS, 10, 1) == ["round 0: 80 kernels on 4 executors"]


@pytest.mark.fuzz
@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") != "fuzz", reason="minutes: make fuzz")
def test_many_kernels__of_several_threads():
    assert len(workload(THREADS, 200, 50)) == 50


CALLERS, CALLS, EXECUTORS = 16, 12, ("jit", "interpreter", "eager", "isa")


def times(factor):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * factor)
        return out
    return kernel


@nki.jit
def divides(x):
    return 1 // 0


@nki.jit
def beyond(x):
    return nl.load(x[0:8, 0:900])


def call_while_interrupted():
    """Call kernels in threads, of which some raise, and in the main thread, which is interrupted."""
    kernels, x = [times(factor) for factor in range(4)], np.arange(24, dtype=np.float32).reshape(8, 3)
    completed: list[int] = []

    def call(number):
        for turn in range(CALLS):
            on, factor = EXECUTORS[(number + turn) % 4], (number * turn) % 4
            assert np.array_equal(kernels[factor].on(on)(x), x * factor)
            if number % 4 == 1:
                with pytest.raises(ZeroDivisionError, match="by zero"):
                    divides.on(on)(x)
            if number % 4 == 2:
                with pytest.raises(IndexError, match="900"):
                    beyond.on(on)(x)
        completed.append(number)
    callers = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    for caller in callers:
        caller.start()
    interrupts = 0
    while interrupts < 10 or any(caller.is_alive() for caller in callers):
        timer = threading.Timer(0.01 * (interrupts % 5), interrupt_main)
        try:
            timer.start()
            for on in EXECUTORS:
                assert np.array_equal(kernels[2].on(on)(x), x * 2)
            timer.join()
            time.sleep(0.05)
        except KeyboardInterrupt:
            interrupts += 1
    assert sorted(completed) == [*range(CALLERS)]
    for on in EXECUTORS:
        assert all(np.array_equal(kernel.on(on)(x), x * factor) for factor, kernel in enumerate(kernels))
    print("right")


def test_callers_of_which_some_raise_and_one_is_interrupted():
    """All threads call the same kernels, on all executors; their values are right meanwhile and after it."""
    done = subprocess.run([sys.executable, "-c", "from tests import test_threads; test_threads.call_while_interrupted()"],
                          cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout == "right\n", done.stderr[-4000:]


def in_threads(work):
    """Run ``work(number)`` on all threads at once."""
    at_once(work, range(THREADS))


X = np.arange(24, dtype=np.float32).reshape(8, 3)


def specialized(number):
    kernel, expected = KINDS[number % 3](number + 1)
    return kernel.specialize(kernel.bind((X,), {}, is_array, getattr(kernel, "describe", describe_array))), expected


def test_modules__are_read_and_lowered():
    texts = [str(specialized(n)[0].modules[0]) for n in range(THREADS)]
    lowered = {}

    def work(number):
        for _ in range(5):
            with ALONE, shared_context(), ir.Location.unknown():
                module = ir.Module.parse(texts[number])
            run_passes(module, passes_to("nisa", module))
            lowered.setdefault(number, set()).add(str(module))
    in_threads(work)
    assert all(len(modules) == 1 for modules in lowered.values()) and len(lowered) == THREADS


def test_contexts__are_made_by_all_threads():
    contexts, shared = [], []

    def work(number):
        contexts.append(new_context())
        shared.append(shared_context())
    in_threads(work)
    assert len({id(c) for c in contexts}) == THREADS and len({id(c) for c in shared}) == 1


def test_kernels_out_of_configs__run():
    def work(number):
        spec, expected = specialized(number)
        record = read_record(record_of(spec, PlainResults()).config)
        for on in ("interpreter", "jit", "isa"):
            out = np.zeros_like(X)
            program_of(record, on)([X], [out])
            np.testing.assert_allclose(out, expected(X), rtol=1e-5)
    in_threads(work)


def test_one_kernel__is_captured_and_compiled_once():
    captures = []
    kernel, expected = KINDS[0](3)
    inner = kernel.func

    def counted(x):
        captures.append(threading.get_ident())
        return inner(x)
    kernel = type(kernel)(counted)
    specs = []

    def work(number):
        specs.append(kernel.specialize(kernel.bind((X,), {}, is_array, describe_array)))
        np.testing.assert_allclose(kernel.on("jit")(X), expected(X), rtol=1e-5)
    in_threads(work)
    assert len({id(spec) for spec in specs}) == 1 and len(set(captures)) == 1


def test_derivatives__in_threads_of_torch():
    """Autograd runs backward functions in its threads: the first call of a kernel may be there."""
    torch = pytest.importorskip("torch")
    kernels = [KINDS[1](n + 1)[0] for n in range(THREADS)]

    class Shifted(torch.autograd.Function):
        @staticmethod
        def forward(context, x, number):
            context.number = number
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            return kernels[context.number](gradient), None

    def work(number):
        x = torch.from_numpy(X).requires_grad_()
        Shifted.apply(x, number).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), np.ones_like(X) - (number + 1))
    in_threads(work)


def test_alone__is_one_thread_and_calls_itself():
    inside, most = [], []

    @alone
    def outer(depth):
        inside.append(depth)
        most.append(len(inside))
        if depth:
            outer(depth - 1)
        inside.pop()
    in_threads(lambda number: [outer(2) for _ in range(50)])
    assert max(most) == 3 and not inside


def test_made_alone__is_made_once():
    class Holder:
        count = 0

        @exclusive_property
        def value(self):
            self.count += 1
            return [self.count]
    holder, reads = Holder(), []
    in_threads(lambda number: reads.append(holder.value))
    assert reads == [[1]] * THREADS and all(s is reads[0] for s in reads) and Holder.value is Holder.__dict__["value"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork__waits_for_a_thread_that_compiles():
    holding, leave = threading.Event(), threading.Event()

    def hold():
        with ALONE:
            holding.set()
            leave.wait(0.2)
    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if ALONE.acquire(timeout=5) else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


SLOW = """
import threading
from nki_mlir.passes.pass_manager import Pass

class Slow(Pass, name="slow-to-load"):
    pass

HERE.set()
GO_ON.wait(10)
def behind():
    pass
"""


def test_a_pass_that_another_thread_loads__is_whole(tmp_path, monkeypatch):
    """A class is known before its module has been run to the end."""
    here, go_on, loaded = threading.Event(), threading.Event(), []
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins.HERE", here, raising=False)
    monkeypatch.setattr("builtins.GO_ON", go_on, raising=False)
    monkeypatch.setattr(pass_manager, "PASSES", dict(pass_manager.PASSES))
    (tmp_path / "slow_to_load.py").write_text(SLOW)

    def ask():
        loaded.append(hasattr(sys.modules[type(pass_manager.pass_named("slow-to-load")).__module__], "behind"))
    loading, asking = threading.Thread(target=importlib.import_module, args=("slow_to_load",)), threading.Thread(target=ask)
    loading.start()
    assert here.wait(10)
    asking.start()
    asking.join(0.2)
    go_on.set()
    loading.join()
    asking.join()
    assert loaded == [True]
