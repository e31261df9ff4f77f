# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What holds for every pass on records: one file, one documentation, one FileCheck test, options, and values alone."""

import importlib
import re
from collections.abc import Set
from pathlib import Path

import numpy as np
import pytest

import nki_mlir.compat
from nki_mlir.bindings import ir
from nki_mlir.cli.source import read_module
from nki_mlir.conversion.arith_to_scalar import ArithToScalar
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.passes.pass_manager import BadOption, run_passes
from nki_mlir.targets.cpu import kernel as native_kernel
from nki_mlir.targets.cpu import lowering, passes
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import (
    FunctionPass,
    UnknownFunctionPass,
    function_pass,
    passes_of,
    unneeded_passes,
)
from nki_mlir.targets.cpu.kernel import NativeKernel
from nki_mlir.targets.cpu.native_writer import module_of
from nki_mlir.targets.cpu.pipeline import NAMES
from nki_mlir.targets.cpu.schedule import WITH_32_REGISTERS
from nki_mlir.targets.runtime import host

from ...forced_passes import forced
from ...module_passes import read

LIT = Path(__file__).parents[3] / "lit_tests" / "cpu"
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", NAMES)
def test_pass__has_a_file_of_its_name_and_documents_its_options(name: str) -> None:
    one = function_pass(name)
    module = __import__(type(one).__module__, fromlist=["__doc__"])
    assert one.name == name and module.__name__.rpartition(".")[2] == name.replace("-", "_")
    assert module.__doc__.startswith(f"{name}: ")


@pytest.mark.parametrize("name", NAMES)
def test_pass__has_a_filecheck_test_of_its_name_that_runs_it_alone(name: str) -> None:
    text = (LIT / f"{name}.mlir").read_text()
    assert re.search(rf"RUN: .*nki-opt --{name}\b", text)


@pytest.mark.parametrize("name", ("parallelize", "chunk-rows", "spread-nests"))
def test_pass__wakes_threads_for_as_much_work_as_a_launch(name: str) -> None:
    assert function_pass(name).worth == host.WORTH_WAKING


def test_passes__are_the_files_of_the_package() -> None:
    files = {file.stem.replace("_", "-") for file in Path(passes.__path__[0]).glob("*.py") if file.stem != "__init__"}
    assert files == {*NAMES, "align-stack"}             # the latter is a pass on code


def test_pipeline__never_leaves_out_what_values_need() -> None:
    assert [one.name for one in passes_of("chunk-rows{least=1},load-fields")] == [
        "zero-unwritten", "chunk-rows", "load-fields"]


def test_errors() -> None:
    with pytest.raises(UnknownFunctionPass, match="'chunk-columns' is not a pass of the CPU"):
        passes_of("chunk-columns")
    with pytest.raises(BadOption, match="pass 'chunk-rows' has no option 'most'"):
        passes_of("chunk-rows{most=1}")


def normalized(x, table, index):
    """Compute with copies of inputs, folds, rows of a table, a product and an independent loop."""
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
def test_pass__alone_keeps_values(name: str) -> None:
    rng = np.random.default_rng(0)
    x, table = (rng.integers(-4, 5, (n, 64)).astype(np.float32) for n in (256, 96))
    index = rng.integers(0, 96, (128, 1)).astype(np.int32)
    expected = nki.jit(normalized).on("interpreter")(x, table, index)
    with forced(name):
        for values, others in zip(nki.jit(normalized).on("jit")(x, table, index), expected):
            np.testing.assert_array_equal(values, others)


def test_reuse_tiles__leaves_no_use_of_a_tile_that_has_no_memory() -> None:
    """Later passes compare the tiles of regions: a region over another tile's memory is in that tile."""
    module = read_module((LIT / "reuse-tiles.mlir").read_text(), "reuse-tiles.mlir")
    with module.context, ir.Location.unknown():
        run_passes(module, [ArithToScalar()])
    kernels = kernel_functions(module)
    allocated = []
    for kernel in kernels:
        one = function_pass("reuse-tiles")
        one.least = 1
        one.rewrite(function := read(kernel, 0))
        buffers = {node.buffer for node in cpu.nodes_in(*function.body.nodes) if isinstance(node, cpu.Allocate)}
        allocated.append(len(buffers))
        for call in cpu.calls_in(*function.body.nodes):
            if isinstance(call, cpu.Compute):
                assert {r.root for r in call.regions if isinstance(r.root, cpu.ScratchBuffer)} <= buffers, kernel.name
    assert 1 in allocated and 2 in allocated


WIDE_ONLY = {"select-powers"} if host.lanes() == WITH_32_REGISTERS else set[str]()


@pytest.mark.parametrize(("example", "kept"), [("average_pool2d", {"chunk-rows"}), ("giou", {"join-nests"}),
                                               ("matmul", {"form-products"}),
                                               ("softmax", {"simplify-extrema", *WIDE_ONLY})])
def test_unneeded_passes__change_nothing(example: str, kept: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With thresholds that every kernel reaches, passes that a process does not load would not change its functions."""
    unneeded: list[Set[str]] = []

    def run_all(function: NativeFunction, chosen: list[FunctionPass], observer: None) -> None:
        unneeded.append(unneeded_passes(function))
        for one in passes_of():
            before = str(module_of(function))
            one.rewrite(function)
            assert one.name not in unneeded[-1] or str(module_of(function)) == before, one.name
    monkeypatch.setattr(lowering, "run_passes", run_all)
    monkeypatch.setattr(native_kernel, "key_of", lambda *arguments: None)
    monkeypatch.syspath_prepend(EXAMPLES)
    nki_mlir.compat.install()
    kernel, arguments, _, _ = importlib.import_module(example).cases()[0]
    specialized = kernel.specialize(kernel.bind(arguments, {}, is_array, describe_array))
    with forced():
        NativeKernel(specialized.captured, ())
    assert unneeded and not any(kept & names for names in unneeded)
    assert any(names for names in unneeded)
