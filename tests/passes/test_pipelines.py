# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes that a module needs, by the level of what it contains."""

import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.passes.pipelines import GRAPH_ON_CPU, TO_LINALG, TO_RECORDS, passes_to_records

NOTHING = "func.func @f() { return }"
NEST = """
func.func @f(%y: memref<8x4xf32, "hbm">) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<8x4xf32, "hbm">)
  return
}
func.func private @part() { return }"""
GRAPH = "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"


@pytest.mark.parametrize("text, above", [(NOTHING, TO_LINALG), (NEST, ()), (GRAPH, GRAPH_ON_CPU)],
                         ids=["nothing", "nest", "graph"])
def test_passes_to_records__begin_at_the_level_of_the_module(text, above):
    with shared_context(), ir.Location.unknown():
        passes = passes_to_records(ir.Module.parse(text))
    assert [item.name for item in passes] == [*above, *TO_RECORDS]
