# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions and their gradients as instruction streams, against JAX."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from jax import lax  # noqa: E402

from nki_mlir.diagnostics import NkiMlirError  # noqa: E402
from nki_mlir.frameworks.stablehlo import linked_streams  # noqa: E402
from nki_mlir.graph import convolutions, images  # noqa: E402
from nki_mlir.targets.neuron.codegen.emission import Emission  # noqa: E402

from .lowered_graph import results_of  # noqa: E402

pytestmark = pytest.mark.jax

RANDOM = np.random.default_rng(0)
CHANNELS_LAST = ("NHWC", "HWIO", "NHWC")
FORMS = {
    "1d": ((2, 3, 20), (4, 3, 5), dict(window_strides=(1,), padding="SAME")),
    "1d, strided and dilated": ((2, 3, 20), (4, 3, 3), dict(window_strides=(2,), padding=((2, 1),), rhs_dilation=(2,))),
    "1d, causal, of each channel": ((2, 6, 20), (6, 1, 4), dict(window_strides=(1,), padding=((3, 0),),
                                                                feature_group_count=6)),
    "2d": ((2, 3, 8, 8), (4, 3, 3, 3), dict(window_strides=(1, 1), padding="SAME")),
    "strided": ((2, 3, 9, 9), (4, 3, 3, 3), dict(window_strides=(3, 2), padding=((1, 2), (0, 1)))),
    "1 x 1": ((2, 8, 6, 6), (4, 8, 1, 1), dict(window_strides=(1, 1), padding="VALID")),
    "patches": ((2, 3, 8, 8), (8, 3, 4, 4), dict(window_strides=(4, 4), padding="VALID")),
    "of each channel": ((2, 6, 5, 5), (6, 1, 3, 3), dict(window_strides=(1, 1), padding="SAME", feature_group_count=6)),
    "grouped": ((2, 6, 5, 5), (4, 3, 3, 3), dict(window_strides=(1, 1), padding="SAME", feature_group_count=2)),
    "dilated": ((1, 3, 10, 10), (4, 3, 3, 3), dict(window_strides=(1, 1), padding="SAME", rhs_dilation=(2, 3))),
    "transposed": ((1, 3, 5, 5), (4, 3, 3, 3), dict(window_strides=(1, 1), padding=((2, 2), (2, 2)),
                                                    lhs_dilation=(2, 2))),
    "channels last": ((2, 9, 9, 6), (3, 3, 6, 4), dict(window_strides=(1, 1), padding="SAME", rhs_dilation=(2, 2),
                                                       dimension_numbers=CHANNELS_LAST)),
    "channels last, strided": ((1, 8, 150, 5), (3, 4, 5, 4), dict(window_strides=(2, 2), padding="SAME",
                                                                  dimension_numbers=CHANNELS_LAST)),
    "channels last, many": ((1, 2, 129, 64), (3, 3, 64, 4), dict(window_strides=(1, 1), padding="SAME",
                                                               dimension_numbers=CHANNELS_LAST)),
    "channels last, many, strided, not padded": ((2, 7, 9, 64), (2, 5, 64, 4), dict(
        window_strides=(1, 2), padding="VALID", dimension_numbers=CHANNELS_LAST)),
    "channels last, several parts, dilated": ((2, 9, 11, 256), (3, 2, 256, 40), dict(
        window_strides=(2, 1), padding=((1, 2), (2, 0)), rhs_dilation=(1, 2), dimension_numbers=CHANNELS_LAST)),
    "channels last, one pixel a row": ((1, 12, 10, 96), (2, 3, 96, 4), dict(
        window_strides=(1, 2), padding="SAME", dimension_numbers=CHANNELS_LAST)),
    "channels last, 1d": ((2, 130, 32), (4, 32, 6), dict(window_strides=(1,), padding=((2, 3),),
                                                         dimension_numbers=("NHC", "HIO", "NHC"))),
    "groups of the batch": ((4, 3, 5, 5), (4, 3, 3, 3), dict(window_strides=(1, 1), padding="SAME",
                                                             batch_group_count=2)),
}


@pytest.mark.share(12)
@pytest.mark.parametrize("choice", ["", "windows=0", "neighbors=0", "images=0"])
@pytest.mark.parametrize("form", FORMS)
def test_convolutions(form, choice):
    shape, weights, options = FORMS[form]
    if choice and "last" not in form:
        pytest.skip("these have no rows that shifts share, or results of a row that are neighbors")
    x, w = (RANDOM.standard_normal(s).astype(np.float32) for s in (shape, weights))
    convolved = lambda x, w: lax.conv_general_dilated(x, w, **options)
    both = jax.jit(lambda x, w: (convolved(x, w), *jax.grad(lambda *a: (convolved(*a) ** 2).sum(), (0, 1))(x, w)))
    got = results_of(both.lower(x, w).as_text(), [x, w], {"tile-and-place": choice} if choice else {}, (1,))
    for one, other in zip(got, both(x, w), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * float(np.abs(other).max()))


def convolved(x, w, padding="SAME"):
    return lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=CHANNELS_LAST)


PARTS = {
    "later columns of the weights": lambda x, w: (convolved(x, w), convolved(x, w[..., 32:])),
    "some columns of the weights": lambda x, w: (convolved(x, w), convolved(x, w[..., 32:64])),
    "later positions in the window": lambda x, w: (convolved(x, w), convolved(x, w[1:])),
    "parts of computed weights": lambda x, w: (convolved(x, w * 2), convolved(x, (w * 2)[1:, 1:, :, 40:])),
    "a window across two lines of the buffer": lambda x, w: convolved(x.reshape(1, 4, 24, 32)[:, :, 10:15], w, "VALID"),
    "a window across two lines of a result": lambda x, w: convolved(
        (x * 2).reshape(1, 4, 24, 32)[:, :, 9:14], w[1:], "VALID"),
}


@pytest.mark.parametrize("form", PARTS)
def test_convolutions_of_parts_of_buffers(form):
    arguments = [RANDOM.integers(-2, 3, shape).astype(np.float32) for shape in ((1, 8, 12, 32), (3, 3, 32, 96))]
    computed = jax.jit(PARTS[form])
    got = results_of(computed.lower(*arguments).as_text(), arguments, orders=(1,))
    for one, other in zip(got, jax.tree.leaves(computed(*arguments)), strict=True):
        np.testing.assert_array_equal(one, other)


RESIDUAL = ((1, 8, 12, 32), (3, 3, 32, 32), (32,))


def residual(x, w, scale):
    """Two convolutions with operations on the pixels of the result between them."""
    convolved = lambda t: lax.conv_general_dilated(t, w, (1, 1), "SAME", dimension_numbers=CHANNELS_LAST)
    return jax.nn.relu(convolved(jax.nn.relu(convolved(x) * scale)) * scale + x)


def residual_results():
    arguments = [RANDOM.integers(-2, 3, shape).astype(np.float32) for shape in RESIDUAL]
    text = jax.jit(residual).lower(*arguments).as_text()
    return results_of(text, arguments)[0], np.asarray(jax.jit(residual)(*arguments))


def test_images_stay_on_chip_between_convolutions():
    got, expected = residual_results()
    np.testing.assert_array_equal(got, expected)


def test_images_do_not_pass_through_hbm():
    arguments = [np.zeros(shape, np.float32) for shape in RESIDUAL]
    program, = linked_streams(jax.jit(residual).lower(*arguments).as_text(), Emission())
    assert not program.of_kind("internal")


FAULTS = {
    "the padding is another number": (images.ImageLines, "fill", lambda old: lambda self, run, value: old(self, run, 1.0)),
    "no line is padding": (images, "fill_lines", lambda old: lambda tiles, form, tile, lines, value: old(
        tiles, form, tile, lines, 1.0)),
    "pixels of another piece": (images.ImageLines, "groups", lambda old: lambda self, slot, piece, width, first: old(
        self, slot, 0, width, first)),
    "lines begin one later": (images.Image, "column", lambda old: lambda self, line: old(self, min(
        line + 1, self.residues * self.lines - 1))),
    "all weights are those of one position": (convolutions, "factors", lambda old: lambda *arguments: [
        (left, next(old(*arguments))[1]) for left, _ in old(*arguments)]),
    "a line's first pixels are the second ones": (images.ImageLines, "copy", lambda old: lambda self, run, turned, begin: old(
        self, [move._replace(slot=max(move.slot, 1)) for move in run], turned, begin)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_seeded_fault__changes_values_or_raises(name, monkeypatch):
    owner, attribute, change = FAULTS[name]
    monkeypatch.setattr(owner, attribute, change(getattr(owner, attribute)))
    try:
        got, expected = residual_results()
    except (AssertionError, NkiMlirError, IndexError):
        return
    assert not np.array_equal(got, expected)
