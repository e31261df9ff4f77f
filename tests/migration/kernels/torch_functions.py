# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of PyTorch on the device: nki_jit kernels with results as parameters, in modules and autograd functions."""

import math

import neuronxcc.nki.language as nl
import numpy as np
import torch
from torch_neuronx import nki_jit


@nki_jit
def nki_tensor_add_kernel_(a_input, b_input, c_output):
    """NKI kernel to compute element-wise addition of two input tensors"""
    offset_i_x = nl.program_id(0) * 128
    offset_i_y = nl.program_id(1) * 64
    ix = offset_i_x + nl.arange(128)[:, None]
    iy = offset_i_y + nl.arange(64)[None, :]
    a_tile = nl.load(a_input[ix, iy])
    b_tile = nl.load(b_input[ix, iy])
    c_tile = a_tile + b_tile
    nl.store(c_output[ix, iy], value=c_tile)


@nki_jit
def layer_norm_kernel(input_tensor, gamma, beta, epsilon, output_tensor):
    """input [rows, cols]; gamma, beta [1, cols]; statistics over the columns."""
    i_p_io = nl.arange(nl.tile_size.pmax)[:, None]
    i_f_io = nl.arange(input_tensor.shape[1])[None, :]
    i_p_param = nl.arange(1)[:, None]
    gamma_sb = nl.load(gamma[i_p_param, i_f_io])
    beta_sb = nl.load(beta[i_p_param, i_f_io])
    gamma_sb_bcast = gamma_sb.broadcast_to((nl.tile_size.pmax, input_tensor.shape[1]))
    beta_sb_bcast = beta_sb.broadcast_to((nl.tile_size.pmax, input_tensor.shape[1]))
    num_rows = input_tensor.shape[0]
    for i in nl.affine_range(math.ceil(num_rows / nl.tile_size.pmax)):
        input_sb = nl.load(input_tensor[i * nl.tile_size.pmax + i_p_io, i_f_io],
                           mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
        mean = nl.mean(input_sb, axis=1)
        shift_scale_tensor = nl.subtract(input_sb, mean)
        variance = nl.mean(nl.square(shift_scale_tensor), axis=1)
        rstd = nl.rsqrt(variance + epsilon)
        normalized = nl.multiply(shift_scale_tensor, rstd)
        scaled = nl.multiply(normalized, gamma_sb_bcast)
        result = nl.add(scaled, beta_sb_bcast)
        nl.store(output_tensor[i * nl.tile_size.pmax + i_p_io, i_f_io], value=result,
                 mask=(i * nl.tile_size.pmax + i_p_io < num_rows))


@nki_jit
def relu_squared_backward_kernel(x_ref, grad_ref, out_ref):
    r, c = x_ref.shape
    for k in nl.affine_range(r // 128):
        i_p = k * 128 + nl.arange(128)[:, None]
        i_f = nl.arange(c)[None, :]
        x = nl.load(x_ref[i_p, i_f])
        g = nl.load(grad_ref[i_p, i_f])
        nl.store(out_ref[i_p, i_f], value=2.0 * nl.relu(x) * g)


@nki_jit
def relu_squared_kernel(x_ref, out_ref):
    r, c = x_ref.shape
    for k in nl.affine_range(r // 128):
        i_p = k * 128 + nl.arange(128)[:, None]
        i_f = nl.arange(c)[None, :]
        x = nl.relu(nl.load(x_ref[i_p, i_f]))
        nl.store(out_ref[i_p, i_f], value=x * x)


def nki_tensor_add(a_input, b_input):
    """NKI kernel caller: the grid is computed from the shape."""
    grid_x = a_input.shape[0] // 128
    grid_y = a_input.shape[1] // 64
    c_output = torch.empty_like(a_input)
    nki_tensor_add_kernel_[grid_x, grid_y](a_input, b_input, c_output)
    return c_output


class ReluSquared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty(x.shape, dtype=x.dtype)
        relu_squared_kernel(x, out)
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        grad_input = torch.empty(x.shape, dtype=x.dtype)
        relu_squared_backward_kernel(x, grad_output, grad_input)
        return grad_input


class LayerNorm(torch.nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.gamma = torch.nn.Parameter(torch.linspace(0.5, 1.5, size).reshape(1, size), requires_grad=False)
        self.beta = torch.nn.Parameter(torch.zeros(1, size), requires_grad=False)
        self.eps = eps

    def forward(self, x):
        out = torch.empty_like(x)
        layer_norm_kernel(x, self.gamma, self.beta, self.eps, out)
        return out


class TorchDriver:
    """A function of PyTorch as a case: NumPy arrays in and out."""

    def __init__(self, function, name):
        self.function, self.__name__ = function, name

    def run(self, arguments, keywords, on):
        return self.function(*map(torch.from_numpy, arguments), **keywords).detach().numpy()


def relu_squared_gradient(x):
    x = x.clone().requires_grad_()
    ReluSquared.apply(x).sum().backward()
    return x.grad


def cases():
    r = np.random.default_rng(12)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [
        (TorchDriver(nki_tensor_add, "nki_tensor_add"), (f(256, 128), f(256, 128))),
        (TorchDriver(LayerNorm(96), "LayerNorm"), (f(150, 96),)),
        (TorchDriver(relu_squared_gradient, "relu_squared_gradient"), (f(128, 24),)),
    ]
