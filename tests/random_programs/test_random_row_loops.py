# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels whose iterations share arrays and accumulators, as native code on several threads: values are the
interpreter's, and no order of iterations changes them.

`make fuzz` tries other ones each time; NKI_MLIR_FUZZ_SEED repeats a run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

from nki_mlir.language.current import isa as current_isa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki
from nki_mlir.targets.cpu import lowering
from nki_mlir.targets.cpu.pipeline import PIPELINE

from ..forced_passes import forced
from ..fuzz_time import in_time
from ..language.generated import kernel_from_text
from .row_loops import RowLoopWriter
from .test_random_kernels import FUZZ, SEED

PARTS = 20 if FUZZ else 4
EXAMPLES = 25 if FUZZ else 3
ON_THREADS = {"parallelize": "worth=1", "spread-nests": "worth=1 least=1", "forward-copies": "least=1",
              "chunk-rows": "worth=1 large=256 chunk=4096 least=1 shared=1"}


@contextmanager
def on_threads() -> Iterator[None]:
    """Let loops, chunks and computations of any length run on the pool."""
    with patch.dict(PIPELINE, ON_THREADS), patch.object(lowering, "WORTH_ROLLING", 1):
        yield


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels__have_the_same_values_on_threads(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", "3")
    for number in in_time(range(EXAMPLES)):
        program = RowLoopWriter((SEED << 16) + part * EXAMPLES + number)
        x, y = np.random.default_rng(number).integers(-3, 4, (2, *program.shape)).astype(np.float32)

        def kernel(program: RowLoopWriter = program) -> object:
            return kernel_from_text(program.text, {"nl": current_nl, "nisa": current_isa}, jit=current_nki.jit)
        expected = kernel().on("interpreter")(x, y)
        for passes in (on_threads, forced):
            with passes():
                result = kernel().on("jit")(x, y)
            assert np.array_equal(result, expected), f"{passes.__name__} changes values of\n{program.text}"
