# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""nisa-to-linalg: lower engine instructions to ``linalg.generic``, to run or check them on a CPU.

before:  "nisa.tensor_reduce"(%sum, %x) {op = "add", axes = [1], ...}
after:   linalg.fill ins(%zero : f32) outs(%s)
         linalg.generic {iterator_types = ["parallel", "reduction"]} ins(%v) outs(%s) {
           ^bb0(%in: bf16, %total: f32):
             %x = "scalar.convert"(%in) : (bf16) -> f32
             %y = "scalar.alu"(%total, %x) {fn = "add"} : (f32, f32) -> f32
             linalg.yield %y
         }
The result has neither the engines of instructions nor their order, so this pass does not run on the way to instruction
streams.
"""


from nki_mlir.bindings import Module
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.waist.builder import lower_operations


class NisaToLinalg(Pass, name="nisa-to-linalg", reads=Level.WAIST, writes=Level.WAIST):
    """Lowers instructions to linalg."""

    def run(self, module: Module) -> None:
        lower_operations(module, "nisa")
