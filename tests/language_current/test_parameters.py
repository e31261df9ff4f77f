# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What parameters do not take is refused at the kernel's line, with the choices; what they take has its effect."""

import re
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current import collectives as ncc
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current import typing as nt
from nki_mlir.language.current.errors import NkiTypeError

from .running import check, floats, numbers, on_tiles, run

ENGINE, CMD = nisa.engine, nisa.reduce_cmd
ONE = ncc.ReplicaGroup([[0]])


def hbm():
    return nl.ndarray((8, 4), nl.float32, buffer=nl.hbm)


REFUSED = [
    # -- kinds of values
    (lambda d, x: nisa.tensor_tensor(d, x, x, nl.add, name=5), "name: expecting 'string', got 5"),
    (lambda d, x: nisa.tensor_scalar(d, x, nl.add, "1"), "operand0: expecting 'number' or 'tensor', got '1'"),
    (lambda d, x: nisa.tensor_scalar(d, x, nl.add, [1.0]), "operand0: expecting 'number' or 'tensor'"),
    (lambda d, x: nisa.tensor_scalar(d, x, nl.subtract, 1.0, reverse0="no"), "reverse0: expecting 'bool', got 'no'"),
    (lambda d, x: nisa.scalar_tensor_tensor(d, x, nl.add, np.ones(3), nl.add, x), "operand0: expecting 'number'"),
    (lambda d, x: nisa.activation(d, nl.exp, x, bias=ENGINE.vector), "bias: expecting 'number' or 'tensor'"),
    (lambda d, x: nisa.activation(d, nl.exp, x, scale=None), "scale: expecting 'number' or 'tensor', got None"),
    (lambda d, x: nisa.memset(d, None), "value: expecting 'number', got None"),
    (lambda d, x: nisa.memset(d, 1j), "value: expecting 'number', got 1j"),
    (lambda d, x: nisa.tensor_tensor_scan(d, x, x, "0", nl.add, nl.add), "initial: expecting 'number' or 'tensor'"),
    (lambda d, x: nisa.dropout(d, x, None), "prob: expecting 'number' or 'tensor'"),
    (lambda d, x: nisa.iota(d, [[1, 8]], channel_multiplier=0.5), "channel_multiplier: expecting 'integer', got 0.5"),
    (lambda d, x: nisa.iota(d, [[1, 8]], offset=1.5), "offset: expecting 'integer', got 1.5"),
    (lambda d, x: nisa.affine_select(d, [[1, 8]], 1, x, "0"), "on_false_value: expecting 'number', got '0'"),
    (lambda d, x: nisa.nc_stream_shuffle(d, x, None), "shuffle_mask: expecting 'sequence', got None"),
    (lambda d, x: nisa.nc_stream_shuffle(d, x, [0.5] * 32), "shuffle_mask: expecting 'integer', got 0.5"),
    (lambda d, x: nisa.rand2(d, "0", 1.0), "min: expecting 'number' or 'tensor'"),
    (lambda d, x: nisa.tensor_reduce(d, nl.add, x, axis="1"), "axis: expecting 'integer', got '1'"),
    (lambda d, x: nl.full((32, 8), "a", nl.float32), "fill_value: expecting 'number', got 'a'"),
    (lambda d, x: nl.sum(x, 1, keepdims="no"), "keepdims: expecting 'bool', got 'no'"),
    (lambda d, x: nisa.register_alloc("x"), "register_alloc x: expecting 'integer', got 'x'"),
    (lambda d, x: nisa.register_move(nisa.register_alloc(1), 1.5), "register_move src: expecting 'integer', got 1.5"),
    (lambda d, x: x.ap([[8, 32], [1, 8]], dtype="floaty"), "unsupported dtype 'floaty'"),
    (lambda d, x: x.view(3), "unsupported dtype '3'"),
    (lambda d, x: nisa.dma_transpose(d, x, axes=1), "axes 1 of a tensor of 2 dimensions"),
    (lambda d, x: nisa.dma_compute(d, [x, x], nl.add, scales=[1.0]), "scales must be 1.0 for each of the 2 sources"),
    (lambda d, x: nl.zeros_like(3), "x: expecting 'tensor', got 'int'"),
    (lambda d, x: nl.broadcast_to(x, 5), "shape: expecting 'sequence' of integers, got 5"),
    (lambda d, x: nl.where(x, None, x), "x: expecting 'number' or 'tensor', got None"),
    (lambda d, x: nl.rms_norm(x, x, 1, "8"), "n: expecting 'number', got '8'"),
    (lambda d, x: nl.rms_norm(x, x, 1, 8, compute_dtype="x"), "unsupported dtype 'x'"),
    (lambda d, x: nl.ndarray((2, 3), nl.float32, address=(0, 0.5)), "address: expecting 'integer', got 0.5"),
    (lambda d, x: nl.shared_constant("/no/file.npy"), "there is no file /no/file.npy"),
    (lambda d, x: nl.shared_constant(__file__), "test_parameters.py: cannot be read: it is no array of numbers"),
    (lambda d, x: nl.shared_constant(np.array([[2**40]])), "integers of more than 32 bits"),
    (lambda d, x: nl.static_range(1.5), "static_range stop: expecting 'integer', got 1.5"),
    (lambda d, x: nl.fori_loop(0, 3, 5), "body_fun: expecting 'function', got 5"),
    (lambda d, x: nl.is_sbuf(x), "expecting 'buffer type'"),
    (lambda d, x: x[:, nl.ds("a", 3)], "ds start: expecting 'integer', got 'a'"),
    (lambda d, x: x.slice(1, 0.0, 3), "slice start: expecting 'integer', got 0.0"),
    (lambda d, x: x.select(1, 1.5), "select index: expecting 'integer', got 1.5"),
    (lambda d, x: x.select(1, x), "select requires scalar argument, got a tensor of shape [32, 8]"),
    (lambda d, x: x.permute((0, 1.0)), "permute dims: expecting 'sequence' of integers, got (0, 1.0)"),
    (lambda d, x: x[:, 0:1].broadcast(1, 2.5), "broadcast size: expecting 'integer', got 2.5"),
    (lambda d, x: x.reshape((32, 2.0, 4)), "reshape: expecting 'sequence' of integers"),
    (lambda d, x: x.rearrange(("p", ("a", "b")), ("p", "a", "b"), 3), "fixed_sizes: expecting 'dict', got 3"),
    (lambda d, x: x.indirect(x), "indirect index is a tensor of integers"),
    (lambda d, x: ncc.all_reduce([x], [d], [[0]], nl.add), "replica_group: expecting 'ReplicaGroup', got 'list'"),
    (lambda d, x: ncc.ReplicaGroup(4), "groups: expecting lists of ranks, got 4"),
    (lambda d, x: ncc.all_reduce([x], [nl.ndarray((32, 8), nl.int32)], ONE, nl.add), "dst is int32, src is float32"),
    (lambda d, x: ncc.collective_permute_implicit([x], [d], ONE, channel_ids=0), "channel_ids: expecting 'sequence'"),
    (lambda d, x: ncc.collective_permute([hbm()], [hbm()], [0, 1]), "source_target_pairs: expecting pairs of ranks"),
    (lambda d, x: ncc.rank_id(name=3), "name: expecting 'string', got 3"),
    (lambda d, x: nisa.core_barrier(x, (0, 0.5)), "core_barrier cores: expecting 'integer', got 0.5"),
    (lambda d, x: nisa.sendrecv(d, x, 0, "0", 0), "recv_from_rank: expecting 'integer', got '0'"),
    # -- choices
    (lambda d, x: nisa.core_barrier(x, (0, 1), engine=ENGINE.dma), "attribute 'engine' of 'core_barrier' is 'dma', which must be one of unknown, "),
    (lambda d, x: nisa.rng(d, engine=ENGINE.tensor), "attribute 'engine' of 'rng' is 'tensor', which must be one of unknown, "),
    (lambda d, x: nisa.rand_get_state(d, engine=ENGINE.scalar), "attribute 'engine' of 'rand_get_state' is 'scalar', which must be one of unknown, "),
    (lambda d, x: nisa.activation(d, nl.cos, x), "cos is not an activation function"),
    (lambda d, x: nisa.activation(d, nl.exp, x, reduce_cmd=CMD.load_reduce), "'activation_accumulate' is 'load_reduce', which must be one of idle, reset, reduce, reset_reduce"),
    (lambda d, x: nisa.tensor_scalar_reduce(d, x, nl.add, 1.0, nl.add, reduce_cmd=CMD.idle), "'tensor_scalar_reduce' is 'idle', which must be one of reset_reduce, reduce, load_reduce"),
    (lambda d, x: nisa.exponential(d, x, reduce_cmd=CMD.reset), "'exponential' is 'reset', which must be one of idle, reduce, reset_reduce, load_reduce"),

    (lambda d, x: nisa.exponential(d, x, reduce_init=2.0), "an initial value only with reduce_cmd load_reduce"),
    (lambda d, x: nisa.tensor_reduce(d, nl.add, x, axis=7), "a tile of 2 dimensions has no axis 7"),
    (lambda d, x: nisa.tensor_reduce(d, nl.add, x, axis=()), "a tile of 2 dimensions has no axis ()"),
    (lambda d, x: nisa.tensor_reduce(d, nl.add, x, axis=(1, -1)), "names an axis twice"),
    (lambda d, x: nisa.dropout(d, x, 2.0), "the probability of dropout must be from 0 to 1, got 2.0"),
    (lambda d, x: nisa.activate2(d, nl.exp, x, None, 1.0, nl.multiply, nl.add), "imm0 is missing"),
    (lambda d, x: nisa.range_select(d, x, nl.less, nl.less, x, x, range_start=2**24), "beyond 2**24"),
    (lambda d, x: nisa.nc_matmul(d, x, x, tile_position=1, tile_size=(64, 64)), "tile_position: expecting 'pair', got 1"),
    (lambda d, x: nisa.nc_matmul(d, x, x, tile_position=(0, 0), tile_size=(16, 64)), "rows and columns must be of"),
]


@pytest.mark.parametrize("body, message", REFUSED, ids=[m for _, m in REFUSED])
def test_what_a_parameter_does_not_take(body, message):
    with pytest.raises(NkiMlirError, match=re.escape(message)) as caught:
        on_tiles("interpreter", body, [((32, 8), nl.float32)], floats(32, 8))
    assert caught.value.at.file == __file__


def test_integers_stay_exact(on):
    x, column = numbers(32, 8, dtype=np.int32) * 2**20 + 7, numbers(32, 1, dtype=np.int32)
    check(on, lambda d, t: nisa.tensor_copy(d, t, engine=ENGINE.scalar), x, x)
    check(on, lambda d, t, c: nisa.tensor_scalar(d, t, nl.multiply, 3, op1=nl.subtract, operand1=c), x * 3 - column, x,
          column)
    values = np.arange(32)[:, None] - np.arange(8)
    check(on, lambda d, t: nisa.affine_select(d, [[-1, 8]], 1, t, 7, nl.greater), np.where(values > 0, x, 7), x)
    high = x.astype(np.uint32) + 2**31
    check(on, lambda d, t: nisa.affine_select(d, [[-1, 8]], 1, t, -1.0, nl.less), np.where(values < 0, high, 0), high)


@pytest.mark.parametrize("engine", ["unknown", "gpsimd", "vector"])
def test_the_state_of_each_generator(on, engine):
    chosen, words = ENGINE[engine], 24 if engine == "vector" else 6
    source = ENGINE.vector if engine == "vector" else ENGINE.gpsimd

    def body(a, b):
        state = nl.ndarray((32, words), nl.uint32)
        nisa.rand_get_state(state, engine=chosen)
        nisa.rng(a, engine=source)
        nisa.rand_set_state(state, engine=chosen)
        nisa.rng(b, engine=source)
    a, b = on_tiles(on, body, [((32, 9), nl.int32)] * 2)
    np.testing.assert_array_equal(a, b)


def test_gathers_stay_in_their_row(on):
    x, places = floats(32, 8), np.full((32, 4), 8, np.uint32)
    with pytest.raises(IndexError, match="index 8 is out of bounds for axis 0 with size 8"):
        on_tiles(on, lambda d, t, i: nisa.nc_n_gather(d, t, i), [((32, 4), nl.float32)], x, places)


def test_activation_reduces_by_other_operators(on):
    x = floats(32, 8).astype(ml_dtypes.bfloat16)
    scaled, rows = on_tiles(on, lambda d, r, t: nisa.activation_reduce(d, nl.copy, t, nl.maximum, r, scale=2.0),
                            [((32, 8), nl.bfloat16), ((32, 1), nl.float32)], x)
    np.testing.assert_array_equal(scaled.astype(np.float32), x.astype(np.float32) * 2)
    np.testing.assert_array_equal(rows[:, 0], x.astype(np.float32).max(1) * 2)


SKIP = nisa.oob_mode.skip


@pytest.mark.parametrize("rows, index", [(16, (16, 1)), (64, (128, 1)), (144, (128, 2))])
def test_transposing_gathers_skip_rows(on, rows, index):
    table = numbers(300, 24)
    places = np.random.default_rng(0).integers(0, 300, index).astype(np.uint32)
    places[2, 0], places[5, -1] = 300, 4000

    def kernel(table, places):
        out, tile = nl.ndarray((24, rows), table.dtype, buffer=nl.shared_hbm), nl.full((24, rows), -3, table.dtype)
        nisa.dma_transpose(tile, table.ap([[24, rows], [1, 24]], vector_offset=nl.load(places)), oob_mode=SKIP)
        nisa.dma_copy(out, tile)
        return out
    order = places.T.flatten()[:rows]
    inside = order < 300
    expected = np.full((24, rows), -3, np.float32)
    expected[:, inside] = table[order[inside]].T
    np.testing.assert_array_equal(run(on, kernel, table, places), expected)


@pytest.mark.parametrize("start, expected", [(5, None), (400, -3)])
def test_transposes_from_a_place_of_the_run_time_skip(on, start, expected):
    table = numbers(300, 24)

    def kernel(table, start):
        out, tile = nl.ndarray((24, 16), table.dtype, buffer=nl.shared_hbm), nl.full((24, 16), -3, table.dtype)
        nisa.dma_transpose(tile, table.ap([[24, 16], [1, 24]], scalar_offset=nl.load(start)), oob_mode=SKIP)
        nisa.dma_copy(out, tile)
        return out
    got = run(on, kernel, table, np.array([[start]], np.int32))
    np.testing.assert_array_equal(got, table[5:21].T if expected is None else np.full((24, 16), expected, np.float32))


def test_sums_of_skipped_rows_add_nothing(on):
    table, x, rows = numbers(16, 8), numbers(4, 8, seed=1), np.array([[3], [99], [0], [7]], np.int32)

    def kernel(table, x, rows):
        out, tile = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x)
        nisa.dma_compute(tile, [tile, table.ap([[8, 4], [1, 8]], vector_offset=nl.load(rows))], nl.add, oob_mode=SKIP)
        nisa.dma_copy(out, tile)
        return out
    expected = x + np.where(rows < 16, table[rows[:, 0] % 16], 0)
    np.testing.assert_array_equal(run(on, kernel, table, x, rows), expected)


def test_rms_norm_computes_in_a_type(on):
    x, w = floats(32, 8), floats(32, 8, seed=1)
    normal = x / np.sqrt((x * x).sum(1, keepdims=True, dtype=np.float32) / 8 + np.float32(1e-6))
    rounded = normal.astype(ml_dtypes.bfloat16).astype(np.float32) * w
    check(on, lambda d, a, b: nisa.tensor_copy(d, nl.rms_norm(a, b, 1, 8, compute_dtype=nl.bfloat16)), rounded, x, w,
          rtol=1e-6)
    assert not np.allclose(rounded, normal * w, rtol=1e-4)


def test_a_name_by_position_orders_instructions(on):
    x = floats(32, 8)

    def kernel(x):
        tile, out = nl.load(x), nl.ndarray((2, 32, 8), nl.float32, buffer=nl.shared_hbm)
        first, second = (nl.ndarray((32, 8), nl.float32) for _ in range(2))
        nisa.tensor_copy(first, tile, ENGINE.unknown, "first")
        nisa.tensor_copy(second, tile, name="second")
        nisa.dma_copy(out[0], first)
        nisa.dma_copy(out[1], second)
        return out
    got = nki.jit(kernel).with_schedule([("first", ["second"])]).on(on)(x)
    np.testing.assert_array_equal(got, np.stack([x, x]))


# -- parameters that are written ---------------------------------------------------------------------------------------
def swapped(x, y):
    t = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.memset(t, 7.0)
    nisa.dma_copy(dst=x, src=t)         # here
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


def declared(x: nt.mutable_tensor, y):
    return swapped(x, y)


def returned(x, y):
    return swapped(x, y), x


def nothing(x, y):
    swapped(x, y)


def nothing_beside_another(x, y: nt.mutable_tensor):
    swapped(x, y)


@pytest.mark.parametrize("function, warns", [(swapped, True), (declared, False), (returned, False), (nothing, False),
                                             (nothing_beside_another, True)])
@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
def test_a_parameter_that_is_overwritten_without_saying_so(on, function, warns):
    x, y = np.ones((4, 8), np.float32), np.ones((4, 8), np.float32)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        nki.jit(function).on(on)(x, y)
    np.testing.assert_array_equal(x, np.full((4, 8), 7))
    warned = [w for w in shown if "its parameter" in str(w.message)]
    assert {str(w.message) for w in warned} == (
        {"the kernel writes to its parameter x, and neither returns it nor declares it mutable: the caller's array changes; "
         "if you intend that, annotate it nt.mutable_tensor or return it"} if warns else set())
    lines = Path(__file__).read_text().splitlines()
    assert all(w.filename == __file__ and lines[w.lineno - 1].endswith("# here") for w in warned)


def test_instructions_outside_of_a_kernel():
    """They say so, whatever their arguments are; other functions name the argument."""
    for call in (lambda: nisa.tensor_copy(), lambda: nisa.tensor_copy(1, 2, 3, 4, 5), lambda: nisa.tensor_copy(1, 2),
                 lambda: nisa.tensor_copy(1, 2, engine="x")):
        with pytest.raises(NkiMlirError, match="tensor_copy was called outside of a kernel"):
            call()
    with pytest.raises(NkiTypeError, match="missing"):
        nl.add()
