# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels cut out of the documents' listings, on the oracle, on every executor and against NumPy."""

import ast
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.language.beta import language, nki, typing

from ..language.generated import kernel_from_text
from ..oracle import beta, run

LISTINGS = Path(__file__).parent.parent.parent.parent / "shared" / "seeds" / "listings"
pytestmark = pytest.mark.skipif(not LISTINGS.is_dir(), reason="the listings are not beside the checkout")


def kernel_text(file: str, name: str) -> str:
    """The function as it stands in the listing, without its decorator, under the name ``kernel``."""
    tree = ast.parse((LISTINGS / file).read_text())
    function = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name)
    function.name, function.decorator_list = "kernel", []
    return ast.unparse(function) + "\n"


def boxes(rng, rows, count):
    corner = rng.integers(0, 200, (rows, count, 2))
    return np.concatenate([corner, corner + rng.integers(1, 55, corner.shape)], axis=2).astype(np.float32).reshape(rows, -1)


def generalized_iou(a, b):
    (l1, t1, r1, b1), (l2, t2, r2, b2) = (np.moveaxis(v.reshape(v.shape[0], -1, 4), 2, 0) for v in (a, b))
    inside = np.maximum(np.minimum(r1, r2) - np.maximum(l1, l2), 0) * np.maximum(np.minimum(b1, b2) - np.maximum(t1, t2), 0)
    union = (r1 - l1) * (b1 - t1) + (r2 - l2) * (b2 - t2) - inside
    hull = (np.maximum(r1, r2) - np.minimum(l1, l2)) * (np.maximum(b1, b2) - np.minimum(t1, t2))
    return inside / np.maximum(union, 1e-5) - (hull - union) / np.maximum(hull, 1e-5)


def cases():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((32, 12, 20)).astype(np.float32)
    pooled = x.reshape(32, 6, 2, 10, 2).sum((2, 4)) / 4
    a, b = (rng.standard_normal((256, 1024)).astype(np.float32) for _ in range(2))
    p, t = boxes(rng, 128, 256), boxes(rng, 128, 256)
    none = {"debug_print": lambda *arguments: None}
    return {"average pool": ("average_pool2d_kernel.py", "tensor_avgpool_kernel", (x, 2), (), pooled, {}),
            "addition": ("tensor_add_kernel.py", "nki_tensor_add_kernel_", (a, b), (2, 2), a + b, {}),
            "giou": ("giou.py", "giou_kernel", (p, t, np.zeros((128, 256), np.float32)), (), generalized_iou(p, t), none)}


@pytest.mark.parametrize("case", cases())
def test_listing(case):
    file, name, arguments, grid, answer, names = cases()[case]
    text = kernel_text(file, name)
    outcome = run(text, [v.copy() if isinstance(v, np.ndarray) else v for v in arguments], generation=beta, grid=grid,
                  names=beta.NAMES | {"tensor": beta.typing.tensor} | names)
    assert not outcome.findings
    expected = np.asarray(outcome.results)
    np.testing.assert_allclose(expected, answer, rtol=0, atol=2e-6)
    kernel = kernel_from_text(text, {"nki": nki, "nl": language, "np": np, "tensor": typing.tensor} | names)
    for on in ("eager", "interpreter", "jit", "isa"):
        copies = [v.copy() if isinstance(v, np.ndarray) else v for v in arguments]
        got = (kernel[grid] if grid else kernel).on(on)(*copies)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6, err_msg=on)
