# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instruction streams of kernels in files, for tests of profiles."""

from dataclasses import replace
from pathlib import Path

from nki_mlir.cli.arguments import parse_arguments
from nki_mlir.cli.runnable import runnable
from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets import neuron

ROOT = Path(__file__).parents[4]


def streams(source: str, *arguments: str, grid: tuple[int, ...] = (), target: str | None = None,
            as_written: bool = False, **options: object) -> list[Program]:
    """The programs of a kernel ``FILE.py:NAME`` below the root for arguments as on the command line. ``options``: those
    of the emission."""
    positional, keywords = parse_arguments(list(arguments), values=False)
    return runnable(str(ROOT / source), positional, keywords, target, grid).streams(
        replace(neuron.emission(as_written), **options))
