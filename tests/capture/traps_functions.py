# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels with calls that are hard to capture: helpers, closures, methods, generators, state in other modules.
``test_capture`` runs them.
"""

from nki_mlir.language.beta import language as nl

from . import probe_helper
from .traps import copy_rows, probe


@probe(loops=0)
def helper_with_plain_range(x, o):
    probe_helper.double_rows(o, x, 4)


@probe(loops=1)
def helper_with_affine_range(x, o):
    probe_helper.double_rows_rolled(o, x, 4)


@probe(loops=1)
def kernel_with_plain_range(x, o):
    for i in range(4):
        copy_rows(o, x, i if isinstance(i, int) else 0)


def offsets_of(count):
    for i in nl.affine_range(count):
        yield i * 128


@probe(loops=0)
def generator_helper(x, o):
    passes = 0
    for off in offsets_of(4):
        nl.store(o[off:off + 128, :], nl.load(x[off:off + 128, :]) * passes)
        passes += 1


class Mover:
    scale = 2.0

    def move(self, o, x):
        for i in nl.affine_range(4):
            copy_rows(o, x, i, self.scale)


@probe(loops=1)
def method_of_an_object(x, o):
    Mover().move(o, x)


def make_scaled(scale):
    def closure(x, o):
        for i in nl.affine_range(4):
            copy_rows(o, x, i, scale)
    return closure


probe(loops=1)(make_scaled(5.0))


@probe(loops=0, because="state is carried from one iteration to the next: probe_helper")
def state_in_another_module(x, o):
    for i in nl.affine_range(4):
        off = probe_helper.next_offset()
        nl.store(o[off:off + 128, :], nl.load(x[off:off + 128, :]))
