# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches in printed text: one for operations in a row under the same condition, none that is empty."""

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .reading import printed, reread, reread_beta

X = np.random.default_rng(0).random((256, 16), np.float32)


def body_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def assert_same_values(kernel, text, read=reread):
    for on in ("interpreter", "jit", "isa"):
        np.testing.assert_array_equal(read(text).on(on)(X), kernel.on(on)(X))


@nki.jit
def repeated(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:x.shape[1]]
    program = nl.program_id(0)
    t = nl.load(x[program * 128 + p, f])
    for k in nl.sequential_range(4):
        if k > program:
            t[p, f] = nl.exp(t)
        if k > program:
            u = nl.multiply(t, 0.25)
            t[p, f] = u
        else:
            t[p, f] = nl.add(t, 1)
        if k > program:
            t[p, f] = nl.subtract(t, 1)
        if k < program:
            t[p, f] = nl.subtract(t, 2)
    nl.store(out[program * 128 + p, f], t)
    return out


def test_operations_under_the_same_condition_have_one_branch():
    text = printed(repeated[2], [X])
    assert [line.strip() for line in body_of(text) if line.strip().startswith(("if", "else"))] == [
        "if k > program_id:", "else:", "if program_id > k:"]
    assert_same_values(repeated[2], text)


@nki.jit
def on_the_second(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:x.shape[1]]
    program = nl.program_id(0)
    t = nl.load(x[program * 128 + p, f])
    u = nl.zeros((128, x.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    u[p, f] = nl.exp(t, mask=program > 0)
    nl.store(out[program * 128 + p, f], u)
    return out


@pytest.mark.parametrize("options, read", [({}, reread), ({"generation": "beta"}, reread_beta)], ids=["current", "beta"])
def test_a_branch_with_nothing_but_an_else_has_the_opposite_condition(options, read):
    text = printed(on_the_second[2], [X], **options)
    assert "if program_id > 0:" in text and "else:" not in text and "pass" not in text
    assert_same_values(on_the_second[2], text, read)
