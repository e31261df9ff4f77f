# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Legal and illegal kernels of the beta generation, whose verdicts must be the same on every executor."""

import numpy as np

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl

X = (np.random.default_rng(0).permutation(32 * 16) % 101).astype(np.float32).reshape(32, 16)
KERNELS = {}


def case(function=None, *, arguments=(X,), cores=None):
    if function is None:
        return lambda function: case(function, arguments=arguments, cores=cores)
    KERNELS[function.__name__] = function, arguments, cores
    return function


def output(x):
    return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)


def copied(x):
    out = output(x)
    nl.store(out, nl.load(x))
    return out


@case
def attributes(x):
    out, tile = output(x), nl.load(x)
    assert x.buffer is nl.hbm and out.buffer is nl.shared_hbm and tile.buffer is nl.sbuf
    assert type(x) is type(out) is type(tile) and isinstance(x, nl.ndarray) and x.name == "x"
    assert x.shape == (32, 16) == tile.shape and x.ndim == 2 and x.dtype == nl.float32 == np.float32 and x.itemsize == 4
    assert len(x) == 32 and hash(x) == hash(x) and x is not out and all(isinstance(n, int) for n in x.shape)
    nl.store(out, tile)
    return out


@case
def values_of_loops(x):
    out = output(x)
    for i in nl.affine_range(4):
        assert isinstance(i, int) and type(i) is int and 0 <= i <= 3 and f"{i}" and i is not None
        assert (i == 2 and i > 1) or i != 2 or i < 0
        nl.store(out[nl.ds(i * 8, 8), :], nl.load(x[nl.ds(i * 8, 8), :]) * (2.0 if i % 2 else 3.0))
    return out


@case(cores=(2, 2))
def values_of_programs(x):
    out = output(x)
    i, j = nl.program_id(0), nl.program_id(1)
    assert nl.program_ndim() == 2 and nl.num_programs() == 4 and nl.num_programs(0) == 2 and isinstance(i, int)
    rows = nl.ds((i * 2 + j) * 8, 8)
    tile = nl.load(x[rows, :])
    if i == 1 and not j == 0:
        nl.store(out[rows, :], tile * 2)
    else:
        nl.store(out[rows, :], tile)
    return out


@case
def tile_as_result(x):
    return nl.load(x) * 2, [nl.matmul(nl.load(x), nl.load(x), transpose_x=True)]


@case(cores=2)
def private_result_of_two_programs(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
    rows = nl.ds(nl.program_id(0) * 16, 16)
    nl.store(out[rows, :], nl.load(x[rows, :]))
    return out


@case(cores=2)
def tile_of_two_programs(x):
    return nl.load(x)


@case
def tile_of_a_loop_as_result(x):
    for i in nl.affine_range(2):
        tile = nl.load(x)
    return tile


@case
def part_as_result(x):
    return copied(x)[0:4]


@case
def number_as_result(x):
    nl.load(x)
    return 3


@case
def nothing(x):
    nl.load(x)


@case
def never_written(x):
    return output(x)


@case
def truth_of_a_tile(x):
    if nl.load(x):
        return copied(x)
    return None


@case
def truth_of_a_conjunction_of_tiles(x):
    tile = nl.load(x)
    return copied(x) if tile and x else None


@case
def truth_of_an_index(x):
    if nl.arange(32)[:, None] < 4 and nl.arange(16)[None, :] < 4:
        return copied(x)
    return None


@case
def index_outside(x):
    return copied(x[0:40, :])


@case
def number_of_a_tile(x):
    return range(nl.load(x[0:1, 0:1]))


@case
def python_error(x):
    for i in nl.affine_range(4):
        if i == 2:
            raise ValueError(f"row {i}")
    return copied(x)


@case
def failed_assertion(x):
    for i in nl.affine_range(4):
        assert i < 2 and x, f"row {i} of {x.shape[0]}"
    return copied(x)


@case
def missing_name(x):
    return nl.exq(nl.load(x))


@case
def unknown_keyword(x):
    return nl.load(x, masks=None)


@case
def missing_argument(x, y):
    return copied(x)


@case(arguments=(X.astype(np.float64),))
def array_of_double(x):
    return copied(x)


@case
def written_input(x):
    out = copied(x)
    nl.store(x, nl.load(x) + 1)
    return out


@case
def wrong_memory(x):
    return nisa.tensor_copy(x)


@case
def too_many_partitions(x):
    return nl.zeros((256, 4), nl.float32)


@case
def program_without_a_grid(x):
    return copied(x[nl.program_id(0)])


@case(arguments=(X, np.full((32, 1), 40, np.int32)))
def run_time_index_outside(x, index):
    out, i = output(x), nl.load(index)
    nl.store(out, nl.load(x[i[nl.arange(32)[:, None], 0], nl.arange(16)[None, :]]))
    return out


@case
def exception_that_is_caught(x):
    try:
        nl.load(x[0:40, :])
    except Exception:
        return copied(x)
    return None


@case
def state_of_arguments(x, log=[]):      # noqa: B006
    log.append(nl.load(x))
    assert len(log) == 1
    return log[0]
