# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure how long kernels compile from their capture to the binary at -O1, and write digests of the binaries.

    python bench/costs/compilation.py [--cases unrolled,matmul_blocked_4096] [--every] [--digests FILE] [--compare FILE]

Times are CPU time of this process, with compiled classes in the cache on disk, which the first run fills. ``--every``
compiles also every example and every kernel of the calibration. ``--digests`` writes a digest of the binaries of each
kernel, and ``--compare`` tells which differ from those of another commit, which was in the same directory: binaries
have the paths of files. ``--profile`` prints the functions that take longest.
"""

import argparse
import cProfile
import hashlib
import importlib
import json
import pstats
import random
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "bench/cases")]

import backend  # noqa: E402

from nki_mlir.alone import uncollected  # noqa: E402
from nki_mlir.cli.arguments import parse_arguments  # noqa: E402
from nki_mlir.cli.source import load_kernel  # noqa: E402
from nki_mlir.diagnostics import NkiMlirError  # noqa: E402
from nki_mlir.language.beta import language as nl  # noqa: E402
from nki_mlir.language.kernel import Kernel, describe_array, is_array  # noqa: E402
from nki_mlir.targets import neuron  # noqa: E402

ROWS, COLUMNS = 128, 512
SMALL = ("tensor_add.0", "transpose2d.0", "average_pool2d.0", "softmax.0", "normalization.0", "matmul.0", "attention.0",
         "rotary.0", "cumulative_sum.0", "selective_scan.0")
LONG = ("matmul_blocked_4096", "matmul_tiled_4096", "attention_2048", "attention_steps_2048", "attention_steps_4096",
        "mamba_channels_1024", "softmax_640000", "equal_20000", "unrolled_20000", "distinct_20000", "sort_1024")


def differing(count, numbers=7):
    """Return a kernel of ``count`` unrolled iterations of five instructions, whose numbers and columns differ at
    random."""
    chosen = random.Random(0)
    factors = [(1.0 + chosen.randrange(numbers), chosen.randrange(5)) for _ in range(count)]

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.static_range(count):
            rows, columns = slice(i * ROWS, (i + 1) * ROWS), slice(0, COLUMNS - 16 * factors[i][1])
            tile = nl.load(x[rows, columns])
            nl.store(out[rows, columns], nl.exp(tile) * factors[i][0] + tile)
        return out
    return kernel


def distinct(count):
    """Return the kernel of ``count`` unrolled iterations with another number in each iteration."""
    return differing(count, 1_000 * count)


def equal(count):
    """Return the kernel of ``count`` equal unrolled iterations."""
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.static_range(count):
            tile = nl.load(x[i * ROWS:(i + 1) * ROWS, :])
            nl.store(out[i * ROWS:(i + 1) * ROWS, :], nl.exp(tile) * 2.0 + tile)
        return out
    return kernel


def captured(kernel, arguments, target="trn2", grid=()):
    """Return a function that compiles the kernel, captured once."""
    if isinstance(kernel, str):
        kernel = load_kernel(kernel, target, grid)
        positional, keywords = parse_arguments(list(arguments), values=False)
    else:
        positional, keywords = arguments, {}
    specialized = kernel.specialize(kernel.bind(tuple(positional), keywords, is_array, describe_array))
    return partial(neuron.streams, specialized.captured, specialized.grid)


def unrolled(function, count):
    positional, _ = parse_arguments([f"{count * ROWS}x{COLUMNS}xf32"], values=False)
    return captured(Kernel(function(count), options={"unroll_limit": 1_000_000, "target": "trn2"}), positional)


def sort(rows, columns):
    import jax
    from graphs import Emission, linked_streams
    text = str(jax.jit(lambda x: jax.numpy.sort(x, axis=-1)).lower(
        jax.ShapeDtypeStruct((rows, columns), "float32")).as_text())
    return partial(linked_streams, text, Emission())


def compiled(name):
    """Return a function that compiles a case to its programs."""
    examples = backend.examples()           # before kernels of the calibration, some of whose files have the same names
    if name.startswith(("unrolled_", "equal_", "distinct_")):
        form, _, count = name.partition("_")
        return unrolled({"unrolled": differing, "distinct": distinct, "equal": equal}[form], int(count) // 5)
    if name.startswith("sort_"):
        return sort(int(name.partition("_")[2]), 64)
    if name == "attention_steps_2048":
        source, arguments = backend.CASES["attention_steps_1024"][0], backend.heads(128, 2048)
        return captured(str(ROOT / source), arguments)
    if name in backend.CASES:
        source, arguments, *grid = backend.CASES[name]
        return captured(str(ROOT / source), arguments, grid=grid[0] if grid else ())
    if name in examples:
        return captured(*examples[name])
    entry = calibration()[name]
    return captured(str(ROOT / backend.PUBLISHED / entry.kernel), entry.arguments, entry.target)


def calibration():
    entries = importlib.import_module("calibration.entries")
    return {entry.name: entry for entry in (*entries.ENTRIES, *entries.VARIANTS)}


def measured(name, profile=None):
    """Return a case's executed instructions and those in memory, the CPU seconds to compile it, a digest of its
    binaries, and its ns."""
    compile_case = compiled(name)
    with uncollected(), profile or nullcontext():
        started = time.process_time()
        programs = compile_case()
        binaries = [neuron.write([program], "bin") for program in programs]
        spent = time.process_time() - started
    timing = neuron.timed(programs)
    in_memory = sum(len(stream) for program in programs for stream in program.streams.values())
    return (timing.instructions, in_memory, spent, hashlib.sha256(b"".join(binaries)).hexdigest()[:16],
            timing.total_ns)


def measure():
    """Return the figures of all cases, of kernels of a few instructions together."""
    small = [measured(name)[:3] for name in SMALL]
    figures = {"ten small kernels": tuple(map(sum, zip(*small)))} | {name: measured(name)[:3] for name in LONG}
    return {"compilation": figures, "lines": [
        f"{name}: {executed:,} instructions ({in_memory:,} in memory) in {spent:.2f} s, {executed / spent:,.0f}/s"
        for name, (executed, in_memory, spent) in figures.items()]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", help="names, separated by commas")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--digests", help="a file for the digests and times")
    parser.add_argument("--compare", help="a file of digests; tell which kernels differ")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    names = options.cases.split(",") if options.cases else [*SMALL, *LONG]
    if options.every:
        names = list(dict.fromkeys([*names, *backend.CASES, *backend.examples(), *calibration()]))
    earlier = json.loads(Path(options.compare).read_text()) if options.compare else {}
    digests = {}
    for name in names:
        profile = cProfile.Profile(time.process_time) if options.profile else None
        try:
            executed, in_memory, spent, *digests[name] = measured(name, profile)
            text = (f"{executed:9,}{in_memory:9,}{spent:8.2f} s{executed / spent:9,.0f}/s"
                    f"{digests[name][1] / 1e3:10.1f} us")
        except NkiMlirError as error:
            text = digests[name] = error.code
        differs = name in earlier and earlier[name] != digests[name]
        print(f"{name:26}{text}{f', before {earlier[name]}' if differs else ''}", flush=True)
        if profile is not None:
            pstats.Stats(profile).sort_stats("cumtime").print_stats("nki_mlir", 110)
        if options.digests:
            Path(options.digests).write_text(json.dumps(digests, indent=1) + "\n")


if __name__ == "__main__":
    main()
