# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A carried sum, a kernel within a class, a measured kernel."""
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki import benchmark


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
    return [(cumsum_last_axis, (f(150, 150),)), (cumsum_last_axis, (f(128, 128),)),
            (LlamaMLP.kernel, (f(64, 256), f(256, 256), f(256, 256), f(256, 256))),
            (saxpy, (f(150, 40), f(150, 40)))]
