# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A sample of what `make mutants` tries 1,000 of."""

from tests.scoring.mutations import judge, mutants


def test_mutants__are_right_or_refused():
    counts, passed = judge(24, 1, 1)
    assert not passed, passed[0]
    assert sum(counts.values()) == 24 and 0 < counts["right"] < 24, counts


def test_mutants__are_all_different():
    source = mutants(3)
    texts = [next(source)[1] for _ in range(200)]
    assert len(set(texts)) == 200
