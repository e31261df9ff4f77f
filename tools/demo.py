# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The demo: capture kernels, print them at every level, run them on every executor, call them from JAX and PyTorch."""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import numpy as np  # noqa: E402

import nki_mlir.compat  # noqa: E402

nki_mlir.compat.install()

import average_pool2d as pool  # noqa: E402
import giou  # noqa: E402
import tensor_add as add  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

EXECUTORS = ("eager", "interpreter", "jit", "isa")
console = Console(width=150)


class Case:
    """A kernel with its arguments and the expected result."""

    def __init__(self, name: str, kernel: Any, arguments: tuple, answer: np.ndarray, output: int | None = None) -> None:
        self.name, self.kernel, self.arguments, self.answer, self.output = name, kernel, arguments, answer, output

    def run(self, on: str) -> np.ndarray:
        arguments = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in self.arguments)
        return self.kernel.run(arguments, {}, on)

    def error(self, result: Any) -> float:
        return float(np.max(np.abs(np.asarray(result, np.float64) - self.answer) / np.maximum(1, np.abs(self.answer))))


def cases() -> list[Case]:
    image = np.random.default_rng(0).standard_normal((64, 32, 48)).astype(np.float32)
    a, b = np.random.default_rng(1).standard_normal((2, 300, 1100)).astype(np.float32)
    first, second = giou.random_boxes(256, 64, 0), giou.random_boxes(256, 64, 1)
    grid = -(-300 // add.ROWS), -(-1100 // add.COLUMNS)
    return [
        Case("average pool 4x4", pool.average_pool2d, (image, 4), pool.reference(image, 4)),
        Case("generalized IoU", giou.giou, (first, second, np.empty((256, 64), np.float32)),
             giou.reference(first, second)),
        Case("tensor add, 3x3 grid", add.tensor_add[grid], (a, b), a + b),
    ]


def best_ms(call: Any, seconds: float = 0.2) -> float:
    """Return the shortest time of repeated calls in ms."""
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best * 1e3


def first_results() -> None:
    """Measure the time from process start to a checked result, in a new process."""
    subprocess.run([sys.executable, str(ROOT / "tools/first_result.py"), str(time.time())], check=True)


def show_levels() -> None:
    """Print the average pool at every level."""
    from nki_mlir.cli.opt import main
    source = f"{ROOT}/examples/average_pool2d.py:average_pool2d"
    arguments = ["--arg", "64x32x48xf32", "--arg", "4"]
    for title, options in (("captured: the nki level", []), ("linalg on tiles", ["--lower-to-linalg"]),
                           ("engine instructions", ["--lower-to-nisa"]), ("per-engine assembly", ["--lower-to-isa"])):
        console.rule(title)
        main([*options, source, *arguments])


def instruction_counts(case: Case) -> str:
    from nki_mlir.language.kernel import describe_array, is_array
    from nki_mlir.targets import neuron
    spec = case.kernel.specialize(case.kernel.bind(case.arguments, {}, is_array, describe_array))
    program = neuron.streams(spec.captured, spec.grid)[0]
    return " ".join(f"{engine} {count}" for engine, count in neuron.instruction_counts(program).items() if count)


def frameworks() -> list[tuple[str, str]]:
    """Return each framework's result and gradient of a * b * (a + b), where a kernel computes the sum."""
    rows = []
    a, b = np.random.default_rng(2).standard_normal((2, 256, 1024)).astype(np.float32)
    grad_a = 2 * a * b + b * b
    for name, run in (("JAX", with_jax), ("PyTorch", with_torch)):
        try:
            value, gradient = run(a, b)
        except ImportError:
            rows.append((name, "not installed"))
            continue
        worst = max(np.abs(value - a * b * (a + b)).max(), np.abs(gradient - grad_a).max())
        rows.append((name, f"value and gradient within {worst:.1e}"))
    return rows


def with_jax(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    import jax

    @jax.custom_vjp
    def summed(x: Any, y: Any) -> Any:
        return add.launch(x, y)
    summed.defvjp(lambda x, y: (summed(x, y), None), lambda _, g: (g, g))
    value, gradient = jax.jit(jax.value_and_grad(lambda x, y: (x * y * summed(x, y)).sum()))(a, b)
    product = jax.jit(lambda x, y: x * y * summed(x, y))(a, b)
    del value
    return np.asarray(product), np.asarray(gradient)


def with_torch(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    import torch

    class Summed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return add.launch(x, y)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, g
    x, y = torch.tensor(a, requires_grad=True), torch.tensor(b)
    product = x * y * Summed.apply(x, y)
    product.sum().backward()
    return product.detach().numpy(), x.grad.numpy()


def main() -> int:
    first_results()
    show_levels()
    console.rule("every kernel on every executor")
    table = Table()
    for column in ("kernel", *(f"{e}: error, ms" for e in EXECUTORS), "instructions per engine"):
        table.add_column(column)
    worst = 0.0
    for case in cases():
        row = [case.name]
        for on in EXECUTORS:
            error = case.error(case.run(on))
            worst = max(worst, error)
            row.append(f"{error:.0e}, {best_ms(partial(case.run, on)):.2f}")
        table.add_row(*row, instruction_counts(case))
    console.print(table)
    for name, text in frameworks():
        console.print(f"{name}: {text}")
    console.print(f"largest error {worst:.1e}: " + ("all agree" if worst < 1e-5 else "DISAGREEMENT"))
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
