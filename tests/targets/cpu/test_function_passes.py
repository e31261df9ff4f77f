# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What holds for every pass on records: one file, one documentation, one FileCheck test, options, and values alone."""

import re
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.passes.pass_manager import BadOption, UnknownPass
from nki_mlir.targets.cpu import passes
from nki_mlir.targets.cpu.function_pass import function_pass, passes_of
from nki_mlir.targets.cpu.pipeline import NAMES, PIPELINE
from nki_mlir.targets.runtime import host

LIT = Path(__file__).parents[3] / "lit_tests" / "cpu"
FORCED = {"parallelize": "worth=1", "form-products": "worth=1", "forward-copies": "least=1",
          "chunk-rows": "large=256 chunk=128 least=1"}


@pytest.mark.parametrize("name", NAMES)
def test_pass__has_a_file_of_its_name_and_documents_its_options(name: str) -> None:
    one = function_pass(name)
    module = __import__(type(one).__module__, fromlist=["__doc__"])
    assert one.name == name and module.__name__.rpartition(".")[2] == name.replace("-", "_")
    assert module.__doc__.startswith(f"{name}: ")
    assert all(f"``{option}``" in module.__doc__ for option in type(one).__dataclass_fields__)


@pytest.mark.parametrize("name", NAMES)
def test_pass__has_a_filecheck_test_of_its_name_that_runs_it_alone(name: str) -> None:
    text = (LIT / f"{name}.mlir").read_text()
    assert re.search(rf'RUN: .*--cpu-passes="{name}', text)


def test_passes__are_the_files_of_the_package() -> None:
    files = {file.stem.replace("_", "-") for file in Path(passes.__path__[0]).glob("*.py") if file.stem != "__init__"}
    assert files == {*NAMES}


def test_pipeline__never_leaves_out_what_values_need() -> None:
    assert [one.name for one in passes_of("chunk-rows{least=1},load-fields")] == [
        "zero-unwritten", "chunk-rows", "load-fields"]


def test_errors() -> None:
    with pytest.raises(UnknownPass, match="there is no pass named 'chunk-columns'"):
        passes_of("chunk-columns")
    with pytest.raises(BadOption, match="pass 'chunk-rows' has no option 'most'"):
        passes_of("chunk-rows{most=1}")


def normalized(x, table, index):
    """Tiles that are copies of inputs, folds, rows of a table, a product and an independent loop."""
    out = nl.ndarray((256, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        tile = nl.load(x[nl.ds(i * 128, 128), :])
        mean = nl.mean(tile, axis=1, keepdims=True)
        nl.store(out[nl.ds(i * 128, 128), :], nl.matmul(tile - mean, nl.load(table[0:64, :])))
    numbers = nl.load(index)
    nl.store(rows, nl.load(table[numbers[nl.arange(128)[:, None], 0], nl.arange(64)[None, :]]))
    return out, rows


@pytest.mark.parametrize("name", NAMES)
def test_pass__alone_keeps_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, table = (rng.integers(-4, 5, (n, 64)).astype(np.float32) for n in (256, 96))
    index = rng.integers(0, 96, (128, 1)).astype(np.int32)
    expected = nki.jit(normalized).on("interpreter")(x, table, index)
    for other in {*NAMES} - {name, "zero-unwritten"}:
        monkeypatch.delitem(PIPELINE, other)
    monkeypatch.setitem(PIPELINE, name, FORCED.get(name, ""))
    monkeypatch.setattr(host, "cache_bytes", lambda: 128)
    for values, others in zip(nki.jit(normalized).on("jit")(x, table, index), expected):
        np.testing.assert_array_equal(values, others)


# -- faults ------------------------------------------------------------------------------------------------------------
# Each breaks what one pass asks before it changes anything. A kernel that depends on the answer must get other values.
def overwritten(x, y):
    """A tile of ``x`` is read after ``x`` was written."""
    tile = nl.load(x)
    nl.store(x, nl.multiply(tile, 2.0))
    nl.store(y, nl.add(tile, 1.0))


def shifted(x, y):
    """Rows need those of the other half, which another chunk has."""
    sums = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    nl.store(sums, nl.add(nl.load(x), 1.0))
    nl.store(y[0:64, :], nl.multiply(nl.load(sums[64:128, :]), 2.0))
    nl.store(y[64:128, :], nl.multiply(nl.load(sums[0:64, :]), 3.0))


@pytest.mark.parametrize("name, target, answer, kernel", [
    ("forward-copies", "passes.forward_copies.inputs_written", lambda *_: set(), overwritten),
    ("chunk-rows", "passes.chunk_rows.Run.all_apart", lambda *_: True, shifted),
])
def test_seeded_fault__changes_values(name, target, answer, kernel, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setitem(PIPELINE, name, FORCED[name])

    def agrees() -> bool:
        """On arrays of its own: buffers still hold what an earlier run left there."""
        x, y = rng.integers(-4, 5, (128, 64)).astype(np.float32), np.zeros((128, 64), np.float32)
        expected = x.copy(), y.copy()
        nki.trace(kernel).on("interpreter")(*expected)
        nki.trace(kernel).on("jit")(x, y)
        return np.array_equal((x, y), expected)
    assert agrees()
    monkeypatch.setattr(f"nki_mlir.targets.cpu.{target}", answer)
    assert not agrees()
