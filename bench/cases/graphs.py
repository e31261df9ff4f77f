# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure what graphs of JAX move and how long they take as one program of instruction streams.

    python bench/cases/graphs.py [--cases layer,decode] [--quick] [--json FILE]

``least`` are the bytes of the arguments and results, ``x`` how often the program moves as many to or from HBM,
``short`` the share of the moved bytes in contiguous runs of less than 512 bytes. Times are those of the timed machine
on trn2 without the launch, in us. ``bound`` is the time that HBM takes for the least bytes or the tensor engine for the
products, whichever is larger, ``busiest`` the time for which the busiest engine of the streams, the DMA engines or HBM
is busy. ``s`` is the CPU time from the text of the graph to streams.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT)]

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from nki_mlir.alone import uncollected  # noqa: E402
from nki_mlir.diagnostics import NkiMlirError  # noqa: E402
from nki_mlir.dialects.isa.program import Program, descriptors  # noqa: E402
from nki_mlir.frameworks.stablehlo import linked_streams  # noqa: E402
from nki_mlir.machine import machine_named  # noqa: E402
from nki_mlir.machine.engine import Engine  # noqa: E402
from nki_mlir.targets import neuron  # noqa: E402
from nki_mlir.targets.neuron.codegen.emission import Emission  # noqa: E402
from nki_mlir.targets.neuron.timing.machine import TimedMachine  # noqa: E402
from nki_mlir.targets.neuron.timing.transfers import moved  # noqa: E402

SHORT = 512             # bytes
BF16, F32, I32 = jnp.bfloat16, jnp.float32, jnp.int32
Array = Any


# -- layers ------------------------------------------------------------------------------------------------------------
def rms(t: Array) -> Array:
    wide = t.astype(F32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)).astype(t.dtype)


def layer_norm(t: Array, scale: Array, shift: Array) -> Array:
    wide = t.astype(F32)
    centered = wide - wide.mean(-1, keepdims=True)
    variance = (centered * centered).mean(-1, keepdims=True)
    return (centered * jax.lax.rsqrt(variance + 1e-5)).astype(t.dtype) * scale + shift


def split(t: Array, heads: int) -> Array:
    """Return (..., heads, steps, width of a head)."""
    return t.reshape(*t.shape[:-1], heads, -1).swapaxes(-2, -3)


def joined(t: Array) -> Array:
    t = t.swapaxes(-2, -3)
    return t.reshape(*t.shape[:-2], -1)


def attention(q: Array, k: Array, v: Array, visible: Array | None = None) -> Array:
    scores = (q @ k.swapaxes(-1, -2)).astype(F32) * q.shape[-1] ** -0.5
    if visible is not None:
        scores = jnp.where(visible, scores, -1e9)
    return jax.nn.softmax(scores, axis=-1).astype(v.dtype) @ v


def layer(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, up: Array, down: Array, heads: int = 8,
          causal: bool = True) -> Array:
    """Compute a transformer layer without a cache: attention and a perceptron, each after a norm."""
    q, k, v = (split(rms(x) @ w, heads) for w in (wq, wk, wv))
    visible = jnp.tri(x.shape[-2], dtype=bool) if causal else None
    x = x + joined(attention(q, k, v, visible)) @ wo
    return x + jax.nn.gelu(rms(x) @ up) @ down


def two_layers(x: Array, *weights: Array) -> Array:
    return layer(layer(x, *weights[:6]), *weights[6:])


def grouped_layer(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, gate: Array, up: Array, down: Array) -> Array:
    """Compute a layer whose 8 heads of queries share 2 of keys and values, with rotary positions and a gated
    perceptron."""
    steps, groups = x.shape[0], 2
    q, k, v = split(rms(x) @ wq, 8), split(rms(x) @ wk, groups), split(rms(x) @ wv, groups)
    q, k = rotated(q), rotated(k)
    q = q.reshape(groups, 4, steps, -1)
    out = attention(q, k[:, None], v[:, None], jnp.tri(steps, dtype=bool)).reshape(8, steps, -1)
    x = x + joined(out) @ wo
    return x + (jax.nn.silu(rms(x) @ gate) * (rms(x) @ up)) @ down


def rotated(t: Array) -> Array:
    steps, half = t.shape[-2], t.shape[-1] // 2
    angles = jnp.arange(steps, dtype=F32)[:, None] * 10000.0 ** (-jnp.arange(half, dtype=F32) / half)
    first, second = t[..., :half].astype(F32), t[..., half:].astype(F32)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(t.dtype)


def perceptron(x: Array, up: Array, down: Array) -> Array:
    return x + jax.nn.gelu(rms(x) @ up) @ down


def decode(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, up: Array, down: Array, keys: Array, values: Array,
           position: Array) -> tuple[Array, Array, Array]:
    """Compute a layer for one token with a cache of (heads, steps, width): write its keys and values at
    ``position``."""
    heads, steps, _ = keys.shape
    q, k, v = (split(rms(x) @ w, heads) for w in (wq, wk, wv))
    keys = jax.lax.dynamic_update_slice(keys, k, (0, position, 0))
    values = jax.lax.dynamic_update_slice(values, v, (0, position, 0))
    out = attention(q, keys, values, jnp.arange(steps) <= position)
    x = x + joined(out) @ wo
    return x + jax.nn.gelu(rms(x) @ up) @ down, keys, values


def decode_read(x: Array, wq: Array, wo: Array, up: Array, down: Array, keys: Array, values: Array) -> Array:
    """Compute a layer for one token, which reads a full cache."""
    out = attention(split(rms(x) @ wq, keys.shape[0]), keys, values)
    x = x + joined(out) @ wo
    return x + jax.nn.gelu(rms(x) @ up) @ down


def cross_layer(x: Array, memory: Array, wq: Array, wk: Array, wv: Array, wo: Array) -> Array:
    q, k, v = split(rms(x) @ wq, 8), split(memory @ wk, 8), split(memory @ wv, 8)
    return x + joined(attention(q, k, v)) @ wo


def vision(image: Array, patches: Array, positions: Array, wqkv: Array, wo: Array, up: Array, down: Array, scale: Array,
           shift: Array) -> Array:
    """Embed patches of 16 x 16 of an image, then compute one layer with heads of 64 and a norm with bias."""
    side, width = image.shape[0] // 16, patches.shape[-1]
    pieces = image.reshape(side, 16, side, 16, 3).transpose(0, 2, 1, 3, 4).reshape(side * side, -1)
    tokens = pieces @ patches + positions
    q, k, v = (split(t, width // 64) for t in jnp.split(layer_norm(tokens, scale, shift) @ wqkv, 3, -1))
    tokens = tokens + joined(attention(q, k, v)) @ wo
    return tokens + jax.nn.gelu(layer_norm(tokens, scale, shift) @ up) @ down


def convolutions(x: Array, first: Array, second: Array, scale: Array, shift: Array) -> Array:
    """Compute a residual block of two 3 x 3 convolutions of images (count, rows, columns, channels)."""
    def convolved(t: Array, w: Array) -> Array:
        return jax.lax.conv_general_dilated(t, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    hidden = jax.nn.relu(convolved(x, first) * scale + shift)
    return jax.nn.relu(convolved(hidden, second) * scale + shift + x)


def backward(function: Callable[..., Array]) -> Callable[..., Any]:
    """Return a function from the gradient of a layer's result, and its arguments, to the gradients of these."""
    def gradient(cotangent: Array, *arguments: Array) -> Any:
        return jax.vjp(function, *arguments)[1](cotangent)
    return gradient


def training_step(x: Array, labels: Array, up: Array, down: Array) -> Any:
    """Return the loss of a classifier, and its weights after a step of gradient descent."""
    def loss(weights: Any) -> Array:
        logits = (jax.nn.relu(x @ weights[0]) @ weights[1]).astype(F32)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)
        return -chosen.mean()
    value, gradients = jax.value_and_grad(loss)((up, down))
    return value, [w - 0.1 * g for w, g in zip((up, down), gradients)]


# -- cases -------------------------------------------------------------------------------------------------------------
def weights(width: int, hidden: int = 4) -> list[tuple[int, ...]]:
    return [*[(width, width)] * 4, (width, hidden * width), (hidden * width, width)]


class Case(NamedTuple):
    function: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    dtypes: Any = BF16          # one for all, or one for each argument
    macs: int = 0               # multiplications of the products


def macs(steps: int, width: int, seen: int, hidden: int = 4) -> int:
    """Return the multiplications of a layer on ``steps`` rows, each of which sees ``seen`` rows."""
    return steps * width * (4 * width + 2 * hidden * width + 2 * seen)


W, D = weights(512), (512, 512)
CASES: dict[str, Case] = {
    "layer": Case(layer, [(256, 512), *W], macs=macs(256, 512, 256)),
    "layer_full": Case(lambda *a: layer(*a, causal=False), [(256, 512), *W], macs=macs(256, 512, 256)),
    "layer_f32": Case(layer, [(256, 512), *W], F32, macs=4 * macs(256, 512, 256)),
    "layer_128": Case(layer, [(128, 512), *W], macs=macs(128, 512, 128)),
    "layer_200": Case(layer, [(200, 512), *W], macs=macs(200, 512, 200)),
    "layer_512": Case(layer, [D, *W], macs=macs(512, 512, 512)),
    "layer_1024": Case(layer, [(1024, 512), *W], macs=macs(1024, 512, 1024)),
    "layer_4x128": Case(layer, [(4, 128, 512), *W], macs=macs(512, 512, 128)),
    "layer_2x256": Case(layer, [(2, 256, 512), *W], macs=macs(512, 512, 256)),
    "layer_768": Case(lambda *a: layer(*a, heads=12), [(256, 768), *weights(768)], macs=macs(256, 768, 256)),
    "two_layers": Case(two_layers, [(256, 512), *W, *W], macs=2 * macs(256, 512, 256)),
    "grouped_layer": Case(grouped_layer, [(256, 512), D, (512, 128), (512, 128), D, (512, 1536), (512, 1536),
                                          (1536, 512)], macs=256 * 512 * (2 * 512 + 256 + 3 * 1536 + 2 * 256)),
    "perceptron": Case(perceptron, [(256, 512), (512, 2048), (2048, 512)], macs=256 * 512 * 4096),
    "decode": Case(decode, [(1, 512), *W, *[(8, 1024, 64)] * 2, ()], (BF16,) * 9 + (I32,), macs(1, 512, 1024)),
    "decode_read": Case(decode_read, [(1, 512), D, D, *W[4:], *[(8, 1024, 64)] * 2], macs=macs(1, 512, 1024)),
    "decode_f32": Case(decode_read, [(1, 512), D, D, *W[4:], *[(8, 1024, 64)] * 2], F32, 4 * macs(1, 512, 1024)),
    "cross_layer": Case(cross_layer, [(128, 512), (384, 512), D, D, D, D], macs=512 * 512 * 1024 + 128 * 384 * 1024),
    "vision": Case(vision, [(224, 224, 3), (768, 768), (196, 768), (768, 2304), (768, 768), (768, 3072), (3072, 768),
                            (768,), (768,)], macs=196 * 768 * (768 * 13 + 2 * 196)),
    "convolutions": Case(convolutions, [(1, 56, 56, 64), (3, 3, 64, 64), (3, 3, 64, 64), (64,), (64,)],
                         macs=2 * 56 * 56 * 9 * 64 * 64),
    "layer_backward": Case(backward(layer), [(256, 512), (256, 512), *W], macs=3 * macs(256, 512, 256)),
    "perceptron_backward": Case(backward(perceptron), [(256, 512), (256, 512), (512, 2048), (2048, 512)],
                                macs=3 * 256 * 512 * 4096),
    "training_step": Case(training_step, [(256, 512), (256,), (512, 1024), (1024, 128)], (BF16, I32, BF16, BF16),
                          macs=256 * 1024 * (2 * 512 + 3 * 128)),
}
QUICK = ("layer", "perceptron", "decode_read", "cross_layer")


class Outcome(NamedTuple):
    """Times in us."""

    us: float
    larger_bound: float
    busiest: float
    busiest_is: str
    least: int                  # bytes
    hbm_bytes: int
    short_bytes: int
    instructions: int
    compile_s: float


def stablehlo(case: Case) -> str:
    """Return the text of a case's graph."""
    dtypes = case.dtypes if isinstance(case.dtypes, tuple) else (case.dtypes,) * len(case.shapes)
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(case.shapes, dtypes, strict=True)]
    return str(jax.jit(case.function).lower(*arguments).as_text())


def least_bytes(case: Case) -> int:
    dtypes = case.dtypes if isinstance(case.dtypes, tuple) else (case.dtypes,) * len(case.shapes)
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(case.shapes, dtypes, strict=True)]
    results = jax.tree_util.tree_leaves(jax.eval_shape(case.function, *arguments))
    return sum(prod(a.shape) * a.dtype.itemsize for a in (*arguments, *results))


def run_bytes(op: Any) -> int:
    """Return the bytes of the contiguous runs of a transfer; of one that transposes, in HBM alone."""
    sizes = descriptors(op)
    if sizes is not None and sizes[1] >= SHORT:
        return sizes[1]
    if type(op).__name__ != "DmaTransposeOp":
        return sizes[1] if sizes is not None else SHORT
    tile = next(t for _, t in op.operands() if not t.on_chip)
    run = 1
    for step, count in sorted(tile.access.dims):
        run *= count if step == run or count == 1 else 1
    return run * tile.dtype.itemsize


def short_bytes(programs: Sequence[Program]) -> int:
    """Return the bytes that executed transfers move to or from HBM in short runs."""
    machine = TimedMachine(programs)
    record = machine.run()
    total = 0
    sizes: dict[int, int] = {}
    for agent, position in zip(record.agent, record.position):
        op = machine.agents[agent].stream.instructions[position].op
        if not getattr(op, "queued", False):
            continue
        if id(op) not in sizes:
            sizes[id(op)] = sum(n * t.dtype.itemsize for t, n in moved(op) if not t.on_chip) if (
                run_bytes(op) < SHORT) else 0
        total += sizes[id(op)]
    return total


def measured(case: Case, options: Emission = Emission()) -> Outcome:
    text = stablehlo(case)
    started = time.process_time()
    with uncollected():                 # as commands compile
        programs = linked_streams(text, options)
    spent = time.process_time() - started
    timing = neuron.timed(programs)
    core, machine = timing.slowest, machine_named(timing.target)
    busy = {engine.value: ns for engine, ns in core.busy_ns.items()}
    busy |= {"DMA": core.dma_ns, "HBM": core.hbm_bytes / machine.hbm_bytes_per_ns(1)}
    most, least = max(busy, key=busy.__getitem__), least_bytes(case)
    bound = max(least / machine.hbm_bytes_per_ns(1),
                case.macs / machine.partitions ** 2 / machine.clocks[Engine.TENSOR])
    return Outcome((timing.total_ns - timing.launch_ns) / 1e3, bound / 1e3, busy[most] / 1e3, most, least,
                   core.hbm_bytes, short_bytes(programs), timing.instructions, spent)


def line(name: str, o: Outcome) -> str:
    return (f"{name:20}{o.least / 1e6:8.2f}{o.hbm_bytes / o.least:7.2f}{o.short_bytes / o.hbm_bytes:7.1%}{o.us:9.1f}"
            f"{o.larger_bound:9.1f}{o.us / o.larger_bound:7.2f}{o.busiest:9.1f} {o.busiest_is:7}"
            f"{o.us / o.busiest:6.2f}{o.instructions:8,}{o.compile_s:7.1f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", help=f"names, separated by commas: {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="only a few small graphs")
    parser.add_argument("--json", help="a file for all figures")
    options = parser.parse_args(arguments)
    names = options.cases.split(",") if options.cases else QUICK if options.quick else [*CASES]
    if unknown := set(names) - {*CASES}:
        parser.error(f"no case {', '.join(sorted(unknown))}")
    print(f"{'':20}{'least MB':>8}{'x':>7}{'short':>7}{'us':>9}{'bound':>9}{'x':>7}{'busiest':>9} {'of':7}{'x':>6}"
          f"{'executed':>8}{'s':>7}")
    figures = {}
    for name in names:
        try:
            outcome = measured(CASES[name])
        except NkiMlirError as error:
            print(f"{name:20}{error.code}: {error}", flush=True)
            continue
        figures[name] = outcome._asdict()
        print(line(name, outcome), flush=True)
        if options.json:
            Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
