# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that go on while the value of a tile, known at the end of each iteration, is not 0.

    condition = scalar(True)
    while condition:
        ...
        condition = scalar(tile)
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from nki_mlir.frontend.builder import active
from nki_mlir.frontend.errors import CarriedState, WhileEntry
from nki_mlir.frontend.locations import variables
from nki_mlir.frontend.state import changes, snapshot
from nki_mlir.frontend.tensor import View
from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.scalar.dtypes import INT32


class Unconditional:
    """``scalar(True)``, the first condition."""

    def __bool__(self) -> bool:
        return True

    def iterations(self, condition: Callable[[], object], names: tuple[str, ...]) -> Iterator[None]:
        """Yields where the body runs: again and again, or once, to capture it. ``names`` are live at its head."""
        builder: Any = active("a while loop")
        if not builder.symbolic:
            for _ in builder.iterations(itertools.count(), None, False):
                yield
                if not ops.concrete_value(_tile(condition())).item():           # type: ignore[union-attr]
                    return
        from nki_mlir.frontend.dynamic_loops import open_while  # start-up: loads MLIR
        register = creation.filled((1, 1), 1, INT32)
        before = snapshot(variables(names))
        with open_while(builder, register, "ne", 0, may_skip=False):
            yield
            changed = sorted(changes(before, snapshot(variables(names))))
            if changed:
                raise CarriedState(names=", ".join(changed)).here()
            ops.binary("not_equal", _tile(condition()), 0, boolean=True, destination=register)


def _tile(value: object) -> View:
    """The condition at the end of an iteration, a tile of one element."""
    if not isinstance(value, View):
        raise WhileEntry().here()
    return value
