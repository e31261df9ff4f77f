# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A function's records as text: what is printed before and after a pass."""

from collections.abc import Iterator

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.function import (
    BUFFERS,
    CONSTANTS,
    SELF,
    Allocate,
    Argument,
    CodeAddress,
    NativeBlock,
    NativeBranch,
    NativeFunction,
    NativeLoop,
    NativeWhile,
    Node,
    RoutineCall,
)


def text_of(function: NativeFunction) -> str:
    """Print a function, a node a line, blocks indented."""
    names = function.names
    arguments = [a.name for a in (*function.kernel.inputs, *function.kernel.shared)]
    head = f"kernel @{function.kernel.name}({', '.join(arguments)}) {{"
    notes = [f"// {note}" for note in function.notes]
    return "\n".join([*notes, head, *(f"  {line}" for line in _block(function.body, names)), "}"])


def _block(block: NativeBlock, names: dict[int, str]) -> Iterator[str]:
    for node in block.nodes:
        yield from _node(node, names)


def _node(node: Node, names: dict[int, str]) -> Iterator[str]:
    def indented(*blocks: NativeBlock) -> Iterator[str]:
        for block in blocks:
            yield from (f"  {line}" for line in _block(block, names))
    match node:
        case Allocate(buffer):
            yield f"buffer{buffer.number} = allocate({buffer.size})" + " zeroed" * buffer.zeroed
        case NativeLoop():
            low, high, step = (form_text(form, names) for form in (node.low, node.high, node.step))
            variable = names.get(node.slot, f"%{node.slot}")
            yield f"for {variable} = {low} to {high} step {step}{' on pool' * node.on_pool} {{"
            yield from indented(node.body)
            yield "}"
        case NativeBranch():
            yield f"if {form_text(node.condition, names)} {{"
            yield from indented(node.then)
            if node.otherwise is not None:
                yield "} else {"
                yield from indented(node.otherwise)
            yield "}"
        case NativeWhile():
            yield "while {"
            yield from indented(node.test)
            yield f"}} {form_text(node.condition, names)} {{"
            yield from indented(node.body)
            yield "}"
        case RoutineCall():
            function = node.function if isinstance(node.function, str) else node.function.title
            yield f"{function}({', '.join(_argument(a, names) for a in node.arguments)})"


def _argument(argument: Argument, names: dict[int, str]) -> str:
    if isinstance(argument, CodeAddress):
        return argument.routine.title
    return form_text(argument, names) if isinstance(argument, Linear) else str(argument)


def form_text(form: Linear, names: dict[int, str]) -> str:
    """Print a form over slots: ``&%7`` is a slot's address."""
    def name(symbol: int) -> str:
        if symbol >= BUFFERS:
            return f"buffer{symbol - BUFFERS}"
        return names.get(symbol, f"%{symbol}" if symbol > CONSTANTS else f"constant{CONSTANTS - symbol}")
    if form.symbols == ((SELF, 1),):
        return f"&{name(form.const // 8)}"
    symbols = sorted(form.symbols, key=lambda term: term[0] < BUFFERS)          # buffers are in front
    terms = [name(s) if c == 1 else f"{c} * {name(s)}" for s, c in symbols]
    if form.const or not terms:
        terms.append(str(form.const))
    return " + ".join(terms)
