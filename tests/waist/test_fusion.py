# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an operand reads when it reads through a copy: compared with the copy, element by element."""

import itertools

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, DType
from nki_mlir.waist.fusion import ElementMove, fusible, read_through
from nki_mlir.waist.generic import GenericOperation, generic_of
from nki_mlir.waist.nest import Nest, Operand

START = 40          # bytes before what the copy reads


def move(extents: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]) -> ElementMove:
    nest = Nest(extents, frozenset(), (Operand(FLOAT32, source),), 0, (Operand(FLOAT32, target),), (), (0,))
    return ElementMove(nest, Linear(START, ((3, 64),)), Linear(8))


def elements(operand: Operand, offset: Linear, extents: tuple[int, ...]) -> list[int]:
    """The numbers of the elements that an operand touches, in order."""
    start, rest = divmod(offset.const, operand.dtype.itemsize)
    assert not rest
    return [start + sum(k * step for k, step in zip(point, operand.strides))
            for point in itertools.product(*map(range, extents))]


def test_operand_that_reads_a_copy__reads_the_same_elements_of_the_source() -> None:
    rng, followed = np.random.default_rng(0), 0
    for _ in range(2_000):
        shape = tuple(int(n) for n in rng.integers(1, 5, 3))
        order = rng.permutation(3)
        dense = (shape[1] * shape[2], shape[2], 1)
        source = [0, 0, 0]
        step = 1
        for axis in order:
            source[axis] = step
            step *= shape[axis]
        copy = move(shape, tuple(source), dense)
        of = dict(zip(elements(copy.nest.outputs[0], copy.target, shape),
                      elements(copy.nest.inputs[0], copy.source, shape)))
        axes = rng.permutation(3)[:rng.integers(1, 4)]
        extents = tuple(int(rng.integers(1, shape[a] + 1)) for a in axes)
        operand = Operand(FLOAT32, tuple(dense[a] for a in axes))
        offset = Linear(8 + 4 * int(rng.integers(0, 6)))
        moved = copy.at_source(operand, offset, extents)
        read = elements(operand, offset, extents)
        if moved is None:
            continue
        followed += 1
        assert moved[1].symbols == ((3, 64),)
        assert elements(*moved, extents) == [of[k] for k in read]
        back = copy.at_target(*moved, extents)
        assert back is not None and elements(*back, extents) == read
    assert followed > 500


@pytest.mark.parametrize(("dtype", "strides", "offset", "extents"), [
    (BFLOAT16, (1,), Linear(8), (4,)),                  # elements that were not copied
    (FLOAT32, (1,), Linear(10), (4,)),                  # between two elements
    (FLOAT32, (1,), Linear(4), (4,)),                   # before the first
    (FLOAT32, (1,), Linear(8), (9,)),                   # over the end of a row
    (FLOAT32, (8,), Linear(8), (5,)),                   # over the last row
    (FLOAT32, (-1,), Linear(36), (4,)),
    (FLOAT32, (1,), Linear(8, ((0, 4),)), (4,)),        # a start that nobody knows
])
def test_operand_that_reads_beyond_a_copy__is_not_followed(dtype: DType, strides: tuple[int, ...], offset: Linear,
                                                          extents: tuple[int, ...]) -> None:
    copy = move((4, 8), (1, 4), (8, 1))
    assert copy.at_source(Operand(FLOAT32, (8, 1)), Linear(8), (4, 8)) == (Operand(FLOAT32, (1, 4)), copy.source)
    assert copy.at_source(Operand(dtype, strides), offset, extents) is None


def generics(module: ir.Module) -> list[GenericOperation]:
    """The operations of a module, which the caller keeps: types of their values live as long as the module."""
    function = module.body.operations[0]
    nests = [generic_of(op.operation) for op in function.regions[0].blocks[0].operations]
    return [nest for nest in nests if nest is not None]


def test_read_through__puts_the_reader_s_subscripts_in_the_producer_s_maps() -> None:
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse("""
func.func @main(%a: memref<3x8x4xf32>, %b: memref<4x8xf32>, %t: memref<4x8xf32>, %r: memref<8x2x4xf32>) {
  linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (2, d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>],
                  iterator_types = ["parallel", "parallel"]} ins(%a : memref<3x8x4xf32>) outs(%t : memref<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>],
                  iterator_types = ["parallel", "parallel", "parallel"]}
                  ins(%t : memref<4x8xf32>) outs(%r : memref<8x2x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  return
}""")
        copy, reader = generics(module)
        fusion = read_through(copy, reader, 0)
        (source, mapping), = fusion.sources
        assert source == copy.inputs[0]
        assert str(mapping) == "(d0, d1, d2) -> (2, d0, d2)"
        assert fusion.has_extents()


def test_body_that_computes_with_positions__is_fusible_only_where_these_are_known() -> None:
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse("""
func.func @main(%a: memref<4xindex>, %b: memref<4xindex>) {
  linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                  iterator_types = ["parallel"]} ins(%a : memref<4xindex>) outs(%b : memref<4xindex>) {
  ^bb0(%in: index, %out: index):
    %i = linalg.index 0 : index
    linalg.yield %i : index
  }
  linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                  iterator_types = ["parallel"]} ins(%a : memref<4xindex>) outs(%b : memref<4xindex>) {
  ^bb0(%in: index, %out: index):
    linalg.yield %in : index
  }
  return
}""")
        positions, copy = generics(module)
        assert fusible(positions.op) is None and fusible(copy.op) is not None
        assert fusible(positions.op, indices=True) is not None and fusible(copy.op, indices=True) is not None
