# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Workers that serve all tests of this directory, because the start of one takes longer than most verdicts."""

import pytest

from nki_mlir.scoring import client, engine
from nki_mlir.scoring.client import Scorer

idle: list[Scorer] = []


class KeptScorer(Scorer):
    """One that others take where it would be closed."""

    def close(self):
        if self.stopped:
            self.end()
        else:
            idle.append(self)


def kept_scorer():
    return idle.pop() if idle else KeptScorer()


@pytest.fixture(scope="session", autouse=True)
def workers_stay():
    """Commands and pools take workers that are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "Scorer", kept_scorer)
        patch.setattr(engine, "Scorer", kept_scorer)
        yield
    for scorer in idle:
        scorer.end()


@pytest.fixture(scope="module")
def scorer(workers_stay):
    with kept_scorer() as one:
        yield one
