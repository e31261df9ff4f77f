# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run the examples of ``nl`` and ``nisa`` as the tests do, on random numbers, and show a corner of the results."""

import contextlib
import io
import warnings

import numpy as np

from tests.language.example_kernels import example_of

ROWS, COLUMNS = 2, 4


def corner(label: str, array: np.ndarray) -> str:
    """Return a few elements of an array, and its shape."""
    part = array[tuple(slice(0, n) for n in (*[1] * (array.ndim - 2), ROWS, COLUMNS)[-array.ndim:])]
    text = np.array2string(part.astype(np.float64), formatter={"float_kind": lambda v: f"{v + 0.0:.4g}"}, separator=" ")
    extent = ", ".join(map(str, array.shape))
    return f"{label}: {array.dtype}[{extent}], its first elements\n{text}"


def output(generation: str, module: str, name: str) -> str:
    """Return the printed output of an example, then the corners of its arguments and results."""
    shown = example_of(module, name, generation)
    printed = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        results = shown.run("eager")[0]
    contents = {t: a[0] if shown.ranks else a for t, a in shown.contents.items()}
    suffix = " of rank 0, after" if shown.ranks else ", after"
    corners = [corner(t, contents[t]) for t in shown.inputs if t not in results]
    corners += [corner(t + suffix, a) for t, a in results.items()]
    return "\n".join([*printed.getvalue().strip().splitlines()[:8], *corners])
