# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions that wrapped code calls: loops that roll or unroll, symbolic branches, annotations, callees.

A rolled loop runs its body once with a symbol. Snapshots of the names live at its head and a replay of the body guard
against Python state that the single run would get wrong; a difference is recorded as a request for numbers.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, GeneratorType, MethodType
from typing import Any, SupportsInt, cast

import numpy as np

from nki_mlir.capture.builder import Site, current
from nki_mlir.capture.errors import AnnotationMismatch, LoopBound, WhileEntry
from nki_mlir.capture.index import Index, Mask
from nki_mlir.capture.locations import is_users, user_location, variables
from nki_mlir.capture.loop_state import changes, live_state
from nki_mlir.capture.tensor import View
from nki_mlir.capture.wrapping import underlying, wrap
from nki_mlir.input_limits import check_iterations


class NkiRange:
    """The iterable ``affine_range`` or ``sequential_range``. Iterated by anything but a wrapped ``for``, it yields
    plain numbers."""

    def __init__(self, *bounds: SupportsInt, parallel: bool) -> None:
        self.span = range(*(int(b) for b in bounds))
        self.parallel = parallel

    def __bool__(self) -> bool:
        return bool(self.span)

    def __len__(self) -> int:
        return len(self.span)

    def __iter__(self) -> Iterator[int]:
        site = user_location()[:3]
        builder = current.get()
        for i in self.span:
            if builder is not None:
                builder.iteration(site)
            yield i


def iterate(iterable: object, names: tuple[str, ...], rolls_range: bool, line_and_column: tuple[int, int], target: str
            ) -> object:
    """Return the iterator of a wrapped ``for``: a loop that may roll for a range, else the iterable itself."""
    if isinstance(iterable, (NkiRange, range, list)) and not iterable:
        note_idle()
    if isinstance(iterable, NkiRange):
        return _loop(iterable.span, names, line_and_column, iterable.parallel, target)
    if type(iterable) is range:
        if rolls_range:
            return _loop(iterable, names, line_and_column, False, target)
        check_iterations(iterable, "Python", user_location)
    return iterable


def note_idle() -> None:
    """Record the source location of a loop that runs no iteration, since that may explain an unwritten output."""
    if (builder := current.get()) is not None:
        builder.properties.setdefault("idle_loops", []).append(user_location())


def repeat(condition: Callable[[], object], names: tuple[object, ...]) -> Iterator[None]:
    """Yield for each iteration of a wrapped ``while``: a loop of the device if its first condition is ``scalar(True)``,
    else a loop of Python."""
    value = condition()
    if hasattr(value, "iterations"):
        yield from value.iterations(condition, names)
        return
    while not _is_scalar(value) and value:
        yield
        value = condition()
    if _is_scalar(value):
        raise WhileEntry().here()


def branch(condition: object, names: tuple[str, ...], jumps: bool) -> "PlainBranch":
    """Return the branch of a wrapped ``if``: symbolic if capture does not know the condition. An ``if`` with ``jumps``
    is never symbolic."""
    if isinstance(condition, Mask) and not jumps and not any(e.shape for e, _ in condition.terms):
        builder = current.get()
        if condition.truth() is None and builder is not None and builder.symbolic:
            return SymbolicBranch(builder, condition, names)
    return PlainBranch(bool(condition), current.get())  # bool() requests numbers for a symbolic condition


def annotated(value: object, annotation: Callable[[], object]) -> object:
    """Return the value of an annotated assignment; raise ``AnnotationMismatch`` if the annotation has another shape."""
    try:
        shape = getattr(annotation(), "annotated_shape", None)
    except Exception:                       # Python does not evaluate annotations of local variables
        return value
    if shape is not None and isinstance(value, View) and tuple(value.shape) != tuple(map(int, shape)):
        raise AnnotationMismatch(annotated=tuple(map(int, shape)), shape=value.shape).here()
    return value


class Unassigned(ABC):
    """The result of a call that becomes a tensor when a variable gets it."""

    @abstractmethod
    def assigned_to(self, name: str) -> View:
        """Return the tensor of the variable ``name``."""


def named(value: object, name: str) -> object:
    """Name a tensor without a name after the variable that it is assigned to."""
    if isinstance(value, Unassigned):
        return value.assigned_to(name)
    _name_tensor(value, name)
    return value


def named_elements(values: object, name: str) -> object:
    """Name the tensors of a list or tuple after the variable that it is assigned to, with their indices: ``parts_0``.
    """
    if type(values) in SEQUENCES:
        for number, value in enumerate(cast("Sequence[object]", values)):
            _name_tensor(value, f"{name}_{number}")
    return values


def unpacked(values: object, names: tuple[str, ...]) -> object:
    """Name the tensors of a list, tuple or generator after the variables that they are assigned to."""
    if isinstance(values, GeneratorType):
        return _named_each(values, names)
    if type(values) in SEQUENCES:
        for value, name in zip(cast("Sequence[object]", values), names):
            _name_tensor(value, name)
    return values


def _named_each(values: Iterable[object], names: tuple[str, ...]) -> Iterator[object]:
    following = iter(names)
    for value in values:
        _name_tensor(value, next(following, ""))
        yield value


def _name_tensor(value: object, name: str) -> None:
    """Give a tensor without a name this one."""
    if name and isinstance(value, View) and (automatic := value.buffer.name)[:1] == "t" and automatic[1:].isdigit():
        builder = current.get()
        if builder is not None:
            builder.rename(value.buffer, name)


def assigned(value: object, name: str) -> object:
    """Return what ``object.name = value`` stores: a call's result becomes the tensor that a variable would get."""
    return value.assigned_to(name) if isinstance(value, Unassigned) else value


def element(value: object, container: Any, keys: tuple[object, ...], name: str) -> object:
    """Return what ``container[key][...] = value`` stores, with the keys of containers in containers. In a list or dict
    a call's result becomes the tensor that a variable would get; other classes get the result, and run no code here."""
    if not isinstance(value, Unassigned):
        return value
    for key in keys:
        if type(container) not in CONTAINERS:
            return value
        container = container[key]
    return value.assigned_to(name) if type(container) in CONTAINERS else value


CONTAINERS = (list, dict)
SEQUENCES = (list, tuple)


def buffer_of(value: Any) -> object:
    """Return ``value.buffer`` as kernels see it: for a tensor, its memory."""
    return getattr(value, "region", None) or value.buffer if isinstance(value, View) else value.buffer


def callee(function: Any) -> object:
    """Return the function to call in place of one that the kernel calls: user code is wrapped as the kernel is."""
    if type(function) is FunctionType and id(function.__code__) in _unwrapped:
        return function
    if function is isinstance:
        return _isinstance
    if function is type:
        return _type
    if type(function) in _WRAPPED and (inner := underlying(function)) is not None and is_users(
            inner.__code__.co_filename, inner.__globals__):
        return wrap(function, False, sys.modules[__name__])
    if type(function) is FunctionType:
        _unwrapped[id(function.__code__)] = function.__code__
    return function


def _is_scalar(value: object) -> bool:
    """Return whether a value is a tile of one element: the condition of a device loop."""
    return isinstance(value, View) and all(n == 1 for n in value.shape)


_WRAPPED = (FunctionType, MethodType, partial)
_unwrapped: dict[int, CodeType] = {}            # code that is not a user's, by ``id``: the entry keeps the code alive


def _isinstance(value: object, kinds: Any) -> bool:
    """Replace ``isinstance``: a loop variable is an int to the kernel, whether it is a number or a symbol."""
    if isinstance(value, Index) and not value.shape:
        return isinstance(0, kinds)
    return isinstance(value, kinds)


def _type(value: object, *class_arguments: object) -> type:
    return int if not class_arguments and isinstance(value, Index) and not value.shape else type(value,
                                                                                                 *class_arguments)


def _loop(span: range, names: tuple[str, ...], line_and_column: tuple[int, int], parallel: bool, target: str
          ) -> Iterator[object]:
    """Iterate one wrapped ``for``: yield a symbol if the body can stand for all iterations, else numbers."""
    builder: Any = current.get()
    site: Site = (user_location().file, *line_and_column)
    if builder is None:
        yield from span
        return
    if not builder.symbolic or site in builder.plan.reasons or span.step < 0 or not span[1:]:
        check_iterations(span, "Python", user_location)
        yield from builder.iterations(span, site, parallel, target)
        return
    if (bits := max(span.start.bit_length(), span.stop.bit_length())) > 62:
        raise LoopBound(bits=bits).here()
    index = builder.open_loop(span, site, parallel, target)
    depth = len(builder.scopes)
    (symbol,) = index.symbols
    before = live_state(names)
    marks = [builder.mark()]
    try:
        yield index
        if len(builder.scopes) != depth:
            symbol.request_number("an exception left an if statement half way")
        changed = sorted(changes(before, live_state(names)))
        if changed:
            symbol.request_number(f"Python state is carried from one iteration to the next: {', '.join(changed)}")
        marks.append(builder.mark())
        if builder.plan.replay and not builder.replaying:   # none inside a replay: depth runs, not 2 ** depth
            builder.replaying = True
            yield index
            builder.replaying = False
            marks.append(builder.mark())
    except GeneratorExit:               # the for statement was left half way
        builder.abandoned.setdefault(site, "its body is left by break or return, or by an exception")
        raise
    if len(marks) == 3:
        if builder.trace.segment(*marks[:2]) != builder.trace.segment(*marks[1:]):
            symbol.request_number("its body emits other operations when it runs again")
        builder.trace.erase_from(marks[1])
    builder.close_loop()


class PlainBranch:
    """A wrapped ``if`` whose condition is a plain truth value."""

    def __init__(self, truth: bool, builder: Any) -> None:
        self.truth, self.builder = truth, builder
        if builder is not None:
            builder.enter_branch()

    def then(self) -> bool:
        return self.truth

    def otherwise(self) -> bool:
        return not self.truth

    def end(self) -> None:
        if self.builder is not None:
            self.builder.leave_branch()


class SymbolicBranch(PlainBranch):
    """A wrapped ``if`` with a symbolic condition: both bodies are captured. It requests numbers if they change Python
    state, which would be left as the last body sets it."""

    def __init__(self, builder: object, condition: Mask, names: tuple[str, ...]) -> None:
        self.builder, self.condition, self.names = builder, condition, names
        self.before = live_state(names)

    def then(self) -> bool:
        self.builder.open_if(self.condition)
        return True

    def otherwise(self) -> bool:
        self._check()
        self.builder.open_else()
        return True

    def end(self) -> None:
        self._check()
        self.builder.close_if()

    def _check(self) -> None:
        values = variables(self.names)
        # A name may be bound to a tensor that the branch allocates: using it later raises the scope error.
        inner = {n for n, v in values.items() if isinstance(v, View) and v.buffer.scope is self.builder.scopes[-1]}
        changed = sorted(changes(self.before, live_state(self.names), new_counts=True) - inner)
        if changed:
            for expression, _ in self.condition.terms:
                expression.as_int(f"an if that depends on it changes Python state: {', '.join(changed)}")


# -- operators of conditions -------------------------------------------------------------------------------------------
@dataclass
class UndecidedOperand:
    """The left operand of ``and`` or ``or``, a condition that is not known to be true or false: the right one is
    evaluated, too."""

    condition: Mask
    goes_on: bool
    mark: object                   # ``position()`` before the right operand, whose operations would run in any case

    def __bool__(self) -> bool:
        return self.goes_on

    def joins(self, other: object) -> bool:
        """Return whether both operands form one condition; else Python takes the truth of the left one."""
        return isinstance(other, (Mask, bool, np.bool_)) and self.mark == position()


def position() -> object:
    builder: Any = current.get()
    return builder.performed() if builder is not None and builder.symbolic else None


def is_undecided(value: object) -> bool:
    return isinstance(value, Mask) and (math.prod(value.shape) != 1 or value.truth() is None)


def operand(value: Any, is_and: bool) -> object:
    return UndecidedOperand(value, is_and, position()) if is_undecided(value) else value


def both(first: object, second: object) -> object:
    """Return ``first and second``, where ``first`` alone does not determine the result."""
    if not isinstance(first, UndecidedOperand):
        return second
    return first.condition & second if first.joins(second) else first.condition and second


def either(first: object, second: object) -> object:
    """Return ``first or second``, where ``first`` alone does not determine the result."""
    if not isinstance(first, UndecidedOperand):
        return second
    return first.condition | second if first.joins(second) else first.condition or second


def negation(value: Any) -> object:
    return ~value if is_undecided(value) else not value


def invert(value: Any) -> object:
    """Return ``~`` of a comparison: its negation, whether its operands are symbols or numbers."""
    return not value if isinstance(value, bool) else ~value
