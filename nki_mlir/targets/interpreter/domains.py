# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values outside of a function's documented domain, reported by the executors that check: results here are exact."""

from collections.abc import Callable

from nki_mlir.diagnostics import Location
from nki_mlir.diagnostics.device_rules import DeviceRules, device_rules, report
from nki_mlir.dialects.op import FRESH, Op
from nki_mlir.dialects.target_rules import TargetRule
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.activation.domain import outside


class OutsideDomain(TargetRule):
    code = "NKI-DOMAIN"
    message = "{fn} of {value:g}, which is outside of its domain, {sign}[{low:g}, {high:g}]"
    why = "the Scalar engine's table of {fn} gives wrong values there; here they are exact"
    fix = "bring the values into the domain first"


def has_domain(op: Op) -> bool:
    """Whether an operation evaluates a function by a table that is not good everywhere.

    The reciprocal of the tile language is an instruction of the Vector engine, which needs none.
    """
    name = getattr(op, "fn", "")
    return name in ACTIVATIONS and ACTIVATIONS[name].is_bounded and not (op.dialect == "nki" and name == "reciprocal")


def within_domain(op: Op, act: Callable[[], None], at: Callable[[], Location | None]) -> None:
    """Run an operation, which ``act`` does, and report what it evaluates outside of a domain; ``at`` gives its place.

    Where it reads elements that a mask left out, which are zeros, zeros do not count.
    """
    level = device_rules()
    if level is DeviceRules.OFF:
        act()
        return
    with outside(zeros=FRESH not in op.extra) as noted:
        act()
    for function, value in noted[:1]:
        low, high = function.valid_range
        report(OutsideDomain(fn=function.name, value=value, sign="+-" if function.by_magnitude else "", low=low,
                             high=high), level, at())
