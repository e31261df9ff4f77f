# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every operation that is lowered to loops gives, compiled, what its class's reference gives."""

from typing import Any

import numpy as np
import pytest

from nki_mlir.analysis.mask_boxes import UnderMask
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.cpu import kernel as cpu_kernel
from tests.conversion.lowering import buffers_of, dtype_at, equal, module_of, run_reference
from tests.conversion.samples import MATRIX, UNMASKED, Sampler, classes

from ...property_counts import FUZZ
from .compiled import compiled, only

ROUNDING = 2e-6                 # sums in another order, functions of a few units in the last place
CLASSES = pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.full_name())


class Numbers(Sampler):
    """Operands without overflow and infinities, whose sums depend on the order of the elements."""

    def values(self, count: int, dtype: DType, edges: bool = True) -> np.ndarray:
        return super().values(count, dtype, edges=False)


def bound_of(op: Op) -> float:
    """Return the bound of errors: 0 except for sums, products and transcendental functions."""
    functions = [v for v in op.attribute_values().values() if isinstance(v, str)]
    inexact = any((f in ACTIVATIONS and ACTIVATIONS[f].ulp) or (f in ALU and ALU[f].ulp) for f in functions)
    return ROUNDING if op.iteration().reduced or hasattr(op, "reduce_cmd") or inexact else 0.0


def run_compiled(op: Op, values: list[int]) -> list[np.ndarray]:
    """Return the buffers after the operation; the program's position in the grid gives the values of the symbols."""
    grid = tuple(high + 1 for _, high in op.ranges)
    kernel = compiled(module_of(op), grid)
    after = [array.copy() for array in buffers_of(op)]
    only(kernel, int(np.ravel_multi_index(values, grid)))(after, [])
    return after


def check(cls: type[Op], vary: Any, count: int, alike: bool = False) -> int:
    compared = 0
    for seed in range(count):
        folds = cls.name in MATRIX or "reduce" in cls.name or "reduce_cmd" in cls.attributes
        sampler = (Numbers if folds else Sampler)(np.random.default_rng(1000 + seed), alike=alike)
        op = vary(sampler, sampler.operation(cls))
        if op is None:
            continue
        values = [int(sampler.rng.integers(0, n)) for n in sampler.extents]
        try:
            expected = run_reference(op, values)
            got = run_compiled(op, values)
        except Unsupported as refused:
            assert "no box" in str(refused) or "does not select a box" in str(refused)
            continue
        except UnderMask as refused:
            assert "under its mask" in str(refused)
            continue
        bound = bound_of(op)
        for a, b, array in zip(got, expected, buffers_of(op)):
            same = equal(b, a, dtype_at(op, array), bound, signed_zero=not bound, of_float32=hasattr(op, "reduce_cmd"))
            assert same, f"seed {seed} {op.attribute_values()}: {a[a != b][:4]}, not {b[a != b][:4]}"
        compared += 1
    return compared


@CLASSES
def test_compiled__patterns_and_dtypes(cls: type[Op]) -> None:
    samples = 16 if FUZZ else 6
    assert check(cls, lambda sampler, op: op, samples) > 3 * samples // 4


@pytest.mark.parametrize("cls", [cls for cls in classes() if cls.name not in UNMASKED], ids=lambda cls: cls.full_name())
def test_compiled__masks(cls: type[Op]) -> None:
    assert check(cls, Sampler.masked, 12 if FUZZ else 6) > 1


@pytest.mark.parametrize("name", ["nki.copy", "nki.binary", "nki.reduce", "nisa.tensor_copy_predicated"])
def test_compiled__overlap(name: str) -> None:
    assert check(REGISTRY[name], Sampler.overlapping, 20, alike=True) > 1


def test_what_cannot_be_compiled_runs_in_the_interpreter_with_a_warning(monkeypatch):
    def refuse(*arguments):
        raise Unsupported(feature="a thing", instead="another one")
    monkeypatch.setattr(cpu_kernel, "NativeKernel", refuse)

    @nki.jit
    def doubled(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 2)
        return out
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    with pytest.warns(RuntimeWarning, match="the kernel runs in the interpreter: a thing is not supported"):
        np.testing.assert_array_equal(doubled.on("jit")(x), 2 * x)
