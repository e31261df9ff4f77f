# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The process of a worker, which also answers each request if the machine has too little memory to load the worker."""

import json
import sys

FIX = "raise the limit of the process (ulimit -v), or start fewer workers"


def main() -> int:
    """Serve standard input."""
    try:
        from nki_mlir.scoring import client, worker  # start-up: they may not load
    except MemoryError as error:
        message = f"the machine has too little memory for a worker: {error}"
        answer = {"code": "NKI-MEMORY", "message": message, "fix": FIX, "location": ""}
        for _ in sys.stdin.buffer:
            print(json.dumps({"error": answer}), flush=True)
        return 1
    client.is_worker = True
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
