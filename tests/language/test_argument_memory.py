# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays that are given twice, overlap, or are not C-contiguous: kernels see the caller's memory, or refuse it."""

import numpy as np
import pytest

from nki_mlir.language.argument_memory import ArgumentMemory, memory_of
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import mutable_tensor
from nki_mlir.language.current import isa as current_isa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki
from nki_mlir.targets.neuron.simulated_core import WrongArrays

SAME = ("eager", "interpreter", "jit")          # the streams refuse one array for two parameters
ALL = (*SAME, "isa")


@nki.trace
def update_both(a, b):
    nl.store(a[0:4], nl.add(nl.load(a[0:4]), 1.0))
    nl.store(b[4:8], nl.multiply(nl.load(b[0:4]), 2.0))


@nki.trace
def read_after_write(a, b):
    nl.store(b[0:4], nl.add(nl.load(a[0:4]), 1.0))
    nl.store(b[4:8], nl.load(a[0:4]))


@nki.jit
def returned(a: mutable_tensor, b: mutable_tensor):
    nl.store(a[0:4], nl.add(nl.load(a[0:4]), 1.0))
    nl.store(b[4:8], nl.multiply(nl.load(b[0:4]), 2.0))
    return a, b


def update_both_values(x):
    x[0:4] += 1
    x[4:8] = x[0:4] * 2


def read_after_write_values(x):
    x[0:4] += 1
    x[4:8] = x[0:4]


KERNELS = {"update_both": (update_both, update_both_values), "returned": (returned, update_both_values),
           "read_after_write": (read_after_write, read_after_write_values)}
LAYOUTS = {
    "C": lambda m: m[:8, :8].copy(), "F": lambda m: np.asfortranarray(m[:8, :8]), "backwards": lambda m: m[7::-1, 7::-1],
    "columns": lambda m: m[:8, ::2], "rows": lambda m: m[::2, :8], "transposed": lambda m: m[:8, :8].T,
}


def memory():
    return np.arange(256, dtype=np.float32).reshape(16, 16)


@pytest.mark.parametrize("on", SAME)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", KERNELS)
def test_one_array_for_two_parameters(name, layout, on):
    """Also as two views that are equal."""
    kernel, values = KERNELS[name]
    for again in (lambda x: x, lambda x: x[...]):
        base = memory()
        x = LAYOUTS[layout](base)
        expected = x.copy()
        values(expected)
        rest = np.ones(base.shape, bool)
        if np.may_share_memory(base, x):
            LAYOUTS[layout](rest)[...] = False
        kernel.on(on)(x, again(x))
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(base[rest], memory()[rest])


@pytest.mark.parametrize("on", SAME)
def test_results_of_one_array_for_two_parameters(on):
    x = np.ones((8, 8), np.float32)
    for kernel in (update_both, returned):
        first, second = kernel.on(on)(x, x)
        assert first is x and second is x


@pytest.mark.parametrize("layout", LAYOUTS)
def test_streams_refuse_one_array_for_two_parameters(layout):
    x = LAYOUTS[layout](memory())
    before = x.copy()
    with pytest.raises(WrongArrays, match="the arrays of a and b share memory, and the kernel writes to it") as error:
        update_both.on("isa")(x, x)
    assert error.value.code == "NKI-ARRAYS"
    np.testing.assert_array_equal(x, before)


OVERLAPS = {
    "reversed": lambda m: (m[:8, :8], m[7::-1, :8]), "transposed": lambda m: (m[:8, :8], m[:8, :8].T),
    "shifted": lambda m: (m[:8, :8], m[:8, 1:9]), "contiguous": lambda m: (m[:4].reshape(8, 8), m[:4].reshape(8, 8).T),
}


@pytest.mark.parametrize("on", ALL)
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_views_that_overlap_at_other_positions(overlap, on):
    for order in (1, -1):
        base = memory()
        with pytest.raises(TypeError) as error:
            read_after_write.on(on)(*OVERLAPS[overlap](base)[::order])
        assert error.value.headline == (
            "the kernel writes its parameter b, whose array overlaps the array of a with a shift, and at least "
            "one of the two is not C-contiguous")
        assert error.value.advice[1] == "pass a copy of one of them, or C-contiguous arrays"
        np.testing.assert_array_equal(base, memory())


@nki.jit
def total(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.load(b)))
    return out


@pytest.mark.parametrize("on", ALL)
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_views_that_overlap_and_are_only_read(overlap, on):
    a, b = OVERLAPS[overlap](memory())
    np.testing.assert_array_equal(total.on(on)(a, b), a + b)


@pytest.mark.parametrize("on", ALL)
def test_views_that_lie_between_each_other(on):
    base, expected = memory(), memory()
    expected[:4, 1::2] = expected[:4, ::2] + 1
    expected[4:8, 1::2] = expected[:4, ::2]
    read_after_write.on(on)(base[:8, ::2], base[:8, 1::2])
    np.testing.assert_array_equal(base, expected)


@pytest.mark.parametrize("offset", [0, 8, 13, 64])
@pytest.mark.parametrize("on", SAME)
def test_contiguous_views_that_overlap(on, offset):
    base, expected = memory().ravel(), memory().ravel()
    a, b = (expected[k:k + 64].reshape(8, 8) for k in (0, offset))
    b[0:4] = a[0:4] + 1
    b[4:8] = a[0:4].copy()
    read_after_write.on(on)(*(base[k:k + 64].reshape(8, 8) for k in (0, offset)))
    np.testing.assert_array_equal(base, expected)


# -- arrays that cannot be updated -------------------------------------------------------------------------------------
@pytest.mark.parametrize("on", ALL)
def test_elements_that_share_memory__are_not_written(on):
    row = np.zeros(8, np.float32)
    target = np.lib.stride_tricks.as_strided(row, (8, 8), (0, 4))
    with pytest.raises(TypeError) as error:
        read_after_write.on(on)(np.ones((8, 8), np.float32), target)
    assert error.value.headline == ("the kernel writes its parameter b, but elements of the array passed for it share "
                                    "memory (shape (8, 8), strides (0, 4))")
    assert not row.any()


@pytest.mark.parametrize("on", ALL)
def test_elements_that_share_memory__are_read(on):
    spread = np.lib.stride_tricks.sliding_window_view(np.arange(15, dtype=np.float32), 8)
    np.testing.assert_array_equal(total.on(on)(spread, spread), spread + spread)


@pytest.mark.parametrize("on", ALL)
def test_masked_arrays_are_refused(on):
    x = np.ma.masked_array(np.ones((8, 8), np.float32), np.eye(8))
    with pytest.raises(TypeError) as error:
        total.on(on)(np.ones((8, 8), np.float32), x)
    assert error.value.headline == "a masked array is passed to a kernel, which would not see its mask"


@current_nki.jit
def current_total(a, b):
    out = current_nl.ndarray(a.shape, dtype=a.dtype, buffer=current_nl.shared_hbm)
    current_nl.store(out, current_nl.add(current_nl.load(a), current_nl.load(b)))
    return out


@pytest.mark.parametrize("on", [*ALL, "simulate"])
def test_masked_arrays_are_refused_by_the_current_generation(on):
    kernel = current_nki.simulate(current_total) if on == "simulate" else current_total.on(on)
    x = np.ones((8, 8), np.float32)
    np.testing.assert_array_equal(kernel(x, x), x + x)
    with pytest.raises(TypeError) as error:
        kernel(x, np.ma.masked_array(x, np.eye(8)))
    assert error.value.headline == "a masked array is passed to a kernel, which would not see its mask"


@pytest.mark.parametrize("on", ALL)
def test_read_only_arrays_are_not_written(on):
    x = np.ones((8, 8), np.float32).T
    x.flags.writeable = False
    with pytest.raises(TypeError, match="writes its parameter b, and the array passed for it is read-only"):
        read_after_write.on(on)(np.ones((8, 8), np.float32), x)


# -- nki.simulate of the current generation ----------------------------------------------------------------------------
@current_nki.jit
def copied_on(a, b):
    tile = current_nl.ndarray((4, 8), dtype=a.dtype, buffer=current_nl.sbuf)
    current_isa.dma_copy(dst=tile, src=a[0:4])
    current_isa.tensor_scalar(dst=tile, data=tile, op0=current_nl.add, operand0=1.0)
    current_isa.dma_copy(dst=b[0:4], src=tile)
    current_isa.dma_copy(dst=b[4:8], src=a[0:4])
    return b


@pytest.mark.parametrize("layout", LAYOUTS)
def test_simulation(layout):
    """A parameter that is only read gives its old values to no array."""
    x = LAYOUTS[layout](memory())
    expected = x.copy()
    read_after_write_values(expected)
    current_nki.simulate(copied_on)(x, x)
    np.testing.assert_array_equal(x, expected)
    base = memory()
    with pytest.raises(TypeError, match="writes its parameter b, whose array overlaps the array of a"):
        current_nki.simulate(copied_on)(base[:8, :8], base[7::-1, :8])
    np.testing.assert_array_equal(base, memory())


@current_nki.jit
def written_unsaid(a, b):
    """Writes b, and returns another tensor."""
    out = current_nl.ndarray(a.shape, dtype=a.dtype, buffer=current_nl.shared_hbm)
    current_isa.dma_copy(dst=out, src=a)
    current_isa.dma_copy(dst=b[0:4], src=a[4:8])
    return out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("on", ALL)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parameters_that_are_written_and_not_returned(layout, on):
    """Copies are written back as the arrays themselves would have been written."""
    a, b = memory()[:8, :8].copy(), LAYOUTS[layout](memory())
    expected = b.copy()
    expected[0:4] = a[4:8]
    written_unsaid.on(on)(a, b)
    np.testing.assert_array_equal(b, expected)
    base = memory()
    with pytest.raises(TypeError, match="writes its parameter b, whose array overlaps the array of a"):
        written_unsaid.on(on)(base[:8, :8], base[7::-1, :8])
    np.testing.assert_array_equal(base, memory())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("on", [*ALL, "simulate"])
@pytest.mark.parametrize("calls", [0, 2], ids=["first call", "repeated calls"])
def test_read_only_arrays_are_not_written_by_kernels_that_return_others(calls, on):
    kernel = current_nki.simulate(written_unsaid) if on == "simulate" else written_unsaid.on(on)
    for _ in range(calls):
        kernel(memory()[:8, :8].copy(), np.zeros((8, 8), np.float32))
    x = np.zeros((8, 8), np.float32)
    x.flags.writeable = False
    with pytest.raises(TypeError, match="writes its parameter b, and the array passed for it is read-only"):
        kernel(memory()[:8, :8].copy(), x)
    assert not x.any()


# -- what overlaps -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("strides, repeats", [
    ((32, 4), False), ((4, 32), False), ((4, 4), True), ((0, 4), True), ((-32, -4), False), ((28, 4), True),
    ((8, 4), True), ((12, 8), True), ((36, 8), False), ((4, 36), False)])
def test_which_strides_repeat_elements(strides, repeats):
    x = np.lib.stride_tricks.as_strided(np.zeros(1000, np.float32)[500:], (8, 8), strides)
    addresses = {i * strides[0] + j * strides[1] for i in range(8) for j in range(8)}
    assert memory_of(x).repeats is repeats is (len(addresses) < 64)


def test_random_views__share_one_copy_or_are_known_to_overlap():
    """Copies that are written back give what the views themselves give, unless two of them are known to overlap."""
    rng = np.random.default_rng(0)

    def view(base):
        starts, counts = rng.integers(0, 4, 2), rng.integers(1, 4, 2)
        steps = rng.choice([-1, 1, 2], 2)
        part = base[starts[0]::steps[0], starts[1]::steps[1]][:counts[0], :counts[1]]
        return part.T if rng.random() < 0.3 else part
    compared = 0
    for _ in range(500):
        base = rng.integers(0, 100, (6, 6))
        views = [view(base) for _ in range(3)]
        memory = ArgumentMemory(views, "abc")
        target = int(rng.integers(3))
        if any(target in pair for pair in memory.overlaps):
            assert any(np.shares_memory(views[target], v) for k, v in enumerate(views) if k != target)
            continue
        before = [v.copy() for v in memory.arrays]
        memory.arrays[target][...] += 100
        contents = [v.copy() for v in memory.arrays]
        memory.write_back([target])
        for k, v in enumerate(views):
            np.testing.assert_array_equal(v, contents[k])
            compared += not np.array_equal(before[k], contents[k])
    assert compared > 200
