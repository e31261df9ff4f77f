# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""expand-views: tiles of kernels as views that MLIR itself has, where they are fused with a graph's operations.

before:  %v = "nki.view"(%a, %i) {access = #nki.access<f32, ()[s0] -> (0, s0 * 64), [[1, 128], [1, 64]]>}
after:   %at = affine.apply affine_map<()[s0] -> (s0 * 64)>()[%i]
         %v = memref.reinterpret_cast %a to offset: [%at], sizes: [128, 64], strides: [512, 1] : ...
"""

from typing import Any

from nki_mlir.bindings import Module, Operation, ir
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.view import read_view
from nki_mlir.graph.upstream import operations_of
from nki_mlir.graph.views import start_of, viewed_as
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass


class ExpandViews(Pass, name="expand-views", reads=Level.WAIST):
    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            make = Attributes()
            for op in operations_of(module, lambda name: name == "nki.view"):
                with op.location, ir.InsertionPoint(op):
                    op.results[0].replace_all_uses_with(expanded(op, make))
                op.erase()


def expanded(op: Operation, make: Attributes) -> Any:
    """The view that ``memref`` has of the same elements, before the operation."""
    tile, _ = read_view(op)
    buffer = tile.handle
    if tile.dtype is not tile.base_dtype:
        shape = (tile.base_shape[0], tile.row) if tile.on_chip else (tile.row,)
        buffer = ir.Operation.create("nki.reinterpret", operands=[buffer], results=[
            make.memref(shape, tile.dtype, tile.space)]).results[0]
    return viewed_as(buffer, op.results[0].type, start_of(tile, list(op.operands)[1:]))
