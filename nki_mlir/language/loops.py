# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions over loops, and device loops that run while the value of a tile at the end of each iteration is not 0.

    condition = scalar(True)
    while condition:
        ...
        condition = scalar(tile)

A reduction assigns the first value to a tensor that nothing has written; all others are combined with it.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nki_mlir.capture.builder import active
from nki_mlir.capture.errors import CarriedState, WhileEntry
from nki_mlir.capture.index import Index, Mask
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.loop_state import changes, live_state
from nki_mlir.capture.tensor import View
from nki_mlir.language import assignment, creation
from nki_mlir.language import operations as ops
from nki_mlir.scalar.dtypes import INT32
from nki_mlir.scalar.tokens import alu_token


@dataclass
class LoopReduction:
    """The result of ``loop_reduce``: it becomes operations when it is assigned."""

    value: View
    op: str
    first: object                  # a condition on loop variables: True, False or a Mask
    mask: object

    def write(self, target: View) -> None:
        """Emit target = op(target, value), or target = value in the first iteration if nothing wrote to target before
        the loop."""
        filled = active().properties.setdefault("filled before a reduction", {})
        key = target.buffer, user_location()
        is_first = False if filled.setdefault(key, target.buffer.is_written) else self.first
        with active().touches.combining(), assignment.accumulating():
            decide(is_first, lambda: assignment.assign(target, self.value, self.mask),
                   lambda: ops.binary(self.op, target, self.value, mask=self.mask, destination=target))


def loop_reduce(x: Any, op: object, loop_indices: object, *, dtype: object = None, mask: object = None
                ) -> LoopReduction:
    """Reduce x by ``op`` over the iterations of the loops whose variables are ``loop_indices``."""
    several = loop_indices if isinstance(loop_indices, (list, tuple)) else [loop_indices]
    is_first: Any = True
    for variable in several:
        index = Index.of(variable)
        low = index.interval()[0] if index.symbols else 0
        condition = (index == low) if index.symbols else index.const == low
        is_first = condition if is_first is True else is_first & condition if condition is not False else False
    value = x if dtype is None else ops.copy(x, dtype=dtype)
    return LoopReduction(value, alu_token(op).name, is_first, mask)


def decide(condition: object, then: Callable[[], object], otherwise: Callable[[], object]) -> None:
    """Emit an ``if`` of the program: only one branch if the condition is known, else both."""
    builder: Any = active()
    if isinstance(condition, Mask) and condition.truth() is None and builder.symbolic:
        builder.open_if(condition)
        then()
        builder.open_else()
        otherwise()
        builder.close_if()
    elif bool(condition):
        then()
    else:
        otherwise()


# -- while a tile is not 0 ---------------------------------------------------------------------------------------------
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
