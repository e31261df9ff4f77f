# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the training examples share: the model's sizes and first weights, the text, progress, and the plot of losses.

The model reads 128 characters and predicts the next of each: two layers of causal attention and a feed-forward network.
It learns from the text of the kernels that it runs on.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

SYMBOLS, STEPS, WIDTH, HEADS, HIDDEN, LAYERS, BATCH = 128, 128, 128, 2, 256, 2, 4
RATE, DECAY_1, DECAY_2, EPSILON = 1e-3, 0.9, 0.999, 1e-8           # the constants of Adam
SCALE = (WIDTH // HEADS) ** -0.5


def first_weights() -> dict[str, np.ndarray]:
    """Return the weights with which every run starts."""
    rng = np.random.default_rng(0)
    shapes = {"embedding": (SYMBOLS, WIDTH), "gain": (1, WIDTH)}
    for n in range(LAYERS):
        shapes |= {f"{n}.gain_attention": (1, WIDTH), f"{n}.query": (WIDTH, WIDTH), f"{n}.key": (WIDTH, WIDTH),
                   f"{n}.value": (WIDTH, WIDTH), f"{n}.mix": (WIDTH, WIDTH), f"{n}.gain_hidden": (1, WIDTH),
                   f"{n}.up": (WIDTH, HIDDEN), f"{n}.down": (HIDDEN, WIDTH)}
    return {name: np.ones(shape, np.float32) if "gain" in name else
            (rng.standard_normal(shape) * shape[0] ** -0.5 * (0.25 if name == "embedding" else 1)).astype(np.float32)
            for name, shape in shapes.items()}


def batches(batch: int = BATCH) -> Iterator[np.ndarray]:
    """Return characters [batch, STEPS + 1], the same in every run."""
    text = np.frombuffer((Path(__file__).parent / "transformer_kernels.py").read_bytes(), np.uint8) % SYMBOLS
    rng = np.random.default_rng(1)
    while True:
        starts = rng.integers(0, len(text) - STEPS - 1, batch)
        yield np.stack([text[s:s + STEPS + 1] for s in starts]).astype(np.int32)


def main(train: Callable[..., list[float]], description: str, name: str) -> None:
    """Train with kernels and natively, and compare the losses, which ``train(kernels, steps, tick)`` returns."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=300, help="steps of each run (300)")
    parser.add_argument("--plot", default=f"{name}.png", help="file of the plot, where matplotlib is installed")
    options = parser.parse_args()
    console, losses = Console(), {}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn(
        "loss {task.fields[loss]:.4f}")
    with Progress(*columns, console=console) as progress:
        for kind in ("native", "kernels"):
            task = progress.add_task(kind, total=options.steps, loss=float("nan"))
            losses[kind] = train(kind == "kernels", options.steps,
                                 lambda loss, task=task: progress.update(task, advance=1, loss=loss))
    plot(losses, options.plot, console.print)
    apart = [abs(a - b) for a, b in zip(*losses.values())]
    first, *_, last = losses["kernels"]
    print(f"loss from {first:.4f} to {last:.4f}; difference to the native version at most "
          f"{max(apart):.1e}, {sum(apart) / len(apart):.1e} on average")


def plot(losses: dict[str, list[float]], file: str, show: Callable[[str], None]) -> None:
    """Write the curves to a file, or print them as text without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        show(text_plot(losses))
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots()
    for (kind, values), style in zip(losses.items(), ("-", "--")):
        axes.plot(values, style, label=kind)
    axes.set(xlabel="step", ylabel="loss")
    axes.legend()
    figure.savefig(file)
    show(f"the plot is in {file}")


def text_plot(losses: dict[str, list[float]], width: int = 64, height: int = 14) -> str:
    """Return the curves as characters: o native, x kernels, * both."""
    top, bottom = (f(v for values in losses.values() for v in values) for f in (max, min))
    marks = [[" "] * width for _ in range(height)]
    for mark, values in zip("ox", losses.values()):
        for column in range(width):
            value = values[min(len(values) - 1, column * len(values) // width)]
            row = round((top - value) / max(top - bottom, 1e-9) * (height - 1))
            marks[row][column] = "*" if marks[row][column] not in (" ", mark) else mark
    lines = [f"{top - (top - bottom) * n / (height - 1):7.3f} |{''.join(row)}" for n, row in enumerate(marks)]
    return "\n".join([*lines, " " * 8 + "+" + "-" * width, " " * 9 + "loss by step: o native, x kernels, * both"])
