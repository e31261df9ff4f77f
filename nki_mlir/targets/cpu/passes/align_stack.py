# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""align-stack: begin the stack of functions that compute vectors at a line of the cache.

before:  llvm.func internal @exp_4096(...) -> i64
after:   llvm.func internal @exp_4096(...) -> i64 attributes {passthrough = ["stackrealign"]}

Vectors that are spilled from registers then lie within lines of the stack. Without the alignment, they may lie across
lines or pages, depending on the caller; their loads and stores then take several times as long. All routines are
compiled through this pass.
"""

from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.passes.pass_manager import Pass

REALIGNED = "stackrealign"


class AlignStack(Pass, name="align-stack"):
    def run(self, module: Module) -> None:
        with module.context:
            for function in operations_of(module, lambda name: name == "llvm.func"):
                if computes_vectors(function):
                    present = [*function.attributes["passthrough"]] if "passthrough" in function.attributes else []
                    function.attributes["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get(REALIGNED), *present])


def computes_vectors(op: Operation) -> bool:
    """Return whether an operation inside of this one has a vector as result."""
    inner_operations = (inner for region in op.regions for block in region.blocks for inner in block.operations)
    return any(any(isinstance(result.type, ir.VectorType) for result in inner.results) or computes_vectors(inner)
               for inner in inner_operations)
