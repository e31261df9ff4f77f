# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole kernels: the module as captured, its waist, and its waist without instructions compute the same."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.nki.movement import print_sink
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.passes.levels import Level, check_level
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.targets.interpreter import load
from nki_mlir.targets.interpreter.module import compile_function, run_grid

KERNELS = []


def kernel(*shapes, grid=None, **constants):
    """Register a kernel with the shapes of its float32 inputs."""
    def register(function):
        jitted = nki.jit(function)
        KERNELS.append(pytest.param(jitted[grid] if grid else jitted, shapes, constants, id=function.__name__))
        return function
    return register


@kernel((2, 6, 6), pool=2)
def average_pool(x, pool):
    c, h, w = x.shape
    out = nl.ndarray((c, h // pool, w // pool), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    p, i, j = nl.arange(c)[:, None, None], nl.arange(h // pool)[None, :, None], nl.arange(w // pool)[None, None, :]
    total = nl.ndarray((c, h // pool, w // pool), dtype=x.dtype, buffer=nl.sbuf)
    total[...] = tile[p, i * pool, j * pool]
    for y in range(pool):
        for z in range(pool):
            if y or z:
                total[...] = nl.add(total, tile[p, i * pool + y, j * pool + z])
    nl.store(out, nl.divide(total, pool * pool))
    return out


@kernel((200, 700), (200, 700))
def add_with_tails(a, b):
    n, m = a.shape
    out = nl.ndarray((n, m), dtype=a.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    for i in nl.affine_range((n + 127) // 128):
        for j in nl.affine_range((m + 511) // 512):
            inside = (i * 128 + p < n) & (j * 512 + f < m)
            x = nl.load(a[i * 128 + p, j * 512 + f], mask=inside)
            y = nl.load(b[i * 128 + p, j * 512 + f], mask=inside)
            nl.store(out[i * 128 + p, j * 512 + f], nl.add(x, y, mask=inside), mask=inside)
    return out


@kernel((256, 96), (256, 640))
def tiled_matmul(a, b):
    k, m = a.shape
    n = b.shape[1]
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    for j in nl.affine_range(n // 320):
        result = nl.zeros((m, 320), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(k // 128):
            x = nl.load(a[i * 128:(i + 1) * 128, :])
            y = nl.load(b[i * 128:(i + 1) * 128, j * 320:(j + 1) * 320])
            result += nisa.nc_matmul(x, y)
        nl.store(out[:, j * 320:(j + 1) * 320], nl.copy(result, dtype=nl.bfloat16))
    return out


@kernel((100, 300))
def softmax(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    largest = nisa.tensor_reduce(nl.max, tile, axis=[1], negate=True, keepdims=True)
    total = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    powers = nisa.activation_reduce(nl.exp, tile, bias=largest, reduce_op=nl.add, reduce_res=total)
    nl.store(out, nisa.tensor_scalar(powers, nl.multiply, nisa.reciprocal(total)))
    return out


@kernel((96, 128))
def causal(x):
    """Transposes, an index predicate, a mask that does not select a box of elements, types of several widths."""
    n, m = x.shape
    out = nl.ndarray((m, n), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:n, 0:m]
    tile = nisa.affine_select(p >= f, nl.load(x), -9.0)
    halved = nl.ndarray((n, m), dtype=nl.bfloat16, buffer=nl.sbuf)
    halved[...] = nl.multiply(tile, 0.5)
    halved[p, f] = nl.add(tile, 100.0, mask=2 * p >= f + 3)
    counted = nl.add(halved, nisa.iota(p * m + f, dtype=nl.int32))
    nl.store(out, nl.transpose(counted))
    return out


@kernel((384, 64), grid=(3,))
def programs(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    tile = nl.load(x[i * 128:(i + 1) * 128, :])
    for _ in nl.sequential_range(3):
        tile[...] = nl.maximum(tile, nl.multiply(tile, -1.5))
    nl.store(out[i * 128:(i + 1) * 128, :], tile)
    return out


@kernel((64, 40))
def reductions(x):
    out = nl.ndarray((64, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    p, f = nl.mgrid[0:64, 0:40]
    columns = nl.zeros((64, 4), dtype=nl.float32, buffer=nl.sbuf)
    columns[:, 0:1] = nl.sum(tile, axis=[1], keepdims=True)
    columns[:, 1:2] = nl.max(tile[p, f], axis=[1], keepdims=True, mask=f < 30)
    columns[:, 2:3] = nl.mean(tile, axis=[1], keepdims=True)
    columns[:, 3:4] = nl.min(nl.abs(tile), axis=[1], keepdims=True)
    nl.store(out, columns)
    return out


def captured(jitted, inputs, constants):
    spec = jitted.specialize(jitted.bind(inputs, constants, is_array, describe_array))
    (module,) = spec.modules
    return str(module), spec


def outcome(module, spec, inputs):
    outputs = [np.full(s.shape, 77, s.dtype.numpy) for s in spec.shared]
    program = compile_function(the_kernel(module))
    run_grid(lambda point: program, spec.grid, [a.copy() for a in inputs], outputs)
    return outputs


@pytest.mark.parametrize("passes", [
    ["nki-to-linalg"], ["nki-to-linalg", "nisa-to-linalg"],
    ["split-masked-loops", "nki-to-linalg", "nisa-to-linalg"]], ids="+".join)
@pytest.mark.parametrize("jitted, shapes, constants", KERNELS)
def test_kernel__lowered_computes_the_same_bits(jitted, shapes, constants, passes):
    inputs = [np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate(shapes)]
    text, spec = captured(jitted, inputs, constants)
    with shared_context():
        module, again = ir.Module.parse(text), ir.Module.parse(text)
    run_passes(module, [pass_named(name) for name in passes])
    assert module.operation.verify()
    check_level(module, Level.WAIST, "in the test")
    assert ("nisa." in str(module)) == ("nisa." in text and passes == ["nki-to-linalg"])
    assert str(module).count("scf.for") >= 1 or "scf.for" not in text or "split-masked-loops" in passes
    for want, got in zip(outcome(again, spec, inputs), outcome(module, spec, inputs)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("passes", [[], ["nki-to-linalg"], ["nki-to-linalg", "nisa-to-linalg"]], ids="+".join)
def test_load__executes_a_captured_kernel_at_any_level(passes):
    x = np.random.default_rng(0).standard_normal((384, 64)).astype(np.float32)
    _, spec = captured(nki.jit(programs)[(3,)], [x], {})
    run_passes(spec.modules[0], [pass_named(name) for name in passes])
    out = np.zeros_like(x)
    load(spec.captured, spec.grid)([x], [out])
    expected = x
    for _ in range(3):
        expected = np.maximum(expected, expected * np.float32(-1.5))
    np.testing.assert_array_equal(out, expected)


def test_device_print__prints_at_the_waist():
    def printing(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.device_print("twice", nl.multiply(tile, 2.0))
        nl.store(out, tile)
        return out

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    text, spec = captured(nki.jit(printing), [x], {})
    with shared_context():
        module = ir.Module.parse(text)
    run_passes(module, [pass_named("nki-to-linalg")])
    observed = []
    token = print_sink.set(lambda prefix, value: observed.append((prefix, value)))
    try:
        outcome(module, spec, [x])
    finally:
        print_sink.reset(token)
    assert observed[0][0] == "twice" and np.array_equal(observed[0][1], x * 2)
