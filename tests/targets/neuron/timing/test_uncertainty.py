# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How sure times and the order of two of them are."""

from math import erf, exp, log, sqrt

import pytest

from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.timing.result import with_interval
from nki_mlir.targets.neuron.timing.uncertainty import (
    DEVIATIONS,
    LAUNCH_LAW,
    STRUCTURE,
    interval,
    relative_error,
    verdict,
)
from tests.targets.neuron.profile.kernels import streams


def law(name, ns, residual):
    return {"law": name, "ns": ns, "residual": residual}


def test_errors_of_different_laws_are_independent():
    laws = [law("a", 600.0, 0.05), law("b", 400.0, 0.10)]
    assert relative_error(laws, 1000.0) == pytest.approx(sqrt(0.03**2 + 0.04**2 + STRUCTURE**2))


def test_the_launch_is_no_part_of_the_structure():
    assert relative_error([law(LAUNCH_LAW, 1000.0, 0.03)], 1000.0) == pytest.approx(0.03)


def test_an_interval_is_symmetric_in_the_logarithm():
    low, high = interval(100.0, 0.1)
    assert (log(100 / low), log(high / 100)) == pytest.approx((DEVIATIONS / 10, DEVIATIONS / 10))
    assert interval(100.0, 0.0) == (100.0, 100.0)


def test_what_two_have_in_common_cancels():
    """A common law of any residual decides nothing; one of them has 5% more of an exact law."""
    common = law("a", 900.0, 5.0)
    comparison = verdict([common, law("b", 100.0, 0.0)], [common, law("b", 100.0, 0.0)])
    assert comparison.probability == 0.5 and not comparison.is_certain
    more = verdict([law("a", 1000.0, 0.2)], [law("a", 1200.0, 0.2)])
    assert more.faster == 0 and more.is_certain
    error = sqrt(2) * STRUCTURE * 200 / 1200
    assert log(1.2) / error > 6


def test_the_structure_counts_by_the_longer_of_two():
    """20 ns of the first of 200 ns and 30 ns of the second of 210 ns are of laws that the other one does not use."""
    comparison = verdict([law("a", 180.0, 0.0), law("b", 20.0, 0.0)], [law("a", 180.0, 0.0), law("c", 30.0, 0.0)])
    error = sqrt(2) * STRUCTURE * 50 / 210
    assert comparison.probability == pytest.approx(0.5 * (1 + erf(log(210 / 200) / error / sqrt(2))), rel=1e-12)


@pytest.mark.parametrize("second, faster, sure", [(1040.0, 0, False), (960.0, 1, False), (2000.0, 0, True), (500.0, 1, True)])
def test_unlike_kernels_need_a_large_difference(second, faster, sure):
    comparison = verdict([law("a", 1000.0, 0.05)], [law("b", second, 0.05)])
    assert (comparison.faster, comparison.is_certain) == (faster, sure)


def test_the_laws_are_all_of_the_critical_path():
    timing = neuron.timed(streams("examples/softmax.py:softmax", "256x512xf32"))
    assert sum(share["ns"] for share in timing.laws) == pytest.approx(timing.total_ns)
    assert {"launch", "transfer moves"} <= {share["law"] for share in timing.laws}
    assert all(0.0 < share["residual"] <= 0.25 for share in timing.laws)
    figures = timing.figures()
    low, high = figures["interval_ns"]
    error = relative_error(timing.laws, timing.total_ns)
    assert 0.03 < error < 0.2 and (low, high) == pytest.approx(
        (timing.total_ns * exp(-DEVIATIONS * error), timing.total_ns * exp(DEVIATIONS * error)))


@pytest.mark.parametrize("ns, bounds, text", [
    (560_000.0, (520_400.0, 610_000.0), "560.00 (520.40-610.00) us"),
    (1_560_000.0, (820_400.0, 2_610_000.0), "1.56 (0.82-2.61) ms"), (12.0, (10.6, 14.0), "12 (11-14) ns")])
def test_a_time_with_its_interval(ns, bounds, text):
    assert with_interval(ns, bounds) == text
