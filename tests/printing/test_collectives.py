# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exchanges between ranks print as calls of ``nki.collectives``: equal values on all ranks, a text that stays."""

import random
import warnings

import numpy as np
import pytest

from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import collectives as ncc
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.simulator import simulate_ranks
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel import kernel_text

from ..property_counts import FUZZ
from ..random_programs.comparing import EXECUTORS, differences, results
from .counts import GENERATIONS
from .reading import printed, reread

PARTS = [np.random.default_rng(k).random((8, 6), np.float32) for k in range(4)]
GROUP, PAIRS = ncc.ReplicaGroup([[0, 1, 2, 3]]), ncc.ReplicaGroup([[0, 1], [2, 3]])
ALL = "replica_group=nccl.ReplicaGroup([[0, 1, 2, 3]])"


def exchanging(exchange, shape, buffer=nl.private_hbm):
    """A kernel that moves x to a tensor, exchanges it with other ranks, and returns what it gets."""
    @nki.jit
    def kernel(x):
        src = nl.ndarray(x.shape, x.dtype, buffer=buffer, name="src")
        dst = nl.ndarray(shape, x.dtype, buffer=buffer, name="dst")
        out = nl.ndarray(shape, x.dtype, buffer=nl.shared_hbm)
        zeros = nl.zeros(shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst, zeros)
        nisa.dma_copy(src, x)
        exchange(src, dst)
        nisa.dma_copy(out, dst)
        return out
    return kernel


@pytest.mark.parametrize("exchange, shape, line", [
    (lambda s, d: ncc.all_reduce([s], [d], GROUP, nl.add), (8, 6),
     f"nccl.all_reduce(srcs=[src], dsts=[dst], {ALL}, op=nl.add)"),
    (lambda s, d: ncc.all_reduce([s], [d], PAIRS, nl.maximum), (8, 6),
     "nccl.all_reduce(srcs=[src], dsts=[dst], replica_group=nccl.ReplicaGroup([[0, 1], [2, 3]]), op=nl.maximum)"),
    (lambda s, d: ncc.all_gather([s], [d], GROUP, 0), (32, 6),
     f"nccl.all_gather(srcs=[src], dsts=[dst], {ALL}, collective_dim=0)"),
    (lambda s, d: ncc.reduce_scatter([s], [d], GROUP, 0, nl.minimum), (2, 6),
     f"nccl.reduce_scatter(srcs=[src], dsts=[dst], {ALL}, collective_dim=0, op=nl.minimum)"),
    (lambda s, d: ncc.all_to_all([s], [d], GROUP, 0), (8, 6),
     f"nccl.all_to_all(srcs=[src], dsts=[dst], {ALL}, collective_dim=0)"),
    (lambda s, d: ncc.all_reduce([s[2:4]], [d[0:2, 0:6]], GROUP, nl.add), (8, 6),
     f"nccl.all_reduce(srcs=[src[2:4, :]], dsts=[dst[0:2, :]], {ALL}, op=nl.add)"),
    (lambda s, d: ncc.collective_permute([s], [d], [(0, 2), (2, 1)]), (8, 6),
     "nccl.collective_permute(srcs=[src], dsts=[dst], source_target_pairs=[(0, 2), (2, 1)])"),
    (lambda s, d: ncc.collective_permute_implicit([s], [d], GROUP), (8, 6),
     f"nccl.collective_permute_implicit(srcs_by_channel=[src], dsts_by_channel=[dst], {ALL})"),
    (lambda s, d: ncc.collective_permute_implicit_reduce([s], [s], [d], GROUP, nl.add), (8, 6),
     "nccl.collective_permute_implicit_reduce(srcs0_by_channel=[src], srcs1_by_channel=[src], dsts_by_channel=[dst], "
     f"{ALL}, op=nl.add)"),
], ids=["all_reduce", "pairs", "all_gather", "reduce_scatter", "all_to_all", "parts", "permute", "ring", "ring_reduce"])
def test_exchanges(exchange, shape, line):
    kernel = exchanging(exchange, shape)
    text = printed(kernel, [PARTS[0]])
    assert f"    {line}\n" in text and "import nki.collectives as nccl\n" in text
    assert_equal_on_ranks(kernel, reread(text))
    assert printed(reread(text), [PARTS[0]]) == text
    assert_equal_on_ranks(kernel, reread(printed(kernel, [PARTS[0]], keep_placement=True)))


def assert_equal_on_ranks(kernel, again):
    arguments = [(part,) for part in PARTS]
    expected = simulate_ranks(kernel, arguments, executor="interpreter")
    for on in EXECUTORS:
        for got, wanted in zip(simulate_ranks(again, arguments, executor=on), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_an_exchange_of_tiles_along_columns():
    kernel = exchanging(lambda s, d: ncc.all_gather([s], [d], GROUP, 1), (8, 24), nl.sbuf)
    text = printed(kernel, [PARTS[0]])
    assert f"nccl.all_gather(srcs=[src], dsts=[dst], {ALL}, collective_dim=1)" in text
    assert_equal_on_ranks(kernel, reread(text))


@nki.jit
def numbered(x):
    out = nl.ndarray((1, 2), nl.int32, buffer=nl.shared_hbm)
    t = nl.ndarray((1, 2), nl.int32, buffer=nl.sbuf)
    nisa.register_store(t[:, 0:1], ncc.rank_id())
    nisa.register_store(t[:, 1:2], ncc.collective_permute_implicit_current_processing_rank_id(1, GROUP))
    nisa.dma_copy(out, t)
    return out


def test_numbers_of_ranks():
    text = printed(numbered, [PARTS[0]])
    assert "src=nccl.rank_id())\n" in text
    assert f"src=nccl.collective_permute_implicit_current_processing_rank_id(iteration_id=1, {ALL}))\n" in text
    assert_equal_on_ranks(numbered, reread(text))


def test_parts_of_different_sizes():
    @nki.jit
    def kernel(x, table):
        src, dst = (nl.ndarray((8, 6), x.dtype, buffer=nl.private_hbm, name=name) for name in ("src", "dst"))
        metadata = nl.ndarray((3, 4), nl.uint32, buffer=nl.private_hbm)
        out = nl.ndarray((8, 6), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(src, x)
        nisa.dma_copy(dst, x)
        nisa.dma_copy(metadata, table)
        ncc.all_to_all_v([src], [dst], GROUP, metadata, recv_counts_known=True)
        nisa.dma_copy(out, dst)
        return out
    tables = [np.array([[1, 2, 3, rank], [0, 5, 9, 20], [0] * 4], np.uint32) for rank in range(4)]
    text = printed(kernel, [PARTS[0], tables[0]])
    assert f"nccl.all_to_all_v(srcs=[src], dsts=[dst], {ALL}, metadata_tensor=metadata, recv_counts_known=True)" in text
    arguments = list(zip(PARTS, tables))
    for on in EXECUTORS:
        for got, wanted in zip(simulate_ranks(reread(text), arguments, executor=on),
                               simulate_ranks(kernel, arguments, executor="interpreter")):
            np.testing.assert_array_equal(got, wanted)


def test_what_generations_and_releases_lack():
    kernel = exchanging(lambda s, d: ncc.all_reduce([s], [d], GROUP, nl.add), (8, 6))
    modules = kernel.lower(PARTS[0]).specialization.program_modules
    with pytest.raises(Unprintable, match="an exchange between ranks, which the beta generation does not have"):
        kernel_text(modules, generation="beta")
    with pytest.raises(Unprintable, match="all_reduce"):
        kernel_text(modules, release="2.27")
    assert "nccl.all_reduce(" in kernel_text(modules, release="2.28")


@beta_nki.jit
def on_cores(x):
    out = beta_nl.ndarray((2, 8, 6), x.dtype, buffer=beta_nl.shared_hbm)
    total = beta_nl.all_reduce(beta_nl.load(x), op=np.add, program_axes=0)
    beta_nl.store(out[beta_nl.program_id(0)], total)
    return out


def test_reductions_over_programs_are_no_collectives():
    assert "nccl" not in printed(on_cores[2], [PARTS[0]])


@pytest.mark.parametrize("number", range(60 if FUZZ else 4))
@pytest.mark.filterwarnings("ignore")
def test_random_programs_of_several_ranks(number, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    numbers = random.Random(f"ranks {number}")
    writer, kernel_of = GENERATIONS["current"]
    program = next(p for p in (writer(numbers.randrange).program() for _ in range(1000)) if p.ranks > 1)
    kernel = kernel_of(program)
    launched = kernel[program.grid[0]] if program.grid else kernel
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            text = printed(launched, list(program.arrays.values()))
        except Unprintable as error:
            pytest.skip(f"not printed: {error.headline}")
        expected, _ = results(kernel, program, "interpreter")
        for on in EXECUTORS:
            got, _ = results(reread(text), program.__class__(**{**vars(program), "grid": ()}), on)
            for array, wanted, output in zip(got, expected, program.outputs * program.ranks, strict=True):
                assert not differences(array, wanted, output), f"{on}\n{program.text}\n{text}"
