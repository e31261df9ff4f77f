# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run linked programs in a separate process, where the code generator cannot run in the caller's.

Libraries of one process share some tables of LLVM, whichever version of it they were built with; beside ``torch_xla``,
which has LLVM as well, generated code does not link. The other process is started once and ends with this one.
"""

import atexit
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence

import numpy as np

from nki_mlir.frameworks.process_state import once


class LinkedProcess:
    """The process that runs linked modules. A request is a module's text with its arrays; the answer is the list of
    results or the exception."""

    def __init__(self) -> None:
        self.child = subprocess.Popen([sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()
        atexit.register(self.close)

    def run(self, module: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        assert self.child.stdin is not None and self.child.stdout is not None
        with self.lock:
            pickle.dump((module, list(arrays)), self.child.stdin)
            self.child.stdin.flush()
            answer: list[np.ndarray] | BaseException = pickle.load(self.child.stdout)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()                # the loop ends at the end of its input
        self.child.wait()


def run_in_process(module: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run ``run_linked`` in the other process, which the first call starts."""
    return once("linked_process", LinkedProcess).run(module, arrays)


def main() -> None:
    """Answer requests from standard input until it ends."""
    from nki_mlir.frameworks.stablehlo import LinkedProgram  # start-up: loads MLIR
    requests, answers = open(0, "rb", closefd=False), sys.stdout.buffer
    sys.stdout = sys.stderr                     # standard output carries only the answers
    programs = {}
    while requests.peek(1):
        module, arrays = pickle.load(requests)
        answer: object
        try:
            if module not in programs:
                programs[module] = LinkedProgram(module)
            answer = programs[module](*arrays)
        except Exception as error:              # the requesting process raises it
            answer = error if type(error).__module__ == "builtins" else RuntimeError(str(error))
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
