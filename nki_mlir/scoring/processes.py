# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The processes of a candidate: forked for it, limited, and ended when it is judged.

A warm worker starts the fork server before it loads a reference. The fork server forks the process that runs a
candidate's Python, so the memory of that process contains nothing of a reference.
"""

import os
import pickle
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

from nki_mlir.scoring.capture import capture_in_sandbox
from nki_mlir.scoring.reference import Described
from nki_mlir.scoring.sandbox import CandidateLimits, enter_namespaces, fork_bound

MOST_BYTES = 256 << 20                  # most bytes of a message of a process
HEADER = struct.Struct("!Q")


class ProcessOutput(NamedTuple):
    """The bytes that a process sent, and how it ended: "" if that is unknown or without an error, "timeout", "too
    much", a status or a signal."""

    data: bytes
    ended: str


class CaptureRequest(NamedTuple):
    """A request to the candidate's process. Of the reference, it contains only shapes."""

    file: str
    entry: str
    target: str
    signatures: Sequence[Described]
    limits: CandidateLimits
    strict: bool = False


def receive(reader: int, group: int, seconds: float) -> ProcessOutput:
    """Read a pipe until it is closed. If that takes too long, kill the group of processes."""
    deadline, parts, size, ended = time.monotonic() + seconds, list[bytes](), 0, ""
    try:
        while not ended:
            readable, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                ended = "timeout"
                break
            data = os.read(reader, 1 << 20)
            if not data:
                break
            parts.append(data)
            size += len(data)
            ended = "too much" if size > MOST_BYTES else ""
    finally:
        os.close(reader)
    if ended:
        kill(group)
    return ProcessOutput(b"".join(parts), ended)


def kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def status_text(status: int) -> str:
    """Return how a process ended, from the status of ``waitpid``."""
    code = os.waitstatus_to_exitcode(status)
    return f"status {code}" if code >= 0 else signal.Signals(-code).name


# -- the judge ---------------------------------------------------------------------------------------------------------
def forked(body: Callable[[BinaryIO], None], seconds: float) -> ProcessOutput:
    """Run ``body`` in a forked process, which leads a new process group, and return the bytes that it writes within
    ``seconds``."""
    reader, writer = os.pipe()
    pid = fork_bound()
    if pid == 0:
        os.close(reader)
        run_and_exit(body, writer)
    os.close(writer)
    try:
        os.setpgid(pid, pid)
    except OSError:                     # the child has done so itself, or has ended
        pass
    sent = receive(reader, pid, seconds)
    _, status = os.waitpid(pid, 0)
    return ProcessOutput(sent.data, sent.ended or ("" if status == 0 else status_text(status)))


def run_and_exit(body: Callable[[BinaryIO], None], writer: int) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        with open(writer, "wb") as out:
            body(out)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


# -- the fork server ---------------------------------------------------------------------------------------------------
class ForkServer:
    """A process that forks candidates' processes."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self.pid = fork_bound()
        if self.pid == 0:
            self.socket.close()
            try:
                serve_forks(other)
            finally:
                os._exit(0)
        other.close()

    def capture(self, request: CaptureRequest) -> ProcessOutput:
        """Let a new process capture a candidate, and return the message of that process."""
        results, result_writer = os.pipe()
        statuses, status_writer = os.pipe()
        data = pickle.dumps(request)
        socket.send_fds(self.socket, [HEADER.pack(len(data))], [result_writer, status_writer])
        self.socket.sendall(data)
        os.close(result_writer)
        os.close(status_writer)
        group = HEADER.unpack(exactly(self.socket, HEADER.size))[0]
        sent = receive(results, group, request.limits.seconds)
        status = receive(statuses, group, 5.0).data.decode(errors="replace")
        kill(group)                     # ends its child processes, too
        return ProcessOutput(sent.data, sent.ended or ("" if status == "status 0" else status or "SIGKILL"))

    def close(self) -> None:
        self.socket.close()
        os.waitpid(self.pid, 0)


def exactly(connection: socket.socket, size: int) -> bytes:
    """Read this number of bytes. Raise ``EOFError`` if the other side has closed the connection."""
    parts = bytearray()
    while len(parts) < size:
        data = connection.recv(size - len(parts))
        if not data:
            raise EOFError
        parts += data
    return bytes(parts)


def serve_forks(connection: socket.socket) -> None:
    """Fork a process for each request until the worker ends."""
    running: set[int] = set()
    while True:
        running -= {pid for pid in running if os.waitpid(pid, os.WNOHANG)[0]}
        header, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, 2)
        if not header:
            return
        request: CaptureRequest = pickle.loads(exactly(connection, HEADER.unpack(header)[0]))
        results, statuses = descriptors
        pid = fork_bound()
        if pid == 0:
            guard(request, results, statuses, connection)
        try:
            os.setpgid(pid, pid)
        except OSError:
            pass
        running.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(HEADER.pack(pid))


def guard(request: CaptureRequest, results: int, statuses: int, connection: socket.socket) -> NoReturn:
    """Run the candidate's process in new namespaces as a child of this process, and report how it ended."""
    try:
        os.setpgid(0, 0)
        connection.close()
        enter_namespaces()
        pid = fork_bound()
        if pid == 0:
            os.close(statuses)
            with open(results, "wb") as out:
                capture_in_sandbox(Path(request.file), request.entry, request.target, request.signatures,
                                   request.limits, out, request.strict)
        os.close(results)
        _, status = os.waitpid(pid, 0)
        os.write(statuses, status_text(status).encode())
    finally:
        os._exit(0)
