# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each public function with one wrong argument: the call works, or an error says file, line, rule and fix.

``argument_sweep.py`` makes the calls from examples and signatures. ``make test`` runs one in 20 calls of some functions,
``make fuzz`` all of all.
"""

import os
import zlib

import pytest

from .argument_sweep import HOMES, cases, faults
from .example_kernels import example_of

EVERY = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 20


@pytest.mark.share(8)
@pytest.mark.parametrize("generation, alias, name", [*cases()])
def test_wrong_argument__is_explained(generation, alias, name, tmp_path):
    example = example_of(HOMES[alias], name, generation)
    counts, flaws = faults(example, alias, tmp_path, EVERY, zlib.crc32(name.encode()))
    assert not flaws, "\n".join(flaws)
    assert counts.total()
