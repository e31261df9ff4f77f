# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure how fast the timed machine is: instructions a second without values, and with values beside the interpreter.

Times are CPU time of one process, the best of several runs that take turns.
"""

import sys
import time
from pathlib import Path

import numpy as np

from nki_mlir.cli.source import load_kernel
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.timing.machine import TimedMachine

KERNELS = Path(__file__).resolve().parent.parent / "calibration"
RUNS = 5
CASES = (("matmul.py:hoisted", ((1024, 1024), (1024, 1024))), ("matmul.py:tiled", ((2048, 2048), (2048, 4096))),
         ("fused.py:attention", ((128, 2048),) * 3),
         ("rows.py:layernorm", ((2048, 2048), (2048,), (2048,))), ("rows.py:silu", ((4096, 2048),)))


def best(functions):
    """Return the least CPU seconds of each, of runs that take turns."""
    spent = [[] for _ in functions]
    for _ in range(RUNS):
        for function, seconds in zip(functions, spent):
            started = time.process_time()
            function()
            seconds.append(time.process_time() - started)
    return [min(seconds) for seconds in spent]


def measured(source, shapes):
    """Return instructions, and seconds of: the run alone, all of the timing, the interpreter, values and timing."""
    kernel = load_kernel(str(KERNELS / source), "trn2", ())
    arrays = [np.random.default_rng(0).random(shape, np.float32) for shape in shapes]
    specialized = kernel.specialize(kernel.bind(tuple(arrays), {}, is_array, describe_array))
    programs = neuron.streams(specialized.captured, specialized.grid)
    outputs = [np.asarray(kernel.on("interpreter")(*arrays)).copy()]
    values = neuron.load(specialized.captured, specialized.grid)
    machines = iter([TimedMachine(programs) for _ in range(RUNS)])

    def both():
        values(arrays, outputs)
        neuron.timed(programs)

    seconds = best([lambda: next(machines).run(), lambda: neuron.timed(programs),
                    lambda: kernel.on("interpreter")(*arrays), both])
    return neuron.timed(programs).instructions, seconds


def measure():
    figures, lines = {}, []
    for source, shapes in CASES:
        count, (run, timing, interpreter, values_and_timing) = measured(source, shapes)
        name = source.partition(":")[2]
        figures[name] = {"instructions": count, "run_per_s": count / run, "timed_per_s": count / timing,
                         "of_interpreter": interpreter / values_and_timing}
        lines.append(f"{name}: {count:,} instructions, {count / run:,.0f} a second ({count / timing:,.0f} with the "
                     f"columns and figures), values and time at {interpreter / values_and_timing:.2f} of the "
                     f"interpreter's speed")
    return {"timed_machine": figures, "lines": lines}


if __name__ == "__main__":
    sys.path.insert(0, str(KERNELS.parent.parent))
    print("\n".join(measure()["lines"]))
