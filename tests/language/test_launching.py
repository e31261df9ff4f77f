# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Launch forms of kernels: decorators, methods of classes, keywords, the target, what is kept between launches."""

import functools
import pickle
import re
import warnings

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.current import nki as current_nki
from nki_mlir.language.kernel_attributes import MOST_LAUNCHES
from nki_mlir.language.launch_grid import BadExtent
from nki_mlir.language.launching import IgnoredOption, UnknownMode
from nki_mlir.language.results import CoroutineKernel
from nki_mlir.machine import machine_named

from .running import check, compare, numbers, output_of

X = numbers(16, 8)


@nki.jit
def doubled(x):
    return output_of(nl.load(x) * 2)


def test_launch_forms():
    plain = doubled.func
    for kernel in (plain, nki.jit(plain), nki.trace(plain), nki.baremetal(plain), nki.baremetal(doubled),
                   nki.jit(doubled, mode="simulation"), nki.jit(mode="simulation")(plain),
                   nki.jit(doubled, mode="simulation", platform_target="trn2"), nki.baremetal(doubled)[1],
                   nki.jit(experimental_flags="x", debug_kernel=True, kernel_return=True)(plain)):
        compare(nki.simulate_kernel(kernel, X), X * 2)
    compare(nki.jit(plain, mode="simulation")(X), X * 2)
    assert doubled.__name__ == "doubled" and doubled.func is plain


def test_kernels_have_the_names_of_their_functions_and_take_attributes(tmp_path):
    for kernel in (nki.jit(doubled.func), nki.benchmark(doubled.func),
                   nki.baremetal(doubled.func, artifacts_dir=tmp_path)):
        assert (kernel.__name__, kernel.__qualname__, kernel.__module__) == ("doubled", "doubled", __name__)
        assert kernel.__doc__ is doubled.func.__doc__ is None
        kernel.__name__, kernel.expected = "twice", lambda x: x * 2
        assert kernel[1].__name__ == "twice" and doubled.__name__ == "doubled"
        compare(kernel.on("eager")(X), kernel[1].expected(X))

    @functools.wraps(doubled)
    def caller(x):
        """Calls it."""
        return doubled(x)
    assert caller.__wrapped__ is doubled and functools.update_wrapper(nki.jit(doubled), caller).__name__ == "doubled"


def test_a_function_that_wraps_another__has_its_parameters_only_if_it_passes_them_on():
    def scaled(x, scale=1.0, *, shift=0.0):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * scale + shift)
        return out

    @nki.jit
    @functools.wraps(scaled)
    def twice(x):
        return scaled(x, scale=2.0)

    @nki.jit
    @functools.wraps(scaled)
    def passed(*arguments, **keywords):
        return scaled(*arguments, **keywords)
    compare(twice(X), X * 2)
    compare(passed(X, 2.0, shift=1.0), X * 2 + 1)


def test_launches_have_the_attributes_that_the_kernel_had():
    kernel = nki.jit(doubled.func)
    first = kernel[1, 2]
    kernel.note = "of the kernel"
    assert kernel[1, 2].note == "of the kernel" and not hasattr(first, "note")
    copy = kernel[1, 2]
    copy.note = "of the copy"
    assert kernel[1, 2].note == "of the kernel" and copy.note == "of the copy"
    assert copy[1, 2].note == "of the copy" and copy.on("eager")[1, 2].executor == "eager"


def test_launches_on_equal_grids_are_one_object():
    kernel = nki.jit(doubled.func)
    assert kernel[1, 2] is kernel[1, 2] and kernel[3] is kernel[3]
    assert kernel[1, 2].executor is None and kernel.on("eager")[1, 2].executor == "eager"
    first = kernel[0 + 1, 2]
    for extent in range(1, 2 * MOST_LAUNCHES):
        assert kernel[extent].grid == (extent,)
    assert len(kernel.launches) <= MOST_LAUNCHES and kernel[1, 2] is not first and kernel[1, 2].grid == (1, 2)
    assert first.on("eager") is not first and first[5] is first[5] is not kernel[5]
    assert pickle.loads(pickle.dumps(doubled[7])).grid == (7,)


def test_launches_on_equal_grids_check_the_machine_again(monkeypatch):
    kernel = current_nki.jit(doubled.func)
    most = machine_named("trn3").launch_cores
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    assert kernel[most] is kernel[most] and kernel[most].lnc == most
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(NkiMlirError, match=f"a kernel is launched on 1 to 1 cores, got {most}"):
        kernel[most]


def test_launches_on_equal_grids_check_each():
    kernel = nki.jit(doubled.func)
    assert kernel[1, 1000].grid == kernel[1, int("1000")].grid == (1, 1000)
    for grid, extent in (((1, 1000.0), "1000.0"), ((0, 1000), "0")):
        with pytest.raises(BadExtent, match=re.escape(f"an extent of a launch grid must be a positive integer, got {extent}")):
            kernel[grid]
    grid = [1, 2]
    assert kernel[grid].grid == (1, 2)
    grid[0] = 2
    assert kernel[grid].grid == (2, 2) and kernel[True, 2].grid == (1, 2)


def test_kernels_of_classes(on):
    class Scaled:
        def __init__(self, by):
            self.by = by

        @nki.jit
        def method(self, x, more=0):
            return output_of(nl.load(x) * self.by + more)

        @classmethod
        @nki.jit
        def of_class(cls, x):
            return output_of(nl.load(x) * (2 if cls is Scaled else 3))

        @nki.jit
        def plain(x):
            return output_of(nl.load(x) * 5)

        assigned = doubled
    one, two = Scaled(3), Scaled(4)
    for scaled in (one, two, one):
        compare(scaled.method.on(on)(X), X * scaled.by)
        compare(scaled.method[1].on(on)(X, more=1), X * scaled.by + 1)
    one.by = 7
    compare(one.method.on(on)(X), X * 7)
    compare(Scaled.method.on(on)(two, X), X * 4)
    compare(Scaled.of_class.on(on)(X), X * 2)
    compare(one.plain.on(on)(X), X * 5)
    compare(one.assigned.on(on)(X), X * 2)


def test_simulate_takes_keywords(on):
    @nki.jit
    def kernel(x, *, scale=1):
        return output_of(nl.load(x) * scale)
    compare(nki.simulate_kernel(kernel.on(on), x=X, scale=4), X * 4)


def test_target_is_read_at_launch(on, monkeypatch):
    from nki_mlir.language.beta import isa as nisa

    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) * int(nisa.get_nc_version()))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    check(on, kernel, X * 2, X)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    check(on, kernel, X * 3, X)


def test_specializations_are_kept(on):
    if on == "eager":
        pytest.skip("executes without capturing")
    calls = []

    @nki.jit
    def kernel(x, scale):
        calls.append(scale)
        return output_of(nl.load(x) * scale)
    for scale in (2, 2, 3, 2):
        check(on, kernel, X * scale, X, scale)
    assert calls == [2, 3]
    check(on, kernel, X[:8] * 2, X[:8], 2)
    assert len(calls) == 3


def test_mode__is_one_of_those_documented():
    with pytest.raises(UnknownMode, match="has no mode 'nonsense'") as caught:
        nki.jit(mode="nonsense")
    assert f"{__file__}:" in str(caught.value)


def test_option__that_no_decorator_has():
    with pytest.warns(IgnoredOption, match=r"no option 'target', and ignores it; write platform_target=$"):
        nki.jit(target="trn3")
    with pytest.warns(IgnoredOption, match=r"nki.benchmark has no option 'itres', .*; write iters=$"):
        nki.benchmark(doubled, itres=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nki.jit(debug=True, disable_allocation_opt=True)


def test_coroutine__is_no_kernel():
    async def kernel(x):
        return output_of(nl.load(x))
    with pytest.raises(CoroutineKernel, match="is an `async def`") as caught:
        nki.jit(kernel)(X)
    assert caught.value.at.line == kernel.__code__.co_firstlineno


@pytest.mark.parametrize("executor", ["eager", "interpreter", "jit", "isa"])
def test_baremetal__returns_memory_apart_from_arguments(executor, monkeypatch):
    """Programs poison their arrays between runs: what a run returned stays as it was. A plain call updates in place."""
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", executor)

    def double(x, out):
        nl.store(out, nl.multiply(nl.load(x), 2.0))
    x, out = np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32)
    kernel = nki.baremetal(double)
    results = [kernel(x, out) for _ in range(3)]
    out[...] = np.nan
    assert all(np.array_equal(result, np.full((4, 8), 2.0)) for result in results)
    assert not np.shares_memory(results[0], results[1])
    assert nki.trace(double)(x, out) is out and np.array_equal(out, np.full((4, 8), 2.0))
