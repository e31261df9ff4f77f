# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks of a tensor in PSUM of which an iteration uses only a part: the part is a tile of the loop's body."""

import pytest

from .test_text import assert_same_values, floats, migrated

TWO_BLOCKS = """def kernel(q, k):
    d, s = q.shape
    n = s // 32
    out = nl.ndarray((s, n), dtype=q.dtype, buffer=nl.shared_hbm)
    bank = nl.ndarray((n, n, nl.par_dim(32), 32), dtype=nl.float32, buffer=nl.psum)
    q_tile, k_tile = nl.load(q), nl.load(k)
    for i in nl.affine_range(n):
        least = nl.ndarray((nl.par_dim(32), n), dtype=nl.float32)
        for j in nl.affine_range(n):
            bank[i, j, :, :] = nisa.nc_matmul(q_tile[:, nl.ds(i * 32, 32)], k_tile[:, nl.ds(j * 32, 32)])
        for j in nl.affine_range(n):
            least[:, j] = nisa.tensor_reduce(np.min, bank[i, j], axis=1)
        nl.store(out[nl.ds(i * 32, 32), :], least)
    return out
"""
IN_A_LOOP = """def kernel(q, k):
    b, d, s = q.shape
    n = s // 32
    out = nl.ndarray((b, s, 32), dtype=q.dtype, buffer=nl.shared_hbm)
    for h in nl.affine_range(b):
        bank = nl.ndarray((n, nl.par_dim(32), 32), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(n):
            bank[i] = nisa.nc_matmul(nl.load(q[h, :, nl.ds(i * 32, 32)]), nl.load(k[h, :, nl.ds(i * 32, 32)]))
            nl.store(out[h, nl.ds(i * 32, 32), :], nl.exp(bank[i]))
    return out
"""
ALL_BLOCKS = TWO_BLOCKS.replace("bank[i, j], axis", "bank[(i + 1) % 2, j], axis").replace(
    "        for j in nl.affine_range(n):\n            least", "    for i in nl.affine_range(n):\n"
    "        least = nl.ndarray((nl.par_dim(32), n), dtype=nl.float32)\n"
    "        for j in nl.affine_range(n):\n            least")
BY_TWO_LOOPS = """def kernel(q, k):
    d, s = q.shape
    n = s // 32
    out = nl.ndarray((2, s, 32), dtype=q.dtype, buffer=nl.shared_hbm)
    bank = nl.ndarray((n, nl.par_dim(32), 32), dtype=nl.float32, buffer=nl.psum)
    q_tile, k_tile = nl.load(q), nl.load(k)
    for i in nl.affine_range(n):
        bank[i] = nisa.nc_matmul(q_tile[:, nl.ds(i * 32, 32)], k_tile[:, nl.ds(i * 32, 32)])
        nl.store(out[0, nl.ds(i * 32, 32), :], nl.exp(bank[i]))
    for j in nl.affine_range(n):
        bank[j, :, :] = nisa.nc_matmul(k_tile[:, nl.ds(j * 32, 32)], q_tile[:, nl.ds(j * 32, 32)])
        nl.store(out[1, nl.ds(j * 32, 32), :], nl.exp(bank[j]))
    return out
"""
# The second loop reads what the first one has computed, or adds to it.
READ_LATER = BY_TWO_LOOPS.replace("        bank[j, :, :] = nisa.nc_matmul(k_tile[:, nl.ds(j * 32, 32)], "
                                  "q_tile[:, nl.ds(j * 32, 32)])\n", "")
ADDED_LATER = BY_TWO_LOOPS.replace("bank[j, :, :] =", "bank[j] +=")
REPEATED = """def kernel(q, k):
    b, d, s = q.shape
    n = s // 32
    out = nl.ndarray((b, s, 32), dtype=q.dtype, buffer=nl.shared_hbm)
    bank = nl.ndarray((n, nl.par_dim(32), 32), dtype=nl.float32, buffer=nl.psum)
    for h in nl.sequential_range(b):
        for i in nl.affine_range(n):
            bank[i] = nisa.nc_matmul(nl.load(q[h, :, nl.ds(i * 32, 32)]), nl.load(k[h, :, nl.ds(i * 32, 32)]))
            nl.store(out[h, nl.ds(i * 32, 32), :], nl.exp(bank[i]))
    return out
"""
TILES = ["    bank = nl.ndarray((32, n, 32), dtype=nl.float32, buffer=nl.psum)\n",
         "        bank = nl.ndarray((32, 32), dtype=nl.float32, buffer=nl.psum)\n",
         "            bank = nl.ndarray((32, 32), dtype=nl.float32, buffer=nl.psum)\n"]


@pytest.mark.parametrize(("kernel", "allocation", "count", "shape"), [
    (BY_TWO_LOOPS, TILES[1], 2, (16, 64)), (READ_LATER, TILES[0], 1, (16, 64)), (ADDED_LATER, TILES[0], 1, (16, 64)),
    (REPEATED, TILES[2], 1, (2, 16, 64))], ids=["each_its_own", "read_later", "added_later", "repeated"])
def test_tile_of_each_of_several_loops(kernel, allocation, count, shape, tmp_path):
    assert migrated(kernel).count(f"\n{allocation}") == count == migrated(kernel).count("bank = nl.ndarray(")
    assert_same_values(kernel, tmp_path, floats(*shape), floats(*shape))


@pytest.mark.parametrize(("kernel", "allocation", "arguments"), [
    (TWO_BLOCKS, "        bank = nl.ndarray((32, n, 32), dtype=nl.float32, buffer=nl.psum)\n",
     (floats(16, 64), floats(16, 64))),
    (IN_A_LOOP, "            bank = nl.ndarray((32, 32), dtype=nl.float32, buffer=nl.psum)\n",
     (floats(2, 16, 64), floats(2, 16, 64))),
    (ALL_BLOCKS, "    bank = nl.ndarray((32, n, n, 32), dtype=nl.float32, buffer=nl.psum)\n",
     (floats(16, 64), floats(16, 64)))], ids=["the_first_of_two", "within_a_loop", "other_blocks"])
def test_tile_of_the_blocks_that_an_iteration_uses(kernel, allocation, arguments, tmp_path):
    assert f"\n{allocation}" in migrated(kernel)
    assert_same_values(kernel, tmp_path, *arguments)


def test_more_blocks_than_psum_has(tmp_path):
    """The tensor of all blocks is twice as large as PSUM."""
    assert_same_values(TWO_BLOCKS.replace("32", "128").replace("float128", "float32"), tmp_path, floats(16, 1024), floats(16, 1024))
