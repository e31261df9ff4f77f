# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A tiny kernel for each name of the current generation: what ``docs/coverage.md`` runs.

A sample is a body ``f(dst, *tiles)`` that writes a tile, or a body of HBM tensors that gives what the kernel returns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import Kernel
from tests.language_current import test_names as surface

RNG = np.random.default_rng(0)
A, B = (RNG.random((2, 64, 32)) + 0.25).astype(np.float32)
I, J = RNG.integers(1, 7, (2, 64, 32)).astype(np.int32)
U = I.astype(np.uint32)
C = RNG.random((64, 1)).astype(np.float32)
ROWS = RNG.permutation(64)[:32, None].astype(np.int32)
ONE = np.array([[3]], np.int32)
CHOSEN = (I > 3).astype(np.uint8)


@dataclass(frozen=True)
class Sample:
    """``dst`` is (shape, dtype, memory) of the tile that a body writes, None where it works on HBM tensors."""

    body: Callable
    arrays: tuple[np.ndarray, ...]
    dst: tuple | None = None
    cores: int | None = None
    simulated: str = ""                 # why it runs in the simulator alone
    decorate: Callable = nki.jit

    def kernel(self) -> Kernel:
        body = self.body
        if self.dst is None:
            made = self.decorate(body)
            return made if self.cores is None else made[self.cores]
        shape, dtype, memory = self.dst

        def kernel(*inputs):
            out = nl.ndarray(shape, dtype, buffer=nl.shared_hbm)
            tiles = [nl.load(x) for x in inputs]
            dst = nl.ndarray(shape, dtype, buffer=memory)
            nisa.memset(dst, 0)
            body(dst, *tiles)
            nisa.dma_copy(out, nl.copy(dst) if memory is nl.psum else dst)
            return out
        return nki.jit(kernel)


def of(body: Callable, *arrays: np.ndarray, shape: Any = A.shape, dtype: Any = np.float32,
       memory: Any = nl.sbuf) -> Sample:
    return Sample(body, arrays or (A,), (shape, dtype, memory))


def whole(body: Callable, *arrays: np.ndarray, cores: int | None = None) -> Sample:
    return Sample(body, arrays or (A,), cores=cores)


def value(function: Callable, *arrays: np.ndarray, **options: Any) -> Sample:
    """A function whose result is copied to the destination."""
    return of(lambda d, *tiles: nisa.tensor_copy(d, function(*tiles)), *arrays, **options)


def named(name: str, *arrays: np.ndarray, **options: Any) -> Sample:
    """A function of tiles alone, looked up when the kernel runs."""
    return value(lambda *tiles: getattr(nl, name)(*tiles), *arrays, **options)


def output(shape: Any = A.shape, dtype: Any = np.float32) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def copied(x: Any) -> Any:
    out = output(x.shape, x.dtype)
    nl.store(out, nl.load(x))
    return out


def chosen(d: Any, x: Any, holds: Any) -> None:
    """A copy under a condition that Python knows."""
    assert holds
    nisa.tensor_copy(d, x)


def counted(loop: Callable) -> Sample:
    """The sum of a tile, as many times as a loop up to a register goes round."""
    def body(x, n):
        out, tile, total, bound = output(), nl.load(x), nl.zeros(x.shape, nl.float32), nisa.register_alloc()
        nisa.register_load(bound, n)
        loop(bound, lambda i: nisa.tensor_tensor(total, total, tile, nl.add) and None)
        nisa.dma_copy(out, total)
        return out
    return whole(body, A, ONE)


def going_down(bound: Any, body: Callable) -> None:
    left = nl.full((1, 1), 3, nl.int32)

    def step(r):
        body(r)
        nisa.tensor_scalar(left, left, nl.subtract, 1)
        nisa.register_load(r, left)
        return r
    nl.while_loop(bound, step)


def over(span: Callable) -> Sample:
    def body(x):
        out = output()
        for i in span():
            nl.store(out[i * 16:i * 16 + 16], nl.load(x[i * 16:i * 16 + 16]))
        return out
    return whole(body)


def register(x: Any, n: Any) -> Any:
    out, tile = output((1, 2), nl.int32), nl.ndarray((1, 2), nl.int32)
    r, s = nisa.register_alloc(5), nisa.register_alloc()
    nisa.register_load(s, n)
    nisa.register_store(tile[:, 0:1], s)
    nisa.register_move(r, s)
    nisa.register_store(tile[:, 1:2], r)
    nl.store(out, tile)
    return out


def by_core(x: Any) -> Any:
    out, i = output((64, 32)), nl.program_id(0)
    half = 64 // nl.num_programs()
    nl.store(out[i * half:(i + 1) * half], nl.multiply(nl.load(x[i * half:(i + 1) * half]), float(nl.program_ndim())))
    return out


def meeting(x: Any) -> Any:
    out, i = output((64, 32)), nl.program_id(0)
    held = nl.ndarray((64, 32), nl.float32, buffer=nl.shared_hbm, name="held")
    nl.store(held[i * 32:i * 32 + 32], nl.load(x[i * 32:i * 32 + 32]))
    nisa.core_barrier(held, (0, 1))
    nl.store(out[i * 32:i * 32 + 32], nl.load(held[32 - i * 32:64 - i * 32]))
    return out


def exchanging(x: Any) -> Any:
    out, i = output((64, 32)), nl.program_id(0)
    mine, theirs = nl.load(x[i * 32:i * 32 + 32]), nl.ndarray((32, 32), x.dtype)
    nisa.sendrecv(mine, theirs, send_to_rank=1 - i, recv_from_rank=1 - i, pipe_id=0)
    nl.store(out[i * 32:i * 32 + 32], theirs)
    return out


def gathered(x: Any, rows: Any) -> Any:
    out, tile = output((32, 32)), nl.ndarray((32, 32), x.dtype)
    nisa.dma_copy(tile, x.ap([[32, 32], [1, 32]], vector_offset=nl.load(rows)), oob_mode=nisa.oob_mode.skip,
                  dge_mode=nisa.dge_mode.swdge)
    nisa.dma_copy(out, tile)
    return out


def quantized(d: Any, x: Any) -> None:
    scale = nl.zeros((128, 16), nl.uint8)
    packed = nl.zeros((128, 16), nl.uint32)
    nisa.quantize_mx(packed.view(nl.float8_e4m3fn_x4), x, scale)
    product = nl.ndarray((16, 16), nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(product, packed.view(nl.float8_e4m3fn_x4), packed.view(nl.float8_e4m3fn_x4), scale, scale)
    nisa.tensor_copy(d, product)


def packed_as(name: str) -> Sample:
    """A tile of packed elements, filled with zeros."""
    word = "uint32" if getattr(nl, name).itemsize == 4 else "uint16"
    return of(lambda d, x: nisa.memset(d.view(getattr(nl, name)), 0), dtype=getattr(np, word))


def state(d: Any, x: Any) -> None:
    held = nl.ndarray((64, 6), nl.uint32)
    nisa.rand_get_state(held)
    nisa.rng(d, engine=nisa.engine.gpsimd)
    nisa.rand_set_state(held)
    nisa.rng(d, engine=nisa.engine.gpsimd)


def largest(d: Any, x: Any) -> None:
    nisa.topk(d, nl.zeros((16, 20), nl.uint32), x, 60)


def replaced(d: Any, x: Any) -> None:
    best = nl.ndarray((64, 8), nl.float32)
    nisa.max8(best, x)
    nisa.nc_match_replace8(d, x, best, -1.0)


def found(d: Any, x: Any) -> None:
    best = nl.ndarray((64, 8), nl.float32)
    nisa.max8(best, x)
    nisa.nc_find_index8(d, x, best)


def seeded(d: Any, n: Any) -> None:
    nisa.set_rng_seed(n)
    nisa.rand2(d, 1.0, 2.0)


def in_order(x: Any) -> Any:
    with nl.no_reorder():
        return copied(x)


class Doubled(nl.NKIObject):
    factor: float = 2.0


BITS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or logical_xor".split()
DTYPES = """int8 int16 int32 uint8 uint16 uint32 float16 float32 bfloat16 tfloat32 float8_e4m3 float8_e4m3fn float8_e5m2
    float8_e8m0fnu""".split()
COLUMN = dict(shape=(64, 1))
LANGUAGE: dict[str, Sample] = {
    **{n: named(n, *((I, J) if n in BITS else (A, B)), dtype=np.int32 if n in BITS else np.float32)
       for n in surface.BINARY.split()},
    **{n: named(n, I - 3, dtype=np.int32) if n in ("invert", "logical_not") else named(n)
       for n in surface.UNARY.split()},
    **{n: value(lambda x, n=n: getattr(nl, n)(x, 1, keepdims=True), **COLUMN)
       for n in ("sum", "max", "min", "mean", "prod", "var")},
    "all": value(lambda x: nl.all(x, 1), I, **COLUMN),
    **{n: value(lambda x, n=n: nl.copy(x, getattr(nl, n)), dtype=getattr(nl, n).numpy) for n in DTYPES},
    **{n: value(lambda x, n=n: nl.copy(x, getattr(nl, n)), dtype=bool) for n in ("bool_", "bool")},
    **{n: packed_as(n) for n in ("float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4")},
    "ndarray": of(lambda d, x: nisa.tensor_copy(d, x)), "zeros": value(lambda x: nl.zeros(x.shape, nl.float32)),
    "ones": value(lambda x: nl.ones(x.shape, nl.float32)), "full": value(lambda x: nl.full(x.shape, 2.5, nl.float32)),
    "zeros_like": named("zeros_like"),
    "empty_like": of(lambda d, x: (nisa.tensor_copy(nl.empty_like(x), x), nisa.tensor_copy(d, x))),
    "rand": value(lambda x: nl.rand(x.shape, nl.float32)),
    "random_seed": value(lambda x, n: (nl.random_seed(n), nl.rand(x.shape, nl.float32))[1], A, ONE),
    "shared_constant": value(lambda x: nl.load(nl.shared_constant(A))),
    "shared_identity_matrix": value(lambda x: nl.shared_identity_matrix(16, nl.float32), shape=(16, 16)),
    "load": whole(copied), "store": whole(copied), "load_transpose2d": whole(lambda x: (
        lambda out: (nl.store(out, nl.load_transpose2d(x)), out)[1])(output((32, 64)))),
    "matmul": value(lambda x, y: nl.matmul(x, y, transpose_x=True), A, B, shape=(32, 32)),
    "transpose": named("transpose", shape=(32, 64)), "softmax": named("softmax"),
    "rms_norm": value(lambda x, w: nl.rms_norm(x, w, 1, 32), A, B), "dropout": value(lambda x: nl.dropout(x, 0.5)),
    "where": value(lambda x, y: nl.where(nl.greater(x, y), x, y), A, B),
    "broadcast_to": value(lambda x: nl.broadcast_to(x, (64, 4)), C, shape=(64, 4)),
    "expand_dims": value(lambda x: nl.expand_dims(x, 1), shape=(64, 1, 32)),
    "gather_flattened": named("gather_flattened", A, U), "ds": value(lambda x: x[:, nl.ds(4, 8)], shape=(64, 8)),
    "affine_range": over(lambda: nl.affine_range(4)), "sequential_range": over(lambda: nl.sequential_range(4)),
    "static_range": over(lambda: nl.static_range(4)), "range": over(lambda: nl.range(4)),
    "dynamic_range": counted(lambda bound, body: [body(i) for i in nl.dynamic_range(bound)]),
    "fori_loop": counted(lambda bound, body: nl.fori_loop(0, bound, body)), "while_loop": counted(going_down),
    "no_reorder": whole(in_order),
    **{n: whole(by_core, cores=2) for n in ("program_id", "num_programs", "program_ndim")},
    "device_print": of(lambda d, x: (nl.device_print("x", x), nisa.tensor_copy(d, x))),
    "is_hbm": of(lambda d, x: chosen(d, x, nl.is_hbm(nl.shared_hbm))),
    "is_on_chip": of(lambda d, x: chosen(d, x, nl.is_on_chip(x.buffer))),
    "is_psum": of(lambda d, x: chosen(d, x, not nl.is_psum(x.buffer))),
    "is_sbuf": of(lambda d, x: chosen(d, x, nl.is_sbuf(x.buffer))),
    "par_dim": value(lambda x: nl.zeros((nl.par_dim(64), 32), nl.float32)),
    "unique_name": value(lambda x: nl.full(x.shape, 1.0, nl.float32, name=nl.unique_name("t"))),
    "DType": of(lambda d, x: chosen(d, x, nl.DType is str)),
    "MemoryRegion": of(lambda d, x: chosen(d, x, isinstance(x.buffer, nl.MemoryRegion))),
    "NKIObject": value(lambda x: nl.multiply(x, Doubled().factor)),
    "NkiTensor": of(lambda d, x: chosen(d, x, isinstance(x, nl.NkiTensor))),
    "tensor": of(lambda d, x: chosen(d, x, isinstance(x, nl.tensor))),
    "tile_size": value(lambda x: nl.multiply(x, float(nl.tile_size.pmax))),
    "sbuf": of(lambda d, x: nisa.tensor_copy(d, x)), "psum": of(lambda d, x: nisa.tensor_copy(d, x), memory=nl.psum),
    "shared_hbm": whole(copied),
    **{n: whole(lambda x, n=n: through(x, getattr(nl, n))) for n in ("hbm", "private_hbm")},
    "average": of(lambda d, x: nisa.tensor_partition_reduce(d, nl.average, x), shape=(1, 32)),
    "prelu": of(lambda d, x: nisa.activate2(d, nl.prelu, x, 1.0, 0.5, nl.multiply, nl.subtract, relu_param=0.25)),
    "bypass": of(lambda d, x: nisa.activate2(d, nl.copy, x, 1.0, None, nl.add, nl.bypass)),
}


def through(x: Any, buffer: Any) -> Any:
    held = nl.ndarray(x.shape, x.dtype, buffer=buffer)
    nl.store(held, nl.load(x))
    return copied(held)


ACCUMULATE = dict(reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
ISA: dict[str, Sample] = {
    "nc_matmul": of(lambda d, x, y: nisa.nc_matmul(d, x, y), A, B, shape=(32, 32), memory=nl.psum),
    **{n: of(quantized, RNG.standard_normal((128, 64)).astype(ml_dtypes.bfloat16), shape=(16, 16))
       for n in ("nc_matmul_mx", "quantize_mx")},
    "nc_transpose": of(lambda d, x: nisa.nc_transpose(d, x), shape=(32, 64), memory=nl.psum),
    "activation": of(lambda d, x, c: nisa.activation(d, nl.exp, x, bias=c, scale=0.5), A, C),
    "activation_reduce": of(lambda d, x: nisa.activation_reduce(nl.zeros(x.shape, nl.float32), nl.square, x, nl.add, d),
                            **COLUMN),
    "activate2": of(lambda d, x, c: nisa.activate2(d, nl.exp, x, c, 0.5, nl.multiply, nl.subtract), A, C),
    "reduce_cmd": of(lambda d, x: nisa.activation(nl.zeros(x.shape, nl.float32), nl.square, x, reduce_res=d,
                                                  **ACCUMULATE), **COLUMN),
    "tensor_reduce": of(lambda d, x: nisa.tensor_reduce(d, nl.add, x, axis=1), **COLUMN),
    "tensor_partition_reduce": of(lambda d, x: nisa.tensor_partition_reduce(d, nl.add, x), shape=(1, 32)),
    "tensor_tensor": of(lambda d, x, y: nisa.tensor_tensor(d, x, y, nl.add), A, B),
    "tensor_tensor_scan": of(lambda d, x, y: nisa.tensor_tensor_scan(d, x, y, 0.0, nl.multiply, nl.add), A, B),
    "scalar_tensor_tensor": of(lambda d, x, y: nisa.scalar_tensor_tensor(d, x, nl.multiply, 2.0, nl.add, y), A, B),
    "tensor_scalar": of(lambda d, x, c: nisa.tensor_scalar(d, x, nl.multiply, c, op1=nl.add, operand1=1.0), A, C),
    "tensor_scalar_reduce": of(lambda d, x: nisa.tensor_scalar_reduce(
        nl.zeros(x.shape, nl.float32), x, nl.multiply, 2.0, nl.add, d), **COLUMN),
    "tensor_scalar_cumulative": of(lambda d, x: nisa.tensor_scalar_cumulative(d, x, nl.multiply, nl.add, 2.0)),
    "tensor_copy": of(lambda d, x: nisa.tensor_copy(d, x)),
    "tensor_copy_predicated": of(lambda d, x, p: nisa.tensor_copy_predicated(d, x, p), A, CHOSEN),
    "exponential": of(lambda d, x, c: nisa.exponential(d, x, max_value=c), A, C, dtype=ml_dtypes.bfloat16),
    "reciprocal": of(lambda d, x: nisa.reciprocal(d, x)),
    "iota": of(lambda d, x: nisa.iota(d, [[2, 32]], offset=5, channel_multiplier=100), dtype=np.int32),
    "dropout": of(lambda d, x: nisa.dropout(d, x, 0.5)),
    "affine_select": of(lambda d, x: nisa.affine_select(d, [[-1, 32]], 1, x, -9.0, nl.greater_equal)),
    "range_select": of(lambda d, x, c: nisa.range_select(d, x, nl.greater_equal, nl.less, c, nl.add(c, 9.0)), A, C),
    "select_reduce": of(lambda d, x, p: nisa.select_reduce(d, p, x, -5.0), A, CHOSEN),
    "sequence_bounds": of(lambda d, k: nisa.sequence_bounds(d, k), np.sort(I[:1]).astype(np.float32), shape=(1, 2, 32)),
    "memset": of(lambda d, x: nisa.memset(d, 2.5)), "bn_stats": of(lambda d, x: nisa.bn_stats(d, x), shape=(64, 6)),
    "bn_aggr": of(lambda d, x: nisa.bn_aggr(d, x), A[:, :30], shape=(64, 2)),
    "local_gather": of(lambda d, x, k: nisa.local_gather(d, x, k), A, I[:, :1].astype(np.uint16), shape=(64, 16)),
    "nc_n_gather": of(lambda d, x, k: nisa.nc_n_gather(d, x, k), A, U),
    "dma_copy": of(lambda d, x: nisa.dma_copy(d, x)),
    "dma_transpose": of(lambda d, x: nisa.dma_transpose(d, x), shape=(32, 64)),
    "dma_compute": of(lambda d, x, y: nisa.dma_compute(d, [x, y], nl.add), A, B),
    **{n: whole(gathered, A, ROWS) for n in ("oob_mode", "dge_mode")},
    "max8": of(lambda d, x: nisa.max8(d, x), shape=(64, 8)),
    "nc_find_index8": of(found, shape=(64, 8), dtype=np.uint32), "nc_match_replace8": of(replaced),
    "nc_stream_shuffle": of(lambda d, x: nisa.nc_stream_shuffle(d, x, list(range(31, -1, -1)))),
    "core_barrier": whole(meeting, cores=2), "sendrecv": whole(exchanging, cores=2),
    "dma_engine": whole(exchanging, cores=2), "rng": of(lambda d, x: nisa.rng(d), dtype=np.uint32),
    **{n: of(seeded, ONE) for n in ("rand2", "set_rng_seed")},
    **{n: of(state, dtype=np.uint32) for n in ("rand_set_state", "rand_get_state")},
    "nonzero_with_count": of(lambda d, x: nisa.nonzero_with_count(d, x), CHOSEN[:32].astype(np.float32), shape=(32, 33),
                             dtype=np.int32),
    "topk": of(largest, RNG.permutation(64).reshape(16, 4).astype(ml_dtypes.bfloat16), shape=(16, 20),
               dtype=ml_dtypes.bfloat16),
    **{n: whole(register, A, ONE) for n in ("register_alloc", "register_move", "register_load", "register_store")},
    "VirtualRegister": whole(register, A, ONE),
    "get_nc_version": value(lambda x: nl.multiply(x, float(nisa.get_nc_version().value))),
    "get_nc_sub_version": value(lambda x: nl.add(x, float(nisa.get_nc_sub_version()))),
    "nc_version": value(lambda x: nl.multiply(x, float(nisa.nc_version.gen3.value))),
    **{f"tensor_copy_dynamic_{n}": of(lambda d, x, n=n: getattr(nisa, f"tensor_copy_dynamic_{n}")(d, x))
       for n in ("src", "dst")},
    **{f"{n}_engine": of(lambda d, x, n=n: nisa.tensor_copy(d, x, engine=getattr(nisa, f"{n}_engine")))
       for n in ("vector", "scalar", "gpsimd", "unknown")},
    "tensor_engine": of(lambda d, x: nisa.nc_transpose(d, x, engine=nisa.tensor_engine), shape=(32, 64),
                        memory=nl.psum),
    "engine": of(lambda d, x: nisa.tensor_copy(d, x, engine=nisa.engine.vector)),
    "matmul_perf_mode": of(lambda d, x, y: nisa.nc_matmul(d, x, y, perf_mode=nisa.matmul_perf_mode.none), A, B,
                           shape=(32, 32), memory=nl.psum),
    "NkiInstruction": of(lambda d, x: chosen(d, x, isinstance(nisa.memset(d, 1.0), nisa.NkiInstruction))),
    "NkiValidationError": of(lambda d, x: chosen(d, x, issubclass(nisa.NkiValidationError, AssertionError))),
}

NKI = {
    "jit": Sample(copied, (A,), decorate=lambda f: nki.jit(f)), "Kernel": whole(copied),
    "dtype": of(lambda d, x: chosen(d, x, x.dtype is nki.dtype.float32)),
    "tensor": value(lambda x: nl.load(nl.shared_constant(nki.tensor.identity(16))), shape=(16, 16)),
}
