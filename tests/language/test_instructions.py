# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of ``nisa`` that the beta front end gives meaning to itself: iota, affine_select, memset, printing, copies."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check, floats, kernel_of, numbers, output_of, run

BF16 = ml_dtypes.bfloat16


def test_iota(on):
    p, f = np.mgrid[:128, :64].astype(np.int32)
    ip, jf = nl.arange(128)[:, None], nl.arange(64)[None, :]
    for expression, expected in (
            (5 + 2 * ip, 5 + 2 * p[:, :1]), (jf * -1, -f[:1]), (ip * 64 + jf, p * 64 + f), (nl.mgrid[0:128, 0:64].x, f[:1]),
            (ip - jf, p - f), (nl.arange(128)[:, None, None] + 2 * nl.arange(3)[None, :, None] + nl.arange(4)[None, None, :],
                               p[:, :1, None] + 2 * np.arange(3)[:, None] + np.arange(4)),
            (nl.arange(7), np.arange(7)[:, None])):
        check(on, kernel_of(lambda: nisa.iota(expression, nl.int32)), expected.astype(np.int32))
        check(on, kernel_of(lambda: nisa.iota(expression, dtype=nl.float32)), expected.astype(np.float32))


def test_iota__with_loop_variables(on):
    @nki.jit
    def kernel():
        out = nl.ndarray((4, 16, 8), nl.int32, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            for j in nl.affine_range(2):
                nl.store(out[i * 2 + j], nisa.iota(nl.arange(8)[None, :] + i * 100 - j * 7 + nl.arange(16)[:, None],
                                                   dtype=nl.int32))
        return out
    p, f = np.mgrid[:16, :8]
    expected = np.stack([f + p + i * 100 - j * 7 for i in range(2) for j in range(2)]).astype(np.int32)
    check(on, kernel, expected)


def test_memset(on):
    check(on, kernel_of(lambda: nisa.memset((16, 8), 2.5, nl.float32)), np.full((16, 8), 2.5, np.float32))
    check(on, kernel_of(lambda: nisa.memset([16, 2, 4], -7, np.int8)), np.full((16, 2, 4), -7, np.int8))
    check(on, kernel_of(lambda: nisa.memset((nl.par_dim(16), 8), 2**31 - 1, nl.int32)), np.full((16, 8), 2**31 - 1, np.int32))
    check(on, kernel_of(lambda: nisa.memset((16, 8), 0.1, nl.bfloat16, engine=nisa.vector_engine)),
          np.full((16, 8), 0.1, BF16))
    check(on, kernel_of(lambda: nisa.memset((16, 8), float("-inf"), nl.float32)), np.full((16, 8), -np.inf, np.float32))


def test_affine_select__triangle(on):
    def body(x):
        ix, iy = nl.mgrid[0:128, 0:128]
        return nisa.affine_select(pred=(iy < ix), on_true_tile=x[ix, iy], on_false_value=nl.fp32.min)
    x = floats(128, 128)
    expected = np.where(np.tri(128, k=-1, dtype=bool), x, np.finfo(np.float32).min)
    check(on, kernel_of(body), expected, x)


def test_affine_select__with_loop_variables(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 16, 24), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        p, f = nl.arange(16)[:, None], nl.arange(24)[None, :]
        for i in nl.affine_range(3):
            nl.store(out[i], nisa.affine_select(i * 8 + p >= f, tile, -1.0))
        return out
    x = numbers(16, 24)
    p, f = np.ogrid[:16, :24]
    check(on, kernel, np.stack([np.where(i * 8 + p >= f, x, -1) for i in range(3)]).astype(np.float32), x)


@pytest.mark.parametrize("name, compare", [("==", lambda a, b: a == b), ("<=", lambda a, b: a <= b), (">", lambda a, b: a > b)])
def test_affine_select__comparisons(on, name, compare):
    def body(x):
        p, f = nl.mgrid[0:16, 0:24]
        return nisa.affine_select(compare(p * 2, f + 3), x, 0.5, dtype=nl.bfloat16)
    x = numbers(16, 24)
    p, f = np.ogrid[:16, :24]
    check(on, kernel_of(body), np.where(compare(p * 2, f + 3), x, 0.5).astype(BF16), x)


def test_tensor_scalar(on):
    x, c = numbers(16, 8), numbers(16, 1, seed=1)
    check(on, kernel_of(lambda t: nisa.tensor_scalar(t, np.subtract, 1.0, reverse0=True)), 1 - x, x)
    check(on, kernel_of(lambda t, s: nisa.tensor_scalar(t, op0=nl.multiply, operand0=s, op1=np.add, operand1=2.0)),
          x * c + 2, x, c)
    check(on, kernel_of(lambda t, s: nisa.tensor_scalar(t, np.maximum, 0, False, np.subtract, s, True)),
          c - np.maximum(x, 0), x, c)
    check(on, kernel_of(lambda t: nisa.tensor_scalar(t, np.less, 3.0, dtype=nl.uint8)), (x < 3).astype(np.uint8), x)


def test_scalar_tensor_tensor(on):
    x, y, c = numbers(16, 8), numbers(16, 8, seed=1), numbers(16, 1, seed=2)
    check(on, kernel_of(lambda t, u: nisa.scalar_tensor_tensor(data=t, op0=np.multiply, operand0=2.0, op1=np.add, operand1=u)),
          x * 2 + y, x, y)
    check(on, kernel_of(lambda t, u, s: nisa.scalar_tensor_tensor(data=t, op0=np.subtract, operand0=s, op1=np.multiply,
                                                                  operand1=u, reverse0=True)), (c - x) * y, x, y, c)


def test_activation(on):
    x, b, s = floats(16, 8), floats(16, 1, seed=1), floats(16, 1, seed=2)
    check(on, kernel_of(lambda t, u: nisa.activation(np.exp, t, bias=u, scale=0.5)), np.exp(x * np.float32(0.5) + b), x, b,
          rtol=1e-6)
    check(on, kernel_of(lambda t, u, v: nisa.activation(op=nl.tanh, data=t, bias=u, scale=v)), np.tanh(x * s + b), x, b, s,
          rtol=1e-5, atol=1e-7)
    check(on, kernel_of(lambda t: nisa.activation(np.square, t, dtype=nl.bfloat16)), (x * x).astype(BF16), x)
    check(on, kernel_of(lambda t: nisa.activation(nl.copy, t, bias=2.0)), x + 2, x)


def test_reciprocal_and_copy(on):
    x = numbers(16, 8) + 200
    check(on, kernel_of(lambda t: nisa.reciprocal(t)), 1 / x, x, rtol=1e-6)
    check(on, kernel_of(lambda t: nisa.tensor_copy(t[:, 2:5], dtype=np.int32, engine=nisa.scalar_engine)),
          x[:, 2:5].astype(np.int32), x)


def test_tensor_copy_predicated(on):
    def body(x, y, c):
        t = nl.copy(x)
        nisa.tensor_copy_predicated(src=y, dst=t, predicate=c)
        nisa.tensor_copy_predicated(src=5.0, dst=t[:, 0:2], predicate=c[:, 0:2], reverse_pred=True)
        return t
    x, y, c = numbers(16, 8), numbers(16, 8, seed=1), numbers(16, 8, seed=2, dtype=np.int8) % 2
    expected = np.where(c != 0, y, x)
    expected[:, :2] = np.where(c[:, :2] == 0, 5, expected[:, :2])
    check(on, kernel_of(body), expected.astype(np.float32), x, y, c)


def test_dma_copy(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.bfloat16, buffer=nl.shared_hbm)
        tile = nl.ndarray((16, 8), nl.float32)
        nisa.dma_copy(dst=tile[0:8, :], src=x[8:16, :])
        nisa.dma_copy(dst=tile[8:16, :], src=x[0:8, :])
        nisa.dma_copy(dst=out, src=tile)
        return out
    x = numbers(16, 8)
    check(on, kernel, np.concatenate([x[8:], x[:8]]).astype(BF16), x)


# -- device_print ------------------------------------------------------------------------------------------------------
def test_device_print(on, capsys):
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        for i in nl.affine_range(2):
            nl.device_print("row", tile[i:i + 1, 0:3])
        nl.device_print("masked", tile, mask=nl.arange(16)[:, None] < 2)
        nl.device_print("never", tile, mask=False)
        nl.device_print("", tile[0:1, 0:1])
        return output_of(tile)
    x = numbers(16, 8)
    check(on, kernel, x, x)
    masked = np.where(np.arange(16)[:, None] < 2, x, 0)
    expected = [f"row\n{x[i:i + 1, 0:3]}" for i in range(2)] + [f"masked\n{masked}", f"\n{x[0:1, 0:1]}"]
    assert capsys.readouterr().out == "\n".join(expected) + "\n"


def test_device_print__in_each_program(on, capsys):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[nl.program_id(0)])
        nl.device_print("x", tile[0:1, 0:2])
        nl.store(out[nl.program_id(0)], tile)
        return out
    x = numbers(3, 4, 8)
    run(on, kernel, x, grid=3)
    assert capsys.readouterr().out == "".join(f"x\n{x[i, 0:1, 0:2]}\n" for i in range(3))
