# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A mistake that both generations refuse has one code and one fix: the rule is the op class's.

The mistakes are in the examples of ``help()``: a tile of another dtype, in HBM, or of more rows than partitions.
"""

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.documentation.page import ISA, example
from nki_mlir.language.signatures.table import BETA, CURRENT

from ..language.test_documentation import drawn, kernel, parts, public

NAMES = [name for name in public(ISA, BETA) if name in public(ISA, CURRENT)
         and all(example(ISA, name, generation) for generation in (BETA, CURRENT))]
MISTAKES = ({"dtype": "int32"}, {"dtype": "float32"}, {"dtype": "uint8"}, {"dtype": "bfloat16"}, {"dtype": "float16"},
            {"space": "hbm"}, {"rows": 129})
PARTITIONS = "err_num_partition_exceed_arch_limit"
COMPARES_SHAPES = {"dma_transpose"}         # of the current generation: with dst, before it looks at partitions
COMPARED: set[str] = set()


def error_of(generation, name, label, path, dtype=None, space=None, rows=None):
    """What becomes of the example with another tile: the code and the fix of its error, or None."""
    tiles, code, values, _ = parts(example(ISA, name, generation))
    old = tiles[label]
    shape = (rows or old[1][0], *old[1][1:])
    tiles[label] = dtype or old[0], shape, space or old[2], old[3]
    results = [result for result in dict.fromkeys(result for _, result, _ in values) if result != label]
    if not results:
        return None
    module, given = kernel(generation, tiles, code, results, path)
    random = np.random.default_rng(1)
    arrays = [drawn(random, *tiles[t][:2], tiles[t][3]) for t in given]
    try:
        module.nki.jit(module.example, mode="simulation")(*arrays)
    except NkiMlirError as error:
        return error.code, error.advice[1]
    return None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_mistake__has_one_code_and_one_fix(name, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")           # which has all instructions
    of_beta, of_current = (parts(example(ISA, name, generation))[0] for generation in (BETA, CURRENT))
    for label in of_beta.keys() & of_current.keys():
        for mistake in MISTAKES:
            if "dtype" in mistake and "bfloat" in of_beta[label][0]:
                continue
            beta = error_of(BETA, name, label, tmp_path, **mistake)
            if beta is None or ("rows" in mistake and (beta[0] != PARTITIONS or name in COMPARES_SHAPES)):
                continue
            if current := error_of(CURRENT, name, label, tmp_path, **mistake):
                assert current == beta, (label, mistake)
                COMPARED.add(f"{name} {label} {mistake}")


def test_most_instructions__have_a_mistake_that_both_refuse():
    assert not COMPARED or len(COMPARED) >= 50
