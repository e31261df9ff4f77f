# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run passes of the CPU on kernels that are too small for them: with options that force them, and each pass alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from nki_mlir.targets.cpu.pipeline import NAMES, PIPELINE, REQUIRED

LOWERING = "nki_mlir.targets.cpu.lowering"
FORCED = {"trim-tiles": "least=1", "fit-functions": "least=1 gain=0", "tabulate-functions": "least=1 gain=0", "parallelize": "worth=1",
          "form-products": "worth=1", "hoist-tiles": "least=1", "hoist-factors": "least=1", "share-factors": "least=1",
          "forward-copies": "least=1", "merge-programs": "items=0",
          "forward-factors": "most=1000000", "divide-columns": "least=1", "pad-rows": "multiple=4 rows=1",
          "reuse-tiles": "least=1", "join-nests": "least=1", "prefetch-factors": "least=1", "pair-factors": "pairs=1 least=1", "chunk-rows": "large=256 chunk=128 least=1 shared=1 worth=1",
          "spread-nests": "worth=1",
          "spread-sections": "worth=1 least=1 busy=60 least-products=0 most-products=100", "load-words": "least=1", "delay-stores": "least=1 functions=0",
          "halve-vectors": "least=1 gain=0", "round-pairs": "always=1", "round-words": "always=1"}
OPTIONAL = tuple(name for name in NAMES if name not in REQUIRED)
REWRITTEN = {"join-parts": "spread-nests"}          # passes that change only what another one writes


@contextmanager
def forced(alone: str | None = None) -> Iterator[None]:
    """Every pass with a threshold that any kernel reaches, or one of them beside those that values need.

    The cache is so small that stores go past it.
    """
    chosen = {name: FORCED.get(name, "") for name in NAMES if (
        alone in (None, name)) or name in REQUIRED or name == REWRITTEN.get(alone or "")}
    with patch.dict(PIPELINE, chosen, clear=True), patch(f"{LOWERING}.WORTH_ROLLING", 1), \
            patch(f"{LOWERING}.WORTH_FUSING", 1), patch("nki_mlir.targets.runtime.host.cache_bytes", lambda: 128):
        yield
