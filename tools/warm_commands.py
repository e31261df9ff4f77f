# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A server that imports the modules of commands and forks for each command: most of the time of short tests is imports.

``warm_client.py`` sends the commands. In an environment that differs from the server's, a new process runs the command,
since modules read some variables when they are imported.
"""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from runpy import run_module
from typing import NoReturn

from .seeding import ROOT
from .warm_client import VARIABLE

READ_BY_MODULES = ("NKI_", "NEURON_", "XLA_")      # beginnings of their names
PRELOADED = ("filecheck.main", "numpy", "nki_mlir.cli.lowering", "nki_mlir.cli.opt", "nki_mlir.cli.run",
             "nki_mlir.cli.translate", "nki_mlir.custom_form.printer", "nki_mlir.targets.neuron.codegen.emission",
             "nki_mlir.targets.neuron.codegen.lowered_kernel", "nki_mlir.targets.cpu.lowering",
             "nki_mlir.targets.cpu.pipeline", "nki_mlir.targets.runtime.jit")


@contextmanager
def warm_commands(environment: dict[str, str], prefix: Sequence[str] = (),
                  preloaded: Sequence[str] = PRELOADED) -> Iterator[dict[str, str]]:
    """Run a server that imports modules, and yield the environment in which clients find it.

    A ``prefix`` such as ``nice`` starts the server.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "commands")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen(64)                    # callers wait while modules are imported
            server = subprocess.Popen([*prefix, sys.executable, "-m", "tools.warm_commands",
                                       str(listening.fileno()), *preloaded], cwd=ROOT,
                                      pass_fds=[listening.fileno()], env=environment)
        try:
            yield environment | {VARIABLE: path}
        finally:
            server.terminate()
            server.wait()


def serve(listening: socket.socket, preloaded: Sequence[str]) -> NoReturn:
    for module in preloaded:
        import_module(module)
    while True:
        connection, _ = listening.accept()
        if not os.fork():
            if os.fork():                           # the process that init adopts runs the command
                os._exit(0)
            listening.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            answer(connection)
        os.wait()
        connection.close()


def answer(connection: socket.socket) -> NoReturn:
    """Run the command of a call in this process, a fork of the server, and end it."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    same = compared(request["environment"]) == compared(dict(os.environ))
    os.environ.clear()
    os.environ.update(request["environment"])
    status = run(request["arguments"]) if same else run_anew(request["arguments"])
    connection.sendall(str(status).encode())
    os._exit(0)


def compared(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_BY_MODULES) and name != VARIABLE}


def run(arguments: list[str]) -> int:
    """Run a module as ``python -m`` does, with the modules that are imported already, and return the status."""
    # The server's streams have their own encodings and buffers.
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = io.TextIOWrapper(open(2, "wb", 0, closefd=False), encoding="utf-8", errors="backslashreplace",
                                  write_through=True)
    sys.argv, sys.path[0] = [*arguments], os.getcwd()
    sys.modules.pop(arguments[0], None)
    status: int | str | None = 0
    try:
        run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    if isinstance(status, str):
        print(status, file=sys.stderr)
        return 1
    return status or 0


def run_anew(arguments: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", *arguments], check=False).returncode


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
