# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that passes of the CPU have written as MLIR: read back equal, with equal values, and never trusted."""

import importlib
import os
import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.scalar.dtypes import BFLOAT16
from nki_mlir.targets.cpu.contraction import tiles
from nki_mlir.targets.cpu.function_pass import function_pass
from nki_mlir.targets.cpu.lowering import at_waist
from nki_mlir.targets.cpu.native_marks import MalformedMark
from nki_mlir.targets.cpu.pipeline import NAMES
from nki_mlir.targets.runtime import host

from ...examples import NAMES as EXAMPLES
from ...examples import OF_RANKS
from ...forced_passes import FORCED, forced
from ...module_passes import PassesOnText, on_text
from .compiled import CompiledModule, compiled

pytestmark = pytest.mark.usefixtures("example_modules")

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
LIT = Path(__file__).parents[3] / "lit_tests" / "cpu"


@pytest.mark.share(4)
@pytest.mark.parametrize("file", sorted(LIT.glob("*.mlir")), ids=lambda file: file.stem)
def test_modules__are_read_back_equal(file: Path) -> None:
    passes = [function_pass(name, FORCED.get(name, "")) for name in NAMES]
    for text in re.split(r"^// -----$", file.read_text(), flags=re.MULTILINE):
        module = at_waist(ir.Module.parse(text, shared_context()))
        for kernel in kernel_functions(module):
            PassesOnText().passed(kernel, len(kernel.grid), False, passes)


def ways_of_examples() -> list:
    """Return each example with usual or forced passes, in turn; in ``make fuzz`` with both."""
    examples = [name for name in EXAMPLES if name not in OF_RANKS]
    ways = {False: "usual", True: "forced"}
    return [pytest.param(name, is_forced, id=f"{name}-{way}") for k, name in enumerate(examples)
            for is_forced, way in ways.items() if FUZZ or k % 2 == is_forced]


@pytest.mark.share(6)
@pytest.mark.parametrize("name, is_forced", ways_of_examples())
def test_examples__run_from_the_text_of_the_last_pass(name: str, is_forced: bool, monkeypatch: pytest.MonkeyPatch
                                                      ) -> None:
    module = importlib.reload(importlib.import_module(name))        # kernels that nothing has compiled yet
    if hasattr(module, "TARGET"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", module.TARGET)
    compiled = 0                        # cases may share a capture
    for kernel, arguments, answer, tolerance in module.cases():
        copies = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
        with on_text() as passes, (forced() if is_forced else nullcontext()):
            result = kernel.run(copies, {}, "jit")
        compiled += len(passes.modules)
        is_tuple = isinstance(answer, tuple)
        for one, wanted in zip(result if is_tuple else [result], answer if is_tuple else [answer], strict=True):
            assert np.max(np.abs(np.asarray(one, np.float64) - wanted)) <= tolerance
    assert compiled


# -- modules from files ------------------------------------------------------------------------------------------------
PASSED = """
#id = affine_map<(d0) -> (d0)>
#row = affine_map<()[s0] -> (s0 * 64)>
!part = memref<64xf32, strided<[1], offset: ?>, "hbm">
func.func @kernel(%x: memref<256xf32, "hbm"> {nki.name = "x"},
                  %y: memref<256xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64})
    attributes {native.function, nki.results = [1]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %at = affine.apply #row()[%i]
    %t = memref.alloc() : memref<64xf32, "sbuf">
    %a = memref.reinterpret_cast %x to offset: [%at], sizes: [64], strides: [1] : memref<256xf32, "hbm"> to !part
    %b = memref.reinterpret_cast %y to offset: [%at], sizes: [64], strides: [1] : memref<256xf32, "hbm"> to !part
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : !part)
      outs(%t : memref<64xf32, "sbuf">) attrs = {native.ahead = [[0, 256]], native.fixed} {
    ^bb0(%in: f32, %out: f32):
      %0 = "scalar.alu"(%in, %in) {fn = "add"} : (f32, f32) -> f32
      linalg.yield %0 : f32
    }
    linalg.copy ins(%t : memref<64xf32, "sbuf">) outs(%b : !part)
  } {native.on_pool}
  return
}"""


def compiled_text(text: str) -> CompiledModule:
    with shared_context(), ir.Location.file("<file>", 1, 1):
        return compiled(ir.Module.parse(text))


def changed(*pairs: tuple[str, str]) -> str:
    text = PASSED
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_module_from_a_file__runs_as_it_is_written() -> None:
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    kernel = compiled_text(PASSED)
    kernel([x], [y])
    np.testing.assert_array_equal(y, 2 * x)
    text = "\n".join(kernel.assembly.text({}))
    assert "nki_parallel(" in text and re.search(r"add_64_float32_ahead_\w+\(", text) and "nki_zero" not in text


@pytest.mark.parametrize("pairs", [
    (("s0 * 64", "s0 * 64 + 1"),), (("s0 * 64", "s0 * 128"),),
    (("s0 * 64", "s0 * 64 - 4"),)], ids=["behind", "far behind", "before"])
def test_module_from_a_file__stays_in_its_arrays(pairs: tuple[tuple[str, str], ...]) -> None:
    """No mark takes the checks of bounds away."""
    with pytest.raises(OutOfBounds, match="exceed dimension size of 256"):
        compiled_text(changed(*pairs))([np.zeros(256, np.float32)], [np.zeros(256, np.float32)])


def test_check__is_a_fact_for_what_follows() -> None:
    checks = '%n = arith.subi %c4, %at : index "native.check"(%n) {rule = "mask", values = []} : (index) -> ()'
    text = changed(("s0 * 64", "s0 * 192"), ("    %t =", f"    {checks}\n    %t ="), (" : index \"native", " : index\n    \"native"))
    names = [call.function for call in compiled_text(text).assembly.instructions]
    assert names.count("nki_check") == 1                # 4 - 192 i >= 0: neither access needs another one
    with pytest.raises(NkiMlirError, match="an index is 188 elements outside its dimension"):
        compiled_text(text)([np.zeros(256, np.float32)], [np.zeros(256, np.float32)])


@pytest.mark.parametrize("old, new, problem", [
    ("native.ahead = [[0, 256]]", "native.ahead = [[1, 256]]", "native.ahead names an input that the nest does not have"),
    ("native.ahead = [[0, 256]]", "native.ahead = [3 : i64]", "not an array of pairs of integers"),
    ("native.ahead = [[0, 256]]", "native.ahead = 3 : i64", "not an array of pairs of integers"),
    ("native.ahead = [[0, 256]]", "native.fresh", "not a product of float32"),
    ("native.ahead = [[0, 256]]", "native.next = 256 : i64", "not a product of float32"),
    ("native.ahead = [[0, 256]]", "native.streams = array<i64: 1>", "does not store whole vectors"),
    ("native.ahead = [[0, 256]]", "native.words", "does not load whole vectors of bfloat16"),
    ("native.ahead = [[0, 256]], native.fixed", "native.words, native.spread = 8 : i64", "whole vectors of bfloat16"),
    ("native.ahead = [[0, 256]]", "native.streams = [0]", "not an array<i64: ...>"),
    ("native.ahead = [[0, 256]], native.fixed", "native.spread = 3 : i64", "has no 3 equal parts"),
    ("native.ahead = [[0, 256]], native.fixed", "native.spread = 0 : i64", "has no 0 equal parts"),
    ("native.ahead = [[0, 256]], native.fixed", "native.spread = -4 : i64", "has no -4 equal parts"),
    ("native.ahead = [[0, 256]], native.fixed", 'native.spread = "4"', "attribute 'native.spread' is not an integer"),
    ("native.ahead = [[0, 256]], native.fixed", "native.spread = 4.0 : f32", "'native.spread' is not an integer"),
    ("native.ahead = [[0, 256]], native.fixed", "native.spread = 4 : i64", "neither spread nests nor operations"),
    ("scf.for %i = %c0 to %c4", "scf.for %i = %c0 to %c0", "has constant bounds")])
def test_marks__that_passes_do_not_write_are_refused(old: str, new: str, problem: str) -> None:
    with pytest.raises(NkiMlirError, match=re.escape(problem)):
        compiled_text(changed((old, new)))


SEARCH = """
#all = affine_set<() : (0 == 0)>
#rows = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 16]]>
#eight = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>
func.func @kernel(%x: memref<4x16xf32, "hbm"> {nki.name = "x"}, %y: memref<4x8xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64})
    attributes {native.function} {
  %t = memref.alloc() : memref<4x16xf32, "sbuf">
  %best = memref.alloc() : memref<4x8xf32, "sbuf">
  linalg.copy ins(%x : memref<4x16xf32, "hbm">) outs(%t : memref<4x16xf32, "sbuf">)
  "nisa.max8"(%best, %t) {access = [#eight, #rows], mask = #all, engine = "vector", native.spread = 2 : i64}
    : (memref<4x8xf32, "sbuf">, memref<4x16xf32, "sbuf">) -> ()
  linalg.copy ins(%best : memref<4x8xf32, "sbuf">) outs(%y : memref<4x8xf32, "hbm">)
  return
}"""


def test_search__runs_in_as_many_equal_parts_as_its_mark_states() -> None:
    x, y = np.random.default_rng(0).permutation(64).reshape(4, 16).astype(np.float32), np.zeros((4, 8), np.float32)
    kernel = compiled_text(SEARCH)
    kernel([x], [y])
    np.testing.assert_array_equal(y, np.sort(x)[:, :-9:-1])
    assert [call.function for call in kernel.assembly.instructions].count("nki_spread") == 1
    for parts in (0, 3):
        with pytest.raises(MalformedMark, match=f"the search has no {parts} equal parts"):
            compiled_text(SEARCH.replace("spread = 2", f"spread = {parts}"))


PRODUCT = """
func.func @kernel(%a: memref<1x64x8xf32, "hbm"> {nki.name = "a"}, %b: memref<1x64x32xf32, "hbm"> {nki.name = "b"},
                  %y: memref<8x32xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64}) attributes {native.function} {
  "native.packed_product"(%a, %b, %y) {depth = 64 : i64, fresh = true, line = 32 : i64, panels = array<i64: 1, 1>,
    sizes = array<i64: 8, 32>, tile = array<i64: ROWS, 2>, unit = "float32"}
    : (memref<1x64x8xf32, "hbm">, memref<1x64x32xf32, "hbm">, memref<8x32xf32, "hbm">) -> ()
  return
}"""


@pytest.mark.skipif(host.lanes() != 16, reason="a panel has two vectors of 16 columns")
def test_packed_product__multiplies_and_stays_in_its_arrays() -> None:
    text = PRODUCT.replace("ROWS", str(tiles()[0].rows))
    rng = np.random.default_rng(0)
    a, b, y = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((1, 64, 8), (1, 64, 32), (8, 32)))
    compiled_text(text)([a, b], [y])
    np.testing.assert_array_equal(y, a[0].T @ b[0])
    for old, new in (("line = 32", "line = 33"), ("depth = 64", "depth = 65"), ("i64: 1, 1", "i64: 1, 2")):
        with pytest.raises(OutOfBounds, match="exceed dimension size of"):
            compiled_text(text.replace(old, new))([a, b], [y])
    for old, new, problem in (
            ("i64: 8, 32", "i64: 80, 32", "panels of 16 x 32 at most"), ("i64: 8, 32", "i64: 8, 48", "8 x 2 vectors has panels"),
            ("tile = array<i64: 8", "tile = array<i64: 40", "register tile of 40 x 2 vectors is none of this host's, 8 x 2, "),
            ("float32\"", "float64\"", "two numbers of panels"), ("float32\"", "amx\"", "tile registers have panels of 32 x 32"), ("depth = 64", "depth = 0", "all of at least 1"),
            ("i64: 1, 1", "i64: 1", "two numbers of panels")):
        with pytest.raises(MalformedMark, match=problem):
            compiled_text(text.replace(old, new))


LOOKUP = """
func.func @kernel(%x: memref<64xbf16, "hbm"> {nki.name = "x"}, %y: memref<64xbf16, "hbm"> {nki.name = "y", nki.shared = 0 : i64})
    attributes {native.function} {
  %table = "native.table"() ({
  ^bb0(%in: bf16):
    %0 = "scalar.convert"(%in) : (bf16) -> f32
    %1 = "scalar.alu"(%0, %0) {fn = "add"} : (f32, f32) -> f32
    %2 = "scalar.convert"(%1) : (f32) -> bf16
  }) : () -> memref<65537xbf16, "hbm">
  %t = memref.reinterpret_cast %table to offset: [0], sizes: [], strides: [] : memref<65537xbf16, "hbm"> to memref<bf16, strided<[]>, "hbm">
  linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
    ins(%x, %t : memref<64xbf16, "hbm">, memref<bf16, strided<[]>, "hbm">) outs(%y : memref<64xbf16, "hbm">) {
  ^bb0(%in: bf16, %values: bf16, %out: bf16):
    %0 = "native.lookup"(%in, %values) {fn = "twice"} : (bf16, bf16) -> bf16
    linalg.yield %0 : bf16
  }
  return
}"""


def test_lookup__is_in_a_table_of_all_arguments() -> None:
    x = np.arange(-32, 32).astype(BFLOAT16.numpy)
    y = np.zeros(64, BFLOAT16.numpy)
    compiled_text(LOOKUP)([x], [y])
    np.testing.assert_array_equal(y.astype(np.float32), 2 * x.astype(np.float32))
    fitted = LOOKUP.replace("65537xbf16", "65828xbf16")
    compiled_text(fitted.replace('"twice"', '"fitted_zero_twice"'))([x[::-1].copy()], [y])
    np.testing.assert_array_equal(y.astype(np.float32), 2 * x[::-1].astype(np.float32))
    with pytest.raises(MalformedMark, match="fitted_twice is not in a native"):
        compiled_text(fitted.replace('"twice"', '"fitted_twice"'))
    with pytest.raises(MalformedMark, match="no polynomials have the bits of the function"):
        compiled_text(fitted.replace('{fn = "add"', '{fn = "divide"'))
    for old, new, problem in (
            ("%values) {fn", "%in) {fn", "a lookup is not in a native.table"),
            ("%table to offset: [0]", "%table to offset: [4]", "a lookup is not in a native.table"),
            ('"twice"', '"fitted_zero_twice"', "fitted_zero_twice is not in a native.table with such polynomials"),
            ("65537xbf16", "65536xbf16", "a table has 65537 floats"),
            ("^bb0(%in: bf16):", "^bb0(%in: bf16, %more: bf16):", "its region computes one from a 16-bit float")):
        text = LOOKUP.replace(old, new)
        if "[4]" in new:
            text = text.replace("strided<[]>", "strided<[], offset: 4>")
        with pytest.raises(MalformedMark, match=problem):
            compiled_text(text)


def test_table__of_a_function_of_narrow_floats_is_computed_in_float32() -> None:
    start, end = LOOKUP.index("    %0 = "), LOOKUP.index("  })")
    narrow = '    %0 = "scalar.activation"(%in) {fn = "gelu"} : (bf16) -> bf16\n'
    wide = ('    %0 = "scalar.convert"(%in) : (bf16) -> f32\n'
            '    %1 = "scalar.activation"(%0) {fn = "gelu"} : (f32) -> f32\n'
            '    %2 = "scalar.convert"(%1) : (f32) -> bf16\n')
    x = np.linspace(-4, 4, 64).astype(BFLOAT16.numpy)
    results = [np.zeros(64, BFLOAT16.numpy) for _ in range(2)]
    for function, result in zip((narrow, wide), results):
        compiled_text(LOOKUP[:start] + function + LOOKUP[end:])([x], [result])
    np.testing.assert_array_equal(*[result.view(np.uint16) for result in results])
    assert results[0][-1] == 4 and results[0].any()
