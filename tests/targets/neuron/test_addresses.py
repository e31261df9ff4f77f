# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses that the kernel chooses, block by block, and instructions that it wants in their order."""

from contextlib import nullcontext

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.compat import install
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.language.beta import compiler as ncc
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.allocate_on_chip import AddressConflict, BlocksNotSplit, allocate
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code, emit_module, emit_variants
from nki_mlir.targets.neuron.codegen.split_blocks import BlocksApart
from nki_mlir.targets.neuron.simulator import simulate

from .code_builder import Builder

install()
BLOCK = 512 * 4                             # bytes of a partition


def specialization(kernel, *arguments):
    return kernel.specialize(kernel.bind(arguments, {}, is_array, describe_array))


def program_of(kernel, *arguments, **options):
    spec = specialization(kernel, *arguments)
    return emit_variants(neuron.lowered(spec.captured), spec.grid, Emission(**options))


def places(program, space):
    """(partition, byte) of every tile in a memory, each once, in the order of the streams."""
    addresses = {}
    for stream in program.streams.values():
        for instruction in stream:
            for _, tile in getattr(instruction.op, "operands", list)():
                if tile.space == space:
                    addresses[tile.access.partition.const, tile.access.free.const * tile.dtype.itemsize] = None
    return list(addresses)


def blocks_copied(buffer, count=4, one_by_one=True):
    @nki.jit
    def kernel(a):
        out = nl.ndarray((count, 32, 512), dtype=a.dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray((count, nl.par_dim(32), 512), dtype=a.dtype, buffer=buffer)
        for i in nl.affine_range(count):
            tiles[i] = nl.load(a[i])
            if one_by_one:
                nl.store(out[i], tiles[i])
        if not one_by_one:
            for i in nl.affine_range(count):
                nl.store(out[i], tiles[i])
        return out
    return kernel


def ramp(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def check(program, array, expected):
    for seed in range(6):
        result = np.zeros_like(expected)
        simulate(program, [array], [result], seed)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("limit", [2, 50_000])
def test_blocks__lie_where_the_kernel_says_and_share_slots_in_turn(limit):
    """A loop over blocks with addresses is written out whatever the limit: no register gives such an address."""
    array = ramp(4, 32, 512)
    buffer = ncc.sbuf.mod_alloc(base_addr=64, base_partition=32, num_free_tiles=(2,))
    program = program_of(blocks_copied(buffer), array, unroll_limit=limit)
    assert sorted(places(program, SBUF)) == [(32, 64), (32, 64 + BLOCK)]
    assert program.sbuf_bytes == 64 + 2 * BLOCK
    check(program, array, array)


def test_blocks__by_a_function_on_other_partitions():
    array = ramp(4, 32, 512)
    program = program_of(blocks_copied(ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: (32 * (idx[0] % 4), 4096))),
                         array)
    assert sorted(places(program, SBUF)) == [(0, 4096), (32, 4096), (64, 4096), (96, 4096)]
    check(program, array, array)


def test_blocks__in_banks_of_psum():
    @nki.jit
    def kernel(a):
        out = nl.ndarray((4, 32, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        sums = nl.ndarray((4, nl.par_dim(32), 512), dtype=nl.float32,
                          buffer=ncc.psum.mod_alloc(base_bank=5, num_bank_tiles=(2,)))
        for i in nl.affine_range(4):
            tile = nl.load(a[i])
            sums[i] = nisa.nc_matmul(tile[:, 0:32], tile)
            nl.store(out[i], nl.copy(sums[i]))
        return out
    array = ramp(4, 32, 512) % 7
    program = program_of(kernel, array)
    assert places(program, PSUM) == [(0, 5 * 2048), (0, 6 * 2048)]
    check(program, array, np.stack([x[:, :32].T @ x for x in array]))


def test_other_buffers__keep_away():
    @nki.jit
    def kernel(a):
        out = nl.ndarray((32, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        mine = nl.ndarray((nl.par_dim(32), 512), dtype=nl.float32,
                          buffer=ncc.sbuf.mod_alloc(base_addr=0))
        mine[...] = nl.load(a)
        nl.store(out, nl.exp(nl.multiply(mine, nl.load(a))))
        return out
    array = ramp(32, 512) / 1e4
    program = program_of(kernel, array)
    assert (0, 0) in places(program, SBUF) and program.sbuf_bytes > BLOCK
    result = np.zeros_like(array)
    simulate(program, [array], [result])
    np.testing.assert_allclose(result, np.exp(array * array), rtol=1e-5)


def pair(addresses):
    """Code that reads two blocks with these addresses at once."""
    b = Builder()
    x, y = b.hbm("x", (32, 16), "input"), b.hbm("y", (32, 16), "output")
    both = b.on_chip("both", (32, 2, 8))
    both.addresses = addresses
    for k in range(2):
        b.copy((both, 0, 32, 8 * k, 8), (x, 0, 32, 8 * k, 8))
    b.copy((y, 0, 32, 0, 16), (both, 0, 32, 0, 16))
    return b.code


def test_blocks_that_are_used_together__one_behind_the_other():
    program = emit_code(pair(((64, 96), (64, 128))), Emission())
    assert places(program, SBUF) == [(64, 96), (64, 128)]
    array = ramp(32, 16)
    check(program, array, array)


@pytest.mark.parametrize("second", [(64, 256), (96, 128)])
def test_error__blocks_that_are_used_together_and_lie_apart(second):
    with pytest.raises(BlocksApart, match="blocks of both that are used together have addresses that are not contiguous"):
        emit_code(pair(((64, 96), second)), Emission())


def test_error__blocks_that_were_not_split():
    with pytest.raises(BlocksNotSplit, match="both has an address for each of its blocks, but is a single buffer"):
        allocate(pair(((64, 96), (64, 128))))


def test_constant__is_written_to_each_block():
    b = Builder()
    both, y = b.on_chip("both", (32, 2, 8)), b.hbm("y", (32, 16), "output")
    both.addresses = ((0, 1024), (32, 0))
    b.memset((both, 0, 32, 0, 16), 3)
    for k in range(2):
        b.copy((y, 0, 32, 8 * k, 8), (both, 0, 32, 8 * k, 8))
    result = np.zeros((32, 16), np.float32)
    simulate(emit_code(b.code, Emission()), [], [result])
    assert (result == 3).all()


def test_passes_on_modules__keep_addresses():
    buffer = ncc.psum.mod_alloc(base_bank=6, num_bank_tiles=(2,))
    spec = specialization(blocks_copied(buffer), ramp(4, 32, 512))
    module = neuron.at_nisa(spec.captured.variants[()].module)
    with module.context, ir.Location.unknown():
        assert "nki.addresses = [[6, 0, 0], [7, 0, 0], [6, 0, 0], [7, 0, 0]]" in str(module)
        straight = emit_module(module, Emission(reorder=False))
        run_passes(module, [pass_named("unroll-loops")])
        assert "nki.addresses = [[6, 0, 0], [7, 0, 0], [6, 0, 0], [7, 0, 0]]" in str(module)
        run_passes(module, [pass_named("split-blocks"), pass_named("allocate-on-chip")])
        assert str(module).count("nki.address = [0, 12288]") == str(module).count("nki.address = [0, 14336]") == 2
        assert places(emit_module(module, Emission(reorder=False)), PSUM) == places(straight, PSUM) == [
            (0, 6 * 2048), (0, 7 * 2048)]


def test_error__blocks_of_one_address_that_are_needed_at_once():
    kernel = blocks_copied(ncc.sbuf.mod_alloc(base_addr=1024, num_free_tiles=(2,)), one_by_one=False)
    with pytest.raises(AddressConflict, match=r"tiles_0 and tiles_2 have addresses that overlap in SBUF, and both are "
                                              r"needed when tiles_2 is first used") as caught:
        program_of(kernel, ramp(4, 32, 512))
    assert caught.value.at.file == __file__


def test_blocks_that_are_only_accumulated__take_turns_at_an_address():
    """A sum starts from zeros that nobody wrote down: each block's are written when its turn comes."""
    @nki.jit
    def kernel(a):
        out = nl.ndarray((4, 32, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((nl.par_dim(32), 64), a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        tile[...] = nl.load(a)
        sums = nl.ndarray((4, nl.par_dim(32), 64), nl.float32, buffer=ncc.psum.mod_alloc(base_bank=3, num_bank_tiles=(2,)))
        moved = nl.ndarray((4, nl.par_dim(32), 64), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=256))
        for i in nl.affine_range(4):
            for _ in nl.affine_range(i + 1):
                sums[i] += nisa.nc_matmul(tile[:, 0:32], tile)
            moved[i] = nl.copy(sums[i])
            nl.store(out[i], moved[i])
        return out
    a = ramp(32, 64) % 5
    expected = np.stack([(i + 1) * (a[:, :32].T @ a) for i in range(4)])
    check(program_of(kernel, a), a, expected)


def test_no_reorder__keeps_the_order_inside_and_around():
    def kernel_of(directive):
        @nki.jit
        def kernel(a):
            out = nl.ndarray((3, 32, 512), dtype=a.dtype, buffer=nl.shared_hbm)
            with directive:
                for i in range(3):
                    nl.store(out[i], nl.exp(nl.load(a[i])))
            return out
        return kernel
    array = ramp(3, 32, 512) / 1e5
    free, in_order = ([transfers for stream in program_of(kernel_of(d), array).streams.values()
                       if (transfers := ["load" if i.op.src.space == "hbm" else "store" for i in stream
                                         if i.queue is not None])] for d in (nullcontext(), ncc.no_reorder()))
    assert all(transfers == sorted(transfers) for transfers in free)            # loads are first on each engine
    assert sorted(t for transfers in free for t in transfers) == ["load"] * 3 + ["store"] * 3
    assert in_order == [["load", "store"] * 3]
    result = np.zeros_like(array)
    simulate(program_of(kernel_of(ncc.no_reorder()), array), [array], [result])
    np.testing.assert_allclose(result, np.exp(array), rtol=1e-5)
