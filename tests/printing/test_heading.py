# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The comments and the docstring of a printed kernel break where the formatter would break code."""

import numpy as np

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .reading import printed, reread

ROWS = np.arange(128 * 32, dtype=np.float32).reshape(128, 32)


@nki.jit
def sum_of_four(first_addend, second_addend, third_addend, fourth_addend):
    total = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=total, src=first_addend)
    for addend in (second_addend, third_addend, fourth_addend):
        tile = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=addend)
        nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
    maximum = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=maximum, op=nl.maximum, data=total, axis=1)
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=maximum)
    return out


def test_a_long_docstring_breaks_between_tensors() -> None:
    text = printed(sum_of_four, [ROWS] * 4)
    assert '''
    """first_addend [128, 32] float32, second_addend [128, 32] float32,
    third_addend [128, 32] float32, fourth_addend [128, 32] float32.
    """
''' in text
    assert np.array_equal(reread(text)(*[ROWS] * 4), 4 * ROWS[:, -1:])


def test_a_long_note_about_the_placement_breaks_between_words() -> None:
    notes = [line for line in printed(sum_of_four, [ROWS] * 4, keep_placement=True).split("\n") if line.startswith("#")]
    assert len(notes) > 1 and max(map(len, notes)) <= 88
    assert notes[0].startswith("# Compiled for trn2. NKI cannot express: ") and notes[-1].endswith(".")
