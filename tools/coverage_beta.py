# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A tiny kernel for each name of the beta generation: what ``docs/coverage.md`` runs.

A sample is a function of tiles that gives a tile, with the arrays the tiles are loaded from; or, where ``whole`` is
set, a function of HBM tensors that gives what the kernel returns.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_mlir.language.beta import compiler as ncc
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt
from nki_mlir.language.kernel import Kernel, unwrap


@dataclass(frozen=True)
class Sample:
    """``decorate`` makes the kernel, ``grid`` launches it."""

    body: Callable
    arrays: tuple[np.ndarray, ...]
    whole: bool = False
    grid: tuple[int, ...] = ()
    decorate: Callable = nki.jit
    simulated: str = ""                 # why it runs in the simulator alone

    def kernel(self) -> Kernel:
        body = self.body

        def kernel(*inputs):
            made = body(*(nl.load(x) for x in inputs))
            out = nl.ndarray(made.shape, made.dtype, buffer=nl.shared_hbm)
            nl.store(out, made)
            return out
        made = unwrap(self.decorate(body if self.whole else kernel))
        return made[self.grid] if self.grid else made


@dataclass(frozen=True)
class Simulated(Sample):
    """A kernel that a simulator's own entry runs."""

    def kernel(self) -> Any:
        return self

    def run(self, arguments: tuple, keywords: dict, on: str) -> Any:
        return nki.simulate_kernel(nki.jit(self.body), *arguments)


RNG = np.random.default_rng(0)
A, B = (RNG.random((2, 64, 32)) + 0.25).astype(np.float32)
I, J = RNG.integers(1, 7, (2, 64, 32)).astype(np.int32)
C = RNG.random((64, 1)).astype(np.float32)
ROWS = RNG.permutation(64)[:32, None].astype(np.int32)
ONE = np.array([[3]], np.int32)


def of(body: Callable, *arrays: np.ndarray, **options: Any) -> Sample:
    return Sample(body, arrays or (A,), **options)


def output(shape: Any = A.shape, dtype: Any = np.float32) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def copied(x: Any) -> Any:
    """The whole of an HBM tensor in a new one."""
    out = output(x.shape, x.dtype)
    nl.store(out, nl.load(x))
    return out


def made(shape: Any = A.shape, dtype: Any = np.float32) -> Any:
    return nl.ndarray(shape, dtype)


def into(dst: Any, effect: Callable) -> Any:
    """A tile after an instruction wrote it."""
    effect(dst)
    return dst


def stored(write: Callable, *arrays: np.ndarray, start: float = 0.0, shape: Any = A.shape) -> Sample:
    """``write(out, *hbm tensors)`` on an output that holds a number."""
    def body(*inputs):
        out = output(shape)
        nl.store(out, start)
        write(out, *inputs)
        return out
    return of(body, *arrays, whole=True)


def looped(span: Callable) -> Callable:
    def body(x):
        out = output()
        for i in span():
            nl.store(out[nl.ds(i * 16, 16)], nl.load(x[nl.ds(i * 16, 16)]))
        return out
    return body


def named(module: Any, name: str, call: Callable) -> Callable:
    """A body that looks the function up when it runs."""
    return lambda *tiles: call(getattr(module, name), *tiles)


BINARY = """add subtract multiply divide power maximum minimum mod fmod equal not_equal greater greater_equal less
    less_equal"""
BITS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift"
UNARY = """negative floor ceil trunc exp log sin cos tan tanh arctan sqrt rsqrt sigmoid relu gelu gelu_dx
    gelu_apprx_tanh gelu_apprx_sigmoid silu silu_dx erf erf_dx softplus mish square sign abs reciprocal"""
DTYPES = """float32 tfloat32 float16 bfloat16 float8_e4m3 float8_e5m2 int8 int16 int32 uint8 uint16 uint32"""


def rows_of(x: Any, index: Any) -> Any:
    """The rows of an HBM tensor that an index tile names."""
    return x[index[nl.arange(32)[:, None], 0], nl.arange(32)[None, :]]


def reduced_in_loop(x: Any) -> Any:
    out, best = output((64, 8)), made((64, 8))
    for i in nl.affine_range(4):
        best[...] = nl.loop_reduce(nl.load(x[:, nl.ds(i * 8, 8)]), op=np.maximum, loop_indices=[i])
    nl.store(out, best)
    return out


def dynamic_source(x: Any, at: Any) -> Any:
    return nisa.tensor_copy_dynamic_src(x[nl.arange(64)[:, None], at[0, 0] + nl.arange(8)[None, :]])


def dynamic_destination(x: Any, at: Any) -> Any:
    to = nl.zeros((64, 40), nl.float32)
    nisa.tensor_copy_dynamic_dst(dst=to[nl.arange(64)[:, None], at[0, 0] + nl.arange(32)[None, :]], src=x)
    return to


def programs(x: Any, value: Callable) -> Any:
    out = output((2, 64, 32))
    nl.store(out[nl.program_id(0)], nl.load(x) * value())
    return out


def reduced(x: Any) -> Any:
    out = output((2, 64, 32))
    nl.store(out[nl.program_id(0)], nl.all_reduce(nl.load(x) * (1 + nl.program_id(0)), np.add, program_axes=0))
    return out


LANGUAGE: dict[str, Sample] = {
    **{n: of(named(nl, n, lambda f, x, y: f(x, y)), A, B) for n in BINARY.split()},
    **{n: of(named(nl, n, lambda f, x, y: f(x, y)), I - 3, J - 3)
       for n in ("logical_and", "logical_or", "logical_xor")},
    **{n: of(named(nl, n, lambda f, x, y: f(x, y)), I, J) for n in BITS.split()},
    **{n: of(named(nl, n, lambda f, x: f(x)), A - 0.5 if n not in ("log", "sqrt", "rsqrt", "reciprocal") else A)
       for n in UNARY.split()},
    **{n: of(named(nl, n, lambda f, x: f(x)), I - 3) for n in ("invert", "logical_not")},
    **{n: of(named(nl, n, lambda f, x: f(x, axis=1, keepdims=True)), A) for n in ("sum", "prod", "max", "min", "mean")},
    **{n: of(lambda x, n=n: nl.copy(x, dtype=getattr(nl, n))) for n in DTYPES.split()},
    "all": of(lambda x: nl.all(x, axis=1), I), "var": of(lambda x: nl.var(x, axis=1, keepdims=True)),
    "bool_": of(lambda x: nl.greater(x, 0.5, dtype=nl.bool_)),
    "softmax": of(lambda x: nl.softmax(x, axis=1)),
    "rms_norm": of(lambda x, w: nl.rms_norm(x, w, axis=1, n=32), A, B[:1]),
    "load": of(copied, whole=True), "store": stored(lambda out, x: nl.store(out, nl.load(x)), A),
    "copy": of(lambda x: nl.copy(x)), "transpose": of(lambda x: nl.transpose(x)),
    "matmul": of(lambda x, y: nl.matmul(x, y, transpose_x=True), A, B),
    "where": of(lambda x, y: nl.where(nl.greater(x, y), x, y), A, B),
    "broadcast_to": of(lambda x: nl.copy(nl.broadcast_to(x, shape=(64, 4))), C),
    "expand_dims": of(lambda x: nl.copy(nl.expand_dims(x, 1))),
    "gather_flattened": of(lambda x, k: nl.gather_flattened(x, k), A, I.astype(np.uint32)),
    "atomic_rmw": stored(lambda out, rows, at: nl.atomic_rmw(out[nl.load(at), nl.arange(32)[None, :]], nl.load(rows),
                                                             op=np.add), A[:32], ROWS, start=1.0),
    "loop_reduce": of(reduced_in_loop, whole=True), "all_reduce": of(reduced, whole=True, grid=(2,)),
    "device_print": of(lambda x: into(x, lambda t: nl.device_print("x", t))),
    "rand": of(lambda x: nl.rand((64, 32))), "dropout": of(lambda x: nl.dropout(x, 0.5)),
    "random_seed": of(lambda x: (nl.random_seed(3), nl.rand((64, 32)))[1]),
    "ndarray": of(lambda x: into(nl.ndarray(x.shape, x.dtype), lambda t: t.__setitem__(..., x))),
    "zeros": of(lambda x: nl.zeros((64, 32), nl.float32)), "ones": of(lambda x: nl.ones((64, 32), nl.float32)),
    "full": of(lambda x: nl.full((64, 32), 2.5, nl.float32)), "zeros_like": of(lambda x: nl.zeros_like(x)),
    "empty_like": of(lambda x: into(nl.empty_like(x), lambda t: t.__setitem__(..., x))),
    "shared_constant": of(lambda x: nl.load(nl.shared_constant(A))),
    "shared_identity_matrix": of(lambda x: nl.load(nl.shared_identity_matrix(16))),
    "static_cast": of(lambda x: nl.multiply(x, nl.static_cast(2.5, np.int32))),
    "arange": of(lambda x: nl.copy(x[nl.arange(8)[:, None], nl.arange(4)[None, :]])),
    "mgrid": of(lambda x: nl.copy(x[tuple(nl.mgrid[0:8, 0:4])])),
    "ds": of(lambda x: nl.copy(x[nl.ds(0, 32), nl.ds(4, 8)])),
    "par_dim": of(lambda x: into(nl.ndarray((1, nl.par_dim(64), 32), x.dtype), lambda t: t.__setitem__(0, x))[0]),
    "affine_range": of(looped(lambda: nl.affine_range(4)), whole=True),
    "sequential_range": of(looped(lambda: nl.sequential_range(4)), whole=True),
    "static_range": of(looped(lambda: nl.static_range(4)), whole=True),
    "program_id": of(lambda x: programs(x, lambda: nl.program_id(0)), whole=True, grid=(2,)),
    "num_programs": of(lambda x: programs(x, lambda: nl.num_programs(0)), whole=True, grid=(2,)),
    "program_ndim": of(lambda x: programs(x, lambda: nl.program_ndim()), whole=True, grid=(2,)),
    "nc": of(lambda x: programs(x, lambda: 1), whole=True, grid=(nl.nc(2),)),
    "spmd_dim": of(lambda x: programs(x, lambda: 1), whole=True, grid=(nl.spmd_dim(nl.nc(2), 1),)),
    "sbuf": of(lambda x: into(nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf), lambda t: t.__setitem__(..., x))),
    "psum": of(lambda x: into(nl.ndarray(x.shape, nl.float32, buffer=nl.psum), lambda t: t.__setitem__(..., x))),
    "shared_hbm": of(copied, whole=True), "Tensor": of(lambda x: nl.copy(x) if isinstance(x, nl.Tensor) else None),
    **{n: of(lambda x, n=n: through(x, getattr(nl, n)), whole=True) for n in ("hbm", "private_hbm")},
    "finfo": of(lambda x: nl.minimum(x, float(nl.finfo(nl.float16).max))),
    "fp32": of(lambda x: nl.maximum(x, nl.fp32.min)), "bfp16": of(lambda x: nl.maximum(x, float(nl.bfp16.min))),
    "tile_size": of(lambda x: nl.multiply(x, nl.tile_size.pmax)),
}


def through(x: Any, buffer: Any) -> Any:
    held, out = nl.ndarray(x.shape, x.dtype, buffer=buffer), output()
    nl.store(held, nl.load(x))
    nl.store(out, nl.load(held))
    return out


SELECT = dict(comp_op0=np.greater_equal, comp_op1=np.less)
ISA: dict[str, Sample] = {
    **{f"{n}_engine": of(lambda x, n=n: nisa.tensor_copy(x, engine=getattr(nisa, f"{n}_engine")))
       for n in ("vector", "scalar", "gpsimd", "unknown")},
    "tensor_engine": of(lambda x: nl.copy(nisa.nc_transpose(x, engine=nisa.tensor_engine))),
    "dma_engine": of(copied, whole=True), "engine": of(lambda x: nisa.tensor_copy(x, engine=nisa.engine.vector)),
    "nc_version": of(lambda x: nl.multiply(x, int(nisa.nc_version.gen2))),
    "get_nc_version": of(lambda x: nl.multiply(x, int(nisa.get_nc_version()))),
    "fp32": of(lambda x: nl.maximum(x, nisa.fp32.min)),
    "nc_matmul": of(lambda x, y: nisa.nc_matmul(x, y), A, B), "nc_transpose": of(lambda x: nisa.nc_transpose(x)),
    "activation": of(lambda x, b: nisa.activation(np.exp, x, bias=b, scale=0.5), A, C),
    "activation_reduce": of(lambda x: into(made((64, 1)), lambda r: nisa.activation_reduce(
        np.square, x, reduce_op=np.add, reduce_res=r))),
    "reduce_cmd": of(lambda x: into(made((64, 1)), lambda r: nisa.activation(
        np.square, x, reduce_op=np.add, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reset_reduce))),
    "tensor_tensor": of(lambda x, y: nisa.tensor_tensor(x, y, np.add), A, B),
    "tensor_scalar": of(lambda x, c: nisa.tensor_scalar(x, np.multiply, c, op1=np.add, operand1=1.0), A, C),
    "tensor_scalar_reduce": of(lambda x: into(made((64, 1)), lambda r: nisa.tensor_scalar_reduce(
        data=x, op0=np.multiply, operand0=2.0, reduce_op=np.add, reduce_res=r))),
    "scalar_tensor_tensor": of(lambda x, y: nisa.scalar_tensor_tensor(data=x, op0=np.multiply, operand0=2.0, op1=np.add,
                                                                      operand1=y), A, B),
    "tensor_reduce": of(lambda x: nisa.tensor_reduce(np.add, x, axis=1, keepdims=True)),
    "tensor_tensor_scan": of(lambda x, y: nisa.tensor_tensor_scan(x, y, 0.0, np.multiply, np.add), A, B),
    "tensor_copy": of(lambda x: nisa.tensor_copy(x)), "reciprocal": of(lambda x: nisa.reciprocal(x)),
    "tensor_copy_dynamic_src": of(dynamic_source, A, ONE), "tensor_copy_dynamic_dst": of(dynamic_destination, A, ONE),
    "tensor_copy_predicated": of(lambda x, y, p: into(nl.copy(y), lambda t: nisa.tensor_copy_predicated(
        src=x, dst=t, predicate=p)), A, B, (I > 3).astype(np.uint8)),
    "select_reduce": of(lambda x, p: into(made(), lambda t: nisa.select_reduce(
        dst=t, predicate=p, on_true=x, on_false=-1.0)), A, (I > 3).astype(np.uint8)),
    "tensor_scalar_cumulative": of(lambda x: into(made(), lambda t: nisa.tensor_scalar_cumulative(
        src=x, dst=t, op0=np.multiply, op1=np.add, imm0=2.0))),
    "range_select": of(lambda x, c: nisa.range_select(on_true_tile=x, bound0=c, bound1=nl.add(c, 9.0), **SELECT), A, C),
    "dropout": of(lambda x: nisa.dropout(x, 0.5)), "bn_stats": of(lambda x: nisa.bn_stats(x)),
    "bn_aggr": of(lambda x: nisa.bn_aggr(nisa.bn_stats(x))), "max8": of(lambda x: nisa.max8(src=x)),
    "nc_find_index8": of(lambda x: nisa.nc_find_index8(data=x, vals=nisa.max8(src=x))),
    "nc_match_replace8": of(lambda x: nisa.nc_match_replace8(data=x, vals=nisa.max8(src=x), imm=-1.0)),
    "nc_stream_shuffle": of(lambda x: into(made(), lambda t: nisa.nc_stream_shuffle(x, t, list(range(31, -1, -1))))),
    "memset": of(lambda x: nisa.memset((64, 32), 2.5, nl.float32)),
    "iota": of(lambda x: nisa.iota(nl.arange(64)[:, None] * 2 + nl.arange(32)[None, :], nl.int32)),
    "affine_select": of(lambda x: nisa.affine_select(nl.arange(64)[:, None] >= nl.arange(32)[None, :], x, -1.0)),
    "tensor_partition_reduce": of(lambda x: nisa.tensor_partition_reduce(np.add, x)),
    "local_gather": of(lambda x, k: nisa.local_gather(x, k), A, I[:, :3].astype(np.uint16)),
    "sequence_bounds": of(lambda k: nisa.sequence_bounds(segment_ids=k), np.sort(I[:1])),
    "dma_copy": of(lambda x: into(output(), lambda out: nisa.dma_copy(dst=out, src=x)), whole=True),
    "dma_transpose": of(lambda x: nisa.dma_transpose(x)),
}


def gathered(x: Any, k: Any) -> Any:
    out, rows = output((32, 32)), made((32, 32))
    nisa.dma_copy(dst=rows, src=rows_of(x, nl.load(k)), oob_mode=nisa.oob_mode.skip, dge_mode=nisa.dge_mode.unknown)
    nl.store(out, rows)
    return out


ISA |= {n: of(gathered, A, ROWS, whole=True) for n in ("oob_mode", "dge_mode")}


def transposed(x: Any) -> Any:
    out = output((32, 64))
    nl.store(out, nl.load_transpose2d(x))
    return out


LANGUAGE["load_transpose2d"] = of(transposed, whole=True)


def written(x: nt.tensor, out: nt.mutable_tensor) -> Any:
    nl.store(out, nl.load(x))
    return out


def placed(buffer: Any) -> Callable:
    """A copy through a buffer that the kernel allocates."""
    return lambda x: into(nl.ndarray(x.shape, nl.float32, buffer=buffer), lambda t: t.__setitem__(..., x))


def annotated(x: Any) -> Any:
    tile: nt.tensor[64, 32] = nl.load(x)
    out = output()
    nl.store(out, tile)
    return out


def counted(x: Any, n: Any) -> Any:
    out, total, left = output(), nl.zeros(x.shape, nl.float32), nl.load(n)
    condition = nt.scalar(True)
    while condition:
        total += nl.load(x)
        left[...] = nl.subtract(left, 1)
        condition = nt.scalar(left)
    nl.store(out, total)
    return out


def in_order(x: Any) -> Any:
    out = output()
    with ncc.no_reorder():
        nl.store(out, nl.load(x))
    return out


DECORATORS = "skip_middle_end_transformations enable_stack_allocator force_auto_alloc"
COMPILER: dict[str, Sample] = {
    **{n: of(copied, whole=True, decorate=lambda f, n=n: getattr(ncc, n)(nki.jit(f))) for n in DECORATORS.split()},
    "sbuf": of(placed(ncc.sbuf.mod_alloc(base_addr=0))), "psum": of(placed(ncc.psum.mod_alloc(base_bank=0))),
    "multi_buffer": of(looped(lambda: nl.sequential_range(4, directives=ncc.multi_buffer(2))), whole=True),
    "no_reorder": of(in_order, whole=True),
    "allocation_scope": of(lambda x: (ncc.allocation_scope(), copied(x))[1], whole=True),
}
TYPING: dict[str, Sample] = {
    "tensor": of(annotated, whole=True), "scalar": of(counted, A, ONE, whole=True),
    "mutable_tensor": of(written, A, B, whole=True), "mutable": of(written, A, B, whole=True),
}
NKI: dict[str, Sample] = {
    **{n: of(copied, whole=True, decorate=lambda f, n=n: getattr(nki, n)(f))
       for n in ("jit", "trace", "baremetal", "benchmark")},
    "profile": of(copied, whole=True, decorate=lambda f: nki.profile(f, working_directory=tempfile.gettempdir())),
    "simulate_kernel": Simulated(copied, (A,), simulated="it is the simulator"),
    "tensor": of(lambda x: nl.copy(x) if isinstance(x, nki.tensor) else None),
}
MODULES = {"nki": NKI, "language": LANGUAGE, "isa": ISA, "compiler": COMPILER, "typing": TYPING}
