# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of a printed kernel: names, loops, slices, comments; what has no form is an error at its line."""

import subprocess
import sys

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel import kernel_text

from .reading import printed, reread

HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n@nki.jit\n"


@nki.jit
def ragged(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:x.shape[1]]
    for i in nl.affine_range(2):
        rows = nl.load(x[i * 128 + p, f], mask=i * 128 + p < x.shape[0])
        doubled = nl.multiply(rows, 2.0, mask=i * 128 + p < x.shape[0])
        nl.store(out[i * 128 + p, f], doubled, mask=i * 128 + p < x.shape[0])
    return out


@nki.jit
def looped(x):
    out = nl.ndarray((512, 64), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        rows = nl.load(x[i * 128:(i + 1) * 128, 32:96])
        root = nl.sqrt(nl.exp(rows))
        nl.store(out[i * 128:(i + 1) * 128, :], nl.floor(root, dtype=nl.bfloat16))
    return out


@nki.jit
def triangle(x):
    p, f = nl.mgrid[0:8, 0:8]
    rows = nl.load(x)
    kept = nl.zeros((8, 8), nl.float32)
    kept[p, f] = nl.copy(rows[p, f], mask=p >= f)
    out = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, kept)
    return out


@nki.jit
def reduced_triangle(x):
    p, f = nl.mgrid[0:8, 0:8]
    out = nl.ndarray((8, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.sum(nl.load(x)[p, f], axis=1, mask=p >= f))
    return out


def text_of(captured, *arrays):
    return kernel_text(captured.lower(*arrays).specialization.modules, comments=False)


def test_loops_and_names_stay():
    x = np.random.default_rng(0).random((512, 128), np.float32)
    assert text_of(looped, x) == HEAD + '''\
def looped(x):
    """x [512, 128] float32."""
    out = nl.ndarray((512, 64), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    for i in range(4):
        rows = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=x[nl.ds(i * 128, 128), 32:96])
        t0 = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=t0, op=nl.exp, data=rows)
        root = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=root, op=nl.sqrt, data=t0)
        t1 = nl.floor(root, dtype=nl.bfloat16)
        nisa.dma_copy(dst=out[nl.ds(i * 128, 128), :], src=t1)
    return out
'''


def test_masks_become_slices():
    x = np.random.default_rng(0).random((200, 16), np.float32)
    text = text_of(ragged, x)
    assert "x[0:128, :]" in text and "x[128:200, :]" in text and "doubled" in text
    np.testing.assert_array_equal(reread(text).on("interpreter")(x), x * 2)


def test_a_mask_that_is_no_box_becomes_a_predicate():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    text = text_of(triangle, x)
    assert "nisa.tensor_copy_predicated(dst=kept, src=t0, predicate=" in text
    for executor in ("eager", "interpreter", "jit", "isa"):
        np.testing.assert_array_equal(reread(text).on(executor)(x), np.tril(x))


def test_comments_name_lines_of_the_source():
    x = np.zeros((512, 128), np.float32)
    first = looped.func.__code__.co_firstlineno
    lines = kernel_text(looped.lower(x).specialization.modules).splitlines()
    assert [line.strip() for line in lines if "#" in line] == [f"# test_kernel_text.py:{first + n}" for n in (4, 5, 6)]


def test_the_text_is_formatted():
    text = text_of(ragged, np.zeros((200, 16), np.float32))
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", "--check", "-"]
    assert subprocess.run(command, input=text, text=True, capture_output=True, check=False).returncode == 0


def test_what_has_no_form_is_an_error_at_its_line():
    x = np.zeros((8, 8), np.float32)
    with pytest.raises(Unprintable) as caught:
        printed(reduced_triangle, [x])
    error = caught.value
    assert error.at is not None and error.at.line == reduced_triangle.func.__code__.co_firstlineno + 4
    assert error.headline == "an operation under a mask that is no box cannot be printed as NKI Python"
    assert error.advice == ("the current generation has no form of it that computes the same",
                            "select with nl.where, or split the loop")
