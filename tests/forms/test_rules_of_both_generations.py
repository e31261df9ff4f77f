# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A mistake that both generations refuse has one code and one fix: the rule is the op class's.

The mistakes are in the examples of ``help()``: a tile of another dtype, in HBM, or of more rows than partitions; and
in calls with wrong numbers, operators and axes.
"""

from dataclasses import replace

import numpy as np
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
CHECKED: set[str] = set()


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
    CHECKED.add(name)


def test_most_instructions__have_a_mistake_that_both_refuse():
    assert len(CHECKED) < len(NAMES) or len(COMPARED) >= 50         # another process checked the others


# Calls with a mistake: of beta, and of the current generation with a tile ``y`` for the result. ``x`` is a tile of 8 x 8.
CALLS = {
    "an operator of softmax": ("nisa.tensor_scalar(x, nl.softmax, 1.0)", "nisa.tensor_scalar(y, x, nl.softmax, 1.0)"),
    "an operand without an operation": ("nisa.tensor_scalar(x, nl.add, 1.0, operand1=2.0)",
                                        "nisa.tensor_scalar(y, x, nl.add, 1.0, operand1=2.0)"),
    "an operation without its operand": ("nisa.tensor_scalar(x, nl.add, 1.0, op1=nl.multiply)",
                                         "nisa.tensor_scalar(y, x, nl.add, 1.0, op1=nl.multiply)"),
    "bits with arithmetic": (
        "nisa.scalar_tensor_tensor(data=x, op0=nl.bitwise_and, operand0=1, op1=nl.add, operand1=x)",
        "nisa.scalar_tensor_tensor(y, x, nl.bitwise_and, 1, nl.add, x)"),
    "bits of floats": ("nisa.tensor_scalar(x, nl.bitwise_and, 1)", "nisa.tensor_scalar(y, x, nl.bitwise_and, 1)"),
    "an axis twice": ("nisa.tensor_reduce(nl.add, x, axis=(1, 1))", "nisa.tensor_reduce(y, nl.add, x, (1, 1))"),
    "an axis that is not there": ("nisa.tensor_reduce(nl.add, x, axis=2)", "nisa.tensor_reduce(y, nl.add, x, 2)"),
    "a broadcast to another extent": ("x.broadcast_to((8, 7))", "x.broadcast_to((8, 7))"),
    "the partition axis": ("nisa.tensor_reduce(nl.add, x, axis=0)", "nisa.tensor_reduce(y, nl.add, x, 0)"),
    "a shuffle of 31 entries": ("nisa.nc_stream_shuffle(x, y, [0] * 31)", "nisa.nc_stream_shuffle(y, x, [0] * 31)"),
    "a shuffle of absent partitions": ("nisa.nc_stream_shuffle(x, y, [8] * 32)",
                                       "nisa.nc_stream_shuffle(y, x, [8] * 32)"),
    "axes of a DMA transpose": ("nisa.dma_transpose(x_in, axes=(0, 1))", "nisa.dma_transpose(y, x_in, axes=(0, 1))"),
    "a part of the array": ("nisa.nc_matmul(x, x, tile_size=(64, 64))", "nisa.nc_matmul(p, x, x, tile_size=(64, 64))"),
    "a product of scales": (
        'nisa.nc_matmul(nl.ndarray((8, 8), "float8_e8m0fnu"), nl.ndarray((8, 8), nl.bfloat16))',
        'nisa.nc_matmul(p, nl.ndarray((8, 8), "float8_e8m0fnu"), nl.ndarray((8, 8), nl.bfloat16))'),
    "an operand of full rows": ("nisa.tensor_scalar(x, nl.add, x)", "nisa.tensor_scalar(y, x, nl.add, x)"),
    "an operand of other partitions": ("nisa.tensor_scalar(x, nl.add, x[0:4, 0:1])",
                                       "nisa.tensor_scalar(y, x, nl.add, x[0:4, 0:1])"),
    "a scale of full rows": ("nisa.activation(nl.exp, x, scale=x)", "nisa.activation(y, nl.exp, x, scale=x)"),
    "a function of several instructions": ("nisa.activation(nl.cos, x)", "nisa.activation(y, nl.cos, x)"),
    "a scan from full rows": ("nisa.tensor_tensor_scan(x, x, x, nl.add, nl.add)",
                              "nisa.tensor_tensor_scan(y, x, x, x, nl.add, nl.add)"),
    "two values for each row": (
        "nisa.tensor_scalar_reduce(data=x, op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=y[:, 0:2])",
        "nisa.tensor_scalar_reduce(y, x, nl.add, 1.0, nl.add, y[:, 0:2])"),
    "a transpose of three dimensions": ("nl.transpose(nl.ndarray((8, 4, 4), nl.float32))",) * 2,
    "8 values of too few": ("nisa.max8(src=x[:, 0:7])", "nisa.max8(y, x[:, 0:7])"),
}


def error_of_call(generation, call):
    load = {BETA: ["x, y = nl.load(x_in), nl.ndarray((8, 8), nl.float32)"],
            CURRENT: ["x, y = nl.ndarray((8, 8), nl.float32), nl.ndarray((8, 8), nl.float32)",
                      "p = nl.ndarray((8, 8), nl.float32, buffer=nl.psum)", "nisa.dma_copy(x, x_in)"]}[generation]
    module = source(generation, ["x"], [*load, call])
    with pytest.raises(NkiMlirError) as caught:
        module.nki.jit(module.example, mode="simulation")(np.ones((8, 8), np.float32))
    return caught.value.code, caught.value.advice


@pytest.mark.parametrize("mistake", CALLS)
def test_wrong_argument__has_one_code_and_one_fix(mistake):
    beta, current = CALLS[mistake]
    assert error_of_call(CURRENT, current) == error_of_call(BETA, beta)
