# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each kind of mistake that ``nki_mlir.check`` looks for, in a kernel of each generation.

A line of a kernel that ends with ``# KIND`` is where the finding of that kind is; a kernel without such a line has none.
Among them are the mistakes that users of block languages make first (a block that leaves the tensor at its edge, a sum
that starts from unwritten memory, programs that write one block, subscripts in the wrong order, a sum in a narrow
dtype), and what a simulator may accept and the device does not.
"""

import json
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import nki_mlir
from nki_mlir.checking.report import KINDS
from nki_mlir.compat import install

install()

import neuronxcc.nki as beta  # noqa: E402
import neuronxcc.nki.isa as nisa  # noqa: E402
import neuronxcc.nki.language as nl  # noqa: E402
import neuronxcc.nki.typing as nt  # noqa: E402
import nki  # noqa: E402
import nki.isa as isa  # noqa: E402
import nki.language as nlc  # noqa: E402

LINES = Path(__file__).read_text().splitlines()
F32 = np.float32


class Case(NamedTuple):
    kernel: Any
    severity: str
    said: str                           # a pattern of the message
    fix: str                            # the fix begins with it
    shape: tuple[int, ...] = (128, 64)
    grid: tuple[int, ...] = ()


CASES: dict[str, Case] = {}


def case(severity: str, message: str, fix: str, shape: tuple[int, ...] = (128, 64), grid: tuple[int, ...] = ()) -> Any:
    """A kernel of one tensor, whose values go from -1 to 5."""
    def register(kernel: Any) -> Any:
        CASES[kernel.__name__] = Case(
            kernel, severity, message, fix, shape, grid)
        return kernel
    return register


def tile(shape: tuple[int, ...], dtype: Any = F32, **settings: Any) -> Any:
    return nlc.ndarray(shape, dtype=dtype, buffer=nlc.sbuf, **settings)


def block(rows: int, columns: int) -> Any:
    return nl.arange(rows)[:, None], nl.arange(columns)[None, :]


# -- races -------------------------------------------------------------------------------------------------------------
@case("error", r"out\[0, 0\] is written by program 0 here, and written by program 1 at",
      "let each program write different elements", grid=(2,))
@beta.jit
def beta_programs_write_one_block(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 1.0 + nl.program_id(0)))              # race
    return out


@case("error", r"out\[0, 0\] is written by program 0 here, and written by program 1 at",
      "let each program write different elements", grid=(2,))
@nki.jit
def current_programs_write_one_block(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = tile((128, 64))
    isa.dma_copy(dst=t, src=x)
    isa.tensor_scalar(dst=t, data=t, op0=nlc.multiply, operand0=1.0 + nlc.program_id(0))
    isa.dma_copy(dst=out, src=t)                                                # race
    return out


@case("error", "Unexpected output dependencies, missing indices in the dst access: k", "index total with k")
@beta.jit
def beta_sum_in_a_parallel_loop(x):
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    total = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(4):
        i, j = block(128, 16)
        total[...] = nl.add(total, nl.sum(t[i, k * 16 + j], axis=1, keepdims=True))      # race
    nl.store(out, total)
    return out


@case("error", r"out\[0, 0\] is written by the program with program_id\(0\) 0 and program_id\(1\) 0 here",
      "let each program write different elements", (128, 128), (2, 4))
@beta.jit
def beta_subscripts_in_the_wrong_order(x):
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    p, f = block(64, 32)
    nl.store(out[i * 64 + p, i * 32 + f], nl.load(x[i * 64 + p, j * 32 + f]))   # race
    return out


def halves() -> Any:
    """A tile of row numbers, in which each one occurs twice."""
    rows = nlc.ndarray((128, 1), dtype=np.int32, buffer=nlc.sbuf)
    isa.iota(dst=rows, pattern=[[0, 1]], offset=0, channel_multiplier=1)
    isa.tensor_scalar(dst=rows, data=rows, op0=nlc.right_shift, operand0=1)
    return rows


@case("warning", r"dma_scatter writes different values to out\[0, 0\] several times", "give each element another index")
@beta.jit
def beta_rows_scattered_to_one(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((128, 64), x.dtype, buffer=nl.sbuf))
    p, f = block(128, 64)
    half = nl.right_shift(nisa.iota(p, dtype=nl.int32), 1)
    nl.store(out[half[p, 0], f], nl.load(x))                                    # race
    return out


@case("error", r"dma_scatter adds to out\[0, 0\] several times", "combine what has equal indices first")
@nki.jit
def current_rows_added_to_one(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = tile((128, 64))
    isa.dma_copy(dst=t, src=x)
    isa.dma_copy(dst=out, src=t)
    rows = out.ap([[64, 128], [1, 64]], vector_offset=halves())
    isa.dma_compute(dst=rows, srcs=[t, rows], reduce_op=nlc.add)                # race
    return out


@case("error", r"dma_copy reads out\[1, 0\] for one element of its result, and overwrites it with another one", "write to another")
@beta.jit
def beta_rows_moved_down(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    nisa.dma_copy(dst=out[1:128, :], src=out[0:127, :])                         # race
    return out


@case("error", r"dma_gather reads out\[0, 0\] for one element of its result", "write to another tensor")
@nki.jit
def current_rows_permuted_in_place(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    isa.dma_copy(dst=out, src=x)
    isa.dma_copy(dst=out, src=out.ap([[64, 128], [1, 64]], vector_offset=halves()))     # race
    return out


@case("warning", r"tensor_copy reads t\[0, 1\] for one element of its result", "write to another tensor, or copy")
@nki.jit
def current_columns_moved_right(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = tile((128, 64))
    isa.dma_copy(dst=t, src=x)
    isa.tensor_copy(dst=t[:, 1:64], src=t[:, 0:63])                             # race
    isa.dma_copy(dst=out, src=t)
    return out


# -- memory that nothing has written -----------------------------------------------------------------------------------
@case("error", r"element \[0, 0\] of total, allocated at line \d+, is read before it is written", "write all of it first")
@beta.jit
def beta_sum_from_unwritten_memory(x):
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.sequential_range(4):
        i, j = block(128, 16)
        total[...] = nl.add(total, nl.sum(t[i, k * 16 + j], axis=1, keepdims=True))      # unwritten-read
    nl.store(out, total)
    return out


@case("error", r"element \[0, 0\] of total, allocated at line \d+, is read before it is written", "write all of it first")
@nki.jit
def current_sum_from_unwritten_memory(x):
    out = nlc.ndarray((128, 1), dtype=x.dtype, buffer=nlc.shared_hbm)
    total, t, part = tile((128, 1)), tile((128, 64)), tile((128, 1))
    isa.dma_copy(dst=t, src=x)
    for k in range(4):
        isa.tensor_reduce(dst=part, data=t[:, k * 16:k * 16 + 16], op=nlc.add, axis=1)
        isa.tensor_tensor(dst=total, data1=total, data2=part, op=nlc.add)       # unwritten-read
    isa.dma_copy(dst=out, src=total)
    return out


@case("error", r"element \[0, 0\] of t, allocated at line \d+, is read before it is written", "write all of it first")
@nki.jit
def current_columns_that_no_index_names(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    start, t = tile((1, 1), np.int32), tile((128, 64))
    isa.memset(start, 48)
    isa.dma_copy(dst=t.ap([[64, 128], [1, 16]], scalar_offset=start, indirect_dim=1), src=x[:, 0:16])
    isa.dma_copy(dst=out, src=t)                                                # unwritten-read
    return out


@case("error", r"4096 elements of the output out are not written, the first at \[0, 32\]", "store to all of the output")
@beta.jit
def beta_output_in_part(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out[:, 0:32], nl.load(x[:, 0:32]))                                 # unwritten-output
    return out


@case("error", r"12288 elements of the output out are not written, the first at \[0, 32\]", "store to all of the output",
      (128, 128), (2,))
@nki.jit
def current_subscripts_in_the_wrong_order(x):
    out = nlc.ndarray((128, 128), dtype=x.dtype, buffer=nlc.shared_hbm)
    i = nlc.program_id(0)
    for j in range(4):
        t = tile((64, 32))
        isa.dma_copy(dst=t, src=x[i * 64:i * 64 + 64, j * 32:j * 32 + 32])
        isa.dma_copy(dst=out[i * 64:i * 64 + 64, i * 32:i * 32 + 32], src=t)    # unwritten-output
    return out


# -- subscripts and lifetimes ------------------------------------------------------------------------------------------
@case("error", r"Out-of-bound access for tensor `x` on dimension 0: index range \[128, 255\] exceed dimension size of 200",
      "shorten the range, or pass mask=", (200, 64))
@beta.jit
def beta_block_at_the_edge_without_mask(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range(2):
        p, f = block(128, 64)
        nl.store(out[k * 128 + p, f], nl.load(x[k * 128 + p, f]))               # out-of-bounds
    return out


@case("error", "slice 128:256 of a dimension with size 200", "end the slice at 200", (200, 64))
@nki.jit
def current_block_at_the_edge(x):
    out = nlc.ndarray(x.shape, dtype=x.dtype, buffer=nlc.shared_hbm)
    for k in range(2):
        t = tile((128, 64))
        isa.dma_copy(dst=t, src=x[k * 128:(k + 1) * 128, :])                    # out-of-bounds
        isa.dma_copy(dst=out[k * 128:(k + 1) * 128, :], src=t)
    return out


@case("error", "Out-of-bound access for tensor `x` on dimension 0: index range .* exceed dimension size of 128", "shorten the range, or pass mask=", grid=(1, 2))
@beta.jit
def beta_grid_in_the_wrong_order(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    p, f = block(128, 32)
    nl.store(out[j * 128 + p, i * 32 + f], nl.load(x[j * 128 + p, i * 32 + f]))     # out-of-bounds
    return out


@case("error", "tensor t was created inside a loop or branch that has ended", "create it before the loop")
@beta.jit
def beta_tile_of_an_ended_loop(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    for _ in nl.affine_range(2):
        t = nl.load(x)
    nl.store(out, t)                                                            # lifetime
    return out


@case("error", "a and b have addresses that overlap in SBUF, and the kernel uses b before its last use of a", "choose addresses")
@nki.jit
def current_tiles_at_one_address(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    a = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.sbuf, address=(0, 0))
    b = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.sbuf, address=(0, 0))      # lifetime
    isa.dma_copy(dst=a, src=x)
    isa.memset(b, 0.0)
    isa.tensor_tensor(dst=b, data1=a, data2=b, op=nlc.add)
    isa.dma_copy(dst=out, src=b)
    return out


# -- what a simulator may accept, and the device does not --------------------------------------------------------------
@case("error", "operand 'src' of 'tensor_copy' begins at partition 16 and has 32 partitions", "start the tile")
@beta.jit
def beta_start_partition(x):
    out = nl.ndarray((32, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(out, nisa.tensor_copy(t[16:48, :]))                                # device-rule
    return out


@case("error", "operand 'src' of 'tensor_copy' begins at partition 16 and has 32 partitions", "start the tile")
@nki.jit
def current_start_partition(x):
    out = nlc.ndarray((32, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t, part = tile((128, 64)), tile((32, 64))
    isa.dma_copy(dst=t, src=x)
    isa.tensor_copy(dst=part, src=t[16:48, :])                                  # device-rule
    isa.dma_copy(dst=out, src=part)
    return out


@case("error", "the result of 'nc_matmul' takes bytes 1920 to 2175 of its buffer's rows", "begin the result at")
@beta.jit
def beta_product_across_banks(x):
    out = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    total = nl.zeros((64, 1024), dtype=nl.float32, buffer=nl.psum)
    total[:, 480:544] += nisa.nc_matmul(t, t)                                   # device-rule
    nl.store(out, nl.copy(total[:, 480:544]))
    return out


@case("error", "nc_matmul dst of 256 bytes crosses a PSUM bank of 2048 bytes", "split moving into parts")
@nki.jit
def current_product_across_banks(x):
    out = nlc.ndarray((64, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t, product = tile((128, 64)), tile((64, 64))
    isa.dma_copy(dst=t, src=x)
    total = nlc.ndarray((64, 1024), dtype=nlc.float32, buffer=nlc.psum)
    isa.nc_matmul(dst=total[:, 480:544], stationary=t, moving=t)                # device-rule
    isa.tensor_copy(dst=product, src=total[:, 480:544])
    isa.dma_copy(dst=out, src=product)
    return out


@case("warning", "3 tiles that are live at once take 245760 bytes of each partition; SBUF of trn2 has", "make tiles smaller")
@beta.jit
def beta_tiles_that_do_not_fit(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.full((128, 20480), 1.0, nl.float32, buffer=nl.sbuf)
    b = nl.full((128, 20480), 2.0, nl.float32, buffer=nl.sbuf)
    c = nl.add(a, b)                                                            # device-rule
    nl.store(out, nl.add(c[:, 0:64], nl.load(x)))
    return out


@case("warning", "5 tiles that are live at once take 327680 bytes of each partition; SBUF of trn2 has", "make tiles smaller")
@nki.jit
def current_tiles_that_do_not_fit(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    total, *others = [nlc.ndarray((128, 16384), nlc.float32, buffer=nlc.sbuf) for _ in range(5)]        # device-rule
    isa.memset(total, 1.0)
    for t in others:
        isa.memset(t, 1.0)
    for t in others:
        isa.tensor_tensor(dst=total, data1=total, data2=t, op=nlc.add)
    isa.dma_copy(dst=out, src=total[:, 0:64])
    return out


@case("error", r"middle\[0, 0\] is written by program 0 here, and read by program 1 at", "let each program write", grid=(2,))
@nki.jit
def current_other_core_is_not_waited_for(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    middle = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    i = nlc.program_id(0)
    mine, other = tile((64, 64)), tile((64, 64))
    isa.dma_copy(dst=mine, src=x[i * 64:i * 64 + 64, :])
    isa.dma_copy(dst=middle[i * 64:i * 64 + 64, :], src=mine)                   # race
    isa.dma_copy(dst=other, src=middle[64 - i * 64:128 - i * 64, :])
    isa.dma_copy(dst=out[i * 64:i * 64 + 64, :], src=other)
    return out


@case("warning", "'tensor_tensor': divide is not in the documents' table of operators", "divide by multiplying")
@nki.jit
def current_operator_of_no_engine(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = tile((128, 64))
    isa.dma_copy(dst=t, src=x)
    isa.tensor_scalar(dst=t, data=t, op0=nlc.add, operand0=2.0)
    isa.tensor_tensor(dst=t, data1=t, data2=t, op=nlc.divide)                   # device-rule
    isa.dma_copy(dst=out, src=t)
    return out


@case("error", r"the reshape of \(128, 64\) to \(64, 128\) changes the partition dimension 128", "keep the partition dimension", (2, 128, 64))
@beta.jit
def beta_reshape_across_partitions(x):
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x[0]).reshape((64, 128))                                        # failed
    nl.store(out[0:64], t)
    return out


# -- values ------------------------------------------------------------------------------------------------------------
@case("error", r"nl\.sqrt computes the first NaN, at \[0, 0\], of src = -1", "keep the operands within")
@beta.jit
def beta_root_of_a_negative(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.sqrt(nl.load(x)), 1.0))                             # not-finite
    return out


@case("error", r"activation \(sqrt\) computes the first NaN, at \[0, 0\], of src = -1", "keep the operands within")
@nki.jit
def current_root_of_a_negative(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = tile((128, 64))
    isa.dma_copy(dst=t, src=x)
    isa.activation(dst=t, op=nlc.sqrt, data=t)                                  # not-finite
    isa.dma_copy(dst=out, src=t)
    return out


@case("error", r"nl\.divide computes the first NaN, at \[40, 17\], of lhs = inf, rhs = inf", "keep the operands within")
@beta.jit
def beta_infinity_by_infinity(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    power = nl.exp(nl.multiply(nl.load(x), 100.0))
    nl.store(out, nl.divide(power, power))                                      # not-finite
    return out


@case("error", r"nl\.sqrt computes the first NaN, at \[0, 0\], of src = -1", "keep the operands within")
@beta.jit
def beta_root_under_a_mask(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    p, f = block(128, 64)
    nl.store(out, nl.sqrt(t[p, f], mask=(f < 32)))                              # not-finite
    return out


@case("warning", r"activation \(exp\) gives 3.56059e\+38 at \[40, 17\], which float32 cannot hold: it becomes inf",
      "scale the values")
@nki.jit
def current_exponential_too_large(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = tile((128, 64))
    isa.dma_copy(dst=t, src=x)
    isa.activation(dst=t, op=nlc.exp, data=t, scale=100.0)                      # range
    isa.dma_copy(dst=out, src=t)
    return out


@case("warning", r"copy gives -1000 at \[0, 0\], which int8 cannot hold: it becomes -128", "use a wider dtype")
@beta.jit
def beta_integer_too_large(x):
    out = nl.ndarray((128, 64), dtype=nl.int8, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.multiply(nl.load(x), 1000.0), dtype=nl.int8))      # range
    return out


@case("warning", r"tensor_scalar gives -1000 at \[0, 0\], which int8 cannot hold: it becomes -128", "use a wider dtype")
@nki.jit
def current_integer_too_large(x):
    out = nlc.ndarray((128, 64), dtype=nlc.int8, buffer=nlc.shared_hbm)
    t, narrow = tile((128, 64)), tile((128, 64), nlc.int8)
    isa.dma_copy(dst=t, src=x)
    isa.tensor_scalar(dst=narrow, data=t, op0=nlc.multiply, operand0=1000.0)    # range
    isa.dma_copy(dst=out, src=narrow)
    return out


@case("warning", r"nl\.add adds repeatedly to total, which is bfloat16, and rounds each sum",
      "accumulate in float32")
@beta.jit
def beta_sum_in_bfloat16(x):
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.load(x)
    total = nl.zeros((128, 1), dtype=nl.bfloat16, buffer=nl.sbuf)
    for k in nl.sequential_range(4):
        i, j = block(128, 16)
        total[...] = nl.add(total, nl.sum(t[i, k * 16 + j], axis=1, keepdims=True))      # precision
    nl.store(out, total)
    return out


@case("warning", r"tensor_tensor \(add\) adds repeatedly to total, which is bfloat16", "accumulate in float32")
@nki.jit
def current_sum_in_bfloat16(x):
    out = nlc.ndarray((128, 1), dtype=nlc.float32, buffer=nlc.shared_hbm)
    total, t, part, wide = tile((128, 1), nlc.bfloat16), tile((128, 64)), tile((128, 1)), tile((128, 1))
    isa.memset(total, 0.0)
    isa.dma_copy(dst=t, src=x)
    for k in range(4):
        isa.tensor_reduce(dst=part, data=t[:, k * 16:k * 16 + 16], op=nlc.add, axis=1)
        isa.tensor_tensor(dst=total, data1=total, data2=part, op=nlc.add)       # precision
    isa.tensor_copy(dst=wide, src=total)
    isa.dma_copy(dst=out, src=wide)
    return out


# -- stores ------------------------------------------------------------------------------------------------------------
@case("error", "the input tensor x is written, but it is immutable", "write to a tensor created with nl.ndarray")
@beta.jit
def beta_input_overwritten(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(x, t)                                                              # overwritten-input
    nl.store(out, t)
    return out


@case("error", "the mutable parameter x is written, but not returned", "return it with")
@beta.jit
def beta_mutable_input_not_returned(x: nt.mutable_tensor):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(x, nl.add(t, 1.0))                                                 # overwritten-input
    nl.store(out, t)
    return out


@case("warning", "the kernel overwrites its argument x, and does not return it", "swap the operands")
@nki.jit
def current_input_overwritten(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = nlc.ndarray((128, 64), dtype=F32, buffer=nlc.sbuf)
    isa.memset(t, 1.0)
    isa.dma_copy(dst=x, src=t)                                                  # overwritten-input
    isa.dma_copy(dst=out, src=t)
    return out


@case("warning", r"what memset writes to z is overwritten at line \d+ before anything reads it", "remove the statement")
@beta.jit
def beta_tile_written_twice(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    z = nl.zeros((128, 64), nl.float32, buffer=nl.sbuf)                         # dead-store
    z[...] = nl.exp(nl.load(x))
    nl.store(out, z)
    return out


@case("warning", r"what dma_copy writes to out is overwritten at line \d+ before anything reads it", "remove the statement")
@nki.jit
def current_output_written_twice(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = tile((128, 64))
    isa.dma_copy(dst=t, src=x)
    isa.dma_copy(dst=out, src=t)                                                # dead-store
    isa.tensor_scalar(dst=t, data=t, op0=nlc.add, operand0=1.0)
    isa.dma_copy(dst=out, src=t)
    return out


@case("warning", "nc_matmul overwrites its last result in total before anything reads it", "let it accumulate")
@nki.jit
def current_product_without_accumulation(x):
    out = nlc.ndarray((64, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    total, t = nlc.ndarray((64, 64), dtype=F32, buffer=nlc.psum), tile((64, 64))
    for k in range(4):
        part = tile((32, 64))
        isa.dma_copy(dst=part, src=x[k * 32:k * 32 + 32, :])
        isa.nc_matmul(dst=total, stationary=part, moving=part, accumulate=False)        # dead-store
    isa.tensor_copy(dst=t, src=total)
    isa.dma_copy(dst=out, src=t)
    return out


@case("warning", "the parser of nki 0.2 to 0.6 refuses a comprehension", "append to a list in a loop")
@nki.jit
def current_comprehension(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    starts = [32 * k for k in range(2)]                                         # python
    for start in starts:
        isa.dma_copy(dst=out[:, nlc.ds(start, 32)], src=x[:, nlc.ds(start, 32)])
    return out


@case("warning", r"what memset writes to t is overwritten at line \d+ before anything reads it", "remove the statement")
@nki.jit
def current_part_written_before_all(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = tile((128, 64))
    isa.memset(dst=t[0:128, 0:32], value=1.0)                                   # dead-store
    isa.dma_copy(dst=t, src=x)
    isa.dma_copy(dst=out, src=t)
    return out


@case("warning", r"nothing reads what nl\.multiply writes to twice", "remove the statement")
@beta.jit
def beta_result_unused(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range(2):
        t = nl.load(x[k * 64:k * 64 + 64, :])
        twice = nl.multiply(t, 2.0)                                             # dead-store
        nl.store(out[k * 64:k * 64 + 64, :], t)
    return out


@case("warning", r"nothing reads what nl\.multiply writes to counts", "remove the statement")
@beta.jit
def beta_integers_unused(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    counts = nl.multiply(t, 2.0, dtype=nl.int32)                                # dead-store
    nl.store(out, t)
    return out


@case("warning", r"nothing reads what nl\.multiply writes to factor", "remove the statement")
@beta.jit
def beta_number_unused(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    factor = nl.multiply(t[0:1, 0:1], 2.0)                                      # dead-store
    nl.store(out, t)
    return out


@case("warning", r"dma_copy moves a tensor of shape \[128, 64\] into one of shape \[64, 128\]", "give both the same shape")
@nki.jit
def current_copy_of_another_shape(x):
    out = nlc.ndarray((64, 128), dtype=x.dtype, buffer=nlc.shared_hbm)
    isa.dma_copy(dst=out, src=x)                                                # dma-shape
    return out


@case("error", r"shape \(128, 64\) does not broadcast to \(64, 128\)", "give both the same shape")
@beta.jit
def beta_copy_of_another_shape(x):
    out = nl.ndarray((64, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)                                               # failed
    return out


@case("note", r"add\(.* is the form of release 2\.20; the newest is add\(x, y, \*, dtype", "")
@beta.jit
def beta_form_of_an_older_release(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(out, nl.add(t, t, nl.float32))                                     # older-form
    return out


@case("note", r"activation\(op, data, .* is the form of release", "")
@nki.jit
def current_call_without_a_destination(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = tile((128, 64))
    isa.dma_copy(dst=t, src=x)
    u = isa.activation(op=nlc.exp, data=t)                                      # older-form
    isa.dma_copy(dst=out, src=u)
    return out


@case("note", r"the newest release refuses Python's operators on tensors; call nl.multiply", "")
@nki.jit
def current_operator_on_tiles(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = tile((128, 64))
    isa.dma_copy(dst=t, src=x)
    isa.dma_copy(dst=out, src=t * 2)                                            # older-form
    return out


@case("note", r"memset of int32 takes an integer, got 2.0", "")
@nki.jit
def current_fill_that_is_a_whole_float(x):
    out = nlc.ndarray((128, 64), dtype=nlc.int32, buffer=nlc.shared_hbm)
    t = tile((128, 64), nlc.int32)
    isa.memset(t, 2.0)                                                          # older-form
    isa.dma_copy(dst=out, src=t)
    return out


@beta.jit
def block_dimensions_reshaped(x):
    out = nl.ndarray((2, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((2, nl.par_dim(128), 64), dtype=x.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(2):
        t[k] = nl.load(x[k])
    parts = t.reshape((2, nl.par_dim(128), 8, 8))
    for k in nl.affine_range(2):
        nl.store(out[k], nl.copy(parts[k]).reshape((128, 64)))
    return out


@nki.jit
def written_in_parts(x):
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = nlc.ndarray((128, 64), dtype=F32, buffer=nlc.sbuf)
    isa.dma_copy(dst=t[0:128, 0:32], src=x[0:128, 32:64])
    isa.dma_copy(dst=t[0:128, 32:64], src=x[0:128, 0:32])
    isa.dma_copy(dst=out, src=t)
    return out


@beta.jit
def rows_added_to_one(x):
    """``atomic_rmw`` adds rows of equal numbers one after the other."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((128, 64), x.dtype, buffer=nl.sbuf))
    p, f = block(128, 64)
    half = nl.right_shift(nisa.iota(p, dtype=nl.int32), 1)
    nl.atomic_rmw(out[half[p, 0], f], nl.load(x), op=np.add)
    return out


@nki.jit
def equal_rows_scattered(x):
    """Rows of equal numbers have equal values."""
    out = nlc.ndarray((64, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = nlc.ndarray((128, 64), dtype=F32, buffer=nlc.sbuf)
    isa.memset(t, 1.0)
    isa.dma_copy(dst=out.ap([[64, 128], [1, 64]], vector_offset=halves()), src=t)
    return out


@nki.jit
def parts_moved_in_place(x):
    """Operands that are the result's elements, or beside them, in HBM, SBUF and under a run-time index."""
    out = nlc.ndarray((128, 64), dtype=x.dtype, buffer=nlc.shared_hbm)
    t = nlc.ndarray((128, 64), dtype=F32, buffer=nlc.sbuf)
    start = nlc.ndarray((1, 1), dtype=np.int32, buffer=nlc.sbuf)
    isa.dma_copy(dst=t, src=x)
    isa.memset(start, 32)
    isa.tensor_scalar(dst=t, data=t, op0=nlc.add, operand0=t[:, 5:6])
    isa.tensor_copy(dst=t[:, 1:64:2], src=t[:, 0:64:2])
    isa.dma_copy(dst=t.ap([[64, 128], [1, 16]], scalar_offset=start, indirect_dim=1), src=t[:, 0:16])
    isa.tensor_reduce(dst=t[:, 0:1], op=nlc.add, data=t, axis=1)
    isa.dma_copy(dst=out[0:64, :], src=t[0:64, :])
    isa.dma_copy(dst=out[64:128, :], src=out[0:64, :])
    return out


@pytest.mark.parametrize("kernel, shape", [
    (block_dimensions_reshaped, (2, 128, 64)), (written_in_parts, (128, 64)), (rows_added_to_one, (128, 64)),
    (equal_rows_scattered, (128, 64)), (parts_moved_in_place, (128, 64))])
def test_a_kernel_without_mistakes__has_no_findings(kernel, shape):
    report = nki_mlir.check(kernel, np.ones(shape, F32))
    assert report.sound and not report.findings, str(report)


def marked(kernel: Any) -> tuple[str, int]:
    """The kind and the line that a kernel's comment names."""
    first = kernel.func.__code__.co_firstlineno
    for number in range(first, first + 20):
        if mark := re.search(r"# ([a-z-]+)( # noqa: \w+)?$", LINES[number - 1]):
            return mark[1], number
    raise AssertionError(kernel)


@pytest.mark.parametrize("name", CASES)
def test_mistake__is_told_at_its_line_with_a_fix(name):
    one = CASES[name]
    kind, line = marked(one.kernel)
    x = np.linspace(-1, 5, int(np.prod(one.shape)), dtype=F32).reshape(one.shape)
    before = x.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")                      # what is found is in the report alone
        report = nki_mlir.check(one.kernel[one.grid] if one.grid else one.kernel, x)
    assert np.array_equal(x, before)
    told = [f for f in report.of(kind) if f.location and f.location.line == line and re.match(one.said, f.message)]
    assert len(told) == 1 and told[0].severity == one.severity and told[0].fix.startswith(one.fix), report.findings
    assert report.sound == all(f.severity != "error" for f in report.findings)
    assert f"{Path(__file__).name}:{line}: {one.severity}: {told[0].message}" in str(report)
    document = json.loads(json.dumps(report.json()))
    assert {"file": __file__, "line": line} in [{k: f["location"][k] for k in ("file", "line")} for f in document["findings"]
                                                if f["kind"] == kind and f["message"] == told[0].message]


def test_both_generations__have_cases():
    kinds = {prefix: {marked(c.kernel)[0] for name, c in CASES.items() if name.startswith(prefix)}
             for prefix in ("beta_", "current_")}
    assert kinds["beta_"] - {"failed"} == kinds["current_"] - {"dma-shape", "python"}    # which beta's runs refuse or accept
    assert kinds["current_"] | kinds["beta_"] == set(KINDS) - {"streams", "warning"}
