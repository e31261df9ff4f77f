# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of the program itself: their trip counts are known at run time only.

The loop's counter or condition is a register. Simulation runs the body again and again; capture runs it once, inside an
``scf.while`` that reads the register.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from nki_mlir.frontend.builder import active
from nki_mlir.frontend.locations import user_location, variables
from nki_mlir.language import operations as ops
from nki_mlir.language.current.calls import reported
from nki_mlir.language.current.errors import NkiTypeError, NkiValidationError, older, require
from nki_mlir.language.current.isa_register import put, register_alloc, register_move
from nki_mlir.language.current.loop_statements import asked_by_while, closure_of, for_statement, holds, not_carried
from nki_mlir.language.current.register import VirtualRegister


@contextmanager
def nesting() -> Iterator[None]:
    """Inside a dynamic loop."""
    properties = active("a dynamic loop").properties
    require(not properties.get("no_reorder"), "Dynamic control-flow cannot be nested with a no_reorder block")
    loops = properties.setdefault("dynamic_loops", [])
    loops.append(object())
    try:
        yield
    finally:
        loops.pop()


def note_idle(runs: bool) -> None:
    """Keep the place of a loop that runs no iteration: it may be why an output is not written."""
    if not runs:
        active().properties.setdefault("idle_loops", []).append(user_location())


def check_bound(what: str, bound: object) -> None:
    require(isinstance(bound, VirtualRegister) or isinstance(bound, int), f"{what} is an int or a register")


def counted(lower: object, upper: VirtualRegister, step: int, state: Callable[[], dict[str, object]]
            ) -> Iterator[VirtualRegister]:
    """The counter, once for each time the body's Python runs, which leaves ``state`` as it is where it is captured."""
    builder: Any = active("a dynamic loop")
    check_bound("the lower bound", lower)
    check_bound("the upper bound", upper)
    require(isinstance(step, int) and not isinstance(step, bool) and step > 0,
            f"step must be a positive int, got {step!r}")
    counter = register_alloc(lower)
    counter.frozen = True
    with nesting():
        if not builder.symbolic:
            limit = upper.value if isinstance(upper, VirtualRegister) else upper
            begin = counter.value
            assert begin is not None and limit is not None          # registers have numbers in a simulation
            note_idle(begin < limit)
            for count, value in enumerate(range(begin, limit, step)):
                put(counter.state, value, "a loop variable")
                with not_carried(state if count == 0 else dict):
                    yield counter
            return
        held = upper.state if isinstance(upper, VirtualRegister) else upper
        runs = isinstance(lower, int) and isinstance(upper, int) and lower < upper
        with builder.open_while(counter.state, "slt", held, may_skip=not runs):
            with not_carried(state):
                try:
                    yield counter
                except GeneratorExit:       # nothing can be raised here
                    builder.violation = NkiValidationError("break and return are not allowed within dynamic loop"
                                                           ).here()
                    raise
            ops.binary("add", counter.state, step, destination=counter.state)


@reported
def dynamic_range(start: Any, stop: Any, step: int) -> Iterator[VirtualRegister]:
    """A loop whose bounds may be registers. Deprecated: ``fori_loop``."""
    older("nl.dynamic_range is deprecated, use nl.fori_loop")
    lower, upper = (0, start) if stop is None else (start, stop)
    active("nl.dynamic_range")
    names = for_statement()
    return counted(lower, upper, step, lambda: variables(names))


@reported
def fori_loop(lower: object, upper: Any, body_fun: Any, step: Any) -> None:
    """``body_fun(i)`` for i = lower, lower + step, ... below upper, which may be registers."""
    for i in counted(lower, upper, step, closure_of(body_fun)):
        require(body_fun(i) is None, "the body of fori_loop returns nothing; keep state in tensors")


@reported
def while_loop(init: object, body_fun: Callable[[VirtualRegister], object]) -> None:
    """``r = init; while r != 0: r = body_fun(r)`` with registers."""
    require(isinstance(init, VirtualRegister), f"while_loop init: expecting 'register', got '{type(init).__name__}'")
    builder: Any = active("nl.while_loop")
    condition = register_alloc(init)

    def body() -> None:
        result = body_fun(condition)
        require(isinstance(result, VirtualRegister), "the body of while_loop returns the next condition, a register")
        if result is not condition:
            register_move(condition, result)
    with nesting():
        if not builder.symbolic:
            note_idle(bool(condition.value))
            carried = closure_of(body_fun)
            while condition.value:
                with not_carried(carried):
                    body()
                carried = dict
            return
        with builder.open_while(condition.state, "ne", 0), not_carried(closure_of(body_fun)):
            body()


def while_register(register: VirtualRegister) -> bool | None:
    """What a ``while`` statement sees of its register: the body is captured once. None where no such statement asks."""
    builder: Any = active("while register")

    def opened(loop: ExitStack) -> VirtualRegister:
        older("while on a register is deprecated, use nl.while_loop")
        condition = register_alloc(register)
        loop.enter_context(nesting())
        loop.enter_context(builder.open_while(condition.state, "ne", 0))
        return condition
    return holds(register, builder.properties.setdefault("register_loops", []), opened,
                 lambda condition: register_move(condition, register))


def truth(register: VirtualRegister) -> bool:
    """What Python sees of a register that is a condition: only of a ``while``."""
    value = register.value
    going = while_register(register) if value is None else (value != 0 if asked_by_while() else None)
    if going is None:
        raise NkiTypeError("a register has no value while the kernel is captured; use nl.while_loop, nl.fori_loop, "
                           "or a register alone as the condition of while").here()
    return going


VirtualRegister.__bool__ = truth


@reported
@contextmanager
def no_reorder() -> Iterator[None]:
    """Instructions inside start in the order they are written in. Dynamic loops are not allowed inside."""
    properties = active("nl.no_reorder").properties
    properties["no_reorder"] = properties.get("no_reorder", 0) + 1
    try:
        yield
    finally:
        properties["no_reorder"] -= 1
