# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ctrl-C while XLA runs a kernel: the program that waits for the result gets ``KeyboardInterrupt``, not XLA's error."""

import subprocess
import sys

PROGRAM = """
import os, signal, threading, time
import numpy as np
import nki_mlir.compat
nki_mlir.compat.install()
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import jax

@nki.jit
def loop(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    for _ in nl.sequential_range(200_000_000):
        t[...] = nl.exp(nl.multiply(t, 0.5))
    nl.store(out, t)
    return out

def interrupt():
    from nki_mlir.frameworks import jax_primitive
    running = jax_primitive.registered_handler().state
    while not running[0]:
        time.sleep(0.01)
    time.sleep(0.3)                 # until it is in the kernel
    os.kill(os.getpid(), signal.SIGINT)

from nki_mlir.frameworks import xla_handler
xla_handler.CANCELLED_AFTER = 5_000_000        # microseconds: a busy machine may run the waiting thread late
program = jax.jit(lambda x: loop(x) + 1).lower(np.ones((128, 512), np.float32)).compile()
threading.Thread(target=interrupt).start()
program(np.ones((128, 512), np.float32)).block_until_ready()
"""


def test_program_that_waits_for_a_kernel__gets_keyboard_interrupt():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600)
    assert ended.stderr == ('Traceback (most recent call last):\n  File "<string>", line 31, in <module>\n'
                            "KeyboardInterrupt\n")
    assert ended.returncode == -2
