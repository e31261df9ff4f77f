# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The traps of capture: eager and captured execution agree and loops stay rolled, or the named error comes."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.capture.errors import AnnotationMismatch, UnrollLimit
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import Kernel
from nki_mlir.targets.interpreter.module import compile_function

from . import traps_functions, traps_state, traps_tiles  # noqa: F401  (these register their probes)
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


@pytest.mark.parametrize("executor", ["eager", "interpreter", "jit", "isa"])
@pytest.mark.parametrize("name", ["\ud800", "tile \udfff", "\0", "a\"b\\c\n%{", "\u20ac\U0001f600"])
def test_names_of_tensors_are_any_text_that_a_file_can_hold(name, executor):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name=name)
        nl.store(out, nl.load(x))
        return out
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    if name.isprintable() or name.isascii():
        np.testing.assert_array_equal(kernel.on(executor)(x), x)
        return
    with pytest.raises(ValueError, match=r"a tensor has the name '.*\\ud[8f][0-9a-f]{2}', which has half of a surrogate"):
        kernel.on(executor)(x)
