# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a call of a small kernel costs: in jax.jit over the same graph without it, in PyTorch over a native operator.

Least of many short interleaved runs. ``op`` is the PyTorch operator without the call in front of it.
"""

import importlib.util
import time

import numpy as np

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

RUNS, CALLS = 200, 100


@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a) + nl.load(b))
    return out


def least(functions):
    """Microseconds of one call of each, in turns."""
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(RUNS):
        for name, function in functions.items():
            started = time.perf_counter()
            for _ in range(CALLS):
                function()
            best[name] = min(best[name], (time.perf_counter() - started) / CALLS)
    return {name: seconds * 1e6 for name, seconds in best.items()}


def jax_functions(x):
    import jax
    a = jax.numpy.asarray(x)
    plain, called = jax.jit(lambda a, b: a * b * (a + b)), jax.jit(lambda a, b: a * b * add(a, b))
    return {"jax.jit": lambda: plain(a, a), "jax.jit with kernel": lambda: called(a, a)}


def torch_functions(x):
    import torch

    from nki_mlir.frameworks.registry import callees
    a = torch.from_numpy(x)
    add(a, a)
    key = next(k for k, c in callees().items() if c.record.name == "add" and c.record.inputs[0].shape == x.shape)
    return {"torch": lambda: a + a, "torch kernel": lambda: add(a, a), "op": lambda: torch.ops.nki.call([a, a], key)}


def measure():
    x = np.ones((4, 4), np.float32)
    made, lines = {}, []
    if importlib.util.find_spec("jax"):
        made |= least(jax_functions(x))
        over = made["jax.jit with kernel"] - made["jax.jit"]
        lines.append(f"in jax.jit {over:.2f} us over {made['jax.jit']:.2f} without the call (limit 1)")
    if importlib.util.find_spec("torch"):
        made |= least(torch_functions(x))
        over = made["torch kernel"] - made["torch"]
        lines.append(f"in torch {over:.2f} us over {made['torch']:.2f} of a native operator (limit 12); through the "
                     f"operator alone {made['op']:.2f}")
    return {"us": made, "lines": lines}
