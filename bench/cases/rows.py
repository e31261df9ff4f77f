# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of rows: a reduction, and an elementwise pass over the row with its result."""

import math
from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import normalization
import numpy as np
import softmax as softmaxes
from case import Case, Goal, case, random, tolerance


@case("softmax_4096", Goal(faster=1.5, share=0.8, note=(
    "Memory is the limit, since stores past the caches wait for it: the pipeline over chunks raised the rate from "
    "52-70% of a copy's to 75-86% (1938 to 2141 us in three runs). A vector of 16 takes a thread 8.3 cycles for exp "
    "with the stores beside it (7.5 for exp alone, 5.6 for the stores alone) and 2.6 for the maximum. Chunks of one "
    "row reached 80-83%, chunks of eight rows 64-78%. An exp without upper limit gained nothing. Huge pages "
    "for results took one thread from 4748 to 3208 us of processor time while others used the machine.")),
      Goal(faster=1.3, share=0.7, note=(
    "The arithmetic is the limit: a vector of 16 takes a thread 15 cycles in the cache; instructions alone would take "
    "10.7. With the stack aligned the loop takes 4.9 ms of 5.8 (27 to 31 in 3 of 25 runs), with tests of results "
    "for zeros before those for denormals, an exp by sixteenths of powers, 4.6. By hand, the first steps of exp for "
    "the next vector beside the other steps took 12.8 cycles; without tests for denormals, for which the "
    "instruction that rounds to bfloat16 gives other bits, 12.6. Without that instruction, beside other users, one "
    "thread took 6.2 ms (8.0 before stores of halves of words; a copy takes it 4.5). There, stores in the same "
    "iteration took 1.01 of the time, two registers at a time 1.02.")))
def softmax(dtype: str = "float32") -> Case:
    def formula(xp: Any, x: Any) -> Any:
        powers = xp.exp(x - x.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    x = random(4096, 4096, dtype=dtype)
    return Case((x,), softmaxes.softmax_fused, formula, lambda x: x.softmax(1), "copy", 2 * x.nbytes,
                lambda: softmaxes.reference(x.astype("float64")), tolerance(dtype))


@case("rmsnorm_4096", Goal(faster=1.5, share=0.8, note=(
    "Memory is the limit, and other users of the machine share it: runs within an hour took 2776 us (93% of a copy's "
    "rate), 2344 us (76%) and 1886 us.")))
def rmsnorm(dtype: str = "float32") -> Case:
    def formula(xp: Any, x: Any, g: Any) -> Any:
        return x / xp.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * g

    def torch_formula(x: Any, g: Any) -> Any:
        import torch
        return torch.nn.functional.rms_norm(x, (x.shape[1],), g[0], 1e-6)
    x, g = random(4096, 4096, dtype=dtype), random(1, 4096, seed=1, dtype=dtype)
    return Case((x, g), normalization.rmsnorm, formula, torch_formula, "copy", 2 * x.nbytes,
                lambda: formula(np, x.astype("float64"), g.astype("float64")), tolerance(dtype))


@nki.jit
def layernorm_gelu(x, g, b, epsilon=1e-5):
    """Compute gelu((x - mean) / sqrt(variance) * g + b) over rows of x [N, M]; N a multiple of 128, M of 512."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weight, shift = nl.load(g), nl.load(b)
    pieces = columns // nl.tile_size.bn_stats_fmax
    width = columns // pieces
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[nl.ds(i * 128, 128), :])
        stats = nl.ndarray((128, 6 * pieces), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(pieces):
            stats[:, nl.ds(6 * k, 6)] = nisa.bn_stats(tile[:, nl.ds(k * width, width)])
        moments = nisa.bn_aggr(stats)
        scale = nl.rsqrt(moments[:, 1] + epsilon)
        normal = nisa.tensor_scalar(tile, np.subtract, moments[:, 0], op1=np.multiply, operand1=scale)
        nl.store(out[nl.ds(i * 128, 128), :], nl.gelu(nl.add(nl.multiply(normal, weight), shift)))
    return out


@case("layernorm_gelu", Goal(faster=1.5, share=0.8, note=(
    "The arithmetic of gelu is the limit: 22 products and multiply-adds of 0.134 ns, a scaling of 0.27 and a division "
    "of 0.67 make 3.9 ns a vector of 16. In the cache it takes 3.6 ns: one thread takes 29.5 us for gelu of 128 rows "
    "and 9.5 for their statistics. For the complete array two threads take 907 to 950 us, 717 to 784 of them for all "
    "but the statistics; code by hand takes 947 to 1000. A quotient of two polynomials instead of a polynomial of a "
    "reciprocal took gelu from 34.3 to 29.5 us; prefetching the thread's next rows took the case from 1070 to 921. "
    "Prefetching them to the first cache took 907 us; during the statistics, by hand, 1188 instead of 997; tiles of 8 "
    "to 64 rows, by hand, 1014 to 1086. An exp of degree 5 has an error of 1.1e-7, more than the bound allows.")),
      Goal(faster=1.3, share=0.7, note=(
    "The arithmetic is the limit: a vector of 16 took a thread 5.8 ns in the cache, of which 3.5 were gelu and 2.3 the "
    "steps before with their three roundings; float32 takes 4.2. In one nest both took 7.6. Weights that are widened "
    "only once gained 0.12 ns. Pairs of bfloat16 that are loaded as words took one thread from 1803 to 1731 us, and "
    "polynomials with the bits of gelu from 3601 to 2999 while others used the machine (gelu alone from 7.3 to 3.8 ns "
    "then). Both nests beside each other in one routine, a chunk apart, took 10.8 ns where one after the other took "
    "11.2; a rounding without the repair of NaN gained 1%.")))
def layernorm(dtype: str = "float32") -> Case:
    def formula(xp: Any, x: Any, g: Any, b: Any) -> Any:
        from scipy.special import erf
        if xp is not np:
            from jax.scipy.special import erf
        centered = x - x.mean(1, keepdims=True)
        normal = centered / xp.sqrt((centered * centered).mean(1, keepdims=True) + 1e-5) * g + b
        return normal * (1 + erf(normal * math.sqrt(0.5))) * 0.5

    def torch_formula(x: Any, g: Any, b: Any) -> Any:
        import torch
        return torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (x.shape[1],), g[0], b[0], 1e-5))
    x, g, b = (random(rows, 1024, seed=n, dtype=dtype) for n, rows in enumerate((4096, 1, 1)))
    return Case((x, g, b), layernorm_gelu, formula, torch_formula, "copy", 2 * x.nbytes,
                lambda: formula(np, *(a.astype("float64") for a in (x, g, b))), tolerance(dtype))
