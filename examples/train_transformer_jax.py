# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small transformer in JAX whose attention, normalization and rotary embedding are kernels, and its native version.

    python -m nki_mlir examples/train_transformer_jax.py --steps 300
"""

from functools import partial

import jax
import jax.numpy as jnp
import training_curves as run
import transformer_kernels as kernels
from training_curves import EPSILON, HEADS, LAYERS, RATE, SCALE, STEPS, WIDTH

COSINE, SINE = kernels.angles(STEPS, WIDTH // HEADS)


# -- kernels with their derivatives ------------------------------------------------------------------------------------
@jax.custom_vjp
def attention(q, k, v):
    return kernels.attention_forward[q.shape[0]](q, k, v, SCALE)


attention.defvjp(lambda q, k, v: (attention(q, k, v), (q, k, v)),
                 lambda saved, g: kernels.attention_backward[g.shape[0]](*saved, g, SCALE))


@jax.custom_vjp
def rotary(x):
    return kernels.rotary[x.shape[0]](x, COSINE, SINE)


rotary.defvjp(lambda x: (rotary(x), ()),
              lambda saved, g: (kernels.rotary[g.shape[0]](g, COSINE, SINE, inverse=True),))


@jax.custom_vjp
def rmsnorm(x, gain):
    return kernels.rmsnorm_forward(x, gain)


rmsnorm.defvjp(lambda x, gain: (rmsnorm(x, gain), (x, gain)),
               lambda saved, g: kernels.rmsnorm_backward(*saved, g))


# -- the same natively -------------------------------------------------------------------------------------------------
def native_attention(q, k, v):
    scores = jnp.where(jnp.tri(STEPS, dtype=bool), q @ k.swapaxes(1, 2) * SCALE, -1e9)
    return jax.nn.softmax(scores, axis=-1) @ v


def native_rotary(x):
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * COSINE - second * SINE, second * COSINE + first * SINE], -1)


def native_rmsnorm(x, gain):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


KERNELS, NATIVE = (attention, rotary, rmsnorm), (native_attention, native_rotary, native_rmsnorm)


# -- the model ---------------------------------------------------------------------------------------------------------
def loss_of(weights, characters, operations):
    """Return the mean cross-entropy of the next characters."""
    attend, rotate, normalize = operations
    inputs, wanted = characters[:, :-1], characters[:, 1:]
    batch = inputs.shape[0]

    def heads(x):
        return x.reshape(batch, STEPS, HEADS, -1).swapaxes(1, 2).reshape(batch * HEADS, STEPS, -1)
    x = weights["embedding"][inputs].reshape(batch * STEPS, WIDTH)
    for n in range(LAYERS):
        w = {name.partition(".")[2]: value for name, value in weights.items() if name.startswith(f"{n}.")}
        normal = normalize(x, w["gain_attention"])
        q, k, v = (heads(normal @ w[name]) for name in ("query", "key", "value"))
        mixed = attend(rotate(q), rotate(k), v)
        x = x + mixed.reshape(batch, HEADS, STEPS, -1).swapaxes(1, 2).reshape(batch * STEPS, WIDTH) @ w["mix"]
        x = x + jax.nn.gelu(normalize(x, w["gain_hidden"]) @ w["up"]) @ w["down"]
    logits = normalize(x, weights["gain"]) @ weights["embedding"].T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), wanted.reshape(-1, 1), axis=1).mean()


def adam(weights, gradients, state):
    """Run a step of Adam; ``state`` is (count, means, mean squares)."""
    count, means, squares = state
    count += 1
    means = jax.tree.map(lambda m, g: run.DECAY_1 * m + (1 - run.DECAY_1) * g, means, gradients)
    squares = jax.tree.map(lambda s, g: run.DECAY_2 * s + (1 - run.DECAY_2) * g * g, squares, gradients)

    def step(w, m, s):
        return w - RATE * m / (1 - run.DECAY_1 ** count) / (jnp.sqrt(s / (1 - run.DECAY_2 ** count)) + EPSILON)
    return jax.tree.map(step, weights, means, squares), (count, means, squares)


def first_state():
    """Return the weights and the optimizer's state before the first step."""
    weights = {name: jnp.asarray(value) for name, value in run.first_weights().items()}
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return weights, (jnp.zeros((), jnp.float32), zeros, zeros)


@partial(jax.jit, static_argnames="operations")
def step(weights, state, characters, operations):
    loss, gradients = jax.value_and_grad(loss_of)(weights, characters, operations)
    return *adam(weights, gradients, state), loss


def train(use_kernels, steps, tick=lambda loss: None):
    """Return the loss of each step."""
    weights, state = first_state()
    losses = []
    for characters, _ in zip(run.batches(), range(steps)):
        weights, state, loss = step(weights, state, characters, KERNELS if use_kernels else NATIVE)
        losses.append(float(loss))
        tick(losses[-1])
    return losses


if __name__ == "__main__":
    run.main(train, __doc__.split("\n")[0], "train_transformer_jax")
