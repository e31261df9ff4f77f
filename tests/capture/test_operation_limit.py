# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A loop of Python without end is an error at the line of the operation that exceeds the limit."""

import numpy as np
import pytest

from nki_mlir import check
from nki_mlir.capture.operation_limit import limited
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import LimitText
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import isa, nki
from nki_mlir.language.current import language as current
from nki_mlir.progress import ignore

X = np.ones((4, 4), np.float32)


def beta_kernel(x, count):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    while count != 0:
        t = nl.add(t, 1.0)      # here
        count -= 1
    nl.store(out, t)
    return out


def current_kernel(x, count):
    out, t = current.ndarray(x.shape, x.dtype, buffer=current.shared_hbm), current.ndarray(x.shape, x.dtype)
    isa.dma_copy(t, x)
    while count != 0:
        isa.tensor_scalar(t, t, op0=current.add, operand0=1.0)      # here
        count -= 1
    isa.dma_copy(out, t)
    return out


def line_of(kernel):
    lines, first = open(__file__).read().split("\n"), kernel.__code__.co_firstlineno
    return next(n for n in range(first, len(lines)) if lines[n - 1].endswith("# here"))


@pytest.mark.parametrize("decorate, kernel", [(beta.jit, beta_kernel), (nki.jit, current_kernel)], ids=["beta", "current"])
def test_loop_without_end_is_an_error_at_its_line(decorate, kernel, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_OPERATIONS", "9")
    assert (decorate(kernel)(X, 7) == 8).all()                  # a load, seven sums and a store
    for count in (8, -1):
        with pytest.raises(NkiMlirError, match="the kernel has performed 9 operations, the limit of a capture") as error:
            decorate(kernel)(X, count)
        if count == -1:
            assert (error.value.at.file, error.value.at.line) == (__file__, line_of(kernel))
            assert "set NKI_MLIR_OPERATIONS to a larger number" in str(error.value)
    (finding,) = check(decorate(kernel), X, -1).of("failed")
    assert finding.location.line == line_of(kernel) and finding.code == "NKI-OPERATIONS"
    assert (decorate(kernel).on("eager")(X, 30) == 31).all()    # eager execution keeps nothing


def test_limit_is_a_number(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_OPERATIONS", "many")
    with pytest.raises(LimitText, match="NKI_MLIR_OPERATIONS is many, which must be a positive number of operations"):
        beta.jit(beta_kernel)(X, 0)


def test_operations_are_counted_up_to_the_limit_and_reported(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_OPERATIONS", "6")
    reported = []
    count = limited(reported.append)
    count()
    count(3)
    count(2)
    assert reported == [1, 3, 2]
    with pytest.raises(NkiMlirError, match="the kernel has performed 6 operations, the limit of a capture or check"):
        count()
    assert reported == [1, 3, 2]
    silent = limited(ignore)
    silent(6)
    with pytest.raises(NkiMlirError, match="has performed 6 operations"):
        silent()
