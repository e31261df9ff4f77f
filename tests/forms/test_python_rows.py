# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels are written in beside the language: each construct of Python gives what Python gives."""

import numpy as np
import pytest

from .python_rows import ROWS, X


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.filterwarnings("ignore")
def test_construct(on, names, name):
    make, expected, arguments, keywords = ROWS[name]
    kernel = names.nki.jit(make(names.nl))
    result = kernel.on(on)(X.copy(), *arguments, **keywords)
    np.testing.assert_array_equal(result, expected)
