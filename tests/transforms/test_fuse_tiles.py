# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which operations on tiles fuse: each condition by itself."""

import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.transforms.fuse_tiles import can_fuse
from nki_mlir.waist.generic import generic_of

PRODUCER = {"source": "%a", "type": "!tile", "map": "(d0, d1) -> (d0, d1)", "write": "(d0, d1) -> (d0, d1)",
            "iterators": '"parallel", "parallel"', "value": "arith.addf %x, %x"}
CONSUMER = {"sources": "%t", "types": "!tile", "maps": "#id, #id", "result": "%r", "arguments": "%x: f32, %o: f32",
            "iterators": '"parallel", "parallel"', "value": "arith.mulf %x, %x"}


def fuses(producer=None, consumer=None):
    first, second = {**PRODUCER, **(producer or {})}, {**CONSUMER, **(consumer or {})}
    text = f"""
#id = affine_map<(d0, d1) -> (d0, d1)>
!tile = memref<4x4xf32, "sbuf">
func.func @main(%a: !tile, %b: !tile, %r: !tile, %row: memref<1x4xf32, "sbuf">) {{
  %t = memref.alloc() : !tile
  %view = memref.subview %t[0, 0] [4, 4] [1, 1] : !tile to memref<4x4xf32, strided<[4, 1]>, "sbuf">
  linalg.generic {{indexing_maps = [affine_map<{first["map"]}>, affine_map<{first["write"]}>],
                  iterator_types = [{first["iterators"]}]}} ins({first["source"]} : {first["type"]}) outs(%t : !tile) {{
  ^bb0(%x: f32, %o: f32):
    %v = {first["value"]} : f32
    linalg.yield %v : f32
  }}
  linalg.generic {{indexing_maps = [{second["maps"]}], iterator_types = [{second["iterators"]}]}}
      ins({second["sources"]} : {second["types"]}) outs({second["result"]} : !tile) {{
  ^bb0({second["arguments"]}):
    %v = {second["value"]} : f32
    linalg.yield %v : f32
  }}
  return
}}"""
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        operations = module.body.operations[0].regions[0].blocks[0].operations
        producer, consumer = [nest for nest in (generic_of(op.operation) for op in operations) if nest is not None]
        return can_fuse(producer, consumer)


TWO = {"types": "!tile, !tile", "maps": "#id, #id, #id", "arguments": "%x: f32, %y: f32, %o: f32",
       "value": "arith.mulf %x, %y"}
VIEW = {**TWO, "types": '!tile, memref<4x4xf32, strided<[4, 1]>, "sbuf">'}


@pytest.mark.parametrize(("producer", "consumer", "expected"), [
    ({}, {}, True),
    ({"map": "(d0, d1) -> (d1, d0)"}, {}, True),
    ({}, {**TWO, "sources": "%t, %b"}, True),
    ({}, {**TWO, "sources": "%b, %t"}, True),
    ({}, {"value": "arith.mulf %x, %o"}, True),                     # it may update its result
    ({"map": "(d0, d1) -> (2, d1)"}, {}, False),                    # one row for all
    ({"map": "(d0, d1) -> (0, d1)", "source": "%row", "type": 'memref<1x4xf32, "sbuf">'}, {}, False),
    ({"write": "(d0, d1) -> (d0, d0)"}, {}, False),                 # only the diagonal
    ({"value": "arith.addf %x, %o"}, {}, False),                    # it adds to what is there
    ({"iterators": '"parallel", "reduction"'}, {}, False),
    ({}, {**TWO, "sources": "%t, %t"}, False),                      # its result is used twice
    ({}, {"sources": "%b"}, False),                                 # or not at all
    ({}, {**VIEW, "sources": "%t, %view"}, False),                  # or through another view
    ({}, {"result": "%t"}, False),
    ({}, {"sources": "%b", "result": "%t"}, False),
    ({"source": "%r"}, {}, False),                                  # what it reads is overwritten
])
def test_producer_fuses_into_its_one_consumer(producer, consumer, expected):
    assert fuses(producer, consumer) == expected
