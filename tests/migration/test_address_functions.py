# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of a file for the functions of ``nki.compiler`` that choose addresses: the new text has neither."""

import numpy as np

from nki_mlir.migration.files import migrated
from tests.migration.test_helpers import value

SOURCE = '''from functools import partial

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim

sbuf_at = ncc.sbuf.mod_alloc
in_bank = partial(ncc.psum.mod_alloc, base_bank=1)


def sb_mod(base_addr=0):
    """Tiles at an address."""
    return ncc.sbuf.mod_alloc(base_addr=base_addr)


@nki.jit
def kernel(x, y):
    (k, m), (_, n) = x.shape, y.shape
    out = nl.ndarray((m, n), dtype=x.dtype, buffer=nl.shared_hbm)
    base = 0
    left = nl.ndarray((par_dim(k), m), dtype=x.dtype, buffer=sb_mod(base_addr=base))
    base += m * 4
    right = nl.ndarray((par_dim(k), n), dtype=y.dtype, buffer=sbuf_at(base_addr=base))
    base += n * 4
    result = nl.ndarray((par_dim(m), n), dtype=y.dtype, buffer=sb_mod(base_addr=base))
    acc = nl.ndarray((par_dim(m), n), dtype=nl.float32, buffer=in_bank())
    left[...] = nl.load(x)
    right[...] = nl.load(y)
    acc[...] = nisa.nc_matmul(left, right)
    result[...] = nl.copy(acc)
    nl.store(out, result)
    return out
'''


def test_helpers_that_allocate_are_removed(tmp_path):
    file = tmp_path / "allocated.py"
    file.write_text(SOURCE)
    result, = migrated(file, "2.32")
    assert [e.text for e in result.report.entries if e.left] == []
    assert not any(word in result.new for word in ("ncc", "sbuf_at", "in_bank", "sb_mod", "base"))
    assert "left = nl.ndarray((k, m), dtype=x.dtype, buffer=nl.sbuf)" in result.new
    assert "acc = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)" in result.new
    x, y = np.random.default_rng(0).standard_normal((2, 32, 64)).astype(np.float32)
    np.testing.assert_array_equal(value(result.new, "kernel", (x, y)), value(SOURCE, "kernel", (x, y)))
