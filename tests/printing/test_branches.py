# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches in printed text: one for operations in a row under the same condition, none that is empty."""

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.printing.index_text import IndexText, IndexValues

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
    assert "if program_id == 1:" in text and "else:" not in text and "pass" not in text
    assert_same_values(on_the_second[2], text, read)


ON_CORES = {"what one program does": """
    if nl.program_id(0) == 1:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)""", "what each program does": """
    if program == 0:
        part = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=part, src=tile[:, 0:8])
        nisa.tensor_copy(dst=tile[:, 8:16], src=part)
    else:
        for k in range(2):
            nisa.activation(dst=tile[:, k * 8:k * 8 + 8], op=nl.square, data=tile[:, k * 8:k * 8 + 8])""",
            "a tile of several branches": """
    if program == 0:
        scaled = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=3.0)
    if program == 0:
        nisa.tensor_tensor(dst=tile, data1=tile, data2=scaled, op=nl.subtract)""", "a tile of the second program": """
    if program == 1:
        scaled = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=3.0)
    if program == 1:
        nisa.tensor_tensor(dst=tile, data1=tile, data2=scaled, op=nl.subtract)"""}


@pytest.mark.parametrize("statements", ON_CORES.values(), ids=ON_CORES)
def test_operations_of_both_programs_are_written_once(statements):
    kernel = reread(f"""@nki.jit
def kernel(x):
    program = nl.program_id(0)
    out = nl.ndarray((256, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[nl.ds(program * 128, 128), :]){statements}
    nisa.dma_copy(dst=out[nl.ds(program * 128, 128), :], src=tile)
    return out
""")
    assert len(kernel.lower(X).specialization.program_modules) == 2
    text = printed(kernel, [X])
    assert text.count("dma_copy") == 2 and text.count("if program_id == ") == statements.count("if ")
    assert_same_values(kernel, text)
    assert printed(reread(text), [X]) == text


def test_a_condition_on_the_program_is_its_number():
    texts = {"program_id <= 0": "program_id == 0", "program_id * 3 + 2 > 4": "program_id == 1", "program_id >= 0": "1",
             "program_id * 2 == 1": "0", "program_id > k": "program_id > k"}
    for before, after in texts.items():
        assert str(IndexValues(program_id="program_id").decided(IndexText(text=before))) == after
        second = IndexValues(program_id="program_id", program=1).decided(IndexText(text=before))
        assert str(second) == {"program_id == 1": "1", "program_id == 0": "0"}.get(after, after)
