# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The transformer of train_transformer_jax.py on several devices: each has a part of the batch, gradients are averaged.

On the devices of one process, here two:

    XLA_FLAGS=--xla_force_host_platform_device_count=2 python -m nki_mlir examples/train_transformer_parallel.py

On several processes, of one host or of several, each with its number:

    python -m nki_mlir examples/train_transformer_parallel.py --coordinator localhost:7650 --processes 2 --process 0 &
    python -m nki_mlir examples/train_transformer_parallel.py --coordinator localhost:7650 --processes 2 --process 1
"""

import argparse
from functools import partial

import jax
import numpy as np
import train_transformer_jax as single
import training_curves as run
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def parallel_step(mesh, operations):
    """Run ``train_transformer_jax.step`` over a mesh: every device has all weights and a part of the sequences."""
    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P(), P("batch")), out_specs=(P(), P(), P()), check_vma=False)
    def step(weights, state, characters):
        loss, gradients = jax.value_and_grad(single.loss_of)(weights, characters, operations)
        loss, gradients = jax.lax.pmean((loss, gradients), "batch")
        return *single.adam(weights, gradients, state), loss
    return step


def train(use_kernels, steps):
    """Return the loss of each step, on all devices of all processes."""
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    divided, everywhere = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())

    def spread(array, sharding):
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
    step = parallel_step(mesh, single.KERNELS if use_kernels else single.NATIVE)
    weights, state = jax.tree.map(lambda x: spread(x, everywhere), single.first_state())
    losses = []
    for characters, _ in zip(run.batches(), range(steps)):
        weights, state, loss = step(weights, state, spread(characters, divided))
        losses.append(float(loss))
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--coordinator", help="address and port of process 0; without it there is one process")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--process", type=int)
    options = parser.parse_args()
    if options.coordinator:
        jax.distributed.initialize(options.coordinator, options.processes, options.process)
    losses = train(True, options.steps)
    if jax.process_index() == 0:
        print(f"{jax.process_count()} processes, {len(jax.devices())} devices, losses:", *losses)


if __name__ == "__main__":
    main()
