# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that a condition selects and that compare index vectors with each other become branches."""

import libcst as cst
import pytest

from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.selected_masks import with_mask_branches

from .test_text import HEAD, assert_same_values, floats, migrated

CAUSAL = """def kernel(x, causal=CAUSAL):
    out = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.affine_range(2):
        p, f = nl.arange(64)[:, None], nl.arange(32)[None, :]
        # what a query may see
        mask = (p >= i * 32 + f) if causal else None
        scores = nl.full((64, 32), fill_value=-9984.0, dtype=nl.float32)
        scores[p, f] = nl.copy(tile[:, nl.ds(i * 32, 32)], mask=mask)
        nl.store(out[:, nl.ds(i * 32, 32)], scores)
    return out
"""


@pytest.mark.parametrize("causal", ["True", "False"])
def test_mask_becomes_branches(causal, tmp_path):
    kernel = CAUSAL.replace("CAUSAL", causal)
    x = floats(64, 64)
    assert_same_values(kernel, tmp_path, x)
    new = migrated(kernel)
    assert "        if causal:\n            is_selected = " in new and "mask" not in new.partition("def ")[2]
    assert """        else:
            nisa.tensor_copy(dst=scores, src=tile[:, nl.ds(i * 32, 32)])
""" in new


def test_a_mask_that_other_code_reads_is_left():
    report = MigrationReport("kernel.py")
    rewritten(HEAD + CAUSAL.replace("CAUSAL", "True").replace(
        "    return out", "        print(mask)\n    return out"), report)
    assert [e.line for e in report.entries if e.left] == [15]


@pytest.mark.parametrize("body, expected", [
    ("m = (p > f) if c else None\nt = nl.copy(x, mask=m)\nu = t",
     "m = (p > f)\nif c:\n    t = nl.copy(x, mask=m)\nelse:\n    t = nl.copy(x)\nu = t"),
    ("m = (p > f) if c else None\nt = f(x, m)\nu = nl.copy(t, mask=m)", None),            # read otherwise
    ("m = (p > 3) if c else None\nu = nl.copy(t, mask=m)", None),                         # a box
    ("m = (p > f) if c else (p < f)\nu = nl.copy(t, mask=m)", None),
    ("m = (p > f) if c else None\nif d:\n    u = nl.copy(t, mask=m)", None),              # in another block
    ("q, r = nl.mgrid[0:4, 0:4]\nm = (q > r) if c else None\nnl.store(o, x, mask=m)",
     "q, r = nl.mgrid[0:4, 0:4]\nm = (q > r)\nif c:\n    nl.store(o, x, mask=m)\nelse:\n    nl.store(o, x)")])
def test_branches_of_statements(body, expected):
    statements = cst.parse_module(body).body
    after = with_mask_branches(statements, {"p", "f"}.__contains__, lambda old, new: None)
    assert cst.Module(list(after)).code.strip() == (expected or body)


