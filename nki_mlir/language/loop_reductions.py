# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions over the iterations of loops: ``nl.loop_reduce``.

    best[...] = nl.loop_reduce(tile, op=np.max, loop_indices=[i])       # reduces into a tensor of the kernel
    best = nl.loop_reduce(tile, op=np.max, loop_indices=[i])            # into a tile that it allocates
    best[k] = nl.loop_reduce(tile, op=np.max, loop_indices=[i])         # the same, for an element of a list or dict

A reduction assigns the first value to a tensor that nothing has written; all others are combined with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from nki_mlir.capture.builder import active
from nki_mlir.capture.index import Index, Mask
from nki_mlir.capture.iterations import EnclosingIteration, enclosing_iterations
from nki_mlir.capture.locations import user_frame
from nki_mlir.capture.tensor import View
from nki_mlir.capture.tracing import Unassigned
from nki_mlir.diagnostics import KernelError
from nki_mlir.language import assignment, creation
from nki_mlir.language import operations as ops
from nki_mlir.language.tensor_object import BINARY, UNARY
from nki_mlir.scalar.tokens import alu_token


class ReductionOperand(KernelError, TypeError):
    """``nl.loop_reduce(...)`` is used in an expression."""

    code = "NKI-LOOP-REDUCE"
    message = "the result of nl.loop_reduce is not a tile until it is assigned: it is complete after the loops"
    fix = "assign it, best[...] = nl.loop_reduce(...), and use best after the loops"


@dataclass
class LoopReduction(Unassigned):
    """The result of ``loop_reduce``: it becomes operations when it is assigned."""

    value: View
    op: str
    first: object                  # whether this is the first iteration: True, False or a Mask on loop variables
    mask: object
    at: object                     # the key of the call (``call_of_kernel``)
    outside: EnclosingIteration | None           # the iteration around the reduced loops
    numbers: tuple[int, ...]       # of the variables of loops that the builder does not run

    pass_instead: ClassVar = ReductionOperand.fix

    def write(self, target: View) -> None:
        """Emit target = op(target, value), or target = value in the first iteration if nothing wrote to target before
        the loop."""
        filled = active().properties.setdefault("filled before a reduction", {})
        key = target.buffer, self.at
        is_filled = filled.setdefault(key, target.buffer.is_written)
        is_first = not is_filled and self.begins_again(target) and self.first
        with active().touches.combining(), assignment.accumulating():
            decide(is_first, lambda: assignment.assign(target, self.value, self.mask),
                   lambda: ops.binary(self.op, target, self.value, mask=self.mask, destination=target))

    def assigned_to(self, name: str) -> View:
        """Reduce into a tile of SBUF that the variable ``name`` gets: the first value allocates it."""
        builder: Any = active()
        tiles = builder.properties.setdefault("tiles of reductions", {})
        begins = self.begins_again(None) and self.first is not False and not getattr(builder, "replaying", False)
        if begins or self.at not in tiles:
            buffer = builder.allocate_state(tuple(self.value.shape), self.value.dtype, builder.new_name(name))
            buffer.iteration = self.outside
            builder.properties.setdefault("filled before a reduction", {})[buffer, self.at] = False
            tiles[self.at] = creation.tensor_of(buffer)
        tile: View = tiles[self.at]
        self.write(tile)
        return tile

    def refused(self, *operands: object) -> NoReturn:
        """Raise the error for an operator, a subscript or an attribute of the result."""
        raise ReductionOperand().here()

    __getitem__ = refused

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):           # Python or NumPy looks for it
            raise AttributeError(name)
        self.refused()

    def begins_again(self, target: View | None) -> bool:
        """Return whether this call begins a reduction into the target. With loops that the builder does not run it does
        if the numbers of their variables are the first for this target, or repeat earlier ones."""
        if not self.numbers:
            return True
        elements = None if target is None else (target.buffer, target.partition, target.free, target.dims)
        earlier = active().properties.setdefault("numbers of reductions", {}).setdefault((self.at, elements), set())
        begins = not earlier or self.numbers in earlier
        if begins:
            earlier.clear()
        earlier.add(self.numbers)
        return begins


for _method in (*BINARY, *(f"r{name}" for name in BINARY), *UNARY):
    setattr(LoopReduction, f"__{_method}__", LoopReduction.refused)


def loop_reduce(x: Any, op: object, loop_indices: object, *, dtype: object = None, mask: object = None
                ) -> LoopReduction:
    """Reduce x by ``op`` over the iterations of the loops whose variables are ``loop_indices``."""
    at = call_of_kernel()
    variables = loop_indices if isinstance(loop_indices, (list, tuple)) else [loop_indices]
    is_first: Any = True
    iterations: list[EnclosingIteration] = []
    numbers: list[int] = []             # variables of loops that the builder does not run
    for position, variable in enumerate(variables):
        index = Index.of(variable)
        iteration = iteration_of((at, position), index)
        if iteration is not None:
            iterations.append(iteration)
        elif not index.symbols:
            numbers.append(index.const)
            continue
        low = index.interval()[0] if index.symbols else iteration.loop.start if iteration is not None else None
        condition = (index == low) if index.symbols else index.const == low
        is_first = condition if is_first is True else is_first & condition if condition is not False else False
    value = x if dtype is None else ops.copy(x, dtype=dtype)
    outside = [iteration.outside for iteration in enclosing_iterations(active().touches.iteration)
               if iteration in iterations][-1:]
    return LoopReduction(value, alu_token(op).name, is_first, mask, at, outside[0] if outside else None,
                         tuple(numbers))


def call_of_kernel() -> object:
    """Return a key of the instruction in the kernel's bytecode that calls the language."""
    frame = user_frame()
    return frame and (frame.f_code, frame.f_lasti)


def iteration_of(key: object, variable: Index) -> EnclosingIteration | None:
    """Return the current iteration of the loop that has this variable; None if the builder does not run it.

    ``key`` identifies the variable in the kernel's code. A number may be the current one of several loops: the calls
    with one key together show which of them has the variable.
    """
    sites = active().properties.setdefault("loops of reductions", {})
    iterations = [iteration for iteration in enclosing_iterations(active().touches.iteration) if (
        iteration.loop.symbol in variable.symbols if variable.symbols else iteration.number == variable.const)]
    iterations = [iteration for iteration in iterations if iteration.loop.site in sites.get(key, ())] or iterations
    sites[key] = {iteration.loop.site for iteration in iterations}
    return iterations[0] if iterations else None


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
