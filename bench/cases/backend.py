# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compare the times of kernels in program order, with each optimization, and with all of them, and their bounds.

    python bench/cases/backend.py [--cases attention_2048,softmax_2048] [--quick] [--json FILE]

Times are those of the timed machine on trn2 without the launch, in us, of the examples and of the published algorithms
of the calibration. ``bound`` is the time for which the busiest of the engines, the DMA engines and HBM is busy in
the streams of all optimizations. ``s`` is the CPU time from the nisa level to streams, the only figure that depends on
the host. The last lines name the long cases that exceed their bound by more than a tenth.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import nki_mlir.compat  # noqa: E402
from nki_mlir.alone import uncollected  # noqa: E402
from nki_mlir.cli.arguments import parse_arguments  # noqa: E402
from nki_mlir.cli.source import load_kernel  # noqa: E402
from nki_mlir.diagnostics import NkiMlirError  # noqa: E402
from nki_mlir.language.kernel import describe_array, is_array  # noqa: E402
from nki_mlir.machine import machine_named  # noqa: E402
from nki_mlir.targets import neuron  # noqa: E402
from nki_mlir.targets.neuron.codegen.emission import OPTIMIZATIONS, Emission, emit_cores  # noqa: E402

TARGET = "trn2"
EXAMPLES, PUBLISHED, SERVING = "examples/", "bench/calibration/", "bench/cases/serving.py"


def square(n: int) -> tuple[str, ...]:
    return f"{n}x{n}xbf16", f"{n}x{n}xbf16"


def heads(d: int, s: int, *options: str) -> tuple[str, ...]:
    return (f"{d}x{s}xbf16",) * 3 + options


def scan(steps: int, channels: int, *options: str) -> tuple[str, ...]:
    return (f"{channels}x{steps}xf32", f"{channels}x{steps}xf32", f"{channels}x16xf32", f"16x{steps}xf32",
            f"16x{steps}xf32", *options)


# name -> file and kernel, arguments, grid
CASES: dict[str, tuple[str, tuple[str, ...]] | tuple[str, tuple[str, ...], tuple[int, ...]]] = {
    "add_2048": (EXAMPLES + "tensor_add.py:tensor_add", ("2048x2048xf32",) * 2, (16, 4)),
    "transpose_64": (EXAMPLES + "transpose2d.py:transpose_free", ("128x4096xf32", "64", "64")),
    "transpose_2048": (EXAMPLES + "transpose2d.py:transpose", ("2048x2048xf32",)),
    "average_pool_128": (EXAMPLES + "average_pool2d.py:average_pool2d", ("128x128x128xf32", "2")),
    "softmax_2048": (EXAMPLES + "softmax.py:softmax", ("2048x2048xf32",)),
    "softmax_fused_2048": (EXAMPLES + "softmax.py:softmax_fused", ("2048x2048xf32",)),
    "softmax_65536": (EXAMPLES + "softmax.py:softmax", ("65536x512xf32",)),
    "softmax_640000": (EXAMPLES + "softmax.py:softmax", ("640000x512xf32",)),
    "rmsnorm_2048": (EXAMPLES + "normalization.py:rmsnorm", ("2048x2048xf32", "1x2048xf32")),
    "layernorm_2048": (EXAMPLES + "normalization.py:layernorm", ("2048x2048xf32", "1x2048xf32", "1x2048xf32")),
    "layernorm_published_4096": (PUBLISHED + "rows.py:layernorm", ("4096x8192xf32", "8192xf32", "8192xf32")),
    "silu_4096": (PUBLISHED + "rows.py:silu", ("4096x7168xf32",)),
    "maxpool_4096": (PUBLISHED + "rows.py:maxpool", ("4096x4096xf32",)),
    "vector_add_256000": (PUBLISHED + "rows.py:vector_add", ("256000xf32", "256000xf32", "free=200")),
    "matmul_tiled_1024": (PUBLISHED + "matmul.py:tiled", square(1024)),
    "matmul_tiled_2048": (PUBLISHED + "matmul.py:tiled", square(2048)),
    "matmul_hoisted_2048": (PUBLISHED + "matmul.py:hoisted", square(2048)),
    "matmul_blocked_2048": (PUBLISHED + "matmul.py:blocked", square(2048)),
    "matmul_blocked_4096": (PUBLISHED + "matmul.py:blocked", square(4096)),
    "matmul_tiled_4096": (PUBLISHED + "matmul.py:tiled", square(4096)),
    "matmul_transposing_1024": (PUBLISHED + "matmul.py:transposing", (*square(1024), "block_m=8", "block_n=2")),
    "attention_512": (PUBLISHED + "fused.py:attention", heads(128, 512)),
    "attention_2048": (PUBLISHED + "fused.py:attention", heads(128, 2048)),
    "attention_2048_grouped": (PUBLISHED + "fused.py:attention", heads(128, 2048, "group=4")),
    "attention_4096": (PUBLISHED + "fused.py:attention", heads(128, 4096)),
    "attention_4096_separate": (PUBLISHED + "fused.py:attention", heads(128, 4096, "separate=True", "wide=True")),
    "attention_4096x64": (PUBLISHED + "fused.py:attention", heads(64, 4096)),
    "attention_8192": (PUBLISHED + "fused.py:attention", heads(128, 8192)),
    "attention_16384": (PUBLISHED + "fused.py:attention", heads(128, 16384)),
    "attention_steps_1024": (PUBLISHED + "fused.py:attention_in_steps", heads(128, 1024)),
    "attention_steps_4096": (PUBLISHED + "fused.py:attention_in_steps", heads(128, 4096)),
    "attention_forward_1024": (EXAMPLES + "attention.py:attention_forward",
                               ("64x1024xf32", "64x1024xf32", "1024x64xf32", "0.125")),
    "attention_forward_4096": (EXAMPLES + "attention.py:attention_forward",
                               ("128x4096xbf16", "128x4096xbf16", "4096x128xbf16", "0.0884")),
    "flash_forward_1024": (EXAMPLES + "flash_attention.py:flash_forward",
                           ("2x64x1024xf32", "2x64x1024xf32", "2x1024x64xf32", "0.125"), (2,)),
    "bmm_softmax_1024": (PUBLISHED + "fused.py:bmm_softmax", ("4x64x1024xf32",) * 2),
    "swiglu_512": (PUBLISHED + "fused.py:swiglu",
                   ("512x1024xf32", "1024x3072xf32", "1024x3072xf32", "3072x1024xf32")),
    "swiglu_512_bf16": (PUBLISHED + "fused.py:swiglu",
                        ("512x1024xbf16", "1024x3072xbf16", "1024x3072xbf16", "3072x1024xbf16")),
    "decode_grouped_2048": (SERVING + ":decode_grouped", ("32x128xbf16", "8x128x2048xbf16", "8x2048x128xbf16")),
    "decode_grouped_4096": (SERVING + ":decode_grouped", ("32x128xbf16", "8x128x4096xbf16", "8x4096x128xbf16")),
    "heads_apart_2048": (SERVING + ":heads_apart", ("2048x2048xbf16",)),
    "normalized_projection_512": (SERVING + ":normalized_projection",
                                  ("512x2048xbf16", "1x2048xbf16", "2048x4096xbf16")),
    "convolution_224": (PUBLISHED + "fused.py:convolution", ("256x39x224xf16", "256x9x256xf16")),
    "mamba_outside_512": (PUBLISHED + "rows.py:mamba_states_outside", scan(512, 256)),
    "mamba_channels_1024": (PUBLISHED + "rows.py:mamba_channels_outside", scan(1024, 2048)),
    "mamba_channels_2048": (PUBLISHED + "rows.py:mamba_channels_outside", scan(2048, 1024, "piece=512")),
    "selective_scan_512": (EXAMPLES + "selective_scan.py:selective_scan",
                           ("128x512xf32", "128x512xf32", "128x16xf32", "16x512xf32", "16x512xf32")),
    "cumulative_sum_2048": (EXAMPLES + "cumulative_sum.py:cumulative_sum", ("2048x2048xf32",)),
}
LONG, EXCESS = 100, 1.10        # us; times the bound
QUICK = ("transpose_64", "softmax_2048", "layernorm_2048", "matmul_tiled_1024", "attention_512", "attention_2048",
         "mamba_outside_512", "average_pool_128")


class Outcome(NamedTuple):
    """One way to emit a kernel. Times in us; ``peak``: bytes of a partition in SBUF and PSUM."""

    us: float
    bound: float
    bound_is: str
    instructions: int
    streams: int                # instructions in memory: loops of the device count once
    peak: tuple[int, int]
    compile_s: float


def outcome(modules: Any, grid: tuple[int, ...], options: Emission) -> Outcome:
    started = time.process_time()
    with uncollected():                 # as commands and calls compile
        programs = emit_cores(modules, grid, options)
    spent = time.process_time() - started
    timing = neuron.timed(programs)
    core, machine = timing.slowest, machine_named(timing.target)
    busy = {engine.value: ns for engine, ns in core.busy_ns.items()}
    busy |= {"DMA": core.dma_ns, "HBM": core.hbm_bytes / machine.hbm_bytes_per_ns(1)}
    most = max(busy, key=busy.__getitem__)
    return Outcome((timing.total_ns - timing.launch_ns) / 1e3, busy[most] / 1e3, most, timing.instructions,
                   sum(len(s) for p in programs for s in p.streams.values()),
                   (max(p.sbuf_bytes for p in programs), max(p.psum_bytes for p in programs)), spent)


def ways(alone: bool) -> dict[str, Emission]:
    """Return the options for the name of each column."""
    nothing = Emission.in_program_order()
    single_options = {name: replace(nothing, **{name: True}) for name in OPTIMIZATIONS} if alone else {}
    return {"program order": nothing, "loops": Emission.of_loops(), **single_options, "all": Emission()}


def at_nisa(name: str) -> tuple[Any, tuple[int, ...]]:
    """Return the modules of a case at the level nisa, and its grid."""
    if name in CASES:
        source, arguments, *grid = CASES[name]
        kernel = load_kernel(str(ROOT / source), TARGET, grid[0] if grid else ())       # type: ignore[arg-type]
        positional, keywords = parse_arguments(list(arguments), values=False)
        captured = kernel.specialize(kernel.bind(tuple(positional), keywords, is_array, describe_array))
    else:
        kernel, kernel_arguments = examples()[name]
        captured = kernel.specialize(kernel.bind(kernel_arguments, {}, is_array, describe_array))
    return neuron.lowered(captured.captured), captured.grid


@cache
def examples() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Return the kernels of the examples with the arguments of their cases."""
    nki_mlir.compat.install()
    kernels = {}
    for file in sorted((ROOT / EXAMPLES).glob("[a-z]*.py")):
        if "def cases" not in file.read_text() or file.stem.startswith(("current", "train")):
            continue
        for number, (kernel, arguments, *_) in enumerate(importlib.import_module(file.stem).cases()):
            if hasattr(kernel, "specialize"):
                kernels[f"{file.stem}.{number}"] = kernel, tuple(arguments)
    return kernels


def measured(name: str, alone: bool) -> dict[str, Outcome | str]:
    """Return the outcome of each way, or the reason why there is none."""
    modules, grid = at_nisa(name)
    outcomes: dict[str, Outcome | str] = {}
    for way, options in ways(alone).items():
        try:
            outcomes[way] = outcome(modules, grid, options)
        except NkiMlirError as error:
            outcomes[way] = error.code
    return outcomes


def line(name: str, outcomes: dict[str, Outcome | str]) -> str:
    cells = [f"{cell.us:11.1f}" if isinstance(cell, Outcome) else f"{cell[:11]:>11}" for cell in outcomes.values()]
    last = outcomes["all"]
    if not isinstance(last, Outcome):
        return f"{name:26}" + " ".join(cells)
    rates = last.instructions / last.compile_s if last.compile_s else 0
    return (f"{name:26}" + " ".join(cells) + f" {last.bound:9.1f} {last.bound_is:7}{last.us / last.bound:5.2f}"
            f"{last.instructions:9,}{last.streams:9,}{last.peak[0]:8,}{last.peak[1]:7,}{last.compile_s:7.1f}"
            f"{rates:8,.0f}")


def exception(name: str, last: Outcome | str) -> str:
    """Return the line of a long case that exceeds its bound; empty for others."""
    if not isinstance(last, Outcome) or last.us < LONG or last.us <= EXCESS * last.bound:
        return ""
    return f"{name}: {last.us / last.bound:.2f} times the bound\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", help=f"names, separated by commas: {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="only a few small kernels")
    parser.add_argument("--alone", action="store_true", help="also with each optimization alone")
    parser.add_argument("--json", help="a file for all figures")
    options = parser.parse_args(arguments)
    names = options.cases.split(",") if options.cases else QUICK if options.quick else [*CASES, *examples()]
    if unknown := set(names) - {*CASES, *examples()}:
        parser.error(f"no case {', '.join(sorted(unknown))}")
    print(f"{'us':26}" + " ".join(f"{way[:11]:>11}" for way in ways(options.alone)) + f" {'bound':>9} {'of':7}{'x':>5}"
          f"{'executed':>9}{'streams':>9}{'SBUF':>8}{'PSUM':>7}{'s':>7}{'/s':>8}")
    figures, exceptions = {}, ""
    for name in names:
        outcomes = measured(name, options.alone)
        figures[name] = {way: measured_outcome._asdict() if isinstance(measured_outcome, Outcome)
                         else measured_outcome for way, measured_outcome in outcomes.items()}
        print(line(name, outcomes), flush=True)
        exceptions += exception(name, outcomes["all"])
        if options.json:
            Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")
    print(exceptions, end="")


if __name__ == "__main__":
    main()
