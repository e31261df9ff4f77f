# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orders of single instructions in printed text."""

import re

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.printing.kernel import kernel_text

from .reading import printed, reread

X = np.arange(32, dtype=np.float32).reshape(4, 8)


@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    loaded = nisa.dma_copy(dst=b, src=x)
    first = nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=2.0, name="a").depends_on(loaded)
    second = nisa.tensor_scalar(dst=b, data=b, op0=nl.multiply, operand0=3.0, name="b")
    first.depends_on(second)
    nisa.dma_copy(dst=out, src=a, name="store a")
    nisa.dma_copy(dst=other, src=b, name="store b")
    return out, other


def calls_of(text):
    return [re.sub(r"\(dst=(\w+)[^()]*\)", r"(\1)", line.strip()) for line in text.splitlines() if "written" in line]


def test_orders_are_calls_of_depends_on():
    text = printed(doubled, [X])
    assert calls_of(text) == [
        "b_written = nisa.dma_copy(b)",
        "a_written = nisa.tensor_scalar(a).depends_on(b_written)",
        "b_written_2 = nisa.tensor_scalar(b)",
        "a_written.depends_on(b_written_2)"]
    again = reread(text)
    for executor in "interpreter", "isa":
        assert [np.array_equal(got, n * X) for n, got in zip((2, 3), again.on(executor)(X))] == [True, True]
    assert printed(again, [X]) == text

    def edges(kernel):
        lines = str(kernel.lower(X).specialization.modules[0]).splitlines()
        return [re.sub(r".*(nisa\.\w+).*?(nki.after = [^]]*\]).*", r"\1 \2", line) for line in lines if "nki.after" in line]
    assert edges(again) == edges(doubled) == ['nisa.tensor_scalar nki.after = ["2", "4"]']


def test_schedules_are_calls_of_depends_on():
    scheduled = doubled.with_schedule([("store a", "store b")])
    assert calls_of(printed(scheduled, [X]))[-3:] == [
        "out_written = nisa.dma_copy(out)", "other_written = nisa.dma_copy(other)",
        "out_written.depends_on(other_written)"]


@pytest.mark.parametrize("options, note", [
    ({"release": "2.31"}, "# Release 2.31 cannot express: 1 order of a single instruction."),
    ({"generation": "beta"}, "# Beta cannot express: 1 order of a single instruction.")])
def test_orders_that_a_release_lacks_are_listed(options, note):
    text = printed(doubled, [X], **options)
    assert note in text and "depends_on" not in text


def test_regions_of_a_placement_have_all_orders():
    text = kernel_text(doubled.lower(X).specialization.modules, comments=False, keep_placement=True)
    assert "depends_on" not in text and "cannot express: order" not in text
    lines = [line.strip() for line in text.splitlines()]
    assert [line for line in lines if line.startswith("nisa.tensor_scalar(") or "operand0" in line]
    assert text.index("operand0=3.0") < text.index("operand0=2.0")


def test_the_order_of_regions_is_listed_for_a_release_without_them():
    @nki.jit
    def in_order(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        with nl.no_reorder():
            nisa.dma_copy(dst=out, src=x)
        return out
    assert "with nl.no_reorder():" in printed(in_order, [X])
    assert "# Release 2.28 cannot express: 1 order of a single instruction." in printed(in_order, [X], release="2.28")
