# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels with Python that is hard to capture: state carried round loops, iteration, control flow."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.language.beta import language as nl

ROWS, COLUMNS = 512, 64
PROBES: list["Probe"] = []


@dataclass(frozen=True)
class Probe:
    """One trap. ``loops`` is how many ``scf.for`` must remain (a loop that unrolls needlessly fails, too)."""

    kernel: Callable
    loops: int | None = None
    raises: type[KernelError] | None = None
    says: str = ""                      # of the error: a regular expression
    because: str = ""                   # part of the reason that must be recorded for unrolling
    grid: tuple[int, ...] = ()
    attempts: int = 9
    limit: int = 50_000
    contains: str = ""                  # text of the IR
    unproved: int = 0                   # operations left to a check at run time
    lacks: str = "no such text"
    runs: bool = True                   # False: capture only, running it takes minutes


def probe(**expected):
    def register(kernel):
        PROBES.append(Probe(kernel, **expected))
        return kernel
    return register


def rows(tensor, i):
    return tensor[i * 128:(i + 1) * 128, :]


def copy_rows(o, x, i, scale=1.0):
    nl.store(rows(o, i), nl.load(rows(x, i)) * scale)


# -- Python state carried round a loop ---------------------------------------------------------------------------------
@probe(loops=0, because="state is carried from one iteration to the next: off")
def running_offset(x, o):
    off = 0
    for i in nl.affine_range(4):
        nl.store(o[off:off + 128, :], nl.load(x[off:off + 128, :]))
        off += 128


@probe(loops=0, because="first")
def first_flag(x, o):
    first = True
    for i in nl.affine_range(4):
        copy_rows(o, x, i, 3.0 if first else 1.0)
        first = False


@probe(loops=1, because="tiles")       # the first loop unrolls, the second does not
def list_append(x, o):
    tiles = []
    for i in nl.affine_range(4):
        tiles.append(nl.load(rows(x, i)))
    for i in nl.affine_range(4):
        copy_rows(o, x, i)
    for tile in tiles:
        nl.store(rows(o, 0), tile)


@probe(loops=0, because="dictionary key")
def dictionary_by_loop_variable(x, o):
    tiles = {}
    for i in nl.affine_range(4):
        tiles[i] = nl.load(rows(x, i))
    for i in nl.affine_range(4):
        nl.store(rows(o, i), tiles[i])


class Counter:
    def __init__(self):
        self.n = 0


@probe(loops=0, because="counter")
def object_attribute(x, o):
    counter = Counter()
    for i in nl.affine_range(4):
        copy_rows(o, x, counter.n)
        counter.n += 1


@probe(loops=0, because="outer")
def deep_state_that_changes_no_operation(x, o):
    outer = Counter()
    outer.inner = {"log": [Counter()]}
    for i in nl.affine_range(4):
        copy_rows(o, x, i)
        outer.inner["log"][0].n += 1
    copy_rows(o, x, 0, outer.inner["log"][0].n)


@probe(loops=0, because="acc")
def rebound_tensor(x, o):
    acc = nl.zeros((128, COLUMNS), nl.float32)
    for i in nl.affine_range(4):
        acc = acc + nl.load(rows(x, i))
    nl.store(rows(o, 0), acc)


@probe(loops=0, because="tile")
def rebound_to_the_same_address(x, o):
    tile = nl.load(rows(x, 3))
    for i in nl.affine_range(4):
        nl.store(rows(o, i), tile)
        tile = None                     # frees it: the next one may get its place, and so its id
        tile = nl.load(rows(x, i))


@probe(loops=1)
def tensor_updated_in_place(x, o):
    acc = nl.zeros((128, COLUMNS), nl.float32)
    for i in nl.sequential_range(4):
        acc += nl.load(rows(x, i))
    nl.store(rows(o, 0), acc)


@probe(loops=0, because="offsets")
def iterator_advanced(x, o):
    offsets = iter([0, 128, 256, 384])
    for i in nl.affine_range(4):
        off = next(offsets)
        nl.store(o[off:off + 128, :], nl.load(x[off:off + 128, :]))


@probe(loops=0, because="bump")
def nonlocal_counter(x, o):
    n = 0

    def bump():
        nonlocal n
        n += 1
        return n - 1
    for i in nl.affine_range(4):
        copy_rows(o, x, bump())


@probe(loops=3)                        # temporaries bound before they are read are not carried
def innocent_temporaries(x, o):
    for i in nl.affine_range(4):
        n = i * 128
        for j in nl.affine_range(2):
            m = n + 64 * j
            nl.store(o[m:m + 64, :], nl.load(x[m:m + 64, :]))
    for i in nl.affine_range(4):
        n, scale = i, 2.0
        copy_rows(o, x, n, scale)


@probe(loops=0, because="emits other operations")
def random_number(x, o):
    random.seed(0)
    for i in nl.affine_range(4):
        copy_rows(o, x, i, random.random())


@probe(loops=0, because="sizes")
def numpy_array_as_state(x, o):
    sizes = np.zeros(4, np.int64)
    for i in nl.affine_range(4):
        copy_rows(o, x, int(sizes.sum()))
        sizes[0] += 1


# -- iteration other than a for statement ------------------------------------------------------------------------------
@probe(loops=0)
def comprehension_enumerate_zip(x, o):
    tiles = [nl.load(rows(x, i)) for i in nl.affine_range(4)]
    for n, i in enumerate(nl.affine_range(4)):
        nl.store(rows(o, n), tiles[i])
    for i, scale in zip(nl.affine_range(2), (2.0, 3.0)):
        copy_rows(o, x, i, scale)


@probe(loops=1, because="after the loop")
def loop_variable_after_loop(x, o):
    for i in nl.affine_range(4):
        copy_rows(o, x, i)
    for j in nl.affine_range(3):
        last = j
    copy_rows(o, x, last, 2.0)


# -- control flow ------------------------------------------------------------------------------------------------------
@probe(loops=1)
def symbolic_if(x, o):
    for i in nl.affine_range(4):
        if i < 1:
            copy_rows(o, x, i, 2.0)
        elif i == 2:
            copy_rows(o, x, i, 3.0)
        else:
            copy_rows(o, x, i, 4.0)


@probe(loops=1)                        # the if proves the index: i + 1 <= 3
def symbolic_if_bounds_an_index(x, o):
    for i in nl.affine_range(4):
        if i != 3:
            copy_rows(o, x, i)
        if i < 3:
            nl.store(rows(o, i + 1), nl.load(rows(x, i)))


@probe(loops=0, because="changes Python state: scale")
def scalar_chosen_by_symbolic_if(x, o):
    for i in nl.affine_range(4):
        if i < 2:
            scale = 2.0
        else:
            scale = 3.0
        copy_rows(o, x, i, scale)


@probe(loops=0, because="changes Python state: scale")
def state_that_else_restores(x, o):
    scale = 1.0
    for i in nl.affine_range(4):
        if i < 2:
            scale = 2.0
        else:
            scale = 1.0
        copy_rows(o, x, i, scale)


@probe(loops=0, because="changes Python state: tile")
def tensor_chosen_by_symbolic_if(x, o):
    one, two = nl.load(rows(x, 0)), nl.load(rows(x, 1))
    for i in nl.affine_range(4):
        tile = one
        if i >= 2:
            tile = two
        nl.store(rows(o, i), tile)


@probe(loops=0, because="changes Python state: kept")
def list_append_under_symbolic_if(x, o):
    kept = []
    for i in nl.affine_range(4):
        tile = nl.load(rows(x, i))
        if i < 2:
            kept.append(tile)
    for n, tile in enumerate(kept):
        nl.store(rows(o, n), tile)


@probe(loops=1)                        # decided by the loop's range: i is never negative, so capture decides the condition
def condition_known_from_range(x, o):
    for i in nl.affine_range(4):
        assert i >= 0 and i < 4
        if i > 7:
            return
        copy_rows(o, x, np.int64(1) * i)


@probe(loops=0, because="truth")
def while_loop_over_symbol(x, o):
    for i in nl.affine_range(4):
        n = i
        while n < 3:
            n = n + 1
        copy_rows(o, x, i, 1.0 if n == 3 else 2.0)


@probe(loops=0, because="truth")
def break_under_symbolic_if(x, o):
    for i in nl.affine_range(4):
        if i == 2:
            break
        copy_rows(o, x, i)


@probe(loops=0, because="truth")
def return_under_symbolic_if(x, o):
    for i in nl.affine_range(4):
        copy_rows(o, x, i)
        if i == 1:
            return


@probe(loops=0, because="break or return")
def break_at_once(x, o):
    for i in nl.affine_range(4):
        copy_rows(o, x, i)
        break


@probe(loops=0)
def exception_swallowed(x, o):
    scales = [1.0, 2.0, 3.0, 4.0]
    for i in nl.affine_range(4):
        try:
            scale = scales[i]
        except BaseException:
            scale = 9.0
        copy_rows(o, x, i, scale)


@probe(loops=3, because="truth", attempts=2)   # just the middle loop unrolls: the outer one, and the inner one twice
def nested_loops(x, o):
    for i in nl.affine_range(2):
        for j in nl.affine_range(2):
            scale = 2.0 if j == 0 else 3.0
            for k in nl.affine_range(2):
                at = i * 256 + j * 128 + k * 64
                nl.store(o[at:at + 64, :], nl.load(x[at:at + 64, :]) * scale)
