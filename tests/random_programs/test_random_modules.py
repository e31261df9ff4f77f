# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random nki modules as native code, with the usual passes of the CPU, all of them forced and one of them alone, and as
instruction streams: the interpreter agrees.

`make fuzz` tries 2,000 of them with values that any order of sums keeps, and 2,000 that round special values, other ones
each time; NKI_MLIR_FUZZ_SEED repeats a run. The ordinary run tries one of each.
"""

from contextlib import nullcontext

import numpy as np
import pytest

from nki_mlir.cli.runnable import run_module
from nki_mlir.cli.source import read_module
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.target_rules import TargetRule

from ..forced_passes import OPTIONAL, forced
from ..fuzz_time import in_time
from .comparing import executing
from .modules import ModuleWriter, arrays
from .roundings import RoundingWriter, special_arrays
from .test_random_kernels import FUZZ, SEED

PARTS = 10 if FUZZ else 1
EXAMPLES = 200 if FUZZ else 1
BOUNDS = {4: 1e-4, 2: 2e-2, 1: 0.2}         # of functions, by the bytes of a result's element


def outputs(text: str, values: list[np.ndarray], on: str) -> dict[str, np.ndarray]:
    """Return the results of a module on an executor; ``jit with all`` and ``jit with NAME`` force passes."""
    executor, _, passes = on.partition(" with ")
    forcing = forced(None if passes == "all" else passes) if passes else nullcontext()
    with forcing, executing(executor) as name:
        module = read_module(text, "module.mlir")
        shared = [np.zeros(a.shape, a.dtype.numpy) for a in the_kernel(module).inputs[len(values):]]
        return dict(run_module(module, [*values, *shared], name))


def differ(name: str, got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return which elements differ; in ``z``, which functions compute, by more than the bound of its dtype."""
    a, b = (array.astype(np.float64) for array in (got, expected))
    same = (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)
    if name == "z":
        bound = BOUNDS[expected.dtype.itemsize]                 # rounding of the result may go to a neighbor
        same |= np.isclose(a, b, rtol=bound, atol=bound)
    return ~same


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("writer_of, arrays_of", [(ModuleWriter, arrays), (RoundingWriter, special_arrays)],
                         ids=["sums", "roundings"])
def test_modules_agree(writer_of, arrays_of, part):
    for seed in in_time(range((SEED << 16) + part * EXAMPLES, (SEED << 16) + (part + 1) * EXAMPLES)):
        writer = writer_of(seed)
        values = arrays_of(writer, seed)
        expected = outputs(writer.text, values, "interpreter")
        more = ["jit", f"jit with {OPTIONAL[seed % len(OPTIONAL)]}", *(["isa"] if seed % 3 == 0 else [])] if FUZZ else []
        for on in ("jit with all", *more):
            try:
                got = outputs(writer.text, values, on)
            except TargetRule:                                  # no target has all products of mixed dtypes
                assert on == "isa"
                continue
            for name, array in expected.items():
                wrong = differ(name, got[name], array)
                assert not wrong.any(), f"seed {seed} on {on}: {name} differs at {np.argwhere(wrong)[:4].tolist()}\n" \
                                        f"{writer.text}"
