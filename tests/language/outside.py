# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Undecorated helper functions with loops, which kernels call."""

from nki_mlir.language.beta import language as nl

WEIGHT = 2


def weighted(tile):
    return tile * WEIGHT


def double_all(out, x, count):
    for i in nl.affine_range(count):
        tile = nl.load(x[i])
        if i >= 0:
            tile += tile
        nl.store(out[i], tile)


def doubled(tile, times):
    return tile if times == 0 else doubled(tile, times - 1) * 2


class Adder:
    def __init__(self, amount):
        self.amount = amount

    def add(self, out, count):
        for i in range(count):
            nl.store(out[i], nl.load(out[i]) + self.amount)
