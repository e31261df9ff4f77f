# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run the examples of ``nl`` and ``nisa`` as the tests do, on random numbers, and show a corner of the results."""

import contextlib
import io
import tempfile
import warnings
from pathlib import Path

import numpy as np

from nki_mlir.language.current.simulator import simulate_ranks
from nki_mlir.language.documentation.page import LANGUAGE, example
from nki_mlir.language.signatures.table import CURRENT
from tests.language import test_documentation as documented

ROWS, COLUMNS = 2, 4


def corner(label: str, array: np.ndarray) -> str:
    """Return a few elements of an array, and its shape."""
    part = array[tuple(slice(0, n) for n in (*[1] * (array.ndim - 2), ROWS, COLUMNS)[-array.ndim:])]
    text = np.array2string(part.astype(np.float64), formatter={"float_kind": lambda v: f"{v + 0.0:.4g}"}, separator=" ")
    extent = ", ".join(map(str, array.shape))
    return f"{label}: {array.dtype}[{extent}], its first elements\n{text}"


def output(generation: str, module: str, name: str) -> str:
    """Return the printed output of an example, then the corners of its arguments and results."""
    tiles, code, values, grid = documented.parts(example(module, name, generation))
    results = list(dict.fromkeys(label for _, label, _ in values))
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        made, given = documented.kernel(generation, tiles, code, results, Path(folder))
        target = "trn3" if documented.is_late("\n".join(code)) else "trn2"
        kernel = made.nki.jit(made.example, mode="simulation",
                              **({"platform_target": target} if generation == CURRENT else {}))
        ranks = int(grid.removeprefix("ranks: ")) if grid and grid.startswith("ranks") else 0
        if grid and not ranks:
            kernel = kernel[eval(grid.removeprefix("grid: "), {"nl": documented.home_of(LANGUAGE, generation)})]
        random = np.random.default_rng(1)
        held = {t: documented.drawn(random, dtype, (*[ranks] * bool(ranks), *shape), positive)
                for t, (dtype, shape, _, positive) in tiles.items()}
        if ranks:
            got = simulate_ranks(kernel, [tuple(held[t][r] for t in given) for r in range(ranks)])[0]
        else:
            got = kernel(*(held[t] for t in given))
    arrays = got if isinstance(got, (tuple, list)) else [got]
    shown = [corner(t, np.asarray(held[t][0] if ranks else held[t])) for t in given if t not in results]
    when = " of rank 0, after" if ranks else ", after"
    shown += [corner(t + when, np.asarray(a)) for t, a in zip(results, arrays)]
    return "\n".join([*printed.getvalue().strip().splitlines()[:8], *shown])
