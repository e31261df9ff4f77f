# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure the time from the start of a process until a kernel of the tutorials has its first result.

It measures a kernel with the cache of earlier processes and without it, and ``jax.jit``, in turn, and prints medians
and least times.
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 9
KERNEL = """
import nki_mlir.compat
nki_mlir.compat.install()
import neuronxcc.nki as nki, neuronxcc.nki.language as nl, numpy as np
@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        nl.store(out[rows, :], nl.load(x[rows, :]) * 2)
    return out
doubled(np.ones((256, 64), np.float32))
import time
print(time.time())
"""
JAX = """
import jax, numpy as np
jax.block_until_ready(jax.jit(lambda x: x * 2)(np.ones((256, 64), np.float32)))
import time
print(time.time())
"""


def milliseconds(file, environment):
    """Return the time from before the process until its result; both clocks are the system's."""
    started = time.time()
    process = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=True)
    return (float(process.stdout.split()[-1]) - started) * 1e3


def measure():
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("kernel.py", KERNEL), ("jax_kernel.py", JAX)):
            with open(f"{folder}/{name}", "w") as file:         # kernels have their text in a file
                file.write(text)
        # a directory other than that of the imported modules
        with_cache = usual | {"XDG_CACHE_HOME": f"{folder}/cache", "NKI_MLIR_CACHE": "on"}
        commands = {"with the cache": (f"{folder}/kernel.py", with_cache),
                    "without": (f"{folder}/kernel.py", usual | {"NKI_MLIR_CACHE": "off"})}
        if importlib.util.find_spec("jax"):
            commands["jax.jit"] = f"{folder}/jax_kernel.py", usual
        for command in commands.values():
            milliseconds(*command)                  # fills the cache, and compiles Python's files
        times = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                times[name].append(milliseconds(*command))
    summaries = {name: (statistics.median(runs), min(runs)) for name, runs in times.items()}
    limits = {"with the cache": " (limit 200)", "without": " (limit 400)", "jax.jit": ""}
    return {"ms": {name: median for name, (median, _) in summaries.items()},
            "ms, least": {name: least for name, (_, least) in summaries.items()},
            "lines": [f"{name} {median:.0f} ms, least {least:.0f}{limits[name]}"
                      for name, (median, least) in summaries.items()]}
