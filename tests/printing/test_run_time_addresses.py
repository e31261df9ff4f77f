# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slices of a graph that start at a loaded number: the text reads them by access patterns, and clamps the number."""

from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.cli.source import read_module
from nki_mlir.passes.pass_manager import run_passes
from nki_mlir.passes.pipelines import passes_to
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel import kernel_text
from nki_mlir.printing.run_time_addresses import _Indices, read_numbers_from_tiles
from nki_mlir.printing.staged_reversals import stage_reversals

from .reading import reread

SHAPES = [((64, 32), 0, 16), ((64, 32), 1, 8), ((5, 6, 7), 0, 2), ((5, 6, 7), 1, 3), ((5, 6, 7), 2, 4), ((300,), 0, 9)]
NUMBERS = [0, 1, -1, 3, 1000, -(1 << 31), (1 << 31) - 1]


def tensor(shape, element="f32"):
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


def slices(shape, dim, count):
    """A graph that slices ``x`` and updates ``x`` by ``u``, from a number on along one dimension."""
    part = (*shape[:dim], count, *shape[dim + 1:])
    starts = ", ".join("%n" if d == dim else "%zero" for d in range(len(shape)))
    kinds = ", ".join(["tensor<i32>"] * len(shape))
    return f"""func.func public @main(%x: {tensor(shape)}, %u: {tensor(part)}, %n: tensor<i32>)
    -> ({tensor(part)}, {tensor(shape)}) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.dynamic_slice %x, {starts}, sizes = {list(part)} : ({tensor(shape)}, {kinds}) -> {tensor(part)}
  %1 = stablehlo.dynamic_update_slice %x, %u, {starts} : ({tensor(shape)}, {tensor(part)}, {kinds}) -> {tensor(shape)}
  return %0, %1 : {tensor(part)}, {tensor(shape)}
}}"""


def text_of(graph):
    return kernel_text([read_module(graph, "graph.mlir")], comments=False)


@pytest.mark.parametrize(("shape", "dim", "count"), SHAPES)
def test_slices_at_a_loaded_number(shape, dim, count):
    rng, part = np.random.default_rng(len(shape)), (*shape[:dim], count, *shape[dim + 1:])
    x, u = (rng.standard_normal(s).astype(np.float32) for s in (shape, part))
    text = text_of(slices(shape, dim, count))
    kernel = reread(text)
    assert "scalar_offset=" in text and f"indirect_dim={dim}" in text
    for number in NUMBERS:
        start = min(max(number, 0), shape[dim] - count)
        window = (slice(None),) * dim + (slice(start, start + count),)
        updated = x.copy()
        updated[window] = u
        for on in ("eager", "interpreter", "jit", "isa"):
            part_result, result = kernel.run((x, u, np.array(number, np.int32)), {}, on)
            np.testing.assert_array_equal(np.reshape(part_result, part), x[window], f"{on} {number}")
            np.testing.assert_array_equal(np.reshape(result, shape), updated, f"{on} {number}")


def test_text_of_a_slice_of_rows():
    text = text_of(slices((64, 32), 0, 16))
    assert "src=arg0.ap([[32, 16], [1, 32]], scalar_offset=smaller_2, indirect_dim=0)" in text
    assert text.count("op0=nl.maximum") == 2 and text.count("operand1=48.0") == 2


def test_two_loaded_numbers():
    """Their sum is one index, because an access pattern of the language takes one."""
    graph = slices((64, 32), 0, 16).replace("%zero", "%m").replace("  %m = stablehlo.constant dense<0> : tensor<i32>\n", "")
    graph = graph.replace("%n: tensor<i32>)", "%n: tensor<i32>, %m: tensor<i32>)").replace(
        "[16, 32]", "[16, 8]").replace("16x32", "16x8")
    rng, kernel = np.random.default_rng(0), reread(text_of(graph))
    x, u = rng.standard_normal((64, 32)).astype(np.float32), rng.standard_normal((16, 8)).astype(np.float32)
    for n, m in ((0, 0), (3, 5), (48, 24), (100, 100), (-1, 7), (47, 23)):
        i, j = min(max(n, 0), 48), min(max(m, 0), 24)
        updated = x.copy()
        updated[i:i + 16, j:j + 8] = u
        for on in ("eager", "interpreter", "jit", "isa"):
            part, result = kernel.run((x, u, np.array(n, np.int32), np.array(m, np.int32)), {}, on)
            np.testing.assert_array_equal(np.reshape(part, (16, 8)), x[i:i + 16, j:j + 8], f"{on} {n} {m}")
            np.testing.assert_array_equal(np.reshape(result, (64, 32)), updated, f"{on} {n} {m}")


def test_three_loaded_numbers__are_refused():
    graph = slices((5, 6, 7), 0, 2).replace("%zero", "%n").replace("  %n = stablehlo.constant dense<0> : tensor<i32>\n", "")
    graph = graph.replace("[2, 6, 7]", "[2, 3, 4]").replace("2x6x7", "2x3x4")
    with pytest.raises(Unprintable, match=r"'memref\.load' cannot be printed"):
        text_of(graph)


def lowered(graph):
    """The module of a graph at the nisa level, as text."""
    module = read_module(graph, "graph.mlir")
    with module.context:
        run_passes(module, passes_to("nisa", module))
    return module.operation.get_asm()


def test_a_number_whose_tile_changes_after_the_load__stays_in_its_register():
    """A transfer that read the tile would use another number than the one that was loaded."""
    text = lowered(slices((64, 32), 0, 16))
    load = next(line for line in text.splitlines() if "memref.load" in line)
    tile = load.split("memref.load ")[1].split("[")[0]
    write = next(line for line in text.splitlines() if line.strip().startswith('"nisa.dma_copy"(' + tile + ","))
    for changed, expected in ((text, 1), (text.replace(load, f"{load}\n{write}"), 0), (text.replace(f"{write}\n", ""), 0)):
        module = read_module(changed, "changed.mlir")
        with module.context, ir.Location.unknown():
            read_numbers_from_tiles(module)
        assert str(module).count("nisa.dynamic_read") == expected


def test_a_copy_within_one_tensor_that_steps_backwards__stays_one_transfer():
    """Rows that an earlier part has written would be read by a later one."""
    graph = """func.func @main(%x: tensor<300x4xf32>) -> tensor<300x4xf32> {
  %0 = stablehlo.reverse %x, dims = [0] : tensor<300x4xf32>
  return %0 : tensor<300x4xf32>
}"""
    text = lowered(graph)
    for changed, expected in ((text, 3), (text.replace('"nisa.dma_copy"(%arg1, %arg0)', '"nisa.dma_copy"(%arg1, %arg1)'), 0)):
        module = read_module(changed, "changed.mlir")
        with module.context, ir.Location.unknown():
            stage_reversals(module)
        assert str(module).count('nki.load') == expected


@pytest.mark.parametrize("scale, tile, index", [
    (24, "index", ("index", 24, 5)), (8, "index", ("index", 8, 3)), (1, "index", ("index", 1, 8)),
    (12, "index", None), (24, None, None)], ids=str)
def test_one_number_is_the_index_of_the_dimension_that_has_its_scale(scale, tile, index):
    """None where no dimension has it, or where float32 may round the number."""
    table = SimpleNamespace(base_shape=(5, 3, 8))
    indices = SimpleNamespace(bounded=lambda number: tile)
    assert _Indices.index(indices, table, [("number", scale)]) == index
