# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A stand-in for ``torch_xla.distributed.xla_backend``.

Its import defines the back end ``xla`` of ``torch.distributed``, and the address ``xla://``. Processes exchange data
with Gloo.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any


def connect(url: str, timeout: timedelta = timedelta(minutes=5), **keywords: Any) -> Iterator[tuple[object, int, int]]:
    """Yield the store, the rank and the number of processes: those of the launcher's environment, or of one process."""
    dist = distributed()
    if "RANK" in os.environ:
        yield from dist.rendezvous("env://", timeout=timeout, **keywords)
    else:
        yield dist.HashStore(), 0, 1


def distributed() -> Any:
    """Return ``torch.distributed``, some of whose names have no types."""
    import torch.distributed  # an optional package
    return torch.distributed


def register() -> None:
    """Define the back end, unless it is defined."""
    dist = distributed()
    if not hasattr(dist.Backend, "XLA"):
        dist.Backend.register_backend("xla", dist.ProcessGroupGloo, devices=["cpu"])
        dist.register_rendezvous_handler("xla", connect)


register()
