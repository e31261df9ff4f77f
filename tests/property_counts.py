# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The number of examples that a property test tries: few in a normal run, many in ``make fuzz``."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
MORE = 10                               # times as many in make fuzz


def tries(examples: int, **options: Any) -> Callable[[Any], Any]:
    """The decorator of a property test, above ``given``."""
    limits = settings(max_examples=MORE * examples if FUZZ else examples, deadline=None, **options)
    return lambda test: pytest.mark.fuzz(limits(test))
