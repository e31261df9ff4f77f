# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The entry points of installed commands. They handle Ctrl-C and lack of memory while the modules of a command load."""

import sys
from collections.abc import Callable
from importlib import import_module

NO_ROOM = "failed to map segment"       # the loader's message about a shared object


def command(module: str) -> Callable[[], int]:
    """Return a function that imports a command's module and runs it."""
    def run() -> int:
        try:
            status: int = import_module(f"nki_mlir.cli.{module}").main()
            return status
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except (MemoryError, ImportError) as error:
            if isinstance(error, ImportError):
                line = next((line for line in str(error).split("\n") if NO_ROOM in line), "")
                if not line:
                    raise
                error = MemoryError(f"a module does not load, {line}")
            from nki_mlir.cli.command import fail_of_memory  # start-up: imported on first use
            return fail_of_memory(error)
    return run


opt, run, translate, migrate, calibrate = map(command, ("opt", "run", "translate", "migrate", "calibrate"))
lsp, env, score, tune, grade = map(command, ("language_server", "env", "score", "tune", "grade"))
