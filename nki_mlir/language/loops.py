# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Device loops that run while the value of a tile at the end of each iteration is not 0.

    condition = scalar(True)
    while condition:
        ...
        condition = scalar(tile)
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from nki_mlir.capture.builder import active
from nki_mlir.capture.errors import CarriedState, WhileEntry
from nki_mlir.capture.loop_state import changes, live_state
from nki_mlir.capture.tensor import View
from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.scalar.dtypes import INT32


class Unconditional:
    """The first condition, ``scalar(True)``."""

    def __bool__(self) -> bool:
        return True

    def iterations(self, condition: Callable[[], object], names: tuple[str, ...]) -> Iterator[None]:
        """Yield for each run of the body: repeatedly, or once, to capture it. ``names`` are live at the loop's head."""
        builder: Any = active("a while loop")
        if not builder.symbolic:
            for _ in builder.iterations(itertools.count(), None, False):
                yield
                if not ops.concrete_value(_tile(condition())).item():           # type: ignore[union-attr]
                    return
        register = creation.filled((1, 1), 1, INT32)
        before = live_state(names)
        with builder.open_while(register, "ne", 0, may_skip=False):
            yield
            changed = sorted(changes(before, live_state(names)))
            if changed:
                raise CarriedState(names=", ".join(changed)).here()
            ops.binary("not_equal", _tile(condition()), 0, boolean=True, destination=register)


def _tile(value: object) -> View:
    """Return the condition at the end of an iteration, which must be a tile of one element."""
    if not isinstance(value, View):
        raise WhileEntry().here()
    return value
