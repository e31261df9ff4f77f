# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The results of a kernel: returned tensors in the structure they were returned in, or the parameters it wrote.

The structure is text: ``one``, ``tuple``, or a Python literal whose integers number the results, for example ``[0, (1,
2)]``. ``'0:4x128'`` is result 0 in shape 4x128; None is an output that the caller does not take.
"""

import ast
import linecache
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from nki_mlir.capture.builder import Builder
from nki_mlir.capture.errors import ImmutableParameter, MutableNotReturned, OutOfScope
from nki_mlir.capture.index import Index
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import KernelError, Location, warn_once
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.nisa.require_written import OutputNotWritten, OutputRead, idle
from nki_mlir.dialects.nki.movement import StoreOp
from nki_mlir.language.creation import emit

if TYPE_CHECKING:
    import numpy as np

    from nki_mlir.capture.attempts import KernelOutput, Variant
    from nki_mlir.targets.interpreter.unwritten_hbm import Tracked


DETACHED = "baremetal", "benchmark"      # modes whose results share no memory with arguments, as on a device


class BadResult(KernelError, TypeError):
    code = "NKI-RESULT"
    message = "{what}"
    fix = "create outputs with nl.ndarray(..., buffer=nl.shared_hbm), nl.store to them, and return these tensors"


class DifferentResults(BadResult):
    message = "programs of the grid return different tensors: one returns {first}; another {other}"
    why = "programs share their tensors in HBM in the order of allocation"
    fix = "allocate and return the same tensors in the same order in all programs; let their subscripts differ"


class GeneratorKernel(BadResult):
    message = "the kernel has a `yield`, so that Python returns a generator and runs no statement of it"
    fix = "return the outputs, several as a tuple"


class CoroutineKernel(BadResult):
    message = "the kernel is an `async def`, so that Python returns a coroutine and runs no statement of it"
    fix = "define it with `def`, without `await`"


class ElementsLeftOut(UserWarning):
    """Warns that no program of the kernel writes some elements of an output."""


@dataclass
class Traced:
    """The results of one program of a grid. ``structure`` is None if it returned nothing."""

    buffers: list[Buffer]
    structure: str | None
    unwritten: set[int] = field(default_factory=set)                # indices of the buffers that it does not write
    idle_loops: Sequence[Location] = ()                             # loops without iterations, a possible reason
    updated: Sequence[Buffer] = ()                                  # the parameters that it writes
    unreturned: Sequence[str] = ()                                  # tensors in HBM that it writes and does not return

    @property
    def why_empty(self) -> str:
        """The reason why a kernel without results has none."""
        reason = "the kernel returns no tensor and writes none of its parameters"
        names = ", ".join(self.unreturned)
        return f"{reason}: it writes {names}, and ends without `return {names}`" if names else reason


def traced(builder: Builder, returned: object, parameters: Sequence[Buffer], mutable: Iterable[str], immutable: bool,
           at: Location) -> Traced:
    """Check the object that a kernel's Python returned. ``immutable`` inputs may be written only if they are
    ``mutable``."""
    written = [p for p in parameters if p in builder.first_writes]
    buffers: list[Buffer] = []
    structure = None if returned is None else _structure(builder, returned, buffers, at)
    unreturned = [b.name for b in builder.first_writes if b.space == HBM and b not in (*parameters, *buffers)]
    if returned is None:
        return Traced(written, None, updated=written, unreturned=unreturned)
    for parameter in written:
        if parameter.name in mutable and parameter not in buffers:
            raise MutableNotReturned(name=parameter.name).located(builder.first_writes[parameter])
        if parameter.name not in mutable and immutable:
            raise ImmutableParameter(name=parameter.name).located(builder.first_writes[parameter])
    unwritten = {k for k, b in enumerate(buffers) if b.role != "input" and b not in builder.first_writes
                 and 0 not in b.shape}
    return Traced(buffers, structure, unwritten, builder.properties.get("idle_loops", []), written, unreturned)


def _structure(builder: object, value: object, buffers: list[Buffer], at: Location) -> str:
    try:
        tree = _tree(builder, value, buffers, at)
    except RecursionError:
        raise BadResult(what="the kernel returns tuples, lists or dicts that contain themselves, or are nested too "
                             "deeply", fix="return the tensors in one tuple, list or dict"
                        ).located(return_of(at)) from None
    if tree == 0:
        return "one"
    return "tuple" if isinstance(value, (tuple, list)) and list(tree) == list(range(len(tree))) else repr(tree)


def _tree(builder: Any, value: object, buffers: list[Buffer], at: Location) -> Any:
    match value:
        case View():
            buffers.append(_output(builder, value, at))
            number = len(buffers) - 1
            shape = value.shape
            return number if shape == value.buffer.shape else f"{number}:{'x'.join(map(str, shape))}"
        case tuple() | list():
            parts = [_tree(builder, v, buffers, at) for v in value]
            return tuple(parts) if isinstance(value, tuple) else parts
        case dict():
            return {k: _tree(builder, v, buffers, at) for k, v in value.items()}
        case None:                              # in a tuple: an output that this call does not have
            return None
    if isinstance(value, GeneratorType):
        raise GeneratorKernel().located(at)
    if isinstance(value, CoroutineType):
        value.close()
        raise CoroutineKernel().located(at)
    raise BadResult(what=f"the kernel returns a value of type {type(value).__name__}; it must return "
                         "tensors").located(return_of(at))


def return_of(at: Location) -> Location:
    """Return the location of the only ``return`` that the function defined at a location can reach; the function's own
    location if there are several."""
    source = read_source(at.file)
    for function in ast.walk(source) if source is not None else ():
        if isinstance(function, ast.FunctionDef) and at.line in (
                function.lineno, *[decorator.lineno for decorator in function.decorator_list]):
            returns = returns_in(function.body)
            return at._replace(line=returns[0].lineno, column=returns[0].col_offset) if len(returns) == 1 else at
    return at


def returns_in(body: Sequence[ast.stmt]) -> list[ast.Return]:
    """Return the ``return`` statements that a block can reach, without those of functions inside of it."""
    returns: list[ast.Return] = []
    for statement in body:
        if isinstance(statement, ast.Return):
            return [*returns, statement]
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for _, inner in ast.iter_fields(statement):
                if isinstance(inner, list):
                    returns += returns_in([part for part in inner if isinstance(part, ast.stmt)])
                    returns += [nested_return for part in inner if isinstance(part, (ast.ExceptHandler, ast.match_case))
                                for nested_return in returns_in(part.body)]
    return returns


def read_source(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def _output(builder: Any, view: View, at: Location) -> Buffer:
    buffer = view.buffer
    if buffer.on_chip:
        return _copied_out(builder, view, at)
    if view.dtype is not buffer.dtype or not is_complete(view):
        raise BadResult(what=f"the kernel returns a part of {buffer.name}; an output is a complete tensor"
                        ).located(return_of(at))
    if buffer.role == "local":
        if builder.symbolic and buffer.scope is not builder.scopes[0]:
            raise OutOfScope(name=buffer.name).located(at)
        builder.promote(buffer)
    return buffer


def _copied_out(builder: Builder, tile: View, at: Location) -> Buffer:
    """Allocate an output, and store the tile to it when the kernel ends."""
    if math.prod(builder.grid) != 1:
        raise BadResult(what=f"the kernel returns {tile.buffer.name}, a tile in {tile.buffer.space}, and each "
                               "program of the grid has another one").located(return_of(at))
    output = builder.allocate(tuple(tile.shape), tile.dtype, HBM, shared=True)
    builder.rename(output, tile.buffer.name)
    output.created_at = at
    try:
        emit(StoreOp, {"dst": View.full(output), "src": tile})
    except KernelError as error:
        error.at = at
        raise
    return output


def is_complete(view: View) -> bool:
    """Return whether an HBM view has all elements of its buffer in their order."""
    steps = [d.free for d in view.dims if d.count != 1]
    inner = [math.prod(view.shape[k + 1:]) for k, d in enumerate(view.dims) if d.count != 1]
    return steps == inner and math.prod(view.shape) == math.prod(view.buffer.shape) and view.free.key == Index().key


def check_agreement(programs: Iterable[Sequence["Buffer | KernelOutput"]], at: Location) -> None:
    """Check that all programs of a grid that return tensors return the same ones. ``at`` is the kernel's location."""
    returned = {tuple([b.name if b.shared is None else b.shared for b in buffers]): buffers for buffers in programs}
    if len(returned) > 1:
        first, other, *_ = [", ".join(b.name if b.shared is None else f"{b.name}, its shared tensor {b.shared}"
                                      for b in buffers) for buffers in returned.values()]
        raise DifferentResults(first=first, other=other).located(return_of(at))


def results_of(variants: Sequence["Variant"], at: Location) -> tuple[list["KernelOutput"], str]:
    """Return the results of a kernel of which each program has one of the variants, and their structure. ``at`` is the
    kernel's location."""
    check_agreement((v.outputs for v in variants if v.structure is not None), at)
    outputs, structure = variants[0].outputs, variants[0].structure
    if structure is not None:
        return outputs, structure
    written = {o.argument: o for v in variants for o in v.outputs}          # the parameters that some program writes
    return [written[k] for k in sorted(written)], structure_of_updates(len(written))


def check_written(programs: Sequence[Traced], at: Location | None, must_write: bool = True) -> None:
    """Check that at least one program writes each output, and that there is an output if the kernel ``must_write``.

    ``at`` is the kernel's location.
    """
    if must_write and not any(p.buffers for p in programs):
        raise OutputNotWritten(what=programs[0].why_empty).located(at)
    never = sorted(set.intersection(*(p.unwritten for p in programs)))
    if never:
        output = programs[0].buffers[never[0]]
        reason = next((f": {idle(loop)}" for p in programs for loop in p.idle_loops), "")
        text = f"the output {output.name} is never written{reason}"
        if output.read_at:
            raise OutputRead(what=f"{text}; this statement reads it", output=output.name).located(output.read_at)
        raise OutputNotWritten(what=text).located(output.created_at or at)


def warn_left_out(name: str, size: int, count: int, index: Sequence[int], at: Location | None, value: float = 0.0
                  ) -> None:
    """Warn, once a kernel, of elements of an output that were not written; ``value`` is the value of the first."""
    value_text = f"{value:g} here" + ", 0 where the kernel is compiled" * (value != 0)
    text = (f"{count} of the {size} elements of the output {name} are never written, first element {list(index)}: "
            f"{value_text}")
    warn_once(text, ElementsLeftOut, at)


def report_missing(outputs: "Sequence[tuple[Tracked, str, Location]]") -> None:
    """Warn of elements that a run left out of its outputs, given as tracked memory, name and location."""
    for memory, name, at in outputs:
        if (missing := memory.first_unwritten()) is not None:
            count, index = missing
            warn_left_out(name, memory.size, count, index, at, float(memory[tuple(index)]))


def as_result(argument: "np.ndarray", mode: str) -> "np.ndarray":
    """Return a parameter that was written, as a result."""
    return argument.copy() if mode in DETACHED else argument


def structure_of_updates(count: int) -> str:
    """Return the structure of a kernel that returns nothing: its results are the parameters that it wrote."""
    return {0: "None", 1: "one"}.get(count, "tuple")


def assemble(structure: str | None, values: Sequence[object]) -> object:
    """Return the results in the structure in which the kernel returned them; if that is None, the parameters that it
    wrote."""
    if structure is None:
        structure = structure_of_updates(len(values))
    if structure == "one":
        return values[0]
    return tuple(values) if structure == "tuple" else _put(ast.literal_eval(structure), values)


def _put(tree: Any, values: Sequence[Any]) -> object:
    match tree:
        case int():
            return values[tree]
        case str():
            number, shape = tree.split(":")
            return values[int(number)].reshape(tuple(int(n) for n in shape.split("x")))
        case dict():
            return {k: _put(v, values) for k, v in tree.items()}
        case None:
            return None
    return type(tree)(_put(v, values) for v in tree)
