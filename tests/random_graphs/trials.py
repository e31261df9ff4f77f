# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run random graphs: new ones each time in `make fuzz`, otherwise always the same."""

import os
import secrets

from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from ..fuzz_time import ending_in_time
from . import kernels
from .writer import GraphWriter

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
SEED = int(os.environ.get("NKI_MLIR_FUZZ_SEED", secrets.randbelow(1 << 30) if FUZZ else 0))
PHASES = (Phase.explicit, Phase.generate)        # a graph takes seconds: one that fails is not made smaller


def try_graphs(count, part, check, rules, library="jnp"):
    """Call ``check`` with ``count`` random graphs, which differ between the parts of a run."""
    @st.composite
    def graphs(draw):
        return GraphWriter(lambda n: draw(st.integers(0, n - 1)), library).graph(rules, kernels.CALLS)

    @seed((SEED << 8) + part)
    @settings(max_examples=count, deadline=None, database=None, derandomize=False,
              suppress_health_check=list(HealthCheck), phases=PHASES)
    @given(graphs())
    @ending_in_time
    def run(graph):
        note(graph.text)
        check(graph)
    run()
