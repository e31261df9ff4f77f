# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels at the nki, waist and nisa level, whose results must agree: the expected instructions, and the arguments.

Results agree bit for bit, because the three levels add in one order. Folds over masked rows, which each level divides
differently, agree within a bound that the test gives.
"""

import ml_dtypes
import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import is_tile_op
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.passes.pass_manager import pass_named, run_passes

from ..transforms.masked_kernels import capture

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(7)


def lower(module, *options):
    """The module at the nisa level, checked to be legal on its target."""
    run_passes(module, [pass_named("split-masked-loops"), pass_named("nki-to-linalg"),
                        pass_named("linalg-to-nisa", *options), pass_named("verify-target")])
    assert module.operation.verify()
    return module


def instructions(module):
    operations = []

    def visit(op):
        if is_tile_op(op):
            operations.append(op.operation)
        return ir.WalkResult.ADVANCE
    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return operations


def attributes(op):
    return {op.attributes[k].name: str(op.attributes[k].attr) for k in range(len(op.attributes))}


def names(module):
    """The instructions in order, without transfers with HBM."""
    return [op.name.removeprefix("nisa.") for op in instructions(module) if op.name != "nisa.dma_copy"]


def check(kernel, *inputs, tolerance=0.0, **constants):
    """Values at the three levels agree; gives the module at the nisa level, and its first result."""
    captured = capture(kernel, *inputs, **constants)
    expected = captured.run(captured.module())
    waist = captured.module()
    run_passes(waist, [pass_named("split-masked-loops"), pass_named("nki-to-linalg")])
    module = lower(captured.module())
    for results in (captured.run(waist), captured.run(module)):
        for want, got in zip(expected, results):
            if tolerance:
                np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=tolerance,
                                           atol=tolerance)
            else:
                np.testing.assert_array_equal(_bits(got), _bits(want))
    return module, captured.run(module)[0]


def _bits(array):
    """Bits, but one NaN: which one it is depends on how a sum was written."""
    if array.dtype.kind == "f" or array.dtype == BF16:
        array = np.where(np.isnan(array.astype(np.float32)), array.dtype.type(np.nan), array)
    return array.view(f"u{array.itemsize}")


def floats(*shape, dtype=np.float32):
    return (RNG.standard_normal(shape) * 3).astype(dtype)


def integers(*shape, dtype=np.int32, low=-100, high=100):
    limits = np.iinfo(dtype)
    return RNG.integers(max(low, limits.min), min(high, limits.max), shape).astype(dtype)


def make(body, dtype=None, shape=None):
    """A kernel ``out = body(tiles...)``."""
    @nki.jit
    def kernel(*tensors):
        tiles = [nl.load(t) for t in tensors]
        result = body(*tiles)
        out = nl.ndarray(shape or result.shape, dtype=dtype or result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out
    return kernel
