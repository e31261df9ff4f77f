# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""nki-to-linalg: lower tile operations to ``linalg.generic`` on views of their buffers.

before:  "nki.binary"(%c, %a, %b) {access = [#nki.access<bf16, ()[s0] -> (0, s0 * 64), [[1, 128], [1, 64]]>, ...],
                                   op = "add", ...}
after:   %to = "nki.view"(%c, %i) {access = #nki.access<bf16, ()[s0] -> (0, s0 * 64), [[1, 128], [1, 64]]>} : ...
         linalg.generic ins(%x, %y) outs(%to) {
           ^bb0(%p: f32, %q: f32, %r: bf16):
             %s = "scalar.alu"(%p, %q) {fn = "add"} : (f32, f32) -> f32
             %t = "scalar.convert"(%s) : (f32) -> bf16
             linalg.yield %t
         }
``nisa.*`` stays, and so does ``nki.device_print``. Loops stay unchanged.
"""


from nki_mlir.bindings import Module
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.waist.builder import lower_operations


class NkiToLinalg(Pass, name="nki-to-linalg", reads=Level.NKI, writes=Level.WAIST):
    """Lowers tile operations to linalg."""

    def run(self, module: Module) -> None:
        lower_operations(module, "nki")
