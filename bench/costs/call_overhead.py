# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure what a call of a small kernel costs: from Python with arrays, in jax.jit beside the same graph without it, in
PyTorch beside a native operator.

A figure is the least of short interleaved runs: of the first 30, and of all 200. ``op`` is the PyTorch operator, called
directly; ``linked`` is the graph of the JAX case with its kernel as one program, called with arrays.
"""

import importlib.util
import time

import numpy as np

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

FIRST, RUNS, CALLS = 30, 200, 100


@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a) + nl.load(b))
    return out


def least(functions):
    """Call the functions in turn; return the microseconds of each: (least of the first runs, least of all)."""
    times = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(RUNS):
        for name, function in functions.items():
            started = time.perf_counter()
            for _ in range(CALLS):
                function()
            times[name].append((time.perf_counter() - started) / CALLS * 1e6)
    return {name: (min(runs[:FIRST]), min(runs)) for name, runs in times.items()}


def jax_functions(x):
    import jax

    from nki_mlir.frameworks.stablehlo import LinkedProgram
    a = jax.numpy.asarray(x)
    plain, called = jax.jit(lambda a, b: a * b * (a + b)), jax.jit(lambda a, b: a * b * add(a, b))
    linked = LinkedProgram(called.lower(a, a).as_text())
    return {"jax.jit": lambda: plain(a, a), "jax.jit with kernel": lambda: called(a, a), "linked": lambda: linked(x, x)}


def torch_functions(x):
    import torch

    from nki_mlir.frameworks.registry import callees
    a = torch.from_numpy(x)
    add(a, a)
    key = next(k for k, c in callees().items() if c.record.name == "add" and c.record.inputs[0].shape == x.shape)
    return {"torch": lambda: a + a, "torch kernel": lambda: add(a, a), "op": lambda: torch.ops.nki.call([a, a], key)}


def measure():
    x = np.ones((4, 4), np.float32)
    times_us = least({"arrays": lambda: add(x, x)})
    lines = [f"with two arrays {times_us['arrays'][0]:.2f} ({times_us['arrays'][1]:.2f}) us (limit 5)"]

    def over(name, base):
        """Return the cost over the base, of the first runs and of all."""
        return "{:.2f} us ({:.2f})".format(*(a - b for a, b in zip(times_us[name], times_us[base])))
    if importlib.util.find_spec("jax"):
        times_us |= least(jax_functions(x))
        lines.append(f"in jax.jit {over('jax.jit with kernel', 'jax.jit')} over {times_us['jax.jit'][0]:.2f} without "
                     f"the call (limit 1); linked {times_us['linked'][0]:.2f} ({times_us['linked'][1]:.2f})")
    if importlib.util.find_spec("torch"):
        times_us |= least(torch_functions(x))
        lines.append(f"in torch {over('torch kernel', 'torch')} over {times_us['torch'][0]:.2f} of a native operator "
                     f"(limit 12); through the operator alone {times_us['op'][0]:.2f}")
    return {"us": {name: first for name, (first, _) in times_us.items()},
            "us, least of 200": {name: every for name, (_, every) in times_us.items()}, "lines": lines}
