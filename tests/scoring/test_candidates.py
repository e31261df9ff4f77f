# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verdicts on candidates: each gets the one that it has to get, whatever came before it."""

import numpy as np
import pytest

from nki_mlir.scoring.reference import difference, load_reference
from tests.scoring.candidates import CANDIDATES, CURRENT, REFERENCES


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    folder = tmp_path_factory.mktemp("references")
    for name, text in REFERENCES.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.mark.parametrize("name", CANDIDATES)
def test_candidate(name, scorer, references):
    candidate = CANDIDATES[name]
    verdict = scorer.score({"source": candidate.source, "name": "candidate.py", "seconds": candidate.seconds,
                            "reference": str(references / f"{candidate.reference}.py"), "megabytes": 1024})
    reason = verdict["reason"] or {"code": "", "message": ""}
    assert (verdict["verdict"], reason["code"] if candidate.code != "*" else "*") == (candidate.verdict, candidate.code
                                                                                     ), reason
    assert verdict.right == (candidate.verdict == "right") and (verdict.total_time is not None) == verdict.right


def test_difference__counts_the_elements_beyond_the_tolerance():
    expected, actual = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.5, 3.25, 4.0], np.float32)
    assert difference(expected, actual, {"relative_l2": 1e-3}) == (
        "relative L2 error 0.102, allowed 0.001; the largest error: element [1] is 2.5, expected 2.0 (2 of 4 elements)")


def test_hidden_seeds__are_those_of_the_candidate(references):
    """Neither who writes a reference nor who writes a candidate can know them; the same texts have the same ones."""
    reference = load_reference(references / "small.py")
    first, again, other = (reference.for_candidate(text) for text in ("a", "a", "b"))
    arrays = [[trial.positional[0] for trial in r.trials] for r in (first, again, other)]
    assert [t.hidden for t in first.trials] == [False, True]
    for shown, hidden in arrays[1:]:
        np.testing.assert_array_equal(shown, arrays[0][0])
        assert hidden.shape == shown.shape
    np.testing.assert_array_equal(arrays[0][1], arrays[1][1])
    assert not np.array_equal(arrays[0][1], arrays[2][1])


LOOPS = CURRENT + """@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for k in LOOP:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def test_loops_of_the_run_time__are_timed_with_the_iterations_that_they_have(scorer, references):
    """A loop whose length is a number in memory takes as long as it runs, and is not the faster for that."""
    times = {}
    for loop in ("range(64)", "nl.dynamic_range(0, nisa.register_alloc(1))", "nl.dynamic_range(0, nisa.register_alloc(64))"):
        verdict = scorer.score({"source": LOOPS.replace("LOOP", loop), "reference": str(references / "small.py")})
        assert verdict.right, verdict
        times[loop] = verdict.total_time
    static, one, many = times.values()
    assert many > static > one
