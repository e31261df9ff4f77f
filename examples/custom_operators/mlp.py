# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A multilayer perceptron whose activation is a C++ operator, forward and backward, learns to separate two spirals.

python -m nki_mlir examples/custom_operators/mlp.py
"""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch_neuronx.xla_impl import custom_op

HERE = Path(__file__).parent


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.ops.relu_ops.relu_forward(x)

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return torch.ops.relu_ops.relu_backward(gradient, x)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 64), nn.Linear(64, 64), nn.Linear(64, 2)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = Relu.apply(layer(x))
        return self.layers[-1](x)


def spirals(points):
    angle = torch.linspace(0.5, 9, points)
    arm = torch.stack([angle.cos(), angle.sin()], -1) * angle[:, None] / 9
    return torch.cat([arm, -arm]), torch.arange(2).repeat_interleave(points)


def train(steps=120, compiled=False):
    """Return the losses of the first and the last step, and the share of points that are classified correctly."""
    torch.manual_seed(0)
    model = Mlp()
    forward = torch.compile(model, backend="aot_eager") if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    points, labels = spirals(100)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(points), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    right = (model(points).argmax(-1) == labels).float().mean().item()
    return losses[0], losses[-1], right


def load(folder, **options):
    custom_op.load(name="relu", compute_srcs=[str(HERE / "relu.cpp")], shape_srcs=[str(HERE / "relu_shape.cpp")],
                   build_directory=folder, multicore=True, **options)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        load(folder)
        first, last, right = train()
        print(f"loss {first:.3f} -> {last:.3f}, {right:.0%} of the points are told right")
        assert last < first / 10 and right > 0.97
