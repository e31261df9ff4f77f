# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The predicates of ``arith.cmpi`` and ``arith.cmpf`` with their numbers, and the comparisons that they are."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

INTEGER_PREDICATES = {
    name: number for number, name in enumerate(("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"))}
FLOAT_PREDICATES = {name: number for number, name in enumerate((
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"))}
EQ, SGE = INTEGER_PREDICATES["eq"], INTEGER_PREDICATES["sge"]


class SignedComparison(NamedTuple):
    """A comparison of Python's ``operator`` module: its name, its function, and the name that ALUs have for it."""

    name: str
    holds: Callable[[Any, Any], Any]
    alu: str


COMPARISONS = tuple(                # by the numbers of the predicates of integers, with sign
    SignedComparison(name, getattr(operator, name), alu) for name, alu in (
        ("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"), ("gt", "greater"),
        ("ge", "greater_equal")))
