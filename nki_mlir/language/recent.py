# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Captures and planned calls by what they are for: as many as a process may go on to need, not all there ever were."""

import threading
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
MOST = 1000                     # captures and calls of one kernel, plans of all kernels of a framework

_lock = threading.Lock()


class Recent(dict[K, V]):
    """A dict of at most ``MOST`` entries: a new one takes the place of the one that was used the longest ago.

    ``used`` finds an entry and counts as a use. ``get`` does not, and costs no more than a dict's: it is for what is
    made again in no time.
    """

    def used(self, key: K) -> V | None:
        found = self.get(key)
        if found is not None:
            self[key] = found
        return found

    def __setitem__(self, key: K, value: V) -> None:
        with _lock:
            self.pop(key, None)
            while len(self) >= MOST:
                del self[next(iter(self))]
            super().__setitem__(key, value)
