# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mamba scan, cumsum, MLP, wrappers, decorators, SPMD, allocated kernels."""
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki import benchmark, simulate_kernel


@nki.jit
def mamba_v2(delta, u, A, B, C):
    """Selective scan, channels over partitions, states in an outer loop."""
    batch_size, channels, seq_len = delta.shape
    output = nl.ndarray((batch_size, channels, seq_len), dtype=delta.dtype, buffer=nl.shared_hbm)
    _, state_size = A.shape
    assert channels % 128 == 0
    channel_psize = nl.tile_size.pmax
    n_channel_tile = channels // channel_psize
    for i_batch in nl.affine_range(batch_size):
        for i_channel_tile in nl.affine_range(n_channel_tile):
            channel_start = i_channel_tile * channel_psize
            scanC_accum = nl.zeros((nl.par_dim(channel_psize), seq_len), dtype=delta.dtype)
            delta_i = nl.load(delta[i_batch, channel_start:channel_start + channel_psize, 0:seq_len])
            u_i = nl.load(u[i_batch, channel_start:channel_start + channel_psize, 0:seq_len])
            for i_state in nl.affine_range(state_size):
                A_i = nl.load(A[channel_start:channel_start + channel_psize, i_state])
                deltaA = nisa.activation(op=nl.exp, data=delta_i, scale=A_i)
                B_i = nl.load(B[i_batch, i_state:i_state + 1, 0:seq_len])
                deltaU = nisa.tensor_tensor(delta_i, u_i, op=nl.multiply)
                B_i_bcast = B_i.broadcast_to((channel_psize, seq_len))
                deltaBu = nisa.tensor_tensor(deltaU, B_i_bcast, op=nl.multiply)
                scan_res = nki.isa.tensor_tensor_scan(deltaA, deltaBu, initial=0, op0=np.multiply, op1=np.add)
                C_i = nl.load(C[i_batch, i_state:i_state + 1, 0:seq_len])
                C_i_bcast = C_i.broadcast_to((channel_psize, seq_len))
                scanC = nisa.tensor_tensor(scan_res, C_i_bcast, op=nl.multiply)
                scanC_accum[0:channel_psize, 0:seq_len] += scanC
            nl.store(output[i_batch, channel_start:channel_start + channel_psize, 0:seq_len], scanC_accum[0:channel_psize, 0:seq_len])
    return output


@nki.jit
def cumsum_last_axis(x, acc_dtype=None):
    """Cumulative sum in tiles with a carried column."""
    orig = x.shape
    rows, cols = orig[0], orig[1]
    out = nl.ndarray(orig, dtype=x.dtype, buffer=nl.shared_hbm)
    acc_dtype = acc_dtype or x.dtype
    pmax, fmax = nl.tile_size.pmax, 64
    ones = nl.ones((pmax, fmax), dtype=acc_dtype)
    pi, fi = nl.mgrid[0:pmax, 0:fmax]
    for i in nl.affine_range((rows + pmax - 1) // pmax):
        init = nl.zeros((pmax, 1), dtype=acc_dtype)
        for j in nl.sequential_range((cols + fmax - 1) // fmax):
            mask = (i * pmax + pi < rows) & (j * fmax + fi < cols)
            data = nl.load(x[i * pmax + pi, j * fmax + fi], mask=mask)
            result = nisa.tensor_tensor_scan(data0=ones, data1=data, initial=init, op0=np.multiply, op1=np.add, dtype=acc_dtype, mask=mask)
            nl.store(out[i * pmax + pi, j * fmax + fi], result, mask=mask)
            init[:, :] = nl.copy(result[:, fmax - 1])
    return out


class LlamaMLP:
    """Holds weights as a framework module does, kernel beside them."""

    def __init__(self, gate, up, down):
        self.gate, self.up, self.down = gate, up, down

    @staticmethod
    @nki.jit
    def kernel(x, w_gate, w_up, w_down):
        T, D = x.shape
        F = w_gate.shape[1]
        KT, FT = D // 128, F // 128
        out = nl.ndarray((T, D), dtype=x.dtype, buffer=nl.shared_hbm)
        xT = nl.ndarray((KT, nl.par_dim(128), T), dtype=x.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(KT):
            xT[k] = nl.load_transpose2d(x[:, k * 128:(k + 1) * 128])
        act = nl.ndarray((FT, nl.par_dim(128), T), dtype=x.dtype, buffer=nl.sbuf)
        for f in nl.affine_range(FT):
            g_ps = nl.zeros((128, T), dtype=nl.float32, buffer=nl.psum)
            u_ps = nl.zeros((128, T), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(KT):
                wg = nl.load(w_gate[nl.ds(k * 128, 128), nl.ds(f * 128, 128)])
                wu = nl.load(w_up[nl.ds(k * 128, 128), nl.ds(f * 128, 128)])
                g_ps += nisa.nc_matmul(wg, xT[k])
                u_ps += nisa.nc_matmul(wu, xT[k])
            act[f] = nl.multiply(nl.silu(g_ps), u_ps, dtype=x.dtype)
        for d in nl.affine_range(D // 128):
            o_ps = nl.zeros((T, 128), dtype=nl.float32, buffer=nl.psum)
            for f in nl.affine_range(FT):
                wd = nl.load(w_down[nl.ds(f * 128, 128), nl.ds(d * 128, 128)])
                o_ps += nisa.nc_matmul(act[f], wd)
            nl.store(out[:, nl.ds(d * 128, 128)], nl.copy(o_ps, dtype=out.dtype))
        return out

    def __call__(self, x):
        return self.kernel(x, self.gate, self.up, self.down)


@nki.compiler.skip_middle_end_transformations
@nki.baremetal(artifacts_dir="./mm", experimental_flags="enable-mutable-parameter")
def allocated_transpose_scale(a, scale=2.0):
    """Buffers at fixed addresses, two in flight."""
    M, N = a.shape
    c = nl.ndarray((N, M), dtype=a.dtype, buffer=nl.shared_hbm)
    n_tiles = M // 128
    a_sb = nl.ndarray((n_tiles, nl.par_dim(128), N), dtype=a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)))
    o_sb = nl.ndarray((n_tiles, nl.par_dim(N), 128), dtype=a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=2 * N * 4, num_free_tiles=(2,)))
    ps = nl.ndarray((n_tiles, nl.par_dim(N), 128), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0, num_bank_tiles=(2,)))
    for i in nl.affine_range(n_tiles):
        a_sb[i] = nl.load(a[nl.ds(i * 128, 128), :])
        ps[i] = nisa.nc_transpose(a_sb[i])
        o_sb[i, :, :] = nisa.tensor_scalar(ps[i], np.multiply, scale)
        nl.store(c[:, nl.ds(i * 128, 128)], value=o_sb[i])
    return c


def nki_tensor_add_kernel_(a_input, b_input, c_output):
    """Without a decorator, by reference, on a grid."""
    offset_i_x = nl.program_id(0) * 128
    offset_i_y = nl.program_id(1) * 64
    ix = offset_i_x + nl.arange(128)[:, None]
    iy = offset_i_y + nl.arange(64)[None, :]
    a_tile = nl.load(a_input[ix, iy])
    b_tile = nl.load(b_input[ix, iy])
    c_tile = a_tile + b_tile
    nl.store(c_output[ix, iy], value=c_tile)


def nki_tensor_add(a, b):
    grid_x = a.shape[0] // 128
    grid_y = a.shape[1] // 64
    c = np.zeros_like(a)
    simulate_kernel(nki_tensor_add_kernel_[grid_x, grid_y] if hasattr(nki_tensor_add_kernel_, "__getitem__") else nki.trace(nki_tensor_add_kernel_)[grid_x, grid_y], a, b, c)
    return c


@benchmark(warmup=2, iters=3)
def saxpy(x, y, a: float = 0.5):
    o = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sz_p, sz_f = x.shape
    i_f = nl.arange(sz_f)[None, :]
    for p in nl.affine_range(np.ceil(sz_p / 128).astype(int)):
        i_p = p * 128 + nl.arange(128)[:, None]
        xt = nl.load(x[i_p, i_f], mask=i_p < sz_p)
        yt = nl.load(y[i_p, i_f], mask=(i_p < sz_p))
        nl.store(o[i_p, i_f], a * xt + yt, mask=(i_p < sz_p))
    return o


def cases():
    r = np.random.default_rng(0)
    f = lambda *s: r.standard_normal(s).astype(np.float32) / 4
    return [(mamba_v2, (np.abs(f(1, 256, 48)), f(1, 256, 48), -np.abs(f(256, 4)), f(1, 4, 48), f(1, 4, 48))),
            (cumsum_last_axis, (f(150, 150),)), (cumsum_last_axis, (f(128, 128),)),
            (LlamaMLP.kernel, (f(64, 256), f(256, 256), f(256, 256), f(256, 256))),
            (saxpy, (f(150, 40), f(150, 40)))]
