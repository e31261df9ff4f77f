# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of ``linalg`` that are rewritten in place: results whose old values the body reads."""

import pytest

from nki_mlir.bindings import Module, operations_of
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.waist.generic import generic_of

TEXT = """
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @f(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>, %o: tensor<2x3xf32>, %s: tensor<2xf32>)
    -> (tensor<2x3xf32>, tensor<2xf32>) {
  %r:2 = linalg.generic {indexing_maps = [#id, #id, #id, #row], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<2x3xf32>, tensor<2x3xf32>) outs(%o, %s : tensor<2x3xf32>, tensor<2xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32, %sum: f32):
    %z = arith.subf %x, %y : f32
    FIRST
    SECOND
    linalg.yield %p, %q : f32, f32
  } -> (tensor<2x3xf32>, tensor<2xf32>)
  return %r#0, %r#1 : tensor<2x3xf32>, tensor<2xf32>
}
"""
FIRST = {True: "%p = arith.addf %old, %z : f32", False: "%p = arith.addf %x, %z : f32"}
SECOND = {True: "%q = arith.mulf %sum, %y : f32", False: "%q = arith.mulf %z, %y : f32"}


def rewritten(first, second):
    """The operation after the rewriting, with its module."""
    with shared_context():
        module = Module.parse(TEXT.replace("FIRST", FIRST[first]).replace("SECOND", SECOND[second]))
    before, = operations_of(module, lambda name: name == "linalg.generic")
    generic_of(before).read_as_inputs()
    after, = operations_of(module, lambda name: name == "linalg.generic")
    assert module.operation.verify()
    return module, generic_of(after)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_old_values_that_the_body_reads_become_inputs(first, second):
    module, generic = rewritten(first, second)
    function, = operations_of(module, lambda name: name == "func.func")
    arguments, reads = [*function.regions[0].blocks[0].arguments], [2] * first + [3] * second
    assert [*generic.inputs] == [arguments[k] for k in (0, 1, *reads)]
    assert [str(m).count(",") for m in generic.maps] == [2, 2, *(2 - (k == 3) for k in reads), 2, 1]
    assert generic.writes_only
    names = {argument: f"b{k}" for k, argument in enumerate(generic.block.arguments)}
    for op in [o.operation for o in generic.block.operations][:-1]:
        names[op.results[0]] = f"{op.name[6:]}({', '.join(names[v] for v in op.operands)})"
    old = dict(zip(reads, ("b2", "b3")))
    assert [names[v] for v in generic.block.operations[3].operands] == [
        f"addf({old.get(2, 'b0')}, subf(b0, b1))", f"mulf({old.get(3, 'subf(b0, b1)')}, b1)"]
    returned, = operations_of(module, lambda name: name == "func.return")
    assert [*returned.operands] == [*generic.op.results]
    if reads:
        assert {output.owner.name for output in generic.outputs} == {"tensor.empty"}
    else:
        assert [*generic.outputs] == arguments[2:]
