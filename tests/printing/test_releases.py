# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text for older releases: names and parameters that they have, loops of the run time as statements."""

import numpy as np
import pytest

from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel import kernel_text
from nki_mlir.printing.releases import UnknownRelease, for_release

from .reading import printed, reread
from .test_run_time import COUNT, X, beta_while, conditional, counted


def text_for(kernel, arrays, release):
    return printed(kernel, arrays, release=release)


def test_a_counted_loop_is_dynamic_range():
    text = text_for(counted, [X, COUNT], "2.29")
    assert "    for i in nl.dynamic_range(1, register, 1):\n" in text and "fori_loop" not in text
    again = reread(text)
    np.testing.assert_array_equal(again.on("interpreter")(X, COUNT), X + 2)
    assert text_for(again, [X, COUNT], "2.31") == text_for(reread(text_for(again, [X, COUNT], "2.31")), [X, COUNT], "2.31")


@pytest.mark.parametrize("kernel", [conditional, beta_while], ids=["register", "tile"])
def test_a_condition_is_while(kernel):
    text = text_for(kernel, [X, COUNT], "2.31")
    assert "    while going" in text and "while_loop" not in text
    again = reread(text)
    np.testing.assert_array_equal(again.on("interpreter")(X, COUNT), X + 3)
    second = text_for(again, [X, COUNT], "2.31")
    assert text_for(reread(second), [X, COUNT], "2.31") == second


@pytest.mark.parametrize("line, release, expected", [
    ("nisa.dma_copy(dst=a, src=b)", "2.29", "nisa.dma_copy(dst=a, src=b)"),
    ("nisa.dma_copy(dst=a, src=b[0:4, :], priority=None)", "2.29", "nisa.dma_copy(dst=a, src=b[0:4, :])"),
    ("nisa.tensor_scalar_reduce(dst=a, data=b, op0=nl.add, operand0=2.0, reduce_op=nl.maximum, "
     "reduce_cmd=nisa.reduce_cmd.reset_reduce)", "2.29",
     "nisa.tensor_scalar_reduce(dst=a, data=b, op0=nl.add, operand0=2.0, reduce_op=nl.maximum)"),
    ("else:", "2.29", "else:"),
])
def test_parameters_are_those_of_the_release(line, release, expected):
    assert for_release(line, release) == expected


def test_what_a_release_does_not_have_is_an_error():
    with pytest.raises(Unprintable, match=r"nki\.isa\.topk, which release 2\.29 does not have, cannot be printed"):
        for_release("nisa.topk(val_dst=a, idx_dst=b, src=c, n=8)", "2.29")
    with pytest.raises(Unprintable, match=r"priority=1 of nki\.isa\.dma_copy, which release 2\.29 does not have,") as error:
        for_release("nisa.dma_copy(dst=a, src=b, priority=1)", "2.29")
    assert error.value.advice[-1] == "print for release 2.30"


def test_releases_that_are_not_printed_for():
    with pytest.raises(UnknownRelease, match=r"cannot write a text for release 2\.26"):
        kernel_text([], release="2.26")
