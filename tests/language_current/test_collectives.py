# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exchanges between ranks that run in one process."""

import linecache

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.language.current import collectives as ncc
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.simulator import simulate_ranks
from nki_mlir.targets.interpreter.unwritten_hbm import UnwrittenRead

from .running import numbers

PARTS = [numbers(8, 6, seed=k) for k in range(4)]
GROUP = ncc.ReplicaGroup([[0, 1, 2, 3]])


def exchanged(on, exchange, shape, parts=PARTS):
    """What each rank has after ``exchange(src, dst)`` of HBM tensors."""
    def kernel(x):
        src = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm, name="src")
        dst = nl.zeros(shape, x.dtype, buffer=nl.private_hbm, name="dst")
        out = nl.ndarray(shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(src, x)
        exchange(src, dst)
        nisa.dma_copy(out, dst)
        return out
    return simulate_ranks(nki.jit(kernel), [(p,) for p in parts], executor=on)


def test_all_reduce(on):
    for got in exchanged(on, lambda s, d: ncc.all_reduce([s], [d], GROUP, nl.add), (8, 6)):
        np.testing.assert_array_equal(got, sum(PARTS))
    pairs = ncc.ReplicaGroup([[0, 1], [2, 3]])
    results = exchanged(on, lambda s, d: ncc.all_reduce([s], [d], pairs, nl.maximum), (8, 6))
    np.testing.assert_array_equal(results[1], np.maximum(PARTS[0], PARTS[1]))
    np.testing.assert_array_equal(results[2], np.maximum(PARTS[2], PARTS[3]))


def test_gather_scatter_and_all_to_all(on):
    for got in exchanged(on, lambda s, d: ncc.all_gather([s], [d], GROUP, 0), (32, 6)):
        np.testing.assert_array_equal(got, np.concatenate(PARTS))
    results = exchanged(on, lambda s, d: ncc.reduce_scatter([s], [d], GROUP, 0, nl.add), (2, 6))
    np.testing.assert_array_equal(np.concatenate(results), sum(PARTS))
    results = exchanged(on, lambda s, d: ncc.all_to_all([s], [d], GROUP, 0), (8, 6))
    np.testing.assert_array_equal(results[1], np.concatenate([p[2:4] for p in PARTS]))


def test_permutations(on):
    results = exchanged(on, lambda s, d: ncc.collective_permute([s], [d], [(0, 2), (2, 1)]), (8, 6))
    np.testing.assert_array_equal(results[2], PARTS[0])
    np.testing.assert_array_equal(results[1], PARTS[2])
    assert not results[0].any() and not results[3].any()
    results = exchanged(on, lambda s, d: ncc.collective_permute_implicit([s], [d], GROUP), (8, 6))
    np.testing.assert_array_equal(results[0], PARTS[3])
    results = exchanged(on, lambda s, d: ncc.collective_permute_implicit_reduce([s], [s], [d], GROUP, nl.add), (8, 6))
    np.testing.assert_array_equal(results[1], 2 * PARTS[0])


def test_ranks(on):
    def kernel(x):
        out = nl.ndarray((1, 2), nl.int32, buffer=nl.shared_hbm)
        t = nl.ndarray((1, 2), nl.int32)
        nisa.register_store(t[:, 0:1], ncc.rank_id())
        nisa.register_store(t[:, 1:2], ncc.collective_permute_implicit_current_processing_rank_id(1, GROUP))
        nl.store(out, t)
        return out
    results = simulate_ranks(nki.jit(kernel), [(p,) for p in PARTS], executor=on)
    assert [m.tolist() for m in results] == [[[0, 3]], [[1, 0]], [[2, 1]], [[3, 2]]]


def test_parts_of_different_sizes(on):
    counts = np.array([[1, 2, 0, 3], [2, 2, 2, 2], [0, 1, 4, 1], [3, 0, 1, 0]])
    sent = [np.arange(20, dtype=np.float32) + 100 * r for r in range(4)]
    tables = []
    for r in range(4):
        starts = np.concatenate([[0], np.cumsum(counts[r])[:-1]])
        tables.append(np.stack([counts[r], starts, np.zeros(4, int)]).astype(np.uint32))

    def kernel(x, table):
        src, dst = nl.ndarray((20,), x.dtype, buffer=nl.hbm), nl.zeros((20,), x.dtype, buffer=nl.hbm)
        copied = nl.ndarray((3, 4), nl.uint32, buffer=nl.hbm)
        outs = [nl.ndarray((20,), x.dtype, buffer=nl.shared_hbm), nl.ndarray((3, 4), nl.uint32, buffer=nl.shared_hbm)]
        nisa.dma_copy(src, x)
        nisa.dma_copy(copied, table)
        ncc.all_to_all_v([src], [dst], GROUP, copied)
        nisa.dma_copy(outs[0], dst)
        nisa.dma_copy(outs[1], copied)
        return outs
    results = simulate_ranks(nki.jit(kernel), list(zip(sent, tables)), executor=on)
    for r in range(4):
        expected = np.zeros(20, np.float32)
        for s in range(4):
            start, n = tables[s][1, r], counts[s, r]
            expected[5 * s:5 * s + n] = sent[s][start:start + n]
        np.testing.assert_array_equal(results[r][0], expected)
        np.testing.assert_array_equal(results[r][1][2], counts[:, r])


def test_tiles_on_chip(on):
    def kernel(x):
        out, got = nl.ndarray((8, 24), x.dtype, buffer=nl.shared_hbm), nl.ndarray((8, 24), x.dtype)
        tile = nl.load(x)
        ncc.all_reduce([tile], [tile], GROUP, nl.maximum)
        ncc.all_gather([tile], [got], GROUP, 1)
        nl.store(out, got)
        return out
    for got in simulate_ranks(nki.jit(kernel), [(p,) for p in PARTS], executor=on):
        np.testing.assert_array_equal(got, np.concatenate([np.max(PARTS, 0)] * 4, 1))


def test_several_tensors_and_integers(on):
    def kernel(x):
        sums, least = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        buffers = [nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm) for _ in range(4)]
        nisa.dma_copy(buffers[0], x)
        nisa.dma_copy(buffers[1], x)
        ncc.all_reduce(buffers[:2], buffers[2:], GROUP, nl.add)
        ncc.all_reduce(buffers[:1], buffers[3:], GROUP, nl.minimum)
        nisa.dma_copy(sums, buffers[2])
        nisa.dma_copy(least, buffers[3])
        return sums, least
    parts = [(np.arange(12, dtype=np.int32).reshape(4, 3) + (1 << 24) + r,) for r in range(4)]      # not in float32
    for sums, least in simulate_ranks(nki.jit(kernel), parts, executor=on):
        np.testing.assert_array_equal(sums, sum(p for p, in parts))
        np.testing.assert_array_equal(least, parts[0][0])


def test_a_ring_adds_up_what_passes(on):
    """Each step sends on what came, and adds it: after a round everyone has the sum."""
    def kernel(x):
        buffers = [nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm) for _ in range(4)]
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(buffers[0], x)
        total = nl.load(x)
        for step in range(3):
            ncc.collective_permute_implicit([buffers[step]], [buffers[step + 1]], GROUP)
            total = nl.add(total, nl.load(buffers[step + 1]))
        nl.store(out, total)
        return out
    for got in simulate_ranks(nki.jit(kernel), [(p,) for p in PARTS], executor=on):
        np.testing.assert_array_equal(got, sum(PARTS))


def test_ranks_of_two_cores(on):
    """Each core reduces its rows over the ranks, then the cores of a rank exchange theirs."""
    def kernel(x):
        out, i = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.program_id(0)
        mine, theirs = nl.load(x[4 * i:4 * i + 4]), nl.ndarray((4, 6), x.dtype)
        ncc.all_reduce([mine], [mine], GROUP, nl.add)
        nisa.sendrecv(mine, theirs, send_to_rank=1 - i, recv_from_rank=1 - i, pipe_id=0)
        nl.store(out[4 * i:4 * i + 4], theirs)
        return out
    total = sum(PARTS)
    for got in simulate_ranks(nki.jit(kernel)[2], [(p,) for p in PARTS], executor=on):
        np.testing.assert_array_equal(got, np.concatenate([total[4:], total[:4]]))


def test_ranks_that_do_not_make_the_same_exchanges(on):
    def kernel(x, group):
        reduced = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(reduced, x)
        ncc.all_reduce([reduced], [reduced], ncc.ReplicaGroup([list(range(group))]), nl.add)
        nisa.dma_copy(out, reduced)
        return out
    with pytest.raises(NkiMlirError, match=r"rank 0 waits in nisa.all_reduce for rank 1 \(.*rank 1 waits in .* rank 0 "):
        simulate_ranks(nki.jit(kernel), [(PARTS[0], 2), (PARTS[1], 3)], executor=on)
    with pytest.raises(NkiMlirError, match=r"rank 1 is in none of the groups \[\[0\]\]"):
        simulate_ranks(nki.jit(kernel), [(PARTS[0], 1), (PARTS[1], 1)], executor=on)


def test_what_collectives_refuse(on):
    def alone(x):
        ncc.all_reduce([x], [x], GROUP, nl.add)
    with pytest.raises(Unsupported, match="simulate_ranks"):
        nki.jit(alone).on(on)(PARTS[0])
    with pytest.raises(AssertionError, match="overlap"):
        ncc.ReplicaGroup([[0, 1], [1, 2]])
    with pytest.raises(AssertionError, match="collective_dim 1"):
        exchanged(on, lambda s, d: ncc.all_gather([s], [d], GROUP, 1), (8, 24))
    with pytest.raises(AssertionError, match="one of add, minimum, maximum"):
        exchanged(on, lambda s, d: ncc.all_reduce([s], [d], GROUP, nl.multiply), (8, 6))


def test_instructions_are_ordered_by_name(on):
    def kernel(x):
        src, dst = (nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm) for _ in range(2))
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(src, x, name="in")
        ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0]]), nl.add, name="sum")
        nisa.dma_copy(out, dst)
        return out
    result = nki.jit(kernel).with_schedule([("sum", "in")]).on(on)(PARTS[0])
    np.testing.assert_array_equal(result, PARTS[0])


def test_one_rank_by_itself(on):
    def kernel(x):
        src, dst = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm), nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(src, x)
        ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0]]), nl.add)
        nisa.dma_copy(out, dst)
        return out
    np.testing.assert_array_equal(nki.jit(kernel).on(on)(PARTS[0]), PARTS[0])


@pytest.mark.parametrize("pairs, warns", [([(0, 1), (1, 2), (2, 3), (3, 0)], False), ([(0, 1), (1, 2), (2, 3)], True)])
def test_a_permutation_reads_its_destination_only_where_a_rank_receives_nothing(on, recwarn, pairs, warns):
    """Rank 0 of the second permutation keeps memory that nothing has written, and the kernel stores it. It alone is
    told, at the line that reads it."""
    def kernel(x):
        src = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm, name="src")
        dst = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm, name="dst")
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(src, x)
        ncc.collective_permute([src], [dst], pairs)
        nisa.dma_copy(out, dst)
        return out
    results = simulate_ranks(nki.jit(kernel), [(p,) for p in PARTS], executor=on)
    for source, target in pairs:
        np.testing.assert_array_equal(results[target], PARTS[source])
    told = [(str(w.message), w.lineno) for w in recwarn if issubclass(w.category, UnwrittenRead)]
    assert len(told) == (warns and on not in ("jit", "oracle"))
    for text, line in told:
        assert "of dst is read before it is written" in text
        assert linecache.getline(__file__, line).strip() == "nisa.dma_copy(out, dst)"
