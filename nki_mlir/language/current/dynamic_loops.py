# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops with trip counts that are known at run time only.

The loop's counter or condition is a register. Simulation runs the body once per iteration; capture runs it once, inside
an ``scf.while`` that reads the register.

Since a captured body stands for all iterations, Python state that one iteration changes for the next would be wrong;
such state is an error. The module does not rewrite kernels: it finds the syntax tree of a Python ``for`` or ``while``
statement by the source position of the running frame.
"""

import ast
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import signature
from itertools import count
from math import prod
from types import FrameType
from typing import Any, NamedTuple

from nki_mlir.capture.builder import active
from nki_mlir.capture.errors import CarriedState
from nki_mlir.capture.iterations import LoopRun
from nki_mlir.capture.locations import user_frame, user_location, variables
from nki_mlir.capture.loop_state import is_bound
from nki_mlir.capture.mutable_state import holds_state, is_users_class
from nki_mlir.capture.source_text import definition
from nki_mlir.capture.tracing import note_idle
from nki_mlir.capture.wrapping import can_exit, exposed_reads, name_of, stored, underlying
from nki_mlir.diagnostics import KernelError
from nki_mlir.language import operations as ops
from nki_mlir.language.current.calls import reported, shown
from nki_mlir.language.current.errors import NkiTypeError, NkiValidationError, of_core, older, require, warn
from nki_mlir.language.current.instruction import InstructionNumbers, instruction_numbers
from nki_mlir.language.current.isa_movement import put, register_alloc, register_move
from nki_mlir.language.current.memory import VirtualRegister, check_register
from nki_mlir.language.current.older_methods import OlderMethods

PLAIN = (type(None), bool, int, float, complex, str, bytes)
DEPTH = 10          # of nested objects that a snapshot descends into


def _statement(kind: type[ast.For | ast.While], part: str) -> Any:
    """Return the user's ``for`` or ``while`` whose iterable or condition is being evaluated, or None without source."""
    frame = user_frame()
    if frame is None:
        return None
    source, at = definition(frame.f_code, frame.f_globals), user_location()
    if source is None:
        warn(f"{frame.f_code.co_name} has no source that can be read: whether a loop of the device is left by break or "
             "return, or leaves Python state changed for its next iteration, is not checked")
        return None
    for node in ast.walk(source.function):
        if isinstance(node, kind) and (at.line, at.column) in (
                (n.lineno, n.col_offset) for n in (node, getattr(node, part))):
            return node
    return None


def check_jumps(node: ast.For | ast.While) -> None:
    require(not can_exit(node.body, exits=(ast.Return, ast.Break)),
            "break and return are not allowed within dynamic loop",
            fix="keep the condition in a register, and use nl.while_loop")


# -- state that is carried ---------------------------------------------------------------------------------------------
def _snapshot(value: object, depth: int = 0) -> tuple[object, object]:
    """Return a value with a snapshot of its contents: of lists, dictionaries, and attributes of the user's objects and
    classes."""
    if depth == DEPTH:
        return value, None
    match value:
        case list():
            return value, [_snapshot(v, depth + 1) for v in value]
        case dict():
            return value, {k: _snapshot(v, depth + 1) for k, v in value.items()}
    kind: object = type(value)
    if is_users_class(value) if isinstance(value, type) else holds_state(kind) and hasattr(value, "__dict__"):
        return value, _snapshot(_attributes(value), depth + 1)[1]
    return value, None


def _attributes(value: Any) -> dict[str, object]:
    """Return the attributes of a class, or of an object with the numbers and texts that its classes assign."""
    if isinstance(value, type):
        return {**vars(value)}
    members = [(name, member) for base in reversed(type(value).__mro__) if is_users_class(base)
               for name, member in vars(base).items() if isinstance(member, PLAIN) and not name.startswith("__")]
    return {**dict(members), **vars(value)}


def _is_unchanged(before: tuple[object, Any], current: object) -> bool:
    """Return whether a value equals its snapshot ``before``. Entries added to a list or dictionary do not count."""
    value, inside = before
    if isinstance(current, PLAIN):
        return type(current) is type(value) and repr(current) == repr(value)
    if current is not value or inside is None:
        return current is value
    if isinstance(current, list):
        return len(current) >= len(inside) and all(map(_is_unchanged, inside, current))
    parts = current if isinstance(current, dict) else _attributes(current)
    return all(k in parts and _is_unchanged(part, parts[k]) for k, part in inside.items())


@contextmanager
def not_carried(values: Callable[[], dict[str, object]]) -> Iterator[None]:
    """Raise an error at the end of the block if it has changed a variable that ``values`` returns."""
    before = {name: _snapshot(value) for name, value in values().items()}
    yield
    after = values()
    changed = sorted(n for n, before_value in before.items()
                     if n not in after or not _is_unchanged(before_value, after[n]))
    if changed:
        raise of_core(CarriedState(names=", ".join(changed)))


def for_statement() -> tuple[str, ...]:
    """Return the names that are live at the head of the body of the ``for`` whose iterable is being evaluated."""
    node = _statement(ast.For, "iter")
    if node is None:
        return ()
    check_jumps(node)
    return tuple(exposed_reads(node.body) - stored([node.target]))


def closure_of(function: Callable[..., object]) -> Callable[[], dict[str, object]]:
    """Return a function that returns the current values of the variables of other scopes that a loop's body reads
    first."""
    inner = underlying(function)
    if inner is None:
        return dict
    cells, scope = dict(zip(inner.__code__.co_freevars, inner.__closure__ or ())), inner.__globals__
    source = definition(inner.__code__, scope)
    names = set(cells) if source is None else exposed_reads(source.function.body)
    return lambda: {n: cells[n].cell_contents for n in names & cells.keys() if is_bound(cells[n])} | {
        n: scope[n] for n in names - cells.keys() if n in scope}


# -- loops -------------------------------------------------------------------------------------------------------------
@contextmanager
def nesting() -> Iterator[None]:
    """Mark the block as the body of a dynamic loop, which is not allowed inside of ``no_reorder``."""
    builder = active("a dynamic loop")
    properties = builder.properties
    require(not properties.get("no_reorder"), "Dynamic control-flow cannot be nested with a no_reorder block",
            fix="open the block inside of the loop's body")
    loops = properties.setdefault("dynamic_loops", [])
    loops.append(InstructionNumbers(instruction_numbers(builder).next() + "."))
    try:
        yield
    finally:
        loops.pop()


@contextmanager
def iteration(builder: Any, loop: LoopRun, number: int) -> Iterator[None]:
    """Mark the block as an iteration of a loop in simulation: like capture, the simulator then refuses tensors that the
    iteration creates and the kernel uses after it."""
    outside = builder.touches.iteration
    builder.touches.enter(loop, number)
    try:
        yield
    finally:
        builder.touches.end(outside)


@contextmanager
def unwritten(bound: object) -> Iterator[None]:
    """Refuse writes of a register in the block: the device compares the counter with it before each iteration."""
    if not isinstance(bound, VirtualRegister):
        yield
        return
    before, bound.frozen = bound.frozen, True
    try:
        yield
    finally:
        bound.frozen = before


def counted(lower: object, upper: VirtualRegister, step: int, state: Callable[[], dict[str, object]]
            ) -> Iterator[VirtualRegister]:
    """Yield the counter once for each time the body's Python runs: per iteration in simulation, once in capture. The
    body must not change ``state``, nor the registers that count and bound the loop."""
    builder: Any = active("a dynamic loop")
    for label, value in (("lower", lower), ("upper", upper)):
        require(isinstance(value, (VirtualRegister, int)), f"the {label} bound must be an int or a register",
                fix="give a Python integer, or nisa.register_alloc")
        require(not isinstance(value, int) or -1 << 31 <= value < 1 << 31,
                f"the {label} bound is {shown(value)}, which a register of 32 bits cannot hold",
                fix="nest two loops, or let one iteration do the work of several")
    require(isinstance(step, int) and not isinstance(step, bool) and step > 0,
            f"step must be a positive int, got {shown(step)}", fix="give a positive Python integer")
    counter = register_alloc(lower)
    counter.frozen = True
    with nesting(), unwritten(upper):
        if not builder.symbolic:
            limit = upper.value if isinstance(upper, VirtualRegister) else upper
            begin = counter.value
            assert begin is not None and limit is not None          # registers have numbers in a simulation
            if begin >= limit:
                note_idle()
            loop = LoopRun(False, "")
            for number, value in enumerate(range(begin, limit, step)):
                put(counter.state, value, "a loop variable")
                with iteration(builder, loop, number), not_carried(state if number == 0 else dict):
                    yield counter
            return
        bound = upper.state if isinstance(upper, VirtualRegister) else upper
        runs = isinstance(lower, int) and isinstance(upper, int) and lower < upper
        with builder.open_while(counter.state, "slt", bound, may_skip=not runs):
            with not_carried(state):
                try:
                    yield counter
                except GeneratorExit:       # an exception raised here would be lost
                    builder.violation = NkiValidationError(
                        "break and return are not allowed within dynamic loop",
                        fix="keep the condition in a register, and use nl.while_loop").here()
                    raise
            ops.binary("add", counter.state, step, destination=counter.state)


@reported
def dynamic_range(start: Any, stop: Any, step: int) -> Iterator[VirtualRegister]:
    """Loop over a range whose bounds may be registers. Deprecated: use ``fori_loop``."""
    older("nl.dynamic_range is deprecated, use nl.fori_loop")
    lower, upper = (0, start) if stop is None else (start, stop)
    active("nl.dynamic_range")
    names = for_statement()
    return counted(lower, upper, step, lambda: variables(names))


def check_body(body: Callable[..., object], loop: str, argument: str, name: str) -> None:
    """Check that a loop can call its body with one argument. ``name`` is that of the parameter in the fix."""
    try:
        parameters = signature(body, follow_wrapped=False)
    except ValueError:                      # a built-in function does not have them
        return
    try:
        parameters.bind(None)
    except TypeError:
        raise NkiTypeError(f"{loop} calls its body with one argument, {argument}, which {name_of(body)}{parameters} "
                           "does not take", code="NKI-PARAMETER",
                           fix=f"give it one parameter, def body({name}), and keep state in tensors").here() from None


@reported
def fori_loop(lower: object, upper: Any, body_fun: Any, step: Any) -> None:
    """Run ``body_fun(i)`` for i = lower, lower + step, ... below upper. The bounds may be registers."""
    check_body(body_fun, "fori_loop", "the counter", "i")
    for i in counted(lower, upper, step, closure_of(body_fun)):
        require(body_fun(i) is None, "the body of fori_loop must return None; keep state in tensors",
                fix="write results to tensors that are created before the loop")


@reported
def while_loop(init: object, body_fun: Callable[[VirtualRegister], object]) -> None:
    """Run ``r = init; while r != 0: r = body_fun(r)``, where ``r`` is a new register: ``init`` is not changed."""
    check_register(init, "while_loop init")
    check_body(body_fun, "while_loop", "the condition", "condition")
    builder: Any = active("nl.while_loop")
    condition = register_alloc(init)

    def body() -> None:
        result = body_fun(condition)
        require(isinstance(result, VirtualRegister),
                "the body of while_loop must return the next condition, a register",
                fix="return the register that says whether the loop goes on")
        if result is not condition:
            register_move(condition, result)
    with nesting():
        if not builder.symbolic:
            if not condition.value:
                note_idle()
            carried, loop, numbers = closure_of(body_fun), LoopRun(False, ""), count()
            while condition.value:
                with iteration(builder, loop, next(numbers)), not_carried(carried):
                    body()
                carried = dict
            return
        with builder.open_while(condition.state, "ne", 0), not_carried(closure_of(body_fun)):
            body()


@reported
@contextmanager
def no_reorder() -> Iterator[None]:
    """Start the instructions of the block in program order. Dynamic loops are not allowed in the block."""
    properties = active("nl.no_reorder").properties
    properties["no_reorder"] = properties.get("no_reorder", 0) + 1
    try:
        yield
    finally:
        properties["no_reorder"] -= 1


# -- while register ----------------------------------------------------------------------------------------------------
class OpenLoop(NamedTuple):
    """A ``while`` on a register whose body is being captured: capture reads its condition before and after the body."""

    frame: FrameType
    position: tuple[int, int]
    loop: ExitStack
    condition: VirtualRegister


def while_statement() -> ast.While | None:
    """Return the ``while`` whose condition is being evaluated and is a name or attribute, else None."""
    node = _statement(ast.While, "test")
    return node if node is not None and isinstance(node.test, (ast.Name, ast.Attribute)) else None


def is_while_condition() -> bool:
    """Return whether a ``while`` evaluates the truth of a register, so that its loop may run on the device."""
    frame = user_frame()
    by_instruction: dict[object, bool] = active("a register").properties.setdefault("while_conditions", {})
    key = None if frame is None else (frame.f_code, frame.f_lasti)
    if key not in by_instruction:
        node = while_statement()
        if node is not None:
            check_jumps(node)
        by_instruction[key] = node is not None
    return by_instruction[key]


def while_register(register: VirtualRegister) -> bool | None:
    """Return the truth of the condition in ``while register`` during capture: True before the body is captured and
    False after. Return None if no ``while`` evaluates it."""
    builder: Any = active("while register")
    frame, node = user_frame(), while_statement()
    if frame is None or node is None:
        return None
    loops: list[OpenLoop] = builder.properties.setdefault("register_loops", [])
    position = node.lineno, node.col_offset
    if loops and loops[-1].frame is frame and loops[-1].position == position:
        innermost = loops.pop()
        register_move(innermost.condition, register)
        innermost.loop.close()
        return False
    check_jumps(node)
    older("while on a register is deprecated, use nl.while_loop")
    condition, loop, names = register_alloc(register), ExitStack(), tuple(exposed_reads(node.body))
    loop.enter_context(nesting())
    loop.enter_context(builder.open_while(condition.state, "ne", 0))
    loop.enter_context(not_carried(lambda: variables(names)))
    loops.append(OpenLoop(frame, position, loop, condition))
    return True


def truth(register: VirtualRegister) -> bool:
    """Return the truth of a register, which only the condition of a ``while`` may use."""
    value = register.value
    is_true = while_register(register) if value is None else (value != 0 if is_while_condition() else None)
    if is_true is None:
        raise NkiTypeError("a register has no value while the kernel is captured; use nl.while_loop, nl.fori_loop, "
                           "or a register alone as the condition of while",
                           fix="use nl.while_loop or nl.fori_loop, or compute in SBUF").here()
    return is_true


VirtualRegister.__bool__ = truth


class WhileOnTensor(KernelError):
    code = "NKI-ENDLESS-LOOP"
    message = "while has a tensor for its condition, which is always true: the loop would not end"
    why = "a tensor has no value while Python runs; only the device knows its elements"
    fix = "load the condition into a register with nisa.register_load, and use nl.while_loop"


def tensor_truth(tensor: OlderMethods) -> bool:
    """Return whether all elements of a comparison's result are true, in simulation: for ``assert nl.equal(a, b)``.
    Any other tensor is true; ``while tensor`` is an error, and an element as a condition a warning."""
    if tensor.storage.verdict:
        values = tensor._values()
        return values is None or bool(values.all())
    if _has_source() and while_statement() is not None:
        raise WhileOnTensor().here()
    if prod(tensor.shape) == 1 and prod(tensor.storage.buffer.shape) > 1:      # an optional tensor is a complete one
        warn(f"an element of {tensor.name} is always true as a condition of Python, since only the device knows its "
             "value; compare with nl.greater or its like, and select with nl.where")
    return True


def _has_source() -> bool:
    frame = user_frame()
    return frame is not None and definition(frame.f_code, frame.f_globals) is not None


def loop_instead(_: OlderMethods) -> str:
    """Return the fix of a comparison that is the condition of a ``while``, or "" for another comparison."""
    return WhileOnTensor.fix if _has_source() and _statement(ast.While, "test") is not None else ""


OlderMethods.__bool__ = tensor_truth
OlderMethods._loop_instead = loop_instead
