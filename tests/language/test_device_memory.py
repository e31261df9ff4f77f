# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does not fit into SBUF and PSUM: tiles that are too large, too many at once, at colliding addresses."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.capture.on_chip_memory import AddressesCollide, HeldAtOnce, TileTooLarge
from nki_mlir.diagnostics import DeviceRuleWarning
from nki_mlir.language.beta import compiler as ncc
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import unwrap

from .running import numbers, run

X = numbers(128, 64)


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_DEVICE_RULES", raising=False)


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(tile))
    return out


def shown_by(on, kernel, *arguments, target="trn2"):
    """The warnings of a run."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        run(on, replace(unwrap(nki.jit(kernel)), target=target), *arguments)
    return [str(w.message) for w in shown if w.category is DeviceRuleWarning]


@pytest.mark.parametrize("target, fits", [("trn1", 49152), ("trn2", 57344), ("trn3", 65536)])
def test_a_tile_has_room_in_a_partition(on, target, fits):
    def kernel(x, elements):
        tile = nl.ndarray((128, elements), nl.float32)
        tile[:, 0:64] = nl.load(x)
        return stored(tile[:, 0:64])
    with pytest.raises(TileTooLarge) as error:
        run(on, replace(unwrap(nki.jit(kernel)), target=target), X, fits + 1)
    assert error.value.headline == (
        f"a tile of shape [128, {fits + 1}] of float32 takes {4 * fits + 4} bytes of each partition; SBUF of {target} "
        f"has {4 * fits}")
    assert error.value.advice[1] == f"work on {fits} elements of a partition at a time, in a loop"
    if on != "isa":         # no tile of all memory is left to streams: some of it is reserved
        np.testing.assert_array_equal(run(on, replace(unwrap(nki.jit(kernel)), target=target), X, fits), X)


def test_a_tile_has_room_in_psum(on):
    def kernel(x, elements):
        tile = nl.ndarray((128, elements), nl.float32, buffer=nl.psum)
        tile[:, 0:64] = nl.load(x)
        return stored(tile[:, 0:64])
    with pytest.raises(TileTooLarge, match=r"takes 16388 bytes of each partition; PSUM of trn2 has 16384"):
        run(on, nki.jit(kernel), X, 4097)
    np.testing.assert_array_equal(run(on, nki.jit(kernel), X, 4096), X)


def test_a_result_has_room(on):
    wide = np.ones((2, 60000), np.float32)
    with pytest.raises(TileTooLarge, match="of shape"):
        run(on, nki.jit(lambda x: stored(nl.load(x))), wide)


def test_blocks_are_tiles_of_their_own(on):
    def kernel(x):
        tiles = nl.zeros((3, nl.par_dim(128), 20000), nl.float32)
        for k in range(3):
            tiles[k, :, 0:64] = nl.load(x)
        return stored(tiles[2, :, 0:64])
    messages = [w for w in shown_by(on, kernel, X) if "live at once" in w]
    assert messages and "SBUF of trn2 has 212984: tiles 240000 (line" in messages[0]


def keeping(count):
    def kernel(x):
        tiles = [nl.load(x) for _ in range(count)]
        total = tiles[0]
        for tile in tiles[1:]:
            total = nl.add(total, tile)
        return stored(total)
    return kernel


def test_tiles_held_at_once(on):
    wide = np.ones((128, 16000), np.float32)
    message, = shown_by(on, keeping(4), wide)
    line = keeping.__code__.co_firstlineno
    assert message == (
        f"5 tiles that are live at once take 320000 bytes of each partition; SBUF of trn2 has 212984: tiles_0 64000 (line "
        f"{line + 2}), tiles_1 64000 (line {line + 2}), tiles_2 64000 (line {line + 2}), tiles_3 64000 (line {line + 2}), total 64000 "
        f"(line {line + 5}) [NKI-MEMORY-HELD]; make tiles smaller, or use a tile for the last time before you "
        "allocate the next")
    assert not shown_by(on, keeping(2), wide)


def test_tiles_one_after_the_other(on):
    def kernel(x):
        out = nl.ndarray((8, 128, 16000), nl.float32, buffer=nl.shared_hbm)
        for k in range(8):
            nl.store(out[k], nl.load(x))
        return out
    assert not shown_by(on, kernel, np.ones((128, 16000), np.float32))


def test_a_loop_holds_what_it_uses(on):
    def kernel(x):
        outside = nl.load(x)
        out = nl.ndarray((4, 128, 16000), nl.float32, buffer=nl.shared_hbm)
        for k in nl.affine_range(4):
            first = nl.load(x)
            nl.store(out[k], nl.add(first, outside))
            second = nl.load(x)
            third = nl.multiply(second, 2.0)
            nl.store(out[k], nl.add(second, third))
        return out
    messages = shown_by(on, kernel, np.ones((128, 16000), np.float32))
    assert messages and messages[0].startswith("4 tiles that are live at once take 256000 bytes")


def test_blocks_that_take_turns_in_one_place_count_once(on):
    """Software pipelines: 12 blocks in two banks, beside a tensor of the same size without addresses."""
    def kernel(x, slots):
        turns = nl.ndarray((12, nl.par_dim(128), 512), nl.float32,
                           buffer=ncc.psum.mod_alloc(base_bank=0, num_bank_tiles=(slots,)))
        out = nl.ndarray((12, 128, 512), nl.float32, buffer=nl.shared_hbm)
        half = nl.load(x)
        for k in nl.affine_range(12):
            turns[k] = nisa.tensor_copy(half)
            nl.store(out[k], nisa.tensor_copy(turns[k]))
        return out
    x = numbers(128, 512)
    assert not shown_by(on, kernel, x, 2)
    np.testing.assert_array_equal(run(on, nki.jit(kernel), x, 2), np.broadcast_to(x, (12, 128, 512)))


def test_tiles_without_addresses_beside_one_that_has_some(on):
    def kernel(x):
        turns = nl.ndarray((9, nl.par_dim(128), 16000), nl.float32,
                           buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)))
        out = nl.ndarray((9, 128, 16000), nl.float32, buffer=nl.shared_hbm)
        first, second = nl.load(x), nl.load(x)
        for k in nl.affine_range(9):
            turns[k] = nl.load(x)
            nl.store(out[k], turns[k])
            nl.store(out[k], first)
            nl.store(out[k], second)
        return out
    message, = (w for w in shown_by(on, kernel, np.ones((128, 16000), np.float32)) if "live at once" in w)
    assert message.startswith("3 tiles that are live at once take 256000 bytes of each partition")
    assert "turns 128000 (line" in message


def test_an_error_of_that_level(on, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "error")
    with pytest.raises(HeldAtOnce, match="5 tiles that are live at once take 320000 bytes of each partition"):
        run(on, nki.jit(keeping(4)), np.ones((128, 16000), np.float32))
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "off")
    assert not shown_by(on, keeping(4), np.ones((128, 16000), np.float32))


def at(first, second):
    def kernel(x):
        a = nl.ndarray((nl.par_dim(128), 64), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=first))
        b = nl.ndarray((nl.par_dim(128), 64), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=second))
        zeros = nl.ndarray((nl.par_dim(128), 1), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=4096))
        zeros[...] = 0.0
        a[...] = nl.load(x)
        b[...] = nisa.activation(np.square, a, bias=zeros)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.add(a, b))
        return out
    return kernel


def test_addresses_collide(on):
    np.testing.assert_array_equal(run(on, nki.jit(at(0, 256)), X), X + X * X)
    with pytest.raises(AddressesCollide) as error:
        run(on, nki.jit(at(0, 128)), X)
    assert error.value.headline == "a and b have addresses that overlap in SBUF, and the kernel uses b before its last use of a"
    assert error.value.at is not None and error.value.at.line == at.__code__.co_firstlineno + 3
