# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text for older releases: names and parameters that they have, loops of the run time as statements."""

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
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


@pytest.mark.parametrize("kernel, texts", [(conditional, 2), (beta_while, 1)], ids=["register", "tile"])
def test_a_condition_is_while(kernel, texts):
    text = text_for(kernel, [X, COUNT], "2.31")
    assert "    while going" in text and "while_loop" not in text
    again = reread(text)
    np.testing.assert_array_equal(again.on("interpreter")(X, COUNT), X + 3)
    second = text_for(again, [X, COUNT], "2.31")
    assert text_for(reread(second), [X, COUNT], "2.31") == second and len({text, second}) == texts


@pytest.mark.parametrize("line, release, expected", [
    ("nisa.dma_copy(dst=a, src=b)", "2.29", "nisa.dma_copy(dst=a, src=b)"),
    ("nisa.dma_copy(dst=a, src=b[0:4, :], priority=None)", "2.29", "nisa.dma_copy(dst=a, src=b[0:4, :])"),
    ("nisa.tensor_scalar_reduce(dst=a, data=b, op0=nl.add, operand0=2.0, reduce_op=nl.maximum, reduce_res=c, "
     "reduce_cmd=nisa.reduce_cmd.reset_reduce)", "2.29",
     "nisa.tensor_scalar_reduce(dst=a, data=b, op0=nl.add, operand0=2.0, reduce_op=nl.maximum, reduce_res=c)"),
    ("nisa.register_move(r, src=s)", "2.28", "nisa.register_move(r, imm=s)"),
    ("nisa.iota(dst=a, pattern=[[1, 4]], channel_multiplier=2)", "2.27",
     "nisa.iota(dst=a, pattern=[[1, 4]], channel_multiplier=2, offset=0)"),
    ("nisa.dma_compute(dst=a, srcs=[b, c], reduce_op=nl.add)", "2.28",
     "nisa.dma_compute(dst=a, srcs=[b, c], reduce_op=nl.add, scales=None)"),
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
    for line, release, what in [
            ("nisa.tensor_scalar_reduce(dst=a, data=b, op0=nl.add, operand0=2.0, reduce_op=nl.add)", "2.31",
             r"without reduce_res in release 2\.31"), ("x = nl.equal(a, b)", "2.28", r"without dtype in release 2\.28"),
            ("y = nl.exp(x)", "2.28", r"a call of nki\.language\.exp, which release 2\.28 does not have"),
            ("nisa.tensor_copy(dst=a, src=b.indirect(c, 4))", "2.30", r"NkiTensor\.indirect, which release 2\.30 does not"),
            ("nisa.range_select(dst=a, on_true_tile=b, on_false_value=0.0)", "2.28", r"release 2\.28 ignores the value")]:
        with pytest.raises(Unprintable, match=what):
            for_release(line, release)


def test_views_of_older_releases():
    @nki.jit
    def summed(x):
        out, tile = nl.ndarray((8, 4), x.dtype, buffer=nl.shared_hbm), nl.load(x)
        column, product = nl.full((8, 1), 2.0, x.dtype), nl.ndarray((8, 4), x.dtype)
        nisa.tensor_tensor(product, tile, column.broadcast(1, 4), op=nl.multiply)
        nisa.dma_copy(dst=out, src=product)
        return out
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    text = text_for(summed, [x], "2.27")
    assert "data2=column.ap([[1, 8], [0, 4]])" in text
    np.testing.assert_array_equal(reread(text).on("interpreter")(x), x * 2)



def test_releases_that_are_not_printed_for():
    with pytest.raises(UnknownRelease, match=r"cannot write a text for release 2\.26"):
        kernel_text([], release="2.26")
