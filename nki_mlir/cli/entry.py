# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What installed commands call. Ctrl-C while a command's modules are imported ends it as it does later."""

import sys
from collections.abc import Callable
from importlib import import_module


def command(module: str) -> Callable[[], int]:
    """The function that imports a command and runs it."""
    def run() -> int:
        try:
            status: int = import_module(f"nki_mlir.cli.{module}").main()
            return status
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
    return run


opt, run, translate, migrate, calibrate = map(command, ("opt", "run", "translate", "migrate", "calibrate"))
lsp, env, score, tune, grade = map(command, ("language_server", "env", "score", "tune", "grade"))
