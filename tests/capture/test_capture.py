# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The traps of capture: eager and captured execution agree and loops stay rolled, or the named error comes."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.capture.errors import AnnotationMismatch, UnrollLimit
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.kernel import Kernel
from nki_mlir.targets.interpreter.module import compile_function

from . import traps_functions, traps_tiles  # noqa: F401  (these register their probes)
from .traps import COLUMNS, PROBES, ROWS


def guarded(array):
    """The array inside a larger allocation whose other elements must not change."""
    frame = np.full(array.size + 2048, 1e30, np.float32)
    inner = frame[1024:-1024].reshape(array.shape)
    inner[...] = array
    return frame, inner


def specialize(case, x, out):
    kernel = Kernel(case.kernel, options={"unroll_limit": case.limit})
    kernel = kernel[case.grid] if case.grid else kernel
    from nki_mlir.language.kernel import describe_array, is_array
    return kernel.specialize(kernel.bind((x, out), {}, is_array, describe_array))


def data():
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    return x, guarded(np.zeros_like(x)), guarded(np.zeros_like(x))


def run_eager(case, x, out):
    kernel = Kernel(case.kernel)
    kernel = kernel[case.grid] if case.grid else kernel
    kernel.run((x, out), {}, "eager")


ALL = {case.kernel.__name__ if case.kernel.__name__ != "closure" else "closure_of_a_factory": case for case in PROBES}


@pytest.mark.parametrize("case", [c for c in ALL.values() if c.raises is None], ids=lambda c: c.kernel.__name__)
def test_captured_equals_eager(case):
    x, (_, eager), (frame, captured) = data()
    if case.runs:
        run_eager(case, x, eager)
    spec = specialize(case, x, captured)
    got = spec.captured
    text, reasons = str(next(iter(got.variants.values())).module), "; ".join(got.reasons.values())
    assert text.count("scf.for") == (case.loops or 0), reasons
    assert case.because in reasons
    assert got.attempts <= case.attempts
    assert case.contains in text and case.lacks not in text
    assert got.unproved == case.unproved
    if not case.runs:
        return
    for point in np.ndindex(*case.grid):
        # What runs is parsed from the printed text, so the IR is shown to carry everything.
        with shared_context():
            module = ir.Module.parse(str(got.variant_for(point).module))
        compile_function(the_kernel(module))(point, [x, captured], [])
    np.testing.assert_array_equal(eager, captured)
    assert np.all(frame[:1024] == 1e30) and np.all(frame[-1024:] == 1e30), "wrote outside the tensor"


@pytest.mark.parametrize("case", [c for c in ALL.values() if c.raises is not None], ids=lambda c: c.kernel.__name__)
def test_named_error(case):
    """Each way of running raises the error, with a place in the kernel. Two exist in capture only."""
    x, (_, eager), (_, captured) = data()

    def run_captured():
        spec = specialize(case, x, captured)
        spec.program("interpreter")([x, captured], [])
    ways = [run_captured]
    if case.raises not in (AnnotationMismatch, UnrollLimit):
        ways.append(lambda: run_eager(case, x, eager))
    for way in ways:
        with pytest.raises(case.raises, match=case.says) as caught:
            way()
        assert "traps" in caught.value.at.file
