# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki_mlir.check`` on kernels as people write them: it reports each flaw at its line, and nothing about right ones."""

import numpy as np
import pytest

import nki_mlir

from .kernels import KERNELS, beta, current  # noqa: F401

RIGHT = [(name, variant) for name, one in KERNELS.items() for variant in one.variants]
WRONG = [(name, flaw) for name, one in KERNELS.items() for flaw in one.flaws]


@pytest.mark.parametrize("name, variant", RIGHT)
def test_a_right_kernel__has_no_findings(name, variant):
    report = nki_mlir.check(KERNELS[name].kernel, *KERNELS[name].variants[variant])
    assert not report.findings, str(report)


@pytest.mark.parametrize("name, flaw", WRONG)
def test_a_flaw__is_reported_at_its_line(name, flaw):
    kernel, variants, flaws = KERNELS[name]
    arguments = next(iter(variants.values()))
    before = [np.array(a) for a in arguments]
    report = nki_mlir.check(kernel, *arguments, flaw=flaw)
    kind, line = flaws[flaw]
    told = [f for f in report.of(kind) if f.location and f.location.line == line and f.severity != "note"]
    assert told and all(f.fix for f in told), str(report)
    assert all(np.array_equal(a, b) for a, b in zip(arguments, before))
    at_the_line = [f for f in report.findings if f.location and f.location.line == line]
    for field in ("code", "fix", "message"):            # the mistake is told once
        told = [getattr(f, field) for f in at_the_line if getattr(f, field)]
        assert len(set(told)) == len(told), str(report)


def test_both_generations_have_flaws_of_each_kind():
    """A flaw of each kind of finding, and of each mistake that authors of block kernels make first, in both."""
    kinds = {kind for one in KERNELS.values() for kind, _ in one.flaws.values()}
    for generation in ("beta.", "current."):
        of_one = {kind for name, one in KERNELS.items() if name.startswith(generation) for kind, _ in one.flaws.values()}
        # beta refuses a transfer between shapes, and has an addresses of tiles only in its older releases
        assert kinds - of_one <= {"dma-shape"}
    assert len(RIGHT) >= 25 and len(WRONG) >= 50
