# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The oracle of the current generation against numbers that the documents give, or that were worked out by hand."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from . import current, run
from .program import OutOfBounds

PAGE = (Path(__file__).parent.parent.parent / "docs" / "coverage.md").read_text().split("## Current generation")[1].split("\n## ")[0]
NAMES = re.findall(r"^\| `((?:nki|nl|nisa)[\w.]*)` \|", PAGE, re.MULTILINE)
MODULES = {"nl": current.nl, "nisa": current.nisa, "nki": current.nki, "nki.collectives": current.ncc}


def outcome(body, *arrays, **options):
    """Of a kernel of that body, whose arrays are x, y, ..."""
    text = f"def kernel({', '.join('xyzw'[:len(arrays)])}):\n" + "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    names = {"nl": current.nl, "nisa": current.nisa, "ncc": current.ncc}
    return run(text, arrays, generation=current, names=names, **options)


def written(call, shape, dtype, *arrays, before=None):
    """What a destination ``d`` holds after a call; x, y, ... are tiles."""
    names = "xyzw"[:len(arrays)]
    lines = [f"{n} = nl.load({n})" for n in names]
    make = f"nl.full({shape}, {before}, nl.{dtype})" if before is not None else f"nl.ndarray({shape}, nl.{dtype})"
    return outcome("\n".join([*lines, f"d = {make}", call, f"out = nl.ndarray({shape}, nl.{dtype}, buffer=nl.shared_hbm)",
                              "nisa.dma_copy(out, d)", "return out"]), *arrays).results


def row(*values, dtype=np.float32):
    return np.array([values], dtype)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name):
    module, _, last = name.rpartition(".")
    assert hasattr(MODULES[module], last)


# Section 11 of the instructions, and 4.3 where a sequence is given in words.
VECTORS = [
    ("nisa.tensor_scalar_cumulative(d, x, nl.add, nl.add, 1)", [2, 5, 9], [row(1, 2, 3)]),
    ("nisa.tensor_scalar_cumulative(d, x, nl.add, nl.subtract, 1)", [2, 1, 3], [row(1, 2, 3)]),
    ("nisa.tensor_tensor_scan(d, x, y, 0, nl.multiply, nl.add)", [1, 3, 7], [row(2, 2, 2), row(1, 1, 1)]),
    ("nisa.tensor_tensor_scan(d, x, y, 0, nl.multiply, nl.subtract, reverse1=True)", [1, -1, 3], [row(2, 2, 2), row(1, 1, 1)]),
    ("nisa.bn_stats(d, x)", [3, 3, 8, 2, 3, 2], [row(1, 2, 3, 4, 5)]),
    ("nisa.bn_aggr(d, x)", [3, 2], [row(3, 3, 8, 2, 3, 2)]),
    ("nisa.max8(d, x)", [7, 5, 5, 4, 3, 3, 2, 1], [row(5, 1, 5, 2, 0, 7, 3, 3, 4)]),
    ("nisa.range_select(d, x, nl.greater_equal, nl.less, y, z, range_start=2)", [-3.4028235e38, 7, 7, -3.4028235e38],
     [row(7, 7, 7, 7), row(3), row(5)]),
    ("nisa.iota(d, [[4, 2], [1, 3]], offset=10, channel_multiplier=100)", [10, 11, 12, 14, 15, 16], []),
    ("nisa.tensor_reduce(d, nl.subtract, x, axis=1)", [-4], [row(1, 2, 3)]),
    ("nisa.tensor_reduce(d, nl.add, x, axis=1, negate=True)", [-6], [row(1, 2, 3)]),
    ("nisa.tensor_scalar(d, x, nl.subtract, 5, reverse0=True, op1=nl.multiply, operand1=2)", [8, 4], [row(1, 3)]),
    ("nisa.tensor_scalar_reduce(nl.ndarray((1, 2), nl.float32), x, nl.add, 1, nl.maximum, d, reduce_res_negate=True)", [-4],
     [row(1, 3)]),
    ("nisa.activation(d, nl.relu, x, bias=-1.0, scale=2.0)", [0, 5], [row(-4, 3)]),
    ("nisa.activate2(d, nl.prelu, x, 1, None, nl.subtract, nl.bypass, relu_param=0.5)", [-1, 1], [row(-1, 2)]),
    ("nisa.tensor_tensor(d, x, y, nl.abs_max)", [-5, -1, 4], [row(-5, 1, 4), row(3, -1, 2)]),
    ("nisa.tensor_tensor(d, x, y, nl.abs_min)", [3, -1, 2], [row(-5, 1, 4), row(3, -1, 2)]),
]


@pytest.mark.parametrize("call, expected, arrays", VECTORS, ids=[v[0][5:60] for v in VECTORS])
def test_documented_vectors(call, expected, arrays):
    np.testing.assert_array_equal(written(call, (1, len(expected)), "float32", *arrays), row(*expected))


def test_searches():
    data, best = row(5, 1, 5, 2, 0, 7, 3, 3, 4), row(7, 5, 5, 4, 3, 3, 2, 1)
    np.testing.assert_array_equal(written("nisa.nc_find_index8(d, x, y)", (1, 8), "uint32", data, best), row(5, 0, 2, 8, 6, 7, 3, 1))
    missing = written("nisa.nc_find_index8(d, x, y)", (1, 8), "uint16", data, row(*[9] * 8))
    np.testing.assert_array_equal(missing, row(*[0xFFFF] * 8))
    data, wanted = row(1, 2, 3, 4, *[8] * 7), row(3, *[8] * 7)
    places = written("nisa.nc_match_replace8(nl.ndarray((1, 11), nl.float32), x, y, -1.0, dst_idx=d)", (1, 8), "uint32", data, wanted)
    np.testing.assert_array_equal(places, row(2, 10, 9, 8, 7, 6, 5, 4))
    np.testing.assert_array_equal(written("nisa.nc_match_replace8(d, x, y, -1.0)", (1, 11), "float32", data, wanted),
                                  row(1, 2, -1, 4, *[-1] * 7))


def test_lists():
    ids = row(0, 1, 1, 2, 2, 2, 0, 1)
    np.testing.assert_array_equal(written("nisa.sequence_bounds(d, x)", (1, 2, 8), "float32", ids),
                                  [[[8, 1, 1, 3, 3, 3, 8, 7], [-1, 3, 3, 6, 6, 6, -1, 8]]])
    listed = written("nisa.nonzero_with_count(d, x, index_offset=16)", (17, 9), "int32",
                     np.tile(row(0, 1, 1, 0, 0, 1, 0, 0), (17, 1)), before=5)
    np.testing.assert_array_equal(listed[[0, 1, 16]], [[17, 18, 21, -1, -1, -1, -1, -1, 3], [5] * 9, [17, 18, 21, -1, -1, -1, -1, -1, 3]])
    source = np.arange(16 * 20, dtype=np.float32).reshape(16, 20)
    index = np.arange(15, -1, -1, dtype=np.uint16).reshape(16, 1)
    np.testing.assert_array_equal(written("nisa.local_gather(d, x, y)", (16, 16), "float32", source, index), source[:, 15::-1])


def test_partitions():
    x = np.arange(128, dtype=np.float32).reshape(128, 1)
    shuffled = written(f"nisa.nc_stream_shuffle(d, x, {[(i - 1) % 32 for i in range(32)]})", (128, 1), "float32", x)
    np.testing.assert_array_equal(shuffled, np.roll(x.reshape(4, 32), 1, axis=1).reshape(128, 1))
    shuffled = written(f"nisa.nc_stream_shuffle(d, x, {[0] * 31 + [255]})", (32, 1), "float32", row(7), before=3)
    np.testing.assert_array_equal(shuffled[:, 0], [7] * 31 + [3])
    triangle = written("nisa.affine_select(d, [[-1, 4]], 1, x, -9.0, nl.greater_equal)", (3, 4), "float32", np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(triangle, np.where(np.tri(3, 4), 1, -9))
    totals = written("nisa.tensor_partition_reduce(d, nl.average, x)", (1, 1), "float32", x)
    np.testing.assert_array_equal(totals, [[63.5]])


@pytest.mark.parametrize("dtype, expected", [("int8", [2, 4, -2, 127, -1, 0]), ("uint8", [2, 4, 0, 255, 0, 0])])
def test_floats_become_integers(dtype, expected):
    x = row(2.5, 3.5, -2.5, 300, -1, np.nan)
    np.testing.assert_array_equal(written("nisa.tensor_copy(d, x)", (1, 6), dtype, x), row(*expected))


def test_integers_of_32_bits_are_exact_where_gpsimd_computes():
    x, y = row(2**30 + 1, -2**31, dtype=np.int32), row(1, -1, dtype=np.int32)
    np.testing.assert_array_equal(written("nisa.tensor_tensor(d, x, y, nl.add)", (1, 2), "int32", x, y), row(2**30 + 2, 2**31 - 1, dtype=np.int32))
    rounded = written("nisa.tensor_tensor(d, x, y, nl.add, engine=nisa.engine.vector)", (1, 2), "int32", x, y)
    np.testing.assert_array_equal(rounded, row(2**30, -2**31))


def test_views():
    body = """
t = nl.ndarray((128, 64), nl.float32)
part = t.slice(1, 8, 24)
assert t.strides == (64, 1) and t.offset == 0 and t.size == 8192
assert part.get_pattern() == [[64, 128], [1, 16]] and part.offset == 8
assert (t.ap([[64, 128], [1, 16]], offset=8).index == part.index).all()
assert (part.ap([[64, 128], [1, 4]], offset=2).index == t[:, 10:14].index).all()        # N is added to the view's start
cube = nl.ndarray((128, 4, 16), nl.float32)
permuted = cube[0:64].permute((0, 2, 1))[:, 0, :]
assert permuted.shape == (64, 4) and permuted.strides == (64, 16)
assert cube[0, 0, 10].shape == (1, 1) and cube[:, 0].shape == (128, 16) and cube[0].shape == (1, 4, 16)
wide = nl.ndarray((128, 256), nl.int32)
assert wide.ap([[512, 128], [1, 512]], offset=0, dtype=nl.bfloat16).shape == (128, 512)
assert (wide.view(nl.bfloat16).index == wide.ap([[512, 128], [1, 512]], dtype=nl.bfloat16).index).all()
assert cube.rearrange(("p", "a", ("b", "c")), ("p", "b", "a", "c"), {"b": 4}).strides == (64, 4, 16, 1)
assert cube.expand_dim(1).broadcast(1, 3).strides == (64, 0, 16, 1) and cube.flatten_dims(1, 2).shape == (128, 64)
assert x[0].shape == (32,) and x[0:2].offset == 0
"""
    outcome(body + "return None", np.zeros((128, 32), np.float32))


def test_addresses_of_the_run_time():
    x = np.arange(16 * 4, dtype=np.float32).reshape(16, 4)
    by_register = ("r = nisa.register_alloc(3)\n"
                   "d = nl.load(x.ap([[4, 2], [1, 3]], offset=1, scalar_offset=r, indirect_dim=0))\n"
                   "out = nl.ndarray((2, 3), nl.float32, buffer=nl.shared_hbm)\nnl.store(out, d)\nreturn out")
    np.testing.assert_array_equal(outcome(by_register, x).results, x[3:5, 1:4])
    rows = np.array([[2], [0], [9]], np.int32)
    gathered = ("d = nl.full((3, 4), 7, nl.float32)\nnisa.dma_copy(d, x.ap([[4, 3], [1, 4]], vector_offset=nl.load(y)){more})\n"
                "out = nl.ndarray((3, 4), nl.float32, buffer=nl.shared_hbm)\nnl.store(out, d)\nreturn out")
    skipped = outcome(gathered.format(more=", oob_mode=nisa.oob_mode.skip"), x[:4], rows).results
    np.testing.assert_array_equal(skipped, [x[2], x[0], [7] * 4])
    with pytest.raises(OutOfBounds, match="9"):
        outcome(gathered.format(more=""), x[:4], rows)


def test_loops_of_the_device():
    body = """
out, total = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm), nl.full((1, 1), 0, nl.int32)
bound = nisa.register_alloc(4)
def add(i):
    one = nl.ndarray((1, 1), nl.int32)
    nisa.register_store(one, i)
    nisa.tensor_tensor(total, total, one, nl.add)
nl.fori_loop(1, bound, add, step=2)
for i in nl.dynamic_range(bound):
    add(i)
nl.fori_loop(0, nisa.register_alloc(0), add)
def down(r):
    nisa.tensor_scalar(left, left, nl.subtract, 1)
    nisa.register_load(r, left)
    nisa.tensor_scalar(total, total, nl.add, 100)
    return r
left = nl.full((1, 1), 3, nl.int32)
nl.while_loop(nisa.register_alloc(3), down)
nisa.dma_copy(out, total)
return out"""
    assert outcome(body).results == [[1 + 3 + 0 + 1 + 2 + 3 + 300]]


def test_products():
    left, right = np.array([[2, 3]], np.float32), np.array([[5, 7]], np.float32)
    body = """
s, m = nl.load(x).reshape((1, 2, 1)), nl.load(y).reshape((1, 2, 1))
acc = nl.ndarray((1, 1), nl.float32, buffer=nl.psum)
for again in range(2):
    nisa.nc_matmul(acc, s, m, perf_mode=nisa.matmul_perf_mode.double_row)
out, d = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm), nl.copy(acc)
nisa.dma_copy(out, d)
return out"""
    assert outcome(body, left, right).results == [[2 * (2 * 5 + 3 * 7)]]          # the first writes, the second adds


def test_microscaling():
    block = np.zeros((32, 4), ml_dtypes.bfloat16)
    block[0, 0], block[8, 1] = 448, -1.5
    body = """
t, q, s = nl.load(x), nl.ndarray((32, 1), nl.float8_e4m3fn_x4), nl.full((32, 1), 9, nl.uint8)
nisa.quantize_mx(q, t, s)
out, scales = nl.ndarray((32, 4), nl.float8_e4m3fn, buffer=nl.shared_hbm), nl.ndarray((32, 1), nl.uint8, buffer=nl.shared_hbm)
nisa.dma_copy(out, q.view(nl.float8_e4m3fn))
nisa.dma_copy(scales, s)
return out, scales"""
    elements, scales = outcome(body, block).results
    assert scales[:5, 0].tolist() == [128, 120, 0, 0, 9] and float(elements[0, 0]) == 224 and float(elements[8, 1]) == -192


def test_cores_share_memory_behind_a_barrier():
    body = """
core = nl.program_id(0)
held = nl.ndarray((2, 1, 4), nl.float32, buffer=nl.shared_hbm, name="held")
out = nl.ndarray((2, 1, 4), nl.float32, buffer=nl.shared_hbm)
mine, came = nl.full((1, 4), core + 1, nl.float32), nl.ndarray((1, 4), nl.float32)
nisa.dma_copy(held[core], mine)
{barrier}
nisa.dma_copy(mine, held[1 - core])
nisa.sendrecv(mine, came, 1 - core, 1 - core, 0)
nisa.tensor_tensor(mine, mine, came, nl.subtract)
nisa.dma_copy(out[core], mine)
return out"""
    got = outcome(body.format(barrier="nisa.core_barrier(held, (0, 1))"), grid=(2,))
    assert got.results[:, 0, 0].tolist() == [1, -1] and not got.findings
    assert outcome(body.format(barrier="pass"), grid=(2,)).kinds() == {"unwritten", "collision"}
    with pytest.raises(RuntimeError, match="wait"):
        outcome("if nl.program_id(0) == 0:\n    nisa.core_barrier(x, (0, 1))\nreturn x", np.zeros((1, 1), np.float32), grid=(2,))


def test_ranks():
    body = """def kernel(x):
    n, group = nl.load(x), ncc.ReplicaGroup([[0, 1, 2]])
    total, side, chunk, passed = (nl.ndarray(s, nl.float32) for s in ((3, 1), (3, 3), (1, 1), (3, 1)))
    ncc.all_reduce([n], [total], group, nl.add)
    ncc.all_gather([n], [side], group, 1)
    ncc.reduce_scatter([n], [chunk], group, 0, nl.maximum)
    ncc.collective_permute_implicit([n], [passed], group)
    outs = [nl.ndarray(t.shape, nl.float32, buffer=nl.shared_hbm) for t in (total, side, chunk, passed)]
    for out, t in zip(outs, (total, side, chunk, passed)):
        nl.store(out, t)
    return tuple(outs)
"""
    arrays = [np.array([[1], [2], [3]], np.float32) * 10 ** r for r in range(3)]
    outs = current.launch.run_ranks(body, [(g,) for g in arrays], grid=(), names={"nl": current.nl, "ncc": current.ncc})
    for rank, got in enumerate(outs):
        total, side, chunk, passed = got.results
        np.testing.assert_array_equal(total, sum(arrays))
        np.testing.assert_array_equal(side, np.concatenate(arrays, axis=1))
        np.testing.assert_array_equal(chunk, arrays[2][rank:rank + 1])
        np.testing.assert_array_equal(passed, arrays[rank - 1])


def test_random_numbers_are_marked():
    body = """
a, b, c = nl.rand((4, 8), nl.float32), nl.zeros((4, 8), nl.float32), nl.zeros((4, 8), nl.float32)
nisa.tensor_tensor(b, b, a, nl.add)
outs = [nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm) for _ in range(2)]
nl.store(outs[0], b)
nl.store(outs[1], c)
return tuple(outs)"""
    got = outcome(body)
    assert got.incomparable == [True, False] and 0 <= got.results[0].min() <= got.results[0].max() < 1


FOUND = [
    ("unwritten", "t = nl.ndarray((4, 8), nl.float32)\nnisa.memset(t[:, 0:7], 0)\nnisa.dma_copy(x, t)\nreturn x"),
    ("missing", "out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)\nnisa.dma_copy(out[:, 0:7], x[:, 0:7])\nreturn out"),
]


@pytest.mark.parametrize("kind, body", FOUND, ids=[k for k, _ in FOUND])
def test_findings(kind, body):
    assert kind in outcome(body, np.zeros((4, 8), np.float32)).kinds()


def test_two_cores_that_write_one_place_collide():
    body = """
out, t = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm), nl.full((4, 8), nl.program_id(0), nl.float32)
wide = {wide}
nisa.dma_copy(out[:, nl.ds(4 * nl.program_id(0), wide)], t[:, 0:wide])
return out"""
    assert outcome(body.format(wide=4), grid=(2,)).kinds() == set()
    assert outcome(body.format(wide="5 - nl.program_id(0)"), grid=(2,)).kinds() == {"collision"}
