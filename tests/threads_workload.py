# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Create and run different kernels in several threads, on every executor; the exit status is 1 if a result is wrong.

``python -m tests.threads_workload THREADS KERNELS ROUNDS`` runs in its own process, because its first calls must be in
threads.
"""

import faulthandler
import sys
import threading
import warnings

import numpy as np

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.current import isa as nisa2
from nki_mlir.language.current import language as nl2
from nki_mlir.language.current import nki as nki2

EXECUTORS = ("eager", "interpreter", "jit", "isa")
PATIENCE = 600                          # seconds for a round


def beta(number):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for k in nl.affine_range(2):
            tile = nl.load(x[k * 4:k * 4 + 4, :])
            nl.store(out[k * 4:k * 4 + 4, :], nl.exp(tile) * number + nl.max(tile, axis=1, keepdims=True))
        return out
    return kernel, lambda x: np.exp(x) * number + x.max(1, keepdims=True)


def grid(number):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        p = nl.program_id(0)
        i, j = nl.mgrid[0:4, 0:x.shape[1]]
        tile = nl.load(x[p * 4 + i, j])
        nl.store(out[p * 4 + i, j], tile - number, mask=j >= 0)
        return out
    return kernel[2], lambda x: x - np.float32(number)


def current(number):
    @nki2.jit
    def kernel(x):
        out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
        tile = nl2.load(x)
        result = nl2.ndarray(x.shape, x.dtype, buffer=nl2.sbuf)
        nisa2.tensor_scalar(result, tile, nl2.multiply, float(number), op1=nl2.add, operand1=1.0)
        nisa2.dma_copy(out, result)
        return out
    return kernel, lambda x: x * np.float32(number) + np.float32(1)


def refused(number):
    """A kernel that is an error, whose place and text MLIR's diagnostics do not mix up."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[0:8, 0:x.shape[1] + number]))
        return out
    return kernel, None


KINDS = (beta, grid, current, refused)


def work(thread, kernels, wrong, start):
    start.wait()
    for k in range(kernels):
        number = thread * kernels + k + 1
        kernel, expected = KINDS[(thread + k) % len(KINDS)](number)
        x = (np.arange(8 * (1 + number % 13), dtype=np.float32).reshape(8, -1) - 20) / 16
        for on in EXECUTORS[thread % 4:] + EXECUTORS[:thread % 4]:
            try:
                got = kernel.on(on)(x)
            except IndexError as error:
                last, size = x.shape[1] + number - 1, x.shape[1]
                if expected is not None or f"[0, {last}] exceed dimension size of {size} " not in str(error):
                    wrong.append((number, on, str(error)))
            except BaseException as error:
                wrong.append((number, on, repr(error)))
            else:
                if expected is None or not np.allclose(got, expected(x), rtol=1e-5, atol=1e-5):
                    wrong.append((number, on, "a wrong value"))


def one_round(threads, kernels):
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    wrong, start = [], threading.Barrier(threads)
    running = [threading.Thread(target=work, args=(n, kernels, wrong, start)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return wrong


def main(threads, kernels, rounds):
    faulthandler.enable()
    warnings.simplefilter("ignore")
    for number in range(rounds):
        wrong = one_round(threads, kernels)
        if wrong:
            print(f"round {number}: {len(wrong)} wrong, first {wrong[0]}")
            return 1
        print(f"round {number}: {threads * kernels} kernels on {len(EXECUTORS)} executors", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
