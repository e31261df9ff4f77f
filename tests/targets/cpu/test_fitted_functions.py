# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fit-functions: which functions of bfloat16 polynomials replace, with the bits of the function for all arguments."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16
from nki_mlir.targets.cpu import fitted, host_measurements
from nki_mlir.targets.cpu.code_forms import with_form
from nki_mlir.targets.cpu.fitted import FittedFunction, fit_of, lookups, name_of
from nki_mlir.targets.cpu.passes.fit_functions import FitFunctions
from nki_mlir.targets.cpu.pipeline import PIPELINE
from nki_mlir.targets.cpu.tabulated import COUNT, TabulatedFunction, call, tabulated_functions
from nki_mlir.targets.runtime import host

from ...forced_passes import forced
from .called_functions import called_after
from .test_tabulated_functions import EDGES, function, halved, masked, normalized, summed


def table_and_fit(name: str) -> tuple[TabulatedFunction, FittedFunction | None]:
    one = next(tabulated_functions(function(name, BFLOAT16)))
    return one, fit_of(one.alone)


@pytest.mark.parametrize("words", (False, True), ids=("in order", "words"))
@pytest.mark.parametrize("name", ("gelu", "tanh", "silu", "exp", "softplus", "gelu_apprx_tanh"))
def test_polynomials__have_the_bits_of_the_function_for_all_arguments(name: str, words: bool) -> None:
    one, fit = table_and_fit(name)
    assert fit is not None
    arguments, results, wanted = (np.zeros(COUNT, np.uint16) for _ in range(3))
    arguments[:] = np.random.default_rng(0).permutation(COUNT)
    routine = lookups(COUNT, name_of(one, fit))
    call(with_form(routine, "words") if words and host.lanes() == 16 else routine, [arguments, fit.table, results])
    call(one.alone, [arguments, wanted])
    assert np.array_equal(results, wanted)


@pytest.mark.parametrize("columns", (1, 3, 16, 31, 32, 33, 63, 64, 65, 100, 1000))
def test_polynomials__of_rows_of_any_length(columns: int) -> None:
    one, fit = table_and_fit("gelu")
    assert fit is not None
    arguments = (3 * np.random.default_rng(columns).standard_normal(columns, np.float32)).astype(BFLOAT16.numpy)
    arguments[:12] = EDGES[:columns].astype(BFLOAT16.numpy)
    results, wanted = np.full(columns + 8, 7, np.uint16), np.full(columns + 8, 7, np.uint16)
    call(lookups(columns, name_of(one, fit)), [arguments, fit.table, results])
    call(one.over(columns), [arguments, wanted])
    assert np.array_equal(results, wanted) and (results[columns:] == 7).all()


@pytest.mark.usefixtures("pairs")
def test_functions__without_polynomials() -> None:
    """A logarithm has no value below 0, and so small a square no polynomial with a factor for the argument."""
    assert [table_and_fit(name)[1] for name in ("log", "rsqrt", "square")] == [None] * 3
    assert fit_of(next(tabulated_functions(function("gelu", FLOAT16))).alone) is None


def test_last_segments__have_no_end_where_functions_are_constant_or_multiples() -> None:
    (_, gelu), (_, tanh), (_, exp) = map(table_and_fit, ("gelu", "tanh", "exp"))
    assert gelu and tanh and exp and gelu.is_zero and tanh.is_zero and not exp.is_zero

    def ends(fit: FittedFunction) -> list[float]:
        rows = fit.table[fitted.COEFFICIENTS:].view(np.float32)[:fitted.TERMS * fitted.SEGMENTS]
        return [float(rows[k]) for k in (0, fitted.SEGMENTS - 1)]
    assert np.isnan(ends(gelu)[0]) and abs(ends(gelu)[1] - 1) < 2 ** -8     # products round to the argument
    assert np.isnan(ends(exp)).all()


@pytest.mark.usefixtures("pairs")
def test_polynomials__that_miss_a_value_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fitted._rows
    monkeypatch.setattr(fitted, "_rows", lambda *arguments: None if (fit := rows(*arguments)) is None else fit * 1.01)
    assert fit_of.__wrapped__(table_and_fit("tanh")[0].alone) is None


@pytest.mark.parametrize("kernel", (normalized, halved, masked, summed))
@pytest.mark.parametrize("columns", (64, 130))
def test_kernels__keep_their_bits(kernel, columns: int) -> None:
    rng = np.random.default_rng(0)
    x = 2 * rng.standard_normal((128, columns), np.float32)
    x[:12, 5] = EDGES
    g, m = rng.standard_normal((128, columns), np.float32), rng.standard_normal((128, 1), np.float32)
    with np.errstate(all="ignore"):
        arrays = [a.astype(ml_dtypes.bfloat16) for a in (x, g, m)]
    with forced("fit-functions"):
        result = nki.jit(kernel).on("jit")(*arrays)
    with forced("zero-unwritten"):
        computed = nki.jit(kernel).on("jit")(*arrays)
    assert np.array_equal(result.view(np.uint16), computed.view(np.uint16))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the functions that kernels call after the pass."""
    return called_after(FitFunctions, monkeypatch)


@nki.jit
def gelu_of_rows(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = nl.ds(i * 128, 128)
        nl.store(out[rows, :], nl.gelu(nl.load(x[rows, :])))
    return out


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("rows, gain, is_fitted", [(2048, 2.0, True), (2048, 1.1, False), (256, 2.0, False)])
def test_pass__takes_large_computations_where_the_host_gains(names, monkeypatch, rows, gain, is_fitted) -> None:
    monkeypatch.setattr(host_measurements, "gain_of_fit", lambda function: gain)
    x = np.random.default_rng(0).standard_normal((rows, 128), np.float32).astype(ml_dtypes.bfloat16)
    nki.jit(gelu_of_rows.func).on("jit")(x)
    assert ("fitted_zero_gelu" in names) == is_fitted and ("gelu" in names) != is_fitted
    assert FitFunctions.least == 1 << 17 and PIPELINE["fit-functions"] == ""


def test_gain_of_fit__is_a_positive_number() -> None:
    assert host_measurements.gain_of_fit(table_and_fit("gelu")[0]) > 0
