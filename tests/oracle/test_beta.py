# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The evaluator's beta generation: every documented name, the numbers of the documents, the examples."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from . import beta, run

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"


# -- names -------------------------------------------------------------------------------------------------------------
def names_of_the_documents():
    text = (ROOT / "docs" / "coverage.md").read_text()
    tables = text[text.index("## Beta generation"):text.index("## Current generation")]
    return re.findall(r"^\| `(\w+)\.(\w+)` \|", tables, re.MULTILINE)


def test_every_documented_name_is_there():
    names = names_of_the_documents()
    assert len(names) > 180
    assert [f"{module}.{name}" for module, name in names if not hasattr(beta.NAMES[module], name)] == []


# -- worked numbers (document: 14) -------------------------------------------------------------------------------------
def returned(body, *arrays, grid=None):
    """What a kernel with that body makes of x, y, ..., as ``r``, or returns itself."""
    if "return" not in body:
        body += "\nout = nl.ndarray(r.shape, r.dtype, buffer=nl.shared_hbm)\nnl.store(out, r)\nreturn out"
    text = f"def kernel({', '.join('xyzw'[:len(arrays)])}):\n" + "".join(f"    {line}\n" for line in body.strip().split("\n"))
    return run(text, arrays, generation=beta, names=beta.NAMES, grid=grid).results


def test_a_transpose_of_the_vector_engine_is_in_sbuf():
    x = (np.arange(128 * 100) % 7).astype(np.float32).reshape(128, 100)
    body = "t = nisa.nc_transpose(nl.load(x), engine=nisa.vector_engine)\nr = nisa.nc_matmul(t, t)"
    np.testing.assert_array_equal(returned(body, x), x @ x.T)


def test_average_pool():
    body = """t = nl.load(x)
i0, i1, i2, i3, i4 = nl.mgrid[0:2, 0:3, 0:2, 0:3, 0:2]
r = nl.sum(t[i0, 2*i1 + i2, 2*i3 + i4], axis=[2, 4]) / 4"""
    first = np.float32([[3.5, 5.5, 7.5], [15.5, 17.5, 19.5], [27.5, 29.5, 31.5]])
    got = returned(body, np.arange(72, dtype=np.float32).reshape(2, 6, 6))
    np.testing.assert_array_equal(got, np.stack([first, first + 36]))


def test_programs_of_a_grid_own_tiles():
    body = """out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
rows = nl.program_id(0) * 128 + nl.arange(128)[:, None]
columns = nl.program_id(1) * 512 + nl.arange(512)[None, :]
nl.store(out[rows, columns], nl.load(x[rows, columns]) + nl.load(y[rows, columns]))
return out"""
    x, y = np.random.default_rng(0).standard_normal((2, 256, 1024)).astype(np.float32)
    np.testing.assert_array_equal(returned(body, x, y, grid=(2, 2)), x + y)


def test_gather_flattened():
    data = np.float32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    index = np.uint32([[[0, 1], [1, 3]], [[3, 3], [1, 0]]])
    np.testing.assert_array_equal(returned("r = nl.gather_flattened(nl.load(x), nl.load(y))", data, index),
                                  [[[1, 2], [2, 4]], [[8, 8], [6, 5]]])


@pytest.mark.parametrize("expression, expected", [
    ("5 + 2 * nl.arange(128)[:, None]", np.arange(5, 260, 2)[:, None]), ("nl.arange(512)[None, :] * -1", -np.arange(512)[None])])
def test_iota(expression, expected):
    np.testing.assert_array_equal(returned(f"r = nisa.iota({expression}, nl.int32)"), expected.astype(np.int32))


def test_affine_select():
    x = np.ones((128, 128), np.float32)
    got = returned("iy, ix = nl.mgrid[0:128, 0:128]\nr = nisa.affine_select(ix < iy, nl.load(x), nl.fp32.min)", x)
    np.testing.assert_array_equal(got, np.where(np.tri(128, k=-1), np.float32(1), np.finfo(np.float32).min))


def test_scans_of_two_halves_are_one():
    a, b = np.random.default_rng(0).standard_normal((2, 128, 1024)).astype(np.float32) / 2
    scan = "nisa.tensor_tensor_scan({}, {}, {}, np.multiply, np.add)".format
    full = returned("r = " + scan("nl.load(x)", "nl.load(y)", 0), a, b)
    halves = returned(f"""r, u, v = nl.ndarray((128, 1024), nl.float32), nl.load(x), nl.load(y)
r[:, 0:512] = {scan('u[:, 0:512]', 'v[:, 0:512]', 0)}
r[:, 512:] = {scan('u[:, 512:]', 'v[:, 512:]', 'r[:, 511]')}""", a, b)
    np.testing.assert_array_equal(full, halves)


def test_products_accumulate():
    x, y = (np.random.default_rng(n).integers(-4, 5, (256, 64)).astype(np.float32) for n in range(2))
    got = returned("""acc = nl.ndarray((64, 64), nl.float32, buffer=nl.psum)
for k in nl.affine_range(2):
    acc += nisa.nc_matmul(nl.load(x[nl.ds(128 * k, 128)]), nl.load(y[nl.ds(128 * k, 128)]))
r = nl.copy(acc)""", x, y)
    np.testing.assert_array_equal(got, x.T @ y)


def test_dma_copy_leaves_out_what_is_outside():
    body = """out = nl.ndarray((128, 4), nl.float32, buffer=nl.shared_hbm)
nl.store(out, -1.0)
rows = nisa.iota(3 * nl.arange(64)[:, None], nl.int32)
nisa.dma_copy(dst=out[rows, nl.arange(4)[None, :]], src=x, oob_mode=nisa.oob_mode.%s)
return out"""
    x, expected = np.random.default_rng(0).random((64, 4), np.float32), np.full((128, 4), -1, np.float32)
    expected[0:128:3] = x[:43]
    np.testing.assert_array_equal(returned(body % "skip", x), expected)
    with pytest.raises(IndexError, match="index 129 leaves dimension 0"):
        returned(body % "error", x)


def test_dma_copy_adds():
    body = """out = nl.ndarray((128, 4), nl.float32, buffer=nl.shared_hbm)
nl.store(out, 1.0)
rows = nisa.iota(2 * nl.arange(64)[:, None], nl.int32)
nisa.dma_copy(dst=out[rows, nl.arange(4)[None, :]], src=x, dst_rmw_op=np.add)
return out"""
    x, expected = np.random.default_rng(0).random((64, 4), np.float32), np.ones((128, 4), np.float32)
    expected[::2] += x
    np.testing.assert_array_equal(returned(body, x), expected)


def test_shuffles():
    x = np.arange(64 * 2, dtype=np.float32).reshape(64, 2)
    body = "r = nl.zeros((64, 2), nl.float32)\nnisa.nc_stream_shuffle(nl.load(x), r, %s)"
    shuffled = np.concatenate([np.roll(x[:32], 1, 0), np.roll(x[32:], 1, 0)])
    np.testing.assert_array_equal(returned(body % [(i - 1) % 32 for i in range(32)], x), shuffled)
    first = returned("r = nl.zeros((32, 2), nl.float32)\nnisa.nc_stream_shuffle(nl.load(x), r, [0] * 32)", x[:1].copy())
    np.testing.assert_array_equal(first, np.broadcast_to(x[:1], (32, 2)))


def test_sequence_bounds():
    got = returned("r = nisa.sequence_bounds(segment_ids=nl.load(x))", np.int32([[0, 1, 1, 2, 0]]))
    np.testing.assert_array_equal(got, [[[5, 1, 1, 3, 5], [-1, 3, 3, 4, -1]]])


@pytest.mark.parametrize("number, dtype, expected", [("1.2", np.float16, "float32"), ("np.float16(2)", np.float16, "float16"),
                                                     ("2", np.int8, "int32"), ("1", np.float16, "float16")])
def test_numbers_beside_tiles(number, dtype, expected):
    """3.5: Python's numbers are the widest of their kind, NumPy's keep their type."""
    assert returned(f"r = nl.add(nl.load(x), {number})", np.ones((4, 4), dtype)).dtype == expected


def test_masked_square():
    body = """ip, jf = nl.mgrid[0:128, 0:512]
out = nl.ndarray((64, 256), nl.float32, buffer=nl.shared_hbm)
inside = (ip < 64) & (jf < 256)
nl.store(out[ip, jf], nl.square(nl.load(x), mask=inside), mask=inside)
return out"""
    x = np.random.default_rng(0).random((128, 512), np.float32)
    np.testing.assert_array_equal(returned(body, x), np.square(x[:64, :256]))


def test_maxima_of_ranges_are_chained():
    body = """rows, low, high = nl.zeros((4, 1), nl.float32), nl.full((4, 1), 1, nl.float32), nl.full((4, 1), 3, nl.float32)
for k in nl.sequential_range(2):
    nisa.range_select(on_true_tile=nl.load(x[:, 4 * k:4 * k + 4]), comp_op0=np.greater_equal, comp_op1=np.less,
                      bound0=low, bound1=high, reduce_cmd=nisa.reduce_cmd.reduce if k else nisa.reduce_cmd.reset_reduce,
                      reduce_res=rows)
r = rows"""
    x = np.random.default_rng(0).random((4, 8), np.float32)
    np.testing.assert_array_equal(returned(body, x), np.maximum(x[:, 1:3].max(1), x[:, 5:7].max(1))[:, None])


def test_searches():
    x = np.float32([[3, 9, 9, 1, 5, 7, 9, 2, 0, 4]])
    vals = "t = nl.load(x)\nv = nisa.max8(src=t)\n"
    np.testing.assert_array_equal(returned(vals + "r = v", x), [[9, 9, 9, 7, 5, 4, 3, 2]])
    np.testing.assert_array_equal(returned(vals + "r = nisa.nc_find_index8(data=t, vals=v)", x), [[1, 2, 6, 5, 4, 9, 0, 7]])
    np.testing.assert_array_equal(returned(vals + "r = nisa.nc_match_replace8(data=t, vals=v, imm=-1.0)", x),
                                  [[-1, -1, -1, 1, -1, -1, -1, -1, 0, -1]])


def test_local_gather():
    """The n-th index of a group of 16 partitions is down the partitions first."""
    x, index = np.arange(16 * 8, dtype=np.float32).reshape(16, 8), np.zeros((16, 2), np.uint16)
    index[3, 0], index[1, 1] = 5, 2
    got = returned("r = nisa.local_gather(nl.load(x), nl.load(y), num_elem_per_idx=2)", x, index)
    assert got.shape == (16, 2, 16, 2)
    np.testing.assert_array_equal(got[7].reshape(32, 2)[[0, 3, 17]], [[56, 57], [61, 62], [58, 59]])


# -- examples ----------------------------------------------------------------------------------------------------------
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.py") if "def cases" in (text := p.read_text()) and "neuronxcc" in text)


def example(name, generation):
    """The module of an example, executed with the evaluator's language in place of what it imports."""
    from .source import from_text
    sys.path.insert(0, str(EXAMPLES))
    try:
        return from_text((EXAMPLES / f"{name}.py").read_text(), generation.MODULES, {})
    finally:
        sys.path.remove(str(EXAMPLES))


@pytest.mark.share(3)
@pytest.mark.parametrize("name", NAMES)
def test_example(name):
    for kernel, arguments, answer, tolerance in example(name, beta)["cases"]():
        outcome = run(kernel, arguments, generation=beta, grid=kernel.grid)
        is_tuple = isinstance(answer, tuple)
        for got, wanted in zip(outcome.results if is_tuple else [outcome.results], answer if is_tuple else [answer],
                               strict=True):
            assert np.shape(got) == np.shape(wanted)
            assert np.max(np.abs(np.asarray(got, np.float64) - wanted)) <= tolerance
        assert outcome.findings == []
