# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The client of ``warm_commands.py``: it runs ``python -m MODULE ARGUMENT...`` without the time of imports.

``warm_client.py MODULE ARGUMENT...`` lets a fork of the server run the module, with the streams, folder and environment
of the caller. The environment variable ``NKI_MLIR_WARM`` names the server's socket; without a server this process runs
the module.
"""

import json
import os
import socket
import sys

VARIABLE = "NKI_MLIR_WARM"


def call(arguments: list[str]) -> int:
    """Return the status of the command."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.environ[VARIABLE])
            request = json.dumps({"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)})
            socket.send_fds(connection, [b"s"], [0, 1, 2])
            connection.sendall(request.encode())
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(16)
            return int(answer) if answer else 134       # the command crashed
    except (KeyError, FileNotFoundError, ConnectionRefusedError):
        os.execv(sys.executable, [sys.executable, "-m", *arguments])


if __name__ == "__main__":
    sys.exit(call(sys.argv[1:]))
