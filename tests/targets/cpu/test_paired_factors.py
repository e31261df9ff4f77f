# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of words of two bfloat16: each product exact, sums in float32, of neighbors of the summed axis."""

import re

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets.cpu.lowering import listing
from nki_mlir.targets.cpu.native_marks import MalformedMark
from nki_mlir.targets.interpreter.module import HERE as INTERPRETER
from nki_mlir.targets.runtime import host
from nki_mlir.waist.reader import read_function

from .compiled import CompiledModule, compiled, set_options

BFLOAT16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2


@pytest.fixture(autouse=True)
def products_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let passes neither pack products nor spread them over threads."""
    for name in ("form-products", "spread-nests"):
        set_options(monkeypatch, name, worth=1 << 40)


def product(a_t, b):
    out = nl.ndarray((a_t.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nisa.nc_matmul(nl.load(a_t), nl.load(b))))
    return out


def added(a_t, b):
    """Multiply a tile that is transposed first, with sums that do not start from 0."""
    out = nl.ndarray((a_t.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a_t), nl.load(b)
    total = nl.zeros(out.shape, nl.float32, buffer=nl.psum)
    total += nisa.nc_matmul(left, right)
    transposed = nl.copy(nisa.nc_transpose(nl.copy(nisa.nc_transpose(left))))
    total += nisa.nc_matmul(transposed, right)
    nl.store(out, nl.copy(total))
    return out


WORDS = """
#m_k = affine_map<(m, n, k) -> (k, m)>
#n_k = affine_map<(m, n, k) -> (k, n)>
#m_n = affine_map<(m, n, k) -> (m, n)>
func.func @kernel(%a: memref<8x16xf32, "hbm"> {nki.name = "a"}, %b: memref<8x32xf32, "hbm"> {nki.name = "b"},
                  %y: memref<16x32xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64})
    attributes {native.function, nki.results = [2]} {
  linalg.generic {indexing_maps = [#m_k, #n_k, #m_n], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : memref<8x16xf32, "hbm">, memref<8x32xf32, "hbm">) outs(%y : memref<16x32xf32, "hbm">)
    attrs = {native.pairs} {
  ^bb0(%x: f32, %z: f32, %old: f32):
    %0 = "scalar.alu"(%x, %z) {fn = "multiply"} : (f32, f32) -> f32
    %1 = "scalar.alu"(%old, %0) {fn = "add"} : (f32, f32) -> f32
    linalg.yield %1 : f32
  }
  return
}"""


def compiled_text(text: str) -> CompiledModule:
    with shared_context(), ir.Location.file("<file>", 1, 1):
        return compiled(ir.Module.parse(text))


@pytest.mark.usefixtures("pairs")
def test_module_from_a_file__multiplies_words() -> None:
    a, b = whole_numbers(BFLOAT16, 16, 16), whole_numbers(BFLOAT16, 16, 32)
    words = [np.ascontiguousarray(x.reshape(8, 2, -1).swapaxes(1, 2)).view(np.float32)[..., 0] for x in (a, b)]
    y = np.ones((16, 32), np.float32)
    compiled_text(WORDS)(words, [y])
    assert np.array_equal(y, 1 + a.astype(np.float64).T @ b.astype(np.float64))


def test_module_from_a_file__has_columns_that_fill_a_register() -> None:
    with pytest.raises(MalformedMark, match=r"native\.pairs needs words of two bfloat16, 16 columns"):
        compiled_text(WORDS.replace("8x32", "8x15").replace("16x32", "16x15"))


@pytest.mark.usefixtures("pairs")
def test_module_from_a_file__has_parts_that_multiply_words() -> None:
    spread = WORDS.replace("{native.pairs}", "{native.pairs, native.spread = 2 : i64}")
    a, b = whole_numbers(BFLOAT16, 16, 16), whole_numbers(BFLOAT16, 16, 32)
    words = [np.ascontiguousarray(x.reshape(8, 2, -1).swapaxes(1, 2)).view(np.float32)[..., 0] for x in (a, b)]
    y, kernel = np.ones((16, 32), np.float32), compiled_text(spread)
    kernel(words, [y])
    assert next(call.function for call in kernel.assembly.instructions) == "nki_spread"
    assert np.array_equal(y, 1 + a.astype(np.float64).T @ b.astype(np.float64))
    by_columns = spread.replace("(m, n, k) ->", "(n, m, k) ->").replace("spread = 2", "spread = 4")
    with pytest.raises(MalformedMark, match="one of 4 parts cannot have the marks of the product"):
        compiled_text(by_columns)           # 8 columns fill no register


def test_interpreter__refuses_words_which_it_would_multiply_as_float32() -> None:
    module = ir.Module.parse(WORDS, shared_context())
    function, = kernel_functions(module)
    with pytest.raises(Unsupported, match=r"words of two bfloat16 \(native\.pairs\) in the interpreter"):
        read_function(function.op, INTERPRETER)


def calls_of(kernel, *arrays: np.ndarray) -> str:
    return listing(kernel.lower(*arrays).module("nisa")).split("module {")[0]


def whole_numbers(dtype: type, depth: int, count: int) -> np.ndarray:
    """Return numbers whose products and sums float32 represents, so that all orders of sums give the same bits."""
    return np.random.default_rng(count).integers(-8, 9, (depth, count)).astype(np.float32).astype(dtype)


@pytest.mark.share(4)
@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("dtypes", [(BFLOAT16, BFLOAT16), (E4M3, E4M3), (E5M2, BFLOAT16), (BFLOAT16, E4M3)])
@pytest.mark.parametrize("kernel, times", [(product, 1), (added, 2)])
@pytest.mark.parametrize("depth, rows, columns", [(128, 128, 512), (63, 33, 70), (4, 17, 16), (3, 128, 40)])
def test_products__are_those_of_the_numbers(monkeypatch, dtypes, kernel, times, depth, rows, columns):
    set_options(monkeypatch, "pair-factors", pairs=1, least=1)
    a_t, b = (whole_numbers(d, depth, n) for d, n in zip(dtypes, (rows, columns)))
    jit = nki.jit(kernel)
    assert calls_of(jit, a_t, b).count("_pairs_") >= 1
    expected = times * (a_t.astype(np.float64).T @ b.astype(np.float64))
    assert np.array_equal(jit.on("jit")(a_t, b), expected)


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("position", [0, 1, 62, 63])
def test_sums__have_infinities_and_nan_where_products_have(monkeypatch, position):
    set_options(monkeypatch, "pair-factors", pairs=1, least=1)
    a_t, b = whole_numbers(BFLOAT16, 64, 32), whole_numbers(BFLOAT16, 64, 48)
    a_t[position, :3], b[position, 0] = (np.inf, np.nan, -0.0), 0.0
    with np.errstate(invalid="ignore"):
        expected = a_t.astype(np.float32).T @ b.astype(np.float32)
    assert np.array_equal(nki.jit(product).on("jit")(a_t, b), expected, equal_nan=True)
    assert np.isnan(expected[0, 0]) and np.isnan(expected[1]).all() and np.isinf(expected[0]).any()


@pytest.mark.usefixtures("pairs")
def test_products__differ_from_those_of_float32_by_the_order_of_sums(monkeypatch):
    rng = np.random.default_rng(3)
    a_t, b = (rng.standard_normal((128, n)).astype(np.float32).astype(BFLOAT16) for n in (128, 256))
    exact = a_t.astype(np.float64).T @ b.astype(np.float64)
    bound = 128 * 2.0 ** -24 * (np.abs(a_t).astype(np.float64).T @ np.abs(b).astype(np.float64))
    for pairs in (0, 1):
        set_options(monkeypatch, "pair-factors", pairs=pairs)
        assert (np.abs(nki.jit(product).on("jit")(a_t, b) - exact) <= bound).all()


@pytest.mark.usefixtures("pairs")
def test_threads__change_no_bit(monkeypatch):
    set_options(monkeypatch, "spread-nests", worth=1)
    set_options(monkeypatch, "pair-factors", pairs=1)
    rng = np.random.default_rng(4)
    a_t, b = (rng.standard_normal((128, n)).astype(np.float32).astype(BFLOAT16) for n in (96, 256))
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setenv("NKI_MLIR_NUM_THREADS", str(threads))
        jit = nki.jit(product)
        text = calls_of(jit, a_t, b)
        assert "_pairs_" in text and ("nki_parallel(" in text) == (threads > 1)
        results.append(np.asarray(jit.on("jit")(a_t, b)).view(np.uint32))
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


@pytest.mark.parametrize("depth, columns, dtype, options", [
    (1, 64, BFLOAT16, {}), (64, 15, BFLOAT16, {}), (64, 64, np.float16, {}), (64, 64, np.float32, {}),
    (64, 64, BFLOAT16, {"pairs": 0}), (64, 64, BFLOAT16, {"least": 65}), (64, 64, BFLOAT16, {"most": 4096})])
def test_factors_that_cannot_be_paired__are_multiplied_one_by_one(monkeypatch, depth, columns, dtype, options):
    """The pass leaves a depth of one, too few columns for a register, floats that bfloat16 does not represent, and
    products that options exclude."""
    set_options(monkeypatch, "pair-factors", **({"pairs": 1, "least": 1} | options))
    a_t, b = whole_numbers(dtype, depth, 64), whole_numbers(dtype, depth, columns)
    jit = nki.jit(product)
    assert not re.search("_pairs_", calls_of(jit, a_t, b))
    assert np.array_equal(jit.on("jit")(a_t, b), a_t.astype(np.float64).T @ b.astype(np.float64))


def test_pairs__follow_the_measured_rates(monkeypatch):
    rates = {"float32": 1.0, "pairs": 2.0}
    monkeypatch.setattr("nki_mlir.targets.cpu.host_measurements.rate_of_unit", rates.__getitem__)
    a_t, b = whole_numbers(BFLOAT16, 64, 64), whole_numbers(BFLOAT16, 64, 64)
    assert ("_pairs_" in calls_of(nki.jit(product), a_t, b)) == host.multiplies_pairs()
    rates["pairs"] = 1.0
    assert "_pairs_" not in calls_of(nki.jit(product), a_t, b)
