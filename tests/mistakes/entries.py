# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The entries of ``beta.txt`` and ``current.txt`` as kernels in files, and the message that each causes.

``python -m tests.mistakes.entries`` writes the current messages to these files; read them before you commit.
"""

import importlib.util
import re
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nki_mlir.compat import install
from nki_mlir.diagnostics import NkiMlirError

FOLDER = Path(__file__).parent
HERE = "  # here"
BETA = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, y, w):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
{body}
    nl.store(out, t)
    return out


def call(kernel, x, y, w):
    return {call}
"""
CURRENT = """
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl


def tile(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def psum(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.psum)


def filled(*shape, dtype=nl.float32):
    made = tile(*shape, dtype=dtype)
    nisa.memset(made, 0)
    return made


@nki.jit
def kernel(x, w):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
{body}
    nisa.dma_copy(dst=out, src=t)
    return out


def call(kernel, x, w):
    return {call}
"""
GENERATIONS = {"beta": (BETA, "kernel(x, y, w)"), "current": (CURRENT, "kernel(x, w)")}


@dataclass(frozen=True)
class Mistake:
    """One entry: the lines that are wrong, and what their author is told."""

    generation: str
    title: str
    lines: tuple[str, ...]
    told: tuple[str, ...]
    at: str = ""                        # a part of the wrong line, where that is none of these

    @property
    def source(self) -> tuple[str, int]:
        """The text of a file with the kernel, and the line that is wrong."""
        frame, call = GENERATIONS[self.generation]
        body = ["pass"]
        if self.lines[0].startswith("> "):
            call = self.lines[0].removeprefix("> ")
        else:
            body = list(self.lines)
        wrong = self.at or next((line for line in self.lines if line.endswith(HERE)), self.lines[0]).removeprefix("> ")
        text = frame.format(body="\n".join("    " + line for line in body), call=call)
        return text, next(k for k, line in enumerate(text.splitlines(), 1) if wrong in line)

    def run(self, folder: Path, on: str) -> tuple[tuple[str, ...], int | None]:
        """What is told on an executor, and at which line."""
        install()
        text, _ = self.source
        file = folder / f"{self.generation}_{re.sub(r'[^a-z0-9]+', '_', self.title.lower())}.py"
        file.write_text(text)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x = np.ones((128, 64), np.float32)
        arrays = [x, x.copy(), np.ones((256, 64), np.float32)] if self.generation == "beta" else [
            x, np.ones((256, 64), np.float32)]
        kernel = module.kernel.on(on) if not self.lines[0].startswith("> ") else module.kernel
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module.call(kernel, *arrays)
        except NkiMlirError as error:
            fix = error.advice[1]
            return ((f"{error.headline} [{error.code}]", *([f"fix: {fix}"] if fix else [])),
                    error.at.line if error.at and error.at.file == str(file) else None)
        except Exception as error:
            return (f"{type(error).__name__}: {error}",), None
        return ("nothing",), None


def mistakes(generation: str) -> Iterator[Mistake]:
    """The entries of a generation."""
    for entry in (FOLDER / f"{generation}.txt").read_text().split("\n== ")[1:]:
        title, *lines = entry.strip().splitlines()
        marked = {mark: [line.removeprefix(f"{mark} ") for line in lines if line.startswith(f"{mark} ")] for mark in "!@"}
        yield Mistake(generation, title, tuple(line for line in lines if line[:2] not in ("! ", "@ ")),
                      tuple(marked["!"]), "".join(marked["@"]))


def main() -> None:
    """Write down what each entry is told."""
    for generation in GENERATIONS:
        file = FOLDER / f"{generation}.txt"
        texts = [file.read_text().split("\n== ")[0].strip()]
        with tempfile.TemporaryDirectory() as folder:
            for one in mistakes(generation):
                told, line = one.run(Path(folder), "eager")
                other, other_line = one.run(Path(folder), "jit")
                if told != other or line != other_line or line != one.source[1] or len(told) < 2:
                    print(f"{generation} | {one.title} | {one.lines} | line {line} and {other_line} of {one.source[1]}\n"
                          f"      eager {told}\n      jit   {other if other != told else ''}")
                at = [f"@ {one.at}"] if one.at else []
                texts.append("\n".join([f"== {one.title}", *one.lines, *at, *(f"! {text}" for text in told)]))
        file.write_text("\n\n".join(texts) + "\n")


if __name__ == "__main__":
    main()
