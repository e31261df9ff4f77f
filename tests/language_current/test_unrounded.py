# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``NKI_PRECISE_FP``: simulations whose writes to low-precision tensors round, or keep float32 values."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.simulator import LOW, rounded, widened

from .running import filled, floats, run

BF16, F16 = ml_dtypes.bfloat16, np.float16
TYPES = {"bfloat16": BF16, "float16": F16, "float8_e4m3": ml_dtypes.float8_e4m3,
         "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


@pytest.fixture(params=["0", "1"])
def keep(request, monkeypatch):
    """Rounds to a dtype where the simulator does: ``keep(array, dtype)`` is float32."""
    monkeypatch.setenv("NKI_PRECISE_FP", request.param)
    if request.param == "0":
        return lambda values, dtype: np.asarray(values, np.float32)
    return lambda values, dtype: np.asarray(values, np.float32).astype(dtype).astype(np.float32)


def is_exact(keep):
    return keep(1.001, BF16) != 1


@pytest.fixture
def unrounded(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")


def tile(like, dtype, buffer=nl.sbuf):
    return nl.ndarray(like.shape, dtype, buffer=buffer)


def seen(*tiles):
    """The values of tiles as float32 results."""
    outs = []
    for t in tiles:
        wide, out = tile(t, nl.float32), tile(t, nl.float32, nl.shared_hbm)
        nisa.tensor_copy(wide, t)
        nisa.dma_copy(out, wide)
        outs.append(out)
    return outs[0] if len(outs) == 1 else tuple(outs)


@pytest.mark.parametrize("name", TYPES)
def test_chain(keep, name):
    def kernel(x):
        t = nl.load(x)
        a, b, c = (tile(t, getattr(nl, name)) for _ in range(3))
        nisa.tensor_scalar(a, t, nl.multiply, 1.01)
        nisa.tensor_scalar(b, a, nl.subtract, 1.0)
        nisa.tensor_tensor(c, a, b, nl.multiply)
        assert a.dtype == getattr(nl, name) and nl.add(a, b).dtype == a.dtype and a.itemsize == a.dtype.itemsize
        return seen(a, b, c)
    x, kind = floats(16, 40), TYPES[name]
    a = keep(x * np.float32(1.01), kind)
    b = keep(a - np.float32(1), kind)
    for got, expected in zip(run("eager", kernel, x), (a, b, keep(a * b, kind))):
        np.testing.assert_array_equal(got, expected)


def test_one_process_has_both(monkeypatch):
    def kernel(x):
        t = tile(x, nl.bfloat16)
        nisa.dma_copy(t, x)
        return seen(t)
    x, simulated = floats(8, 8), nki.simulate(kernel)
    for value in ("0", "1", "0", ""):
        monkeypatch.setenv("NKI_PRECISE_FP", value)
        np.testing.assert_array_equal(simulated(x), x if value == "0" else x.astype(BF16).astype(np.float32))


def test_results_are_rounded_once(unrounded):
    def kernel(x):
        t = tile(x, nl.bfloat16)
        nisa.dma_copy(t, x)
        for _ in range(50):
            nisa.tensor_scalar(t, t, nl.multiply, 1.001)
        out, f32r = tile(x, nl.bfloat16, nl.shared_hbm), tile(x, nl.tfloat32, nl.shared_hbm)
        nisa.dma_copy(out, t)
        nisa.dma_copy(f32r, t)
        return out, f32r
    x = floats(8, 16)
    got, f32r = run("eager", kernel, x)
    for _ in range(50):
        x = x * np.float32(1.001)
    assert got.dtype == BF16
    np.testing.assert_array_equal(got, x.astype(BF16))
    np.testing.assert_array_equal(f32r, x)                      # is a float32 in memory: nothing to round


def test_inputs_updated_in_place(keep):
    def kernel(x):
        for _ in range(20):
            t = nl.load(x)
            nisa.tensor_scalar(t, t, nl.add, 0.001)
            nisa.dma_copy(x, t)
        assert x.dtype == nl.bfloat16
        return x
    x = np.ones((4, 8), BF16)
    expected = np.ones((4, 8), np.float32)
    for _ in range(20):
        expected = keep(expected + np.float32(0.001), BF16)
    assert nki.simulate(kernel)(x) is x
    assert x.dtype == BF16 and (x == expected.astype(BF16)).all()
    assert (x != 1).all() == is_exact(keep)                     # twenty small steps are one large one


def test_one_array_as_two_arguments(unrounded):
    def kernel(x, y):
        t = nl.load(x)
        nisa.tensor_scalar(t, t, nl.add, 0.001)
        nisa.dma_copy(x, t)
        return seen(nl.load(y))
    torch = pytest.importorskip("torch")
    x = torch.ones((4, 8), dtype=torch.bfloat16)
    for array in (x, x.view(torch.int16).numpy().view(BF16)):
        assert (np.asarray(nki.simulate(kernel)(array, array)) == np.float32(1) + np.float32(0.001)).all()
    flat = np.ones((8, 8), BF16)
    with pytest.raises(AssertionError, match="share a part of their memory"):
        nki.simulate(kernel)(flat[:4], flat[2:6])


def test_products(keep):
    def kernel(a, b):
        left, right = (nl.ndarray(t.shape, nl.bfloat16) for t in (a, b))
        nisa.dma_copy(left, a)
        nisa.dma_copy(right, b)
        psum = nl.ndarray((16, 24), nl.bfloat16, buffer=nl.psum)
        nisa.nc_matmul(psum, left, right, accumulate=False)
        nisa.nc_matmul(psum, left, right, accumulate=True)
        turned = nl.ndarray((24, 16), nl.bfloat16, buffer=nl.psum)
        narrow = nl.ndarray((16, 24), nl.bfloat16)
        nisa.tensor_copy(narrow, psum)
        nisa.nc_transpose(turned, narrow)
        return seen(turned)
    a, b = floats(64, 16), floats(64, 24, seed=1)
    product = keep(a, BF16).T @ keep(b, BF16)
    expected = keep(product + keep(product, BF16), BF16)
    got = run("eager", kernel, a, b).T
    if is_exact(keep):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        assert np.abs(got - expected.astype(BF16)).max() > 1e-3
    else:
        np.testing.assert_allclose(got, expected, rtol=2**-7)      # sums in another order may round the other way
        np.testing.assert_array_equal(got, keep(got, BF16))


def test_activations_and_reductions(keep):
    def kernel(x):
        t = nl.load(x)
        e, total, least = tile(t, nl.float16), nl.ndarray((16, 1), nl.float16), nl.ndarray((16, 1), nl.bfloat16)
        nisa.activation(e, nl.exp, t, scale=0.5)
        nisa.tensor_reduce(total, nl.add, e, axis=1)
        nisa.tensor_reduce(least, nl.minimum, e, axis=1)
        nisa.reciprocal(total, total)
        return seen(e, total, least)
    x = floats(16, 32)
    e, total, least = run("eager", kernel, x)
    expected = keep(np.exp(x * np.float32(0.5)), F16)
    np.testing.assert_allclose(e, expected, rtol=3e-7)
    summed = keep(expected.sum(1, keepdims=True), F16)
    np.testing.assert_allclose(total, keep(1 / summed, F16), rtol=5e-7)
    np.testing.assert_array_equal(least, keep(e.min(1, keepdims=True), BF16))


def test_transfers_convert(keep):
    def kernel(x):
        wide = nl.ndarray((8, 16), nl.bfloat16, buffer=nl.private_hbm)
        narrow = nl.ndarray((8, 16), nl.float8_e5m2, buffer=nl.private_hbm)
        nisa.dma_copy(wide, x)
        nisa.dma_copy(narrow, wide)
        turned = nl.ndarray((16, 8), nl.float8_e5m2)
        nisa.dma_transpose(turned, narrow)
        integers = nl.ndarray((16, 8), nl.int32)
        nisa.tensor_scalar(integers, turned, nl.multiply, 1000.0)
        return (*seen(turned[:, 2:7], integers), seen(nl.load(wide)))
    x = floats(8, 16)
    kept = keep(keep(x, BF16), ml_dtypes.float8_e5m2)
    part, integers, wide = run("eager", kernel, x)
    np.testing.assert_array_equal(part, kept.T[:, 2:7])
    np.testing.assert_array_equal(integers, np.rint(kept.T * np.float32(1000)))
    np.testing.assert_array_equal(wide, keep(x, BF16))


def test_addresses_at_run_time(unrounded):
    def kernel(x, rows):
        table = nl.ndarray((8, 4), nl.bfloat16, buffer=nl.private_hbm)
        nisa.dma_copy(table, x)
        picked = nl.ndarray((4, 4), nl.bfloat16)
        nisa.dma_copy(picked, table.vector_select(0, nl.load(rows)))
        nisa.tensor_scalar(picked, picked, nl.add, 0.0001)
        nisa.dma_copy(table.vector_select(0, nl.load(rows)), picked)
        return seen(nl.load(table))
    x, rows = floats(8, 4), np.array([[6], [1], [3], [0]], np.int32)
    expected = x.copy()
    expected[rows[:, 0]] += np.float32(0.0001)
    np.testing.assert_array_equal(run("eager", kernel, x, rows), expected)


# -- views of another dtype --------------------------------------------------------------------------------------------
def test_bits_are_those_of_rounded_values(unrounded):
    def kernel(x):
        t, bits = tile(x, nl.bfloat16), nl.ndarray((8, 16), nl.uint16, buffer=nl.shared_hbm)
        nisa.dma_copy(t, x)
        nisa.dma_copy(bits, t.view(nl.uint16))
        assert t.sim_value.dtype == BF16
        return bits, *seen(t, t.view(nl.float16))
    x = floats(8, 16)
    bits, values, halves = run("eager", kernel, x)
    np.testing.assert_array_equal(bits.view(BF16), x.astype(BF16))
    np.testing.assert_array_equal(values, x)                    # to be looked at changes nothing
    np.testing.assert_array_equal(halves, x.astype(BF16).view(F16).astype(np.float32))


@pytest.mark.parametrize("other", ["uint8", "uint16", "uint32", "float16", "float32"])
def test_what_is_written_through_a_view_counts(unrounded, other):
    def kernel(x):
        t = tile(x, nl.bfloat16)
        nisa.dma_copy(t, x)
        view = t.view(getattr(nl, other))
        n = view.shape[1]
        filled(view[0:2, n // 4:n // 2], 0)                     # rounded, 1e-42 is zero already: the bits stay
        return seen(t)
    x = floats(8, 16)
    x[1, 5] = 1e-42
    got = run("eager", kernel, x)
    expected = x.copy()
    expected[0:2, 4:8] = 0
    np.testing.assert_array_equal(got, expected)


def test_integers_move_as_floats(unrounded):
    def kernel(x):
        outs = []
        for dtype in (nl.bfloat16, nl.float16, nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2):
            integers = tile(x, nl.int32)
            nisa.dma_copy(integers, x)
            moved, kept = (nl.ndarray((8, 64 // dtype.itemsize), dtype) for _ in range(2))
            nisa.dma_copy(moved, integers.view(dtype))
            nisa.tensor_copy(kept, moved)
            outs.append(tile(x, nl.int32, nl.shared_hbm))
            nisa.dma_copy(outs[-1], kept.view(nl.int32))
        return tuple(outs)
    x = np.random.default_rng(0).integers(-2**31, 2**31, (8, 16), np.int32)
    x[0] = np.arange(-16, 0)                                    # the upper halves are NaN
    for got in run("eager", kernel, x):
        np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_every_element_survives(dtype):
    bits = np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}")
    np.testing.assert_array_equal(rounded(widened(bits.view(dtype.numpy), dtype), dtype).view(bits.dtype), bits)


def test_quantizing_takes_values(keep):
    def kernel(x):
        t, data = tile(x, nl.bfloat16), nl.ndarray((32, 2), nl.float8_e4m3fn_x4)
        nisa.dma_copy(t, x)
        scale = filled(nl.ndarray((4, 2), nl.uint8), 0)
        nisa.quantize_mx(data, t, scale)
        out = nl.ndarray((32, 2), nl.uint32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, data.view(nl.uint32))
        return out
    x = np.full((32, 8), 1.0630, np.float32)                    # rounded to bfloat16 it is a tie, 1.0625
    quantized = run("eager", kernel, x).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert (quantized == np.float32(144 if is_exact(keep) else 128)).all()


# -- launches ----------------------------------------------------------------------------------------------------------
def test_two_cores(keep):
    def kernel(x):
        i = nl.program_id(0)
        shared = nl.ndarray((16, 8), nl.bfloat16, buffer=nl.shared_hbm)
        mine, theirs = (nl.ndarray((8, 8), nl.bfloat16) for _ in range(2))
        nisa.tensor_scalar(mine, nl.load(x[8 * i:8 * i + 8]), nl.multiply, 1.0001)
        nisa.dma_copy(shared[8 * i:8 * i + 8], mine)
        nisa.core_barrier(shared, (0, 1))
        nisa.sendrecv(mine, theirs, send_to_rank=1 - i, recv_from_rank=1 - i, pipe_id=0)
        out = nl.ndarray((2, 8, 8), nl.float32, buffer=nl.shared_hbm)
        other = nl.load(shared[8 * (1 - i):8 * (1 - i) + 8])
        difference = nl.ndarray((8, 8), nl.float32)
        nisa.tensor_tensor(difference, other, theirs, nl.subtract)
        nisa.tensor_tensor(difference, difference, other, nl.add)
        nisa.dma_copy(out[i], difference)
        return out, shared
    x = floats(16, 8)
    got, shared = run("eager", kernel, x, cores=2)
    expected = keep(x * np.float32(1.0001), BF16)
    np.testing.assert_array_equal(got, expected.reshape(2, 8, 8)[::-1])
    assert shared.dtype == BF16
    np.testing.assert_array_equal(shared, expected.astype(BF16))


def test_environment_and_executors(monkeypatch):
    def kernel(x):
        t = tile(x, nl.bfloat16)
        nisa.dma_copy(t, x)
        return seen(t)
    x, compiled = floats(8, 8), nki.jit(kernel)
    bf16 = x.astype(BF16).astype(np.float32)
    for value in ("0", "neither"):                              # compiled kernels do what the device does
        monkeypatch.setenv("NKI_PRECISE_FP", value)
        for on in ("interpreter", "jit", "isa"):
            np.testing.assert_array_equal(compiled.on(on)(x), bf16)
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    with pytest.raises(NkiMlirError, match=r"NKI_PRECISE_FP cannot be 'neither'(.|\n)*fix: set NKI_PRECISE_FP to 0 or 1"):
        compiled(x)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    np.testing.assert_array_equal(compiled(x), x)


def test_fresh_memory_is_not_a_number(unrounded):
    def kernel(x):
        out, places = tile(x, nl.bfloat16, nl.shared_hbm), set()
        for _ in range(16):
            large = nl.ndarray((128, 4096), nl.bfloat16)
            places.add(large.storage.buffer.handle.ctypes.data)
            nisa.dma_copy(out, large[:8, :8])
            filled(large, 1.0)
        assert len(places) < 16                                 # memory is used again, its values are not
        return out
    assert np.isnan(run("eager", kernel, floats(8, 8)).astype(np.float32)).all()
