# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Implicit results, block dimensions, PSUM, results by reference and instructions, as the beta generation has them."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc.nki.language import par_dim


@nki.jit
def product(a, b):
    out = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    result = nl.matmul(nl.load(a), nl.load(b), transpose_x=True)
    nl.store(out, value=nl.copy(result, dtype=out.dtype))
    return out


@nki.jit
def product_by_instruction(a, b):
    out = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    result = nisa.nc_matmul(nl.load(a), nl.load(b))
    nl.store(out, nl.copy(result))
    return out


@nki.jit
def accumulated(a, b):
    k, m = a.shape
    out = nl.ndarray((m, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    psum = nl.zeros((m, 32), nl.float32, buffer=nl.psum)
    for s in nl.affine_range(k // 48):
        psum += nl.matmul(nl.load(a[nl.ds(s * 48, 48), :]), nl.load(b[nl.ds(s * 48, 48), :]), transpose_x=True)
    nl.store(out, nl.copy(psum))
    return out


@nki.jit
def accumulated_by_instruction(a, b):
    k, m = a.shape
    out = nl.ndarray((m, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    i_m, i_n = nl.mgrid[0:m, 0:32]
    psum = nl.zeros((m, 32), nl.float32, buffer=nl.psum)
    for s in nl.sequential_range(k // 48):
        left, right = nl.load(a[s * 48:(s + 1) * 48, :]), nl.load(b[s * 48:(s + 1) * 48, :])
        psum[i_m, i_n] += nisa.nc_matmul(left, right)
    nl.store(out[i_m, i_n], nisa.activation(op=nl.relu, data=psum[i_m, i_n]))
    return out


@nki.jit
def block_of_tiles(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((4, par_dim(32), 24), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        kept[i] = nl.load(x[nl.ds(i * 32, 32), :])
    for i in nl.affine_range(4):
        nl.store(out[nl.ds(i * 32, 32), :], nl.exp(kept[3 - i]))
    return out


@nki.jit
def two_block_dimensions(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((2, 2, nl.par_dim(64), 12), dtype=x.dtype)
    p, f = nl.mgrid[0:64, 0:12]
    for i in nl.affine_range(2):
        for j in nl.affine_range(2):
            kept[i, j, p, f] = nl.load(x[i * 64 + p, j * 12 + f])
    for i in nl.affine_range(2):
        for j in nl.affine_range(2):
            nl.store(out[i * 64 + p, j * 12 + f], value=nl.add(kept[i, j], kept[i, j, p, f]))
    return out


@nki.jit
def block_of_sums(x):
    out = nl.ndarray((32, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.zeros((nl.par_dim(32), 4), dtype=nl.float32)
    for i in nl.affine_range(4):
        sums[:, i:i + 1] = nl.sum(nl.load(x[nl.ds(i * 32, 32), :]), axis=1, keepdims=True)
    nl.store(out, sums)
    return out


@nki.jit
def block_in_psum(a, b):
    out = nl.ndarray((2, 64, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    banks = nl.zeros((2, nl.par_dim(64), 32), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(2):
        banks[i] += nisa.nc_matmul(nl.load(a[nl.ds(i * 48, 48)]), nl.load(b[nl.ds(i * 48, 48)]))
    for i in nl.affine_range(2):
        nl.store(out[i], nl.copy(banks[i]))
    return out


@nki.trace
def result_by_reference(x, out):
    tile = nl.load(x)
    nl.store(out, nl.multiply(tile, tile))


@nki.jit
def mutable_parameter(x: nt.mutable_tensor):
    tile = nl.load(x[0:32, :])
    nl.store(x[0:32, :], value=tile * -1.0)
    return x


@nki.jit
def running_total(x):
    out = nl.ndarray((32, 24), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((32, 24), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.sequential_range(4):
        total[...] = nl.add(total, nl.load(x[nl.ds(i * 32, 32), :]))
    nl.store(out, value=total)
    return out


@nki.jit
def transposed(x):
    out = nl.ndarray((24, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    exchanged = nisa.nc_transpose(nl.load(x))
    nl.store(out, nisa.tensor_copy(exchanged, dtype=out.dtype))
    return out


@nki.jit
def transposed_by_language(x):
    out = nl.ndarray((24, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.transpose(nl.load(x[0:32, :]))))
    return out


@nki.jit
def loaded_transposed(x):
    out = nl.ndarray((24, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load_transpose2d(x))
    return out


@nki.jit
def largest_eight(x):
    out = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nisa.max8(src=nl.load(x)))
    return out


@nki.jit
def indices_of_eight(x):
    out = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, nisa.nc_find_index8(data=tile, vals=nisa.max8(src=tile)))
    return out


@nki.jit
def scanned_rows(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    ones = nl.ones(x.shape, dtype=nl.float32)
    nl.store(out, nisa.tensor_tensor_scan(ones, tile, initial=0.0, op0=np.multiply, op1=np.add))
    return out


@nki.jit
def activated_and_summed(x):
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(op=nl.exp, data=nl.load(x), reduce_op=np.add, reduce_res=total)
    nl.store(out, total)
    return out


@nki.jit
def two_scalars(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    first = nisa.tensor_reduce(np.max, tile, axis=(1,), negate=True, keepdims=True)
    nl.store(out, nisa.tensor_scalar(tile, op0=np.add, operand0=first, op1=np.multiply, operand1=0.25))
    return out


@nki.jit
def moved_on_device(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[0:64], src=x[64:128])
    nisa.dma_copy(dst=out[64:128], src=x[0:64])
    return out


@nki.jit
def scratch_in_hbm(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray((2, 64, 24), dtype=x.dtype, buffer=nl.hbm)
    for i in nl.affine_range(2):
        nl.store(scratch[i], nl.exp(nl.load(x[nl.ds(i * 64, 64)])))
    for i in nl.affine_range(2):
        nl.store(out[nl.ds(i * 64, 64)], nl.load(scratch[1 - i]))
    return out


@nki.jit
def placed_by_hand(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((par_dim(128), 24), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    tile[...] = nl.load(x)
    squared = nl.ndarray((par_dim(128), 24), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=128))
    squared[...] = nisa.tensor_tensor(tile, tile, op=np.multiply)
    nl.store(out, squared)
    return out


@nki.jit
def constant_operand(x):
    out = nl.ndarray((32, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    table = nl.shared_constant(np.arange(768, dtype=np.float32).reshape(32, 24))
    nl.store(out, nl.load(table) + nl.load(x[0:32]))
    return out


def cases():
    rng = np.random.default_rng(0)
    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    x, a, b = floats(128, 24), floats(96, 64), floats(96, 32)
    one = [block_of_tiles, two_block_dimensions, block_of_sums, mutable_parameter, running_total, transposed,
           transposed_by_language, loaded_transposed, largest_eight, indices_of_eight, scanned_rows,
           activated_and_summed, two_scalars, moved_on_device, scratch_in_hbm, placed_by_hand, constant_operand]
    return [*((kernel, (x,)) for kernel in one), (product, (a, b)), (product_by_instruction, (a, b)),
            (accumulated, (a, b)), (accumulated_by_instruction, (a, b)), (block_in_psum, (a, b)),
            (result_by_reference, (x, np.zeros_like(x)))]
