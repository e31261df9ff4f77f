# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The entry points of installed commands. They handle Ctrl-C and lack of memory while the modules of a command load,
and streams that the caller closed. Ctrl-C while this module loads is not handled, so it imports little."""

import atexit
import errno
import io
import os
import sys
import threading
from contextlib import suppress
from importlib import import_module

TYPE_CHECKING = False   # as in typing, which takes longer to load than this module

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

INTERRUPTED = 130       # the exit status after Ctrl-C
NO_ROOM = "failed to map segment"       # the loader's message about a shared object


class ClosedOutput(io.RawIOBase):
    """Standard output that the caller closed: every write fails, as on a closed descriptor."""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise OSError(errno.EBADF, "it is closed")


def replace_closed_streams() -> None:
    """Keep the descriptors 0 to 2 for the standard streams, even if the caller closed them. Otherwise a file that opens
    later would get one of these numbers, and receive what MLIR prints."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(ClosedOutput(), encoding="utf-8", write_through=True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


def replace_unprintable() -> None:
    """Print "?" for characters that the locale's encoding lacks, such as the bars of tables. Sources, modules and files
    are UTF-8 in every locale."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() not in ("utf-8", "utf8"):
        sys.stdout.reconfigure(errors="replace")


def exit_process() -> "NoReturn":
    """End the process as Python does, with its threads and the functions of ``atexit``, but without freeing what the
    command has built, which takes a second for a kernel of 20,000 operations."""
    threading._shutdown()           # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(INTERRUPTED)


def command(module: str) -> "Callable[[], int]":
    """Return a function that imports a command's module and runs it."""
    def run() -> int:
        try:
            replace_closed_streams()
            replace_unprintable()
            status: int = import_module(f"nki_mlir.cli.{module}").main()
            return exit_process() if status == INTERRUPTED else status
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
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
