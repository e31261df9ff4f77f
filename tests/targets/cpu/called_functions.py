# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The names of functions that a kernel's program calls after a pass."""

import pytest

from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, calls_in


def called_after(rewriter: type[FunctionPass], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each run of a pass adds the names of the functions that nests call behind it."""
    called: list[str] = []
    rewrite = rewriter.rewrite

    def watched(self: FunctionPass, code: NativeFunction) -> None:
        rewrite(self, code)
        called.extend(step.name for call in calls_in(*code.body.nodes) if isinstance(call, Compute)
                      for step in call.nest.steps if step.name)
    monkeypatch.setattr(rewriter, "rewrite", watched)
    return called
