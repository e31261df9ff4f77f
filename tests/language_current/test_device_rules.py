# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of the device in the current generation: each broken once on every executor, beside a kernel that keeps it."""

import warnings

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.diagnostics import DeviceRuleWarning
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current.errors import NkiValidationError

from .running import floats, on_tiles, run

X = floats(128, 64)


@pytest.fixture(autouse=True)
def on_trn2(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_DEVICE_RULES", raising=False)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def test_start_partitions(on):
    def body(start):
        return lambda d, t: nisa.activation(d[start:start + 16, :], nl.exp, t[0:16, :])
    result, = on_tiles(on, body(32), [((128, 64), nl.float32, 0.0)], X)
    np.testing.assert_allclose(result[32:48], np.exp(X[:16]), rtol=1e-6)
    with pytest.raises(NkiValidationError, match="operand 'dst' of 'activation' begins at partition 8 and has 16"):
        on_tiles(on, body(8), [((128, 64), nl.float32, 0.0)], X)


def test_start_partitions_are_no_rule_of_transfers(on):
    result, = on_tiles(on, lambda d, t: nisa.dma_copy(d[8:24, :], t[3:19, :]), [((128, 64), nl.float32, 0.0)], X)
    np.testing.assert_array_equal(result[8:24], X[3:19])


def test_dimensions_of_a_pattern(on):
    x = floats(4, 4 ** 5)

    def body(last):
        def on_views(d, t):
            view = tuple(slice(0, 3) for _ in range(4))
            target, source = (v.reshape((4, 4, 4, 4, 4, 4)) for v in (d, t))
            nisa.tensor_scalar(target[(slice(None), *view, last)], source[(slice(None), *view, last)], nl.add, 1.0)
        return on_views
    on_tiles(on, body(slice(0, 4)), [((4, 4 ** 5), nl.float32, 0.0)], x)        # the last two are one
    with pytest.raises(NkiValidationError, match="steps through 5 free dims"):
        on_tiles(on, body(slice(0, 3)), [((4, 4 ** 5), nl.float32, 0.0)], x)


def test_reductions_by_magnitude(on, monkeypatch):
    """They come with the next generation, where documents name them for another instruction."""
    def body(d, t):
        nisa.tensor_reduce(d, nl.abs_max, t, axis=1)
    with pytest.raises(NkiValidationError, match="'tensor_reduce' of abs_max needs generation 4 of the core, and trn2"):
        on_tiles(on, body, [((128, 1), nl.float32)], X)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    with pytest.warns(DeviceRuleWarning, match="documents name this reduction for activate2 alone"):
        result, = on_tiles(on, body, [((128, 1), nl.float32)], X)
    largest = np.abs(X).argmax(axis=1, keepdims=True)
    np.testing.assert_array_equal(result, np.take_along_axis(X, largest, 1))


@pytest.mark.parametrize("call, text", [
    (lambda d, t: nisa.tensor_reduce(d[:, 0:1], nl.mean, t, axis=1), "average for tensor_partition_reduce alone"),
    (lambda d, t: nisa.tensor_tensor(d, t, t, nl.average), "average is not in the documents' table"),
    (lambda d, t: nisa.tensor_scalar(d, t, nl.mean, 1.0), "average is not in the documents' table")],
    ids=["reduce", "tensor", "scalar"])
def test_means_by_instructions_that_have_none(call, text):
    with pytest.warns(DeviceRuleWarning, match=text):
        on_tiles("eager", call, [((128, 64), nl.float32, 0.0)], X)


def test_a_mean_over_partitions_is_documented(recwarn):
    result, = on_tiles("eager", lambda d, t: nisa.tensor_partition_reduce(d, nl.average, t), [((1, 64), nl.float32)], X)
    assert not [w for w in recwarn if issubclass(w.category, DeviceRuleWarning)]
    np.testing.assert_allclose(result, X.mean(axis=0, keepdims=True), rtol=1e-4, atol=1e-4)


def test_operators_of_gpsimd(on):
    """Those of tensor_scalar are listed; of tensor_tensor documents say that a chosen engine wins."""
    def body(d, t):
        nisa.tensor_tensor(d, t, t, nl.maximum, engine=nisa.engine.gpsimd)
    with pytest.warns(DeviceRuleWarning, match="the gpsimd engine has no maximum, which 'tensor_tensor' needs"):
        result, = on_tiles(on, body, [((128, 64), nl.float32)], X)
    np.testing.assert_array_equal(result, X)
    with pytest.raises(NkiValidationError, match="the gpsimd engine has no maximum, which 'tensor_scalar' needs"):
        on_tiles(on, lambda d, t: nisa.tensor_scalar(d, t, nl.maximum, 0.5, engine=nisa.engine.gpsimd),
                 [((128, 64), nl.float32)], X)


def test_power(on):
    x = np.abs(X)
    result, = on_tiles(on, lambda d, t: nisa.tensor_tensor(d, t, t, nl.power), [((128, 64), nl.float32)], x)
    np.testing.assert_allclose(result, x ** x, rtol=1e-5)
    for body in (lambda d, t: nisa.tensor_tensor(d, t, t, nl.power, engine=nisa.engine.vector),
                 lambda d, t: nisa.tensor_scalar(d, t, nl.power, 2.0, engine=nisa.engine.vector)):
        with pytest.raises(NkiValidationError, match="the vector engine has no power"):
            on_tiles(on, body, [((128, 64), nl.float32)], x)


def test_product_of_two_widths(on):
    def body(d, a, b):
        sums = nl.ndarray((64, 64), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(sums, a, b)
        nisa.tensor_copy(d, sums)
    half = X.astype(ml_dtypes.bfloat16)
    on_tiles(on, body, [((64, 64), nl.float32)], half, half)
    with pytest.raises(NkiValidationError, match="'nc_matmul': multiplies float32 with float32 only"):
        on_tiles(on, body, [((64, 64), nl.float32)], X, half)


def placed(first, second):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray((16, 64), x.dtype, buffer=nl.sbuf, address=first)
        u = nl.ndarray((16, 64), x.dtype, buffer=nl.sbuf, address=second)
        nisa.dma_copy(t, x)
        nisa.activation(u, nl.exp, t)
        nisa.tensor_tensor(u, u, t, nl.add)
        nisa.dma_copy(out, u)
        return out
    return kernel


def test_addresses(on):
    x = X[:16]
    np.testing.assert_allclose(run(on, placed((0, 0), (0, 256)), x), np.exp(x) + x, rtol=1e-4)
    np.testing.assert_allclose(run(on, placed((0, 0), (32, 0)), x), np.exp(x) + x, rtol=1e-4)
    with pytest.raises(NkiValidationError, match="have addresses that overlap in SBUF, and the kernel uses u before its last use of t"):
        run(on, placed((0, 0), (0, 128)), x)
    with pytest.raises(NkiValidationError, match="bytes 212984 to 213239 is not inside SBUF: kernels of trn2"):
        run(on, placed((0, 0), (0, 212984)), x)


def test_addresses_in_turn(on):
    def kernel(x):
        out = nl.ndarray((2, 16, 64), x.dtype, buffer=nl.shared_hbm)
        for k in range(2):
            t = nl.ndarray((16, 64), x.dtype, buffer=nl.sbuf, address=(0, 0))
            nisa.dma_copy(t, x)
            nisa.tensor_scalar(t, t, nl.add, float(k))
            nisa.dma_copy(out[k], t)
        return out
    x = X[:16]
    np.testing.assert_array_equal(run(on, kernel, x), np.stack([x, x + 1]))


def test_a_tile_has_room(on):
    def kernel(x):
        nl.ndarray((128, 57345), nl.float32, buffer=nl.sbuf)
        return x
    with pytest.raises(NkiValidationError, match="takes 229380 bytes of each partition; SBUF of trn2 has 229376"):
        run(on, kernel, X)


def test_tiles_held_at_once(on):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tiles = [nl.load(x) for _ in range(4)]
        for tile in tiles[1:]:
            nisa.tensor_tensor(tiles[0], tiles[0], tile, nl.add)
        nisa.dma_copy(out, tiles[0])
        return out
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", DeviceRuleWarning)
        run(on, kernel, np.ones((128, 16000), np.float32))
    messages = [str(w.message) for w in shown if w.category is DeviceRuleWarning]
    assert messages[0].startswith("4 tiles that are live at once take 256000 bytes of each partition; SBUF of trn2 has "
                                  "212984: t0 64000 (line ")


@pytest.mark.parametrize("executor", ["eager", "interpreter", "isa"])
def test_domains(executor):
    x = np.full((8, 8), 4.0, np.float32)

    def said(body):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always", DeviceRuleWarning)
            result, = on_tiles(executor, body, [((8, 8), nl.float32)], x)
        np.testing.assert_allclose(result, np.sin(x), rtol=1e-6)
        return [str(w.message) for w in shown if w.category is DeviceRuleWarning]
    assert not said(lambda d, t: nisa.tensor_copy(d, nl.sin(t)))                    # which reduces its argument
    message, = said(lambda d, t: nisa.activation(d, nl.sin, t))
    assert message.startswith("sin of 4, which is outside of its domain, [-3.14159, 3.14159]")


def test_levels_of_what_instructions_say_themselves(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")

    def body(d, t):
        nisa.activation(d, nl.exp, t, bias=1.0)
    for executor in ("eager", "interpreter", "jit"):
        monkeypatch.delenv("NKI_MLIR_DEVICE_RULES", raising=False)
        with pytest.raises(NkiValidationError, match="activation with a bias that is a number needs generation 3"):
            on_tiles(executor, body, [((128, 64), nl.float32)], X)
        monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "warn")
        with pytest.warns(DeviceRuleWarning, match="activation with a bias that is a number needs generation 3"):
            result, = on_tiles(executor, body, [((128, 64), nl.float32)], X)
        np.testing.assert_allclose(result, np.exp(X + 1), rtol=1e-6)
        monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "off")
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeviceRuleWarning)
            on_tiles(executor, body, [((128, 64), nl.float32)], X)
