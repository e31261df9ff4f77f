# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of the program that are written as Python's own: what their statement says, and Python state they would carry.

A captured body runs once and stands for all iterations, so a name that one iteration leaves changed for the next one
would be read wrongly. Kernels run as they are: the statement is found from where its frame is.
"""

import ast
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from nki_mlir.frontend.builder import active
from nki_mlir.frontend.errors import CarriedState
from nki_mlir.frontend.locations import user_frame, user_location, variables
from nki_mlir.frontend.source import definition
from nki_mlir.frontend.state import is_bound
from nki_mlir.frontend.wrapping import exposed_reads, leaves, stored, underlying
from nki_mlir.language.closure_state import holds_state
from nki_mlir.language.current.errors import of_core, require, warn

PLAIN = (type(None), bool, int, float, complex, str, bytes)
DEPTH = 10          # objects in objects in objects


def _statement(frame: FrameType, kind: type[ast.For | ast.While], part: str) -> Any:
    """The ``for`` or ``while`` of the function whose iterable or condition is being evaluated; None without source."""
    found, at = definition(frame.f_code, frame.f_globals), user_location()
    if found is None:
        warn(f"{frame.f_code.co_name} has no source that can be read: whether a loop of the device is left by break or "
             "return, or leaves Python state changed for its next iteration, is not checked")
    for node in ast.walk(found.function) if found is not None else ():
        if isinstance(node, kind):
            starts = [(n.lineno, n.col_offset) for n in (node, getattr(node, part))]
            if (at.line, at.column) in starts:
                return node
    return None


def check_jumps(node: ast.For | ast.While) -> None:
    require(not leaves(node.body, by=(ast.Return, ast.Break)), "break and return are not allowed within dynamic loop")


# -- state that is carried ---------------------------------------------------------------------------------------------
def _snapshot(value: object, depth: int = 0) -> tuple[object, object]:
    """A value with what it holds now: lists, dictionaries, and the attributes of the user's objects."""
    if depth == DEPTH:
        return value, None
    match value:
        case list():
            return value, [_snapshot(v, depth + 1) for v in value]
        case dict():
            return value, {k: _snapshot(v, depth + 1) for k, v in value.items()}
    kind: object = type(value)
    if holds_state(kind) and hasattr(value, "__dict__"):
        return value, _snapshot(vars(value), depth + 1)[1]
    return value, None


def _is_unchanged(before: tuple[object, Any], now: object) -> bool:
    """Whether a name still means the same; entries that were added to its list or dictionary do not count."""
    value, inside = before
    if isinstance(now, PLAIN):
        return type(now) is type(value) and repr(now) == repr(value)
    if now is not value or inside is None:
        return now is value
    if isinstance(now, list):
        return len(now) >= len(inside) and all(map(_is_unchanged, inside, now))
    parts = now if isinstance(now, dict) else vars(now)
    return all(k in parts and _is_unchanged(held, parts[k]) for k, held in inside.items())


@contextmanager
def not_carried(values: Callable[[], dict[str, object]]) -> Iterator[None]:
    """An error if what runs inside leaves one of the names changed."""
    before = {name: _snapshot(value) for name, value in values().items()}
    yield
    after = values()
    changed = sorted(n for n, held in before.items() if n not in after or not _is_unchanged(held, after[n]))
    if changed:
        raise of_core(CarriedState(names=", ".join(changed)))


def for_statement() -> tuple[str, ...]:
    """Names live at the head of the body of the ``for`` whose iterable the kernel is making."""
    frame = user_frame()
    node = _statement(frame, ast.For, "iter") if frame is not None else None
    if node is None:
        return ()
    check_jumps(node)
    return tuple(exposed_reads(node.body) - stored([node.target]))


def closure_of(function: Callable[..., object]) -> Callable[[], dict[str, object]]:
    """The variables of enclosing functions that a loop's body reads before it binds them, as they are now."""
    inner = underlying(function)
    if inner is None:
        return dict
    cells = dict(zip(inner.__code__.co_freevars, inner.__closure__ or ()))
    found = definition(inner.__code__, inner.__globals__)
    names = cells.keys() if found is None else cells.keys() & exposed_reads(found.function.body)
    return lambda: {n: cells[n].cell_contents for n in names if is_bound(cells[n])}


# -- while register ----------------------------------------------------------------------------------------------------
class OpenLoop:
    """A ``while`` on a register whose body is being captured: its condition is asked for before and after."""

    def __init__(self, frame: FrameType, node: ast.While, loop: ExitStack, register: object) -> None:
        self.frame, self.position, self.register = frame, (node.lineno, node.col_offset), register
        self.names, self.loop = tuple(exposed_reads(node.body)), loop
        loop.enter_context(not_carried(lambda: variables(self.names)))


def while_statement() -> tuple[FrameType, ast.While] | None:
    """The ``while`` whose condition is being evaluated, where that is a name; None where no such statement asks."""
    frame = user_frame()
    node = _statement(frame, ast.While, "test") if frame is not None else None
    if frame is None or node is None or not isinstance(node.test, (ast.Name, ast.Attribute)):
        return None
    return frame, node


def asked_by_while() -> bool:
    """Whether it is a ``while`` that asks for the truth of a register: the loop may be the device's."""
    frame = user_frame()
    asking: dict[object, bool] = active("a register").properties.setdefault("asking_places", {})
    key = None if frame is None else (frame.f_code, frame.f_lasti)
    if key not in asking:
        found = while_statement()
        if found is not None:
            check_jumps(found[1])
        asking[key] = found is not None
    return asking[key]


def holds(register: object, loops: list[OpenLoop], opened: Callable[[ExitStack], object],
          closing: Callable[[object], None]) -> bool | None:
    """What ``while register`` is to see: True, then the body runs, then False. None where no ``while`` asks.

    ``opened`` begins the loop and gives the register it reads, ``closing`` ends an iteration.
    """
    found = while_statement()
    if found is None:
        return None
    frame, node = found
    if loops and loops[-1].frame is frame and loops[-1].position == (node.lineno, node.col_offset):
        last = loops.pop()
        closing(last.register)
        last.loop.close()
        return False
    check_jumps(node)
    loop = ExitStack()
    loops.append(OpenLoop(frame, node, loop, opened(loop)))
    return True
