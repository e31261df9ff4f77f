# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operation that limits values to an interval."""

from nki_mlir.plugin import Check, Elementwise, Engine, In, NisaOp, Out, ScalarFunctions, V, Work


class ExampleClampOp(NisaOp, Elementwise, name="example_clamp", engines=(Engine.VECTOR,), mnemonic="EXAMPLE_CLAMP",
                     opcode=0xC0):
    """dst = src where it lies between ``low`` and ``high``, else the nearer of the two."""

    dst: Out
    src: In
    low: float
    high: float = 1.0

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.same_shape("dst", "src")
        check.rule(self.low <= self.high, f"low is at most high, got {self.low} and {self.high}",
                   "exchange them")

    def body(self, s: ScalarFunctions[V], src: V) -> V:
        return s.alu("minimum", s.alu("maximum", src, s.constant(self.low)), s.constant(self.high))

    def work(self) -> Work:
        return Work("elements", self.dst.free_elements)
