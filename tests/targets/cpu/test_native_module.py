# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that passes of the CPU have written as MLIR: read back equal, with equal values, and never trusted."""

import importlib
import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.targets.cpu.function_pass import function_pass
from nki_mlir.targets.cpu.lowering import at_waist
from nki_mlir.targets.cpu.pipeline import NAMES

from ...forced_passes import FORCED, forced
from ...module_passes import PassesOnText, on_text
from ...test_examples import NAMES as EXAMPLES
from ...test_examples import OF_RANKS, vendor_names

__all__ = ["vendor_names"]              # a fixture

LIT = Path(__file__).parents[3] / "lit_tests" / "cpu"


@pytest.mark.parametrize("file", sorted(LIT.glob("*.mlir")), ids=lambda file: file.stem)
def test_modules__are_read_back_equal(file: Path) -> None:
    passes = [function_pass(name, FORCED.get(name, "")) for name in NAMES]
    for text in re.split(r"^// -----$", file.read_text(), flags=re.MULTILINE):
        module = at_waist(ir.Module.parse(text, shared_context()))
        for kernel in kernel_functions(module):
            PassesOnText().passed(kernel, len(kernel.grid), False, passes)


@pytest.mark.parametrize("is_forced", [False, True], ids=["usual", "forced"])
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in OF_RANKS])
def test_examples__run_from_the_text_of_the_last_pass(name: str, is_forced: bool, monkeypatch: pytest.MonkeyPatch
                                                      ) -> None:
    module = importlib.reload(importlib.import_module(name))        # kernels that nothing has compiled yet
    if hasattr(module, "TARGET"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", module.TARGET)
    compiled = 0                        # cases may share a capture
    for kernel, arguments, answer, tolerance in module.cases():
        given = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
        with on_text() as passes, (forced() if is_forced else nullcontext()):
            result = kernel.run(given, {}, "jit")
        compiled += len(passes.modules)
        several = isinstance(answer, tuple)
        for one, wanted in zip(result if several else [result], answer if several else [answer], strict=True):
            assert np.max(np.abs(np.asarray(one, np.float64) - wanted)) <= tolerance
    assert compiled
