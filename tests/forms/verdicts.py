# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Legal and illegal kernels of the current generation, whose verdicts must be the same on every executor."""

import numpy as np

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl

X = (np.random.default_rng(0).permutation(32 * 16) % 101).astype(np.float32).reshape(32, 16)
KERNELS = {}


def case(function=None, *, arguments=(X,), cores=None):
    if function is None:
        return lambda function: case(function, arguments=arguments, cores=cores)
    KERNELS[function.__name__] = function, arguments, cores
    return function


def output(x, buffer=nl.shared_hbm):
    return nl.ndarray(x.shape, x.dtype, buffer=buffer)


def copied(x):
    out = output(x)
    nisa.dma_copy(out, x)
    return out


# -- what Python sees --------------------------------------------------------------------------------------------------
@case
def attributes(x):
    out, tile = output(x), nl.load(x)
    assert x.buffer == nl.hbm == nl.private_hbm and x.buffer is nl.hbm and nl.is_hbm(x.buffer)
    assert out.buffer == nl.shared_hbm and tile.buffer == nl.sbuf and not nl.is_on_chip(x.buffer)
    assert type(x) is type(out) is type(tile) is nl.NkiTensor and isinstance(x, nl.ndarray)
    assert x.shape == (32, 16) and x.shape == [32, 16] and isinstance(x.shape, tuple) and x.ndim == 2 and x.size == 512
    assert x.dtype == nl.float32 == np.float32 and str(x.dtype) == "float32" and x.itemsize == 4
    assert x.strides == (16, 1) and x.offset == 0 and x.is_contiguous() and x.get_pattern() == [[16, 32], [1, 16]]
    assert x.name == "x" and not x.is_indirect() and len(x) == 32
    assert all(isinstance(n, int) for n in x.shape) and hash(x) == hash(x) and x is not out
    nisa.dma_copy(out, tile)
    return out


@case(cores=2)
def attributes_on_two_cores(x):
    out = output(x)
    assert x.buffer == nl.shared_hbm and nl.is_hbm(x.buffer) and out.buffer == nl.shared_hbm
    assert nl.program_ndim() == 1 and nl.num_programs() == nl.num_programs(0) == 2 and nl.num_programs(1) == 1
    p = nl.program_id(0)
    assert type(p) is int and p in (0, 1) and nl.program_id(1) == 0
    nisa.dma_copy(out[nl.ds(p * 16, 16), :], nl.load(x[nl.ds(p * 16, 16), :]))
    return out


@case
def programs_of_no_grid(x):
    assert (nl.program_ndim(), nl.num_programs(), nl.program_id(0), nl.program_id()) == (0, 1, 0, 0)
    return copied(x)


@case
def truth_and_identity(x):
    tile = nl.load(x)
    assert x and tile and x is not None and x != None and x == x and not (x == None)     # noqa: E711
    assert tile[0:32, :] is not tile and {x: 1}[x] == 1 and x in [x]
    return copied(x)


@case
def names(x):
    first, second = output(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="mine")
    assert second.name == "mine" and first.name != second.name
    for out in (first, second):
        nisa.dma_copy(out, x)
    return first, second


@case
def targets(x):
    assert nisa.get_nc_version() == nisa.nc_version.gen4 and nl.tile_size.pmax == 128
    return copied(x)


@case(arguments=(X, 3, 2.5, "s", None, True, (1, [2]), {"k": 1}, np.float16, nl.bfloat16, [X, X]))
def arguments_of_all_kinds(x, i, f, s, none, flag, t, d, kind, dtype, tensors):
    assert (type(i), type(f), type(s), none, flag, t, d) == (int, float, str, None, True, (1, [2]), {"k": 1})
    assert nl.float16 == kind and dtype is nl.bfloat16 and tensors[0].shape == (32, 16)
    return nl.add(nl.load(tensors[0]), nl.load(tensors[1]))


@case
def state_of_arguments(x, log=[]):      # noqa: B006
    log.append(nl.load(x))
    assert len(log) == 1
    return log[0]


@case
def python_objects(x):
    class State:
        tiles = ()
    state = State()
    state.tiles = [nl.load(x[0:16, :]), nl.load(x[16:32, :])]
    scaled = {k: nl.multiply(t, float(k)) for k, t in enumerate(state.tiles)}
    return [scaled[k] for k in sorted(scaled, reverse=True)]


# -- results -----------------------------------------------------------------------------------------------------------
@case
def in_private_memory(x):
    out = output(x, nl.hbm)
    nisa.dma_copy(out, x)
    return out


@case
def in_sbuf(x):
    return nl.load(x), (nl.load(x[0:4, 0:3]),)


@case
def in_psum(x):
    transposed = nl.ndarray((16, 32), x.dtype, buffer=nl.psum)
    nisa.nc_transpose(transposed, nl.load(x))
    return transposed


@case(arguments=(X, X))
def inputs(x, y):
    return y, x


@case
def views(x):
    out = copied(x)
    return out[4:8, :], out.reshape((16, 32)), x[:, 3:4], out.view(nl.int32), out


@case
def updated(x):
    nisa.dma_copy(x[0:16, :], nl.load(x[16:32, :]))


@case
def several(x):
    out = copied(x)
    return {"a": out, "b": [out, None, (copied(x),)]}


@case
def never_written(x):
    return output(x)


@case
def no_tensor(x):
    nl.load(x)
    return 3


@case
def nothing_at_all(x):
    nl.load(x)


@case(cores=2)
def tile_of_two_cores(x):
    return nl.load(x)


@case(cores=2)
def private_of_two_cores(x):
    out = output(x, nl.hbm)
    p = nl.program_id(0)
    nisa.dma_copy(out[nl.ds(p * 16, 16), :], nl.load(x[nl.ds(p * 16, 16), :]))
    return out


# -- errors ------------------------------------------------------------------------------------------------------------
@case
def python_error(x):
    raise ValueError("no")


@case
def failed_assertion(x):
    assert x.shape[0] == 5, f"rows: {x.shape[0]}"


@case
def missing_name(x):
    return nl.exq(nl.load(x))


@case
def missing_attribute(x):
    return x.shapes


@case
def missing_argument(x, y):
    return copied(x)


@case(arguments=(X.astype(np.float64),))
def array_of_double(x):
    return copied(x)


@case
def unknown_keyword(x):
    return nl.load(x, masks=None)


@case
def slice_outside(x):
    return nl.load(x[0:33, :])


@case
def index_outside(x):
    return nl.load(x[32, :])


@case
def too_many_indices(x):
    return nl.load(x[0, 0, 0])


@case
def reshape_of_other_size(x):
    return nl.load(x.reshape((32, 17)))


@case
def float_shape(x):
    return nl.ndarray((32 / 2, 16), x.dtype)


@case
def too_many_partitions(x):
    tile = nl.ndarray((256, 16), x.dtype)
    nisa.memset(tile, 0.0)
    return tile


@case
def shapes_that_do_not_agree(x):
    out = nl.ndarray((32, 8), x.dtype)
    nisa.tensor_copy(out, nl.load(x))
    return out


@case
def operator_on_tiles(x):
    return nl.load(x) @ nl.load(x)


@case
def number_of_a_tile(x):
    return range(nl.load(x[0:1, 0:1]))


@case
def no_tensor_as_operand(x):
    out = nl.ndarray(x.shape, x.dtype)
    nisa.tensor_copy(out, 3)
    return out


@case
def wrong_memory(x):
    out = nl.ndarray(x.shape, x.dtype)
    nisa.tensor_copy(out, x)
    return out


@case
def names_twice(x):
    nl.ndarray(x.shape, x.dtype, name="mine")
    nl.ndarray(x.shape, x.dtype, name="mine")
    return copied(x)


@case
def bad_address(x):
    return nl.ndarray((32, 16), x.dtype, address=(5, 0))


@case
def negative_axis_of_the_launch(x):
    return nl.program_id(-1)


@case
def core_that_is_not_there(x):
    out = copied(x)
    nisa.core_barrier(out, (0, 1))
    return out


@case(arguments=(X, np.full((32, 1), 40, np.int32)))
def run_time_index_outside(x, index):
    out = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(out, x.ap([[16, 32], [1, 16]], vector_offset=nl.load(index)))
    return out


@case
def break_of_a_dynamic_loop(x):
    for i in nl.dynamic_range(4):
        break
    return copied(x)


@case
def register_as_a_number(x):
    register = nisa.register_alloc(3)
    return nl.load(x[0:int(register), :])


@case
def condition_on_a_register(x):
    register = nisa.register_alloc(3)
    if register:
        return copied(x)
    return None


@case
def tile_of_another_generation(x):
    from nki_mlir.language.beta import language as beta
    return nl.add(beta.zeros((32, 16), beta.float32), nl.load(x))


@case
def schedule_of_unknown_names(x):
    return copied(x)


@case
def exception_of_its_own(x):
    class Mine(Exception):
        pass
    try:
        raise Mine("caught")
    except Mine:
        return copied(x)


@case
def dtype_that_is_none(x):
    return nl.ndarray(x.shape, "float33")


@case
def string_as_memory(x):
    out = nl.ndarray(x.shape, x.dtype, buffer="sbuf")
    nisa.dma_copy(out, x)
    return out


@case
def unwritten_tile(x):
    tile = nl.ndarray(x.shape, nl.int32)
    out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, x)
    assert tile.shape == x.shape
    return out


@case
def carried_state(x):
    count = 0
    for i in nl.dynamic_range(4):
        count = count + 1
    return copied(x)


@case
def state_that_a_body_adds_to(x):
    tiles = []
    for i in nl.dynamic_range(4):
        tiles.append(nl.load(x))
    return copied(x)


@case
def loop_of_the_device(x):
    out = copied(x)
    register = nisa.register_alloc(3)
    for i in nl.dynamic_range(register):
        tile = nl.load(out)
        nisa.dma_copy(out, nl.add(tile, tile))
    return out


@case
def jit_of_another(x):
    from nki_mlir.language.current import nki

    @nki.jit
    def helper(tile):
        return nl.multiply(tile, 2.0)
    return helper(helper(nl.load(x)))
