# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small transformer in PyTorch whose attention, normalization and rotary embedding are kernels, and its native form.

    python -m nki_mlir examples/train_transformer_torch.py --steps 300
"""

import torch
import training_curves as run
import transformer_kernels as kernels
from torch.nn import functional
from training_curves import EPSILON, HEADS, LAYERS, RATE, SCALE, STEPS, WIDTH

COSINE, SINE = (torch.from_numpy(x) for x in kernels.angles(STEPS, WIDTH // HEADS))


# -- kernels with their derivatives ------------------------------------------------------------------------------------
class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return kernels.attention_forward[q.shape[0]](q, k, v, SCALE)

    @staticmethod
    def backward(ctx, g):
        return kernels.attention_backward[g.shape[0]](*ctx.saved_tensors, g, SCALE)


class Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return kernels.rotary[x.shape[0]](x, COSINE, SINE)

    @staticmethod
    def backward(ctx, g):
        return kernels.rotary[g.shape[0]](g, COSINE, SINE, inverse=True)


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain):
        ctx.save_for_backward(x, gain)
        return kernels.rmsnorm_forward(x, gain)

    @staticmethod
    def backward(ctx, g):
        return kernels.rmsnorm_backward(*ctx.saved_tensors, g)


# -- the same natively -------------------------------------------------------------------------------------------------
def native_attention(q, k, v):
    scores = (q @ k.transpose(1, 2) * SCALE).masked_fill(~torch.ones(STEPS, STEPS, dtype=torch.bool).tril(), -1e9)
    return functional.softmax(scores, -1) @ v


def native_rotary(x):
    first, second = x.chunk(2, -1)
    return torch.cat([first * COSINE - second * SINE, second * COSINE + first * SINE], -1)


def native_rmsnorm(x, gain):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * gain


KERNELS = Attention.apply, Rotary.apply, RmsNorm.apply
NATIVE = native_attention, native_rotary, native_rmsnorm


# -- the model ---------------------------------------------------------------------------------------------------------
class Transformer(torch.nn.Module):
    """A transformer that returns the mean cross-entropy of the next characters."""

    def __init__(self, operations):
        super().__init__()
        self.attend, self.rotate, self.normalize = operations
        self.weights = torch.nn.ParameterDict(
            {name.replace(".", "_"): torch.from_numpy(value.copy()) for name, value in run.first_weights().items()})

    def heads(self, x):
        return x.reshape(-1, STEPS, HEADS, WIDTH // HEADS).transpose(1, 2).reshape(-1, STEPS, WIDTH // HEADS)

    def forward(self, characters):
        w, inputs, wanted = self.weights, characters[:, :-1], characters[:, 1:]
        x = w["embedding"][inputs].reshape(-1, WIDTH)
        for n in range(LAYERS):
            normal = self.normalize(x, w[f"{n}_gain_attention"])
            q, k, v = (self.heads(normal @ w[f"{n}_{name}"]) for name in ("query", "key", "value"))
            mixed = self.attend(self.rotate(q), self.rotate(k), v)
            x = x + mixed.reshape(-1, HEADS, STEPS, WIDTH // HEADS).transpose(1, 2).reshape(-1, WIDTH) @ w[f"{n}_mix"]
            hidden = functional.gelu(self.normalize(x, w[f"{n}_gain_hidden"]) @ w[f"{n}_up"], approximate="tanh")
            x = x + hidden @ w[f"{n}_down"]
        logits = self.normalize(x, w["gain"]) @ w["embedding"].T
        return functional.cross_entropy(logits, wanted.reshape(-1))


def train(use_kernels, steps, tick=lambda loss: None, backend=None):
    """Return the loss of each step. ``torch.compile`` compiles the model if a backend is given."""
    model = Transformer(KERNELS if use_kernels else NATIVE)
    forward = model if backend is None else torch.compile(model, backend=backend, fullgraph=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(run.DECAY_1, run.DECAY_2), eps=EPSILON)
    losses = []
    for characters, _ in zip(run.batches(), range(steps)):
        optimizer.zero_grad()
        loss = forward(torch.from_numpy(characters).long())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick(losses[-1])
    return losses


if __name__ == "__main__":
    torch.set_num_threads(1)            # the operations are small: several threads mostly wait for each other
    run.main(train, __doc__.split("\n")[0], "train_transformer_torch")
