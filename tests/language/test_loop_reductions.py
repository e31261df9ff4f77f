# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nl.loop_reduce`` into elements of lists, dicts and objects, and its result where a tile is expected."""

from types import SimpleNamespace

import numpy as np

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import compare, floats, run

P = 96


def test_loop_reduce_into_elements_of_lists_dicts_and_objects(on):
    """Each is the tile that a variable would get; the evaluator cannot know what the call's value is assigned to."""
    @nki.jit
    def kernel(x):
        o = nl.ndarray((6, P, 16), x.dtype, buffer=nl.shared_hbm)
        sums = [None, nl.zeros((P, 16), x.dtype)]
        most, nested, record = {}, [[None, None], []], SimpleNamespace()
        tiles = [nl.full((P, 16), 0.5, x.dtype)]
        for i in nl.affine_range(2):
            for j in nl.affine_range(2, 5):
                t = nl.load(x[:, nl.ds((i * 5 + j) * 16, 16)])
                sums[i] = nl.loop_reduce(t, op=np.add, loop_indices=[j])
                tiles[0][...] = nl.loop_reduce(t, op=np.add, loop_indices=[i, j])
        for j in nl.affine_range(3):
            t = nl.load(x[:, nl.ds(j * 16, 16)])
            most["all"] = nl.loop_reduce(t, op=np.max, loop_indices=j)
            nested[0][1] = nl.loop_reduce(t, op=np.minimum, loop_indices=j)
            record.sum = nl.loop_reduce(t, op=np.add, loop_indices=j)
        for k, tile in enumerate((*sums, most["all"], nested[0][1], record.sum, tiles[0])):
            nl.store(o[k], tile)
        return o
    x = np.round(floats(P, 160) * 64) / 64
    parts = x.reshape(P, 10, 16).swapaxes(0, 1)
    first, second = parts[2:5].sum(0), parts[7:10].sum(0)
    expected = [first, second, parts[:3].max(0), parts[:3].min(0), parts[:3].sum(0), first + second + 0.5]
    compare(run(on, kernel, x), np.stack(expected))


class Slots:
    """Tiles in turn: each look at ``next`` takes another one."""

    def __init__(self, *tiles):
        self.tiles, self.looks = tiles, 0

    @property
    def next(self):
        self.looks += 1
        return self.tiles[(self.looks - 1) % len(self.tiles)]


def test_a_store_looks_at_its_destination_once(on):
    @nki.jit
    def kernel(x):
        o = nl.ndarray((2, P, 16), x.dtype, buffer=nl.shared_hbm)
        slots = Slots(nl.zeros((P, 16), x.dtype), nl.zeros((P, 16), x.dtype))
        for i in nl.static_range(2):
            slots.next[...] = nl.load(x[:, nl.ds(i * 16, 16)])
        nl.store(o[0], slots.tiles[0])
        nl.store(o[1], slots.tiles[1])
        assert slots.looks == 2
        return o
    x = floats(P, 32)
    compare(run(on, kernel, x), np.stack([x[:, :16], x[:, 16:]]))
