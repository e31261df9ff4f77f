# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A mistake that both generations refuse has one code and one fix: the rule is the op class's.

The mistakes are in the examples of ``help()``: a tile of another dtype, in HBM, or of more rows than partitions.
"""

from dataclasses import replace

import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.documentation.page import ISA, example
from nki_mlir.language.signatures.table import BETA, CURRENT

from ..language.example_kernels import example_of, public, source

NAMES = [name for name in public(ISA, BETA) if name in public(ISA, CURRENT)
         and all(example(ISA, name, generation) for generation in (BETA, CURRENT))]
MISTAKES = ({"dtype": "int32"}, {"dtype": "float32"}, {"dtype": "uint8"}, {"dtype": "bfloat16"}, {"dtype": "float16"},
            {"space": "hbm"}, {"rows": 129})
PARTITIONS = "err_num_partition_exceed_arch_limit"
COMPARES_SHAPES = {"dma_transpose"}         # of the current generation: with dst, before it looks at partitions
COMPARED: set[str] = set()


def error_of(generation, name, label, dtype=None, space=None, rows=None):
    """Run the example with another tile; return the code and the fix of its error, or None if it runs."""
    example = example_of(ISA, name, generation)
    tile = example.tiles[label]
    changed = replace(tile, dtype=dtype or tile.dtype, shape=(rows or tile.shape[0], *tile.shape[1:]),
                      memory=space or tile.memory)
    example = replace(example, tiles={**example.tiles, label: changed},
                      values=[value for value in example.values if value[1] != label])
    if not example.results:
        return None
    module = source(generation, example.inputs, example.body())
    try:
        module.nki.jit(module.example, mode="simulation")(*example.arrays)
    except NkiMlirError as error:
        return error.code, error.advice[1]
    return None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_mistake__has_one_code_and_one_fix(name, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")           # which has all instructions
    of_beta, of_current = (example_of(ISA, name, generation).tiles for generation in (BETA, CURRENT))
    for label in of_beta.keys() & of_current.keys():
        for mistake in MISTAKES:
            if "dtype" in mistake and "bfloat" in of_beta[label].dtype:
                continue
            beta = error_of(BETA, name, label, **mistake)
            if beta is None or ("rows" in mistake and (beta[0] != PARTITIONS or name in COMPARES_SHAPES)):
                continue
            if current := error_of(CURRENT, name, label, **mistake):
                assert current == beta, (label, mistake)
                COMPARED.add(f"{name} {label} {mistake}")


def test_most_instructions__have_a_mistake_that_both_refuse():
    assert not COMPARED or len(COMPARED) >= 50
