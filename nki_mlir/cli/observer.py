# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ``--mlir-print-ir-...``, ``--mlir-timing`` and ``--mlir-pass-statistics`` show of passes, on standard error."""

import argparse
import re
import sys
import time
from collections.abc import Callable

from nki_mlir.bindings import Module, Region
from nki_mlir.passes.pass_manager import PassObserver, pass_named


def text_of(module: Module, options: argparse.Namespace) -> str:
    """A module as the options want it printed."""
    text: str = module.operation.get_asm(enable_debug_info=options.mlir_print_debuginfo,
                                         print_generic_op_form=options.mlir_print_op_generic)
    return text


def count(module: Module) -> int:
    """Operations of a module, itself left out."""
    return sum(1 + sum(map(_inside, op.operation.regions)) for op in module.operation.regions[0].blocks[0].operations)


def _inside(region: Region) -> int:
    return sum(1 + sum(map(_inside, op.operation.regions)) for block in region.blocks for op in block.operations)


class PassReport(PassObserver):
    """Prints what was asked for around each pass; ``finish`` prints what is known at the end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.times: list[tuple[str, float]] = []
        self.counts: list[tuple[str, int, int]] = []
        self.text, self.found, self.start = "", 0, 0.0
        self.named = {when: {name for names in getattr(options, f"mlir_print_ir_{when}") for name in names.split(",")}
                      for when in ("before", "after")}
        for name in set().union(*self.named.values()):
            pass_named(name)                    # an error where there is none

    def before(self, name: str, module: Callable[[], Module]) -> None:
        options = self.options
        if options.mlir_print_ir_before_all or self.asked("before", name):
            self.dump("Before", name, text_of(module(), options))
        if options.mlir_print_ir_after_change:
            self.text = text_of(module(), options)
        if options.mlir_pass_statistics:
            self.found = count(module())
        self.start = time.perf_counter()

    def after(self, name: str, module: Callable[[], Module]) -> None:
        options = self.options
        self.times.append((name, time.perf_counter() - self.start))
        if options.mlir_pass_statistics:
            self.counts.append((name, self.found, count(module())))
        if self.asked("after", name) or options.mlir_print_ir_after_all or options.mlir_print_ir_after_change:
            text = text_of(module(), options)
            if not options.mlir_print_ir_after_change or text != self.text:
                self.dump("After", name, text)

    def asked(self, when: str, name: str) -> bool:
        """Whether the pass is named; a nest of MLIR's passes, ``func.func(cse)``, where one of them is."""
        return not self.named[when].isdisjoint(re.findall(r"[\w-]+", name))

    def dump(self, when: str, name: str, text: str) -> None:
        print(f"// -----// IR Dump {when} {name} //----- //\n{text}", file=sys.stderr)

    def finish(self) -> None:
        """The tables."""
        if self.options.mlir_timing:
            for name, seconds in [*self.times, ("total", sum(seconds for _, seconds in self.times))]:
                print(f"{name:32s} {seconds * 1e3:9.2f} ms", file=sys.stderr)
        if self.options.mlir_pass_statistics:
            for name, found, left in self.counts:
                print(f"{name:32s} {found:9d} -> {left} operations", file=sys.stderr)
