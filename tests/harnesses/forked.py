# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs in forks of a process that has imported what they all need, which is most of the time that each takes."""

import importlib.util
import multiprocessing
import os
import sys
import traceback
from pathlib import Path

from nki_mlir.__main__ import main

# What the forks' process has imported; the vendor's names are not among it.
IMPORTED = ["nki_mlir.__main__", "nki_mlir.language.beta.nki", "nki_mlir.language.current.nki",
            "nki_mlir.language.current.compiled", "nki_mlir.language.current.runtime", "nki_mlir.language.measuring",
            "nki_mlir.compat.nkipy_runtime", "nki_mlir.targets.neuron.codegen.emission",
            "nki_mlir.targets.neuron.profile.vendor_json", "nki_mlir.passes.pipelines",
            *(name for name in ("torch", "pyarrow") if importlib.util.find_spec(name))]


def run_forked(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[int | None, str]:
    """Status and output of ``python -m nki_mlir WORDS`` in a directory."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=run_here, args=(words, folder, environment))
    process.start()
    process.join(600)
    status = process.exitcode
    process.kill()
    return status, (folder / "printed.txt").read_text()


def run_here(words: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Run the program in this process, and end with its status."""
    out = os.open(folder / "printed.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = sys.stderr = open(1, "w", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    try:
        sys.exit(main(words))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
