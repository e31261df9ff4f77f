# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""control-flow-to-scf: convert ``stablehlo.while``, ``if`` and ``case`` to ``scf`` on the same tensors.

before:  %1 = stablehlo.while(%arg0 = %0) : ... cond { ... } do { ... }
after:   %1 = scf.while (%arg0 = %0) : ... { ... scf.condition(%c) %arg0 } do { ... scf.yield ... }

``stablehlo-legalize-to-linalg`` does not convert these. Inner ones are converted first, because regions move unchanged.
"""


from nki_mlir.bindings import Block, Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.creation import terminator, value_of
from nki_mlir.graph.upstream import exchange
from nki_mlir.passes.pass_manager import Pass


class ControlFlowToScf(Pass, name="control-flow-to-scf"):
    """Converts structured control flow of StableHLO to ``scf``."""

    def run(self, module: Module) -> None:
        names = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
        with module.context:
            for op in reversed(operations_of(module, lambda name: name in names)):
                convert(op)


def convert(op: Operation) -> None:
    """Replace one operation."""
    types = [r.type for r in op.results]
    with ir.InsertionPoint(op), op.location:
        match op.name:
            case "stablehlo.while":
                new = ir.Operation.create("scf.while", results=types, operands=list(op.operands), regions=2)
                regions = [(0, 0), (1, 1)]
            case "stablehlo.if":
                condition = extract(op.operands[0], ir.IntegerType.get_signless(1))
                new = ir.Operation.create("scf.if", results=types, operands=[condition], regions=2)
                regions = [(0, 0), (1, 1)]
            case _:             # the last branch runs for every number without a branch
                number = extract(op.operands[0], ir.IntegerType.get_signless(32))
                index = value_of("arith.index_cast", ir.IndexType.get(), number)
                last_case = len(op.regions) - 1
                new = ir.Operation.create("scf.index_switch", results=types, operands=[index], regions=last_case + 1,
                                           attributes={"cases": ir.DenseI64ArrayAttr.get(range(last_case))})
                regions = [(last_case, 0), *((k, k + 1) for k in range(last_case))]
    for source, target in regions:
        for block in list(op.regions[source].blocks):
            block.append_to(new.regions[target])
        terminate(new.regions[target].blocks[0], is_condition=op.name == "stablehlo.while" and target == 0)
    exchange(op, new.results)


def copy_yielded_parts(module: Module) -> None:
    """Copy parts of tensors that control flow yields to new tensors, which get buffers that nothing else shares."""
    for end in operations_of(module, lambda name: name in ("scf.yield", "scf.condition")):
        for k, value in enumerate(end.operands):
            if is_part(value):
                with end.context, ir.InsertionPoint(end), end.location:
                    end.operands[k] = value_of("bufferization.alloc_tensor", value.type, value,
                                               operandSegmentSizes=ir.DenseI32ArrayAttr.get([0, 1, 0]))


def is_part(value: Value) -> bool:
    op = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if op is None or op.name not in ("tensor.extract_slice", "tensor.collapse_shape", "tensor.expand_shape"):
        return False
    return op.name == "tensor.extract_slice" or is_part(op.operands[0])


def extract(tensor: ir.Value, kind: ir.Type) -> Value:
    """Write the element of a tensor without dimensions."""
    return value_of("tensor.extract", kind, tensor)


def terminate(block: Block, is_condition: bool) -> None:
    """Replace ``stablehlo.return`` by the terminator of ``scf``."""
    old = terminator(block)
    values = list(old.operands)
    with ir.InsertionPoint(old), old.location:
        if is_condition:
            condition = extract(values[0], ir.IntegerType.get_signless(1))
            ir.Operation.create("scf.condition", operands=[condition, *block.arguments])
        else:
            ir.Operation.create("scf.yield", operands=values)
    old.erase()
